// Puts memory behind a pool, in the background, before any page of it is handed out.
//
// In steps of 16 MiB, each only if host, node and cgroups keep a margin after it: past a cgroup's
// limit the kernel kills instead of failing. Short of memory the pool stays smaller, for good, and
// says why. Base pages become 2 MiB ones as they are made, where the kernel has any.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "libmaru/base/result.h"
#include "libmaru/pool/memory_environment.h"

namespace maru::pool {

inline constexpr uint64_t kPopulateStepBytes = 16 * 1024 * 1024;
inline constexpr uint64_t kDefaultMarginBytes = 256 * 1024 * 1024;

struct PopulateRange {
    std::byte *data = nullptr;
    uint64_t bytes = 0;
    int node = -1;      // bound to; its free memory is watched
    bool huge = false;  // hugetlb: reserved already, and never collapsed
};

struct PopulateOptions {
    uint64_t margin_bytes = kDefaultMarginBytes;
    bool collapse = true;
};

// Makes 2 MiB pages of a range that is not populated yet. Gives up after a few refusals, across the
// ranges of a pool.
class Collapser {
  public:
    void collapse(MemoryEnvironment &environment, std::byte *data, uint64_t bytes);
    bool given_up() const { return failures_ >= kMaxFailures; }

  private:
    static constexpr int kMaxFailures = 4;
    int failures_ = 0;  // in a row
};

// Populates one range. step(n): its first n bytes are ready. Returns when done, short (ENOMEM),
// failed, or asked to stop (ECANCELED).
Result<void> populate_range(const PopulateRange &range, const PopulateOptions &options,
                            MemoryEnvironment &environment, Collapser &collapser,
                            const std::atomic<bool> &stop,
                            const std::function<void(uint64_t)> &step);

// One thread that populates the segments of one pool in order. A forked child has not got the thread: it
// must leak this object, not destroy it.
class Populator {
  public:
    // Both are called on the populator's thread, never after stop() has returned.
    struct Hooks {
        // Grants, maps and binds the segment; its error ends the population and is its result.
        std::function<Result<PopulateRange>(uint32_t segment)> open;
        // The first `usable` bytes of the segment are populated: admit them.
        std::function<void(uint32_t segment, uint64_t usable)> ready;
    };
    struct Progress {
        bool running = false;
        uint64_t populated_bytes = 0;
        Error result;  // code 0: nothing went wrong
    };

    // `environment` is borrowed and outlives this.
    Populator(uint32_t segment_count, PopulateOptions options, Hooks hooks,
              MemoryEnvironment &environment);
    ~Populator() { stop(); }
    Populator(const Populator &) = delete;
    Populator &operator=(const Populator &) = delete;

    // EAGAIN when the system has no thread for it.
    Result<void> start();
    // Asks and waits: at most one step, or one open(). Idempotent; not from a hook.
    void stop();
    bool stopping() const { return stop_.load(std::memory_order_relaxed); }
    Progress progress() const;
    // True: it has ended (whatever the result).
    bool wait(std::chrono::milliseconds timeout) const;

  private:
    void run();

    const uint32_t segment_count_;
    const PopulateOptions options_;
    const Hooks hooks_;
    MemoryEnvironment &environment_;
    std::atomic<bool> stop_{false};
    mutable std::mutex mutex_;
    mutable std::condition_variable ended_;
    Progress progress_;
    std::thread thread_;
};

}  // namespace maru::pool
