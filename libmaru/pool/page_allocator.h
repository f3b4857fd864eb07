// PageAllocator: which pages of one pool are handed out, and in what state.
//
// Only admitted bytes are ever handed out: admission follows population, so a store never meets an
// empty page. A run lies in one segment. Generations only grow, so (offset, generation) never names
// two allocations; a descriptor that is foreign, stale, already freed or in another state is refused
// and changes nothing. Thread-safe: one mutex, held for a few hundred nanoseconds a run.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "libmaru/base/divisor.h"
#include "libmaru/base/result.h"
#include "libmaru/pool/allocation_state.h"
#include "libmaru/pool/free_runs.h"
#include "libmaru/wire/messages.h"

namespace maru::pool {

// One allocation. All three must match when it is named again.
struct PageRun {
    uint64_t offset = 0;  // bytes from the start of the pool; page-aligned
    uint64_t length = 0;  // logical bytes; whole pages are charged
    uint64_t generation = 0;
    auto operator<=>(const PageRun &) const = default;
};

enum class RunStatus : uint8_t {
    Ok,
    NotFound,         // no allocation starts there: foreign, or freed already
    StaleGeneration,  // another allocation lives there now
    WrongState,       // it is that allocation, but the event has no edge from its state
};

enum class ReserveStatus : uint8_t {
    Ok,
    Full,     // no run of that size is free among the admitted pages
    TooLong,  // no segment of this pool can ever hold it
    Invalid,  // length 0
    Closed,
};

class PageAllocator {
  public:
    struct Config {
        uint64_t capacity_bytes = 0;  // PoolReply's
        uint64_t segment_bytes = 0;
        uint64_t page_bytes = 0;
        uint64_t first_generation = 1;
        uint64_t reserved_bytes = 0;  // backing reserved, rounding included; 0: capacity_bytes
    };
    // EINVAL when the sizes do not fit together.
    static Result<std::unique_ptr<PageAllocator>> create(const Config &config);

    // The first `usable_bytes` of a segment may be handed out from now on. Only grows; a smaller value
    // changes nothing; a partial page at the end stays out. EINVAL: no such segment, or beyond its end.
    Result<void> admit(uint32_t segment, uint64_t usable_bytes);
    uint64_t admitted_bytes(uint32_t segment) const;

    // One run of `length` bytes into each element of `out`: all or none. Multiples of 2 MiB are
    // aligned to 2 MiB as long as an aligned run is free.
    ReserveStatus reserve(uint64_t length, std::span<PageRun> out);

    // Moves one allocation along its table.
    RunStatus apply(AllocationEvent event, const PageRun &run);
    // The same for each; statuses (if not empty) has one per run. Returns how many were Ok.
    size_t apply(AllocationEvent event, std::span<const PageRun> runs,
                 std::span<RunStatus> statuses = {});
    // The same, but nothing changes unless every run can go; the first refusal otherwise.
    RunStatus apply_all(AllocationEvent event, std::span<const PageRun> runs);

    // Free when the run is not allocated now under this generation.
    AllocationState state(const PageRun &run) const;
    // The allocations in a state, by offset: what a forced close retires, a new marud is told again.
    std::vector<PageRun> list(AllocationState state) const;
    // How many allocations are in a state (not Free).
    uint64_t count(AllocationState state) const;

    // No reservation succeeds while closed; everything else goes on.
    void set_closed(bool closed);

    // capacity, reserved, allocated, ready, ready_allocated, quarantined, retiring, populated (what is
    // admitted) and replicas (Ready). The owner adds pinned_bytes; leases are not known here.
    wire::Usage usage() const;
    // What the next allocation gets: told to a new marud with the pool.
    uint64_t next_generation() const;

    uint64_t page_bytes() const { return config_.page_bytes; }
    uint64_t segment_bytes() const { return config_.segment_bytes; }
    uint64_t capacity_bytes() const { return config_.capacity_bytes; }
    uint32_t segment_count() const { return segment_count_; }

  private:
    struct Slot {  // of the first page of an allocation
        uint64_t generation = 0;
        uint32_t length = 0;
        AllocationState state = AllocationState::Free;
        bool claimed = false;  // inside apply_all() only
    };
    struct Tally {
        uint64_t runs = 0;
        uint64_t pages = 0;
        uint64_t bytes = 0;  // logical
    };

    explicit PageAllocator(const Config &config);
    RunStatus apply_locked(AllocationEvent event, const PageRun &run);
    Slot *find(const PageRun &run, RunStatus *status);
    void move(Slot &slot, const PageRun &run, AllocationState to);
    uint32_t pages_of(uint64_t length) const;
    void account(AllocationState from, AllocationState to, uint64_t length, uint32_t pages);
    uint32_t pages_per_segment() const { return static_cast<uint32_t>(pages_per_segment_.value()); }
    Slot &slot_of(uint32_t page) {  // whose segment has slots
        return slots_[pages_per_segment_.quotient(page)][pages_per_segment_.remainder(page)];
    }

    const Config config_;
    const Divisor page_bytes_;
    const uint32_t segment_count_;
    const Divisor pages_per_segment_;
    mutable std::mutex mutex_;
    bool closed_ = false;
    uint64_t next_generation_;
    uint64_t admitted_bytes_ = 0;
    std::vector<uint32_t> admitted_pages_;        // per segment
    std::vector<std::unique_ptr<Slot[]>> slots_;  // per segment, made at its first admission
    FreeRuns free_;
    std::array<Tally, 6> tallies_;  // by state
};

}  // namespace maru::pool
