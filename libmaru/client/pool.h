// Pool: a grant of memory, mapped segment by segment, and the allocator over it.
//
// A segment is asked for, mapped, bound, and reported to marud; only then may a commit name it.
// Pages are handed out as they are populated, by the populator's thread. A segment that marud did
// not confirm before it was restarted is forgotten and asked for again: the new marud would not
// accept it. Descriptors of confirmed segments are kept until the pool is closed for good, so that
// a new marud can be given them, also while the pool is half closed.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "libmaru/client/fork_guard.h"
#include "libmaru/client/pool_pins.h"
#include "libmaru/client/session.h"
#include "libmaru/pool/memory_environment.h"
#include "libmaru/pool/numa.h"
#include "libmaru/pool/page_allocator.h"
#include "libmaru/pool/populate.h"
#include "libmaru/pool/segment.h"

namespace maru::client {

struct PoolOptions {
    uint64_t capacity_bytes = 0;
    uint64_t page_bytes = 64 * 1024;
    wire::Medium medium = wire::Medium::Cpu;
    wire::Scope scope = wire::Scope::Worker;
    wire::HugePages huge_pages = wire::HugePages::Off;
    wire::Numa numa = wire::Numa::Off;
    int32_t numa_node = -1;
    bool wait_populated = false;
    uint64_t margin_bytes = pool::kDefaultMarginBytes;
};

class Pool {
  public:
    // Result value: the pool, owned by the session.
    static Result<Pool *> open(Session &session, const PoolOptions &options);
    ~Pool();

    enum class Close {
        Drained,
        Forced,
        Left,  // scope host: unmapped here, and what is published stays with marud
    };
    // 0: gone from the session and deleted.
    static Outcome close(Pool &pool, Close mode, TimeNs deadline);

    Session &session() const { return session_; }
    wire::Id id() const { return id_; }
    bool shared() const { return options_.scope != wire::Scope::Worker; }
    pool::PageAllocator &allocator() const { return *allocator_; }
    const std::byte *at(uint64_t offset) const { return place(offset); }
    std::byte *place(uint64_t offset) const {
        return base_[offset / segment_bytes_] + offset % segment_bytes_;
    }

    Outcome reserve(uint64_t length, std::span<pool::PageRun> runs);
    Outcome wait_populated(uint32_t timeout_ms);
    pool::Populator::Progress progress() const;
    // Registers with CUDA what is populated of [offset, offset + length) and is not registered yet.
    // The value: how much of that range is registered now. Ends with the pool's memory.
    Outcome register_cuda(const cuda::Driver &driver, uint64_t offset, uint64_t length,
                          uint64_t piece_bytes, int device);

    // What did not go as asked while open() succeeded; empty: nothing.
    const std::string &warning() const { return warning_; }

    struct Info {
        wire::Usage usage;
        uint64_t swapped_bytes = 0, backing_page_bytes = 0;
        int32_t numa_node = -1;
        bool populating = false;
        int populate_result = 0;
        uint32_t segment_count = 0;
    };
    Info info();

    // ---- under the session's lock
    uint32_t leases = 0;  // of this process, on objects of this pool
    // Commits without a known fate.
    uint64_t unsettled() const;
    // For a new marud: what to tell and to pass. Nothing before the reply to open.
    bool granted() const { return allocator_ != nullptr; }
    wire::AttachPoolRequest attach_request(uint32_t first, std::vector<int> &fds) const;
    uint32_t confirmed_segments() const { return confirmed_; }
    bool closing() const { return closing_; }
    Outcome busy_with() const;  // leases, reservations, unknown commits: EBUSY
    wire::PoolGauge gauge() const;

  private:
    Pool(Session &session, const PoolOptions &options);
    // `patience`: of the first one the end of it, of others how long a refusal is asked about again.
    Result<pool::PopulateRange> open_segment(uint32_t index, TimeNs patience);
    Result<pool::PopulateRange> try_segment(uint32_t index, bool *again);
    struct Opening;
    // One question to marud; the result is in `opening`.
    static void ask_grant(Session &session, Lock &lock, const PoolOptions &options,
                          const std::shared_ptr<Opening> &opening, TimeNs deadline);
    bool take_grant(const wire::PoolReply &reply);
    static void abandon(Session &session, wire::Id id);

    // Scope host: the populator opens a segment when less than half of one is free.
    Result<pool::PopulateRange> open_wanted(uint32_t index);
    void want_more();
    bool filling() const;  // under feed_mutex_: more memory is on its way
    std::string why_full() const;
    static bool may_be_granted_later(int code);

    Outcome drain(Lock &lock, Close mode, TimeNs deadline);
    void unmap(Lock &lock);
    Outcome finish(Lock &lock, Close mode, TimeNs deadline);

    Session &session_;
    const PoolOptions options_;
    uint64_t request_key_ = 0;

    wire::Id id_ = 0;
    uint64_t capacity_bytes_ = 0, segment_bytes_ = 1;
    uint32_t segment_count_ = 0;
    std::unique_ptr<pool::PageAllocator> allocator_;

    // Written by the thread that opens segments; read by others only for admitted pages, so the
    // allocator's lock orders them.
    std::unique_ptr<std::byte *[]> base_;
    std::vector<std::optional<pool::Segment>> segments_;
    PoolPins pins_;  // after the segments: gone before they are
    // Under the session's lock.
    uint32_t confirmed_ = 0;  // leading segments that marud may be passed again
    std::vector<std::unique_ptr<TrackedFd>> kept_;  // their descriptors
    bool close_running_ = false, closing_ = false, drained_ = false, unmapped_ = false;
    bool left_ = false;  // its objects stay in the held table until marud has them
    uint64_t swapped_bytes_ = 0, backing_page_bytes_ = 0;
    TimeNs backing_read_ = 0;

    std::string warning_;  // written once, by open()
    std::atomic<int> node_{-1};
    std::atomic<bool> stop_{false};
    // Scope host: how many segments are wanted, and how many are there, populated.
    mutable std::mutex feed_mutex_;
    mutable std::condition_variable feed_changed_;
    uint32_t wanted_ = 1, filled_ = 0;
    bool asked_again_ = false;
    Error refused_;                             // of the last segment that marud did not grant
    std::optional<pool::PopulateRange> first_;  // opened by open(), for the populator's first step
    std::unique_ptr<pool::MemoryEnvironment> environment_;
    std::unique_ptr<pool::Populator> populator_;
};

}  // namespace maru::client
