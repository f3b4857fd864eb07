// Pools: what is granted, segment by segment, and how far its end has come.
//
// A pool's charge is returned in one place, when the pool is removed; what could not be proven of
// it stays behind as a charge of its own. Ids keep the epoch of the life that gave them, so they
// are found by table and never by their number.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "daemon/directory/directory.h"
#include "daemon/session/quota.h"
#include "daemon/session/types.h"

namespace maru {

struct Session;

// A request whose answer waits for a fact. Dies with its connection; the work goes on.
struct Waiter {
    ConnectionId connection = 0;
    uint64_t request = 0;
    uint8_t kind = 0;  // by place in RequestBody, for the count of its result
};

enum class SegmentState : uint8_t {
    None,      // not made yet, or forgotten by its worker over a restart
    Creating,  // create_segment asked
    Created,   // its worker may map it; nothing may be committed into it
    Sealing,   // seal_segment asked
    Granted,   // sealed against new writers: commits may lie in it
    // The end, in this order: of the pool, or of a forgotten segment, which is then made anew.
    Proving,      // prove_segment asked
    StillMapped,  // answered so: asked again
    Proven,       // dropped
    Refused,      // will never be proven: dropped, its bytes stay charged
    Adopted,      // scope Host: marud's own now, with its charge
};

struct Segment {
    SegmentState state = SegmentState::None;
    bool held = false;  // marud has its descriptor
    bool huge = false;
    bool sealed = false;     // FUTURE_WRITE, once and for all: whatever `state` becomes later
    bool forgotten = false;  // unmapped by its worker over a restart; others may still map it
    SegmentIdentity identity;
    Quota::PoolCharge charge;  // scope Host: from GrantSegment on; else the pool's
    // GrantSegment while Creating or forgotten, SegmentMapped while Sealing.
    std::vector<Waiter> waiters;
};

enum class PoolState : uint8_t {
    Open,
    Closing,    // Drain or Force: no new commit or acquire
    Finishing,  // its worker says that it has unmapped: proofs run
    Orphaned,   // its worker is gone or fenced: proofs run until they end
};

struct Pool {
    wire::Id id = 0;
    PoolIndex index = 0;
    Session *owner = nullptr;  // outlives its pools
    wire::Medium medium = wire::Medium::Cpu;
    wire::Tier tier = wire::Tier::L1;
    wire::Scope scope = wire::Scope::Worker;
    wire::HugePages huge_pages = wire::HugePages::Off;
    wire::Numa numa = wire::Numa::Off;
    int32_t numa_node = -1;
    uint64_t asked_bytes = 0;
    uint64_t capacity_bytes = 0;
    uint64_t segment_bytes = 0;
    uint32_t page_bytes = 0;
    uint64_t request_key = 0;
    uint64_t first_generation = 0;

    PoolState state = PoolState::Open;
    bool visible = false;
    TimeNs opened = 0;
    std::vector<Segment> segments;
    Quota::PoolCharge charge;  // scope Host: none, its segments have their own
    wire::PoolGauge gauge;     // the worker's word, within bounds

    std::vector<Waiter> drain_waiters;   // ClosePool Force
    std::vector<Waiter> finish_waiters;  // ClosePool Finish
    TimeNs retry_at = 0;                 // Orphaned with StillMapped segments; 0: none due
    TimeNs retry_delay = 0;
    TimeNs proof_since = 0;  // when its end began: Finish was asked, or its worker was gone

    bool leaving = false;  // Finishing or Orphaned, and what is READY is adopted

    bool shared() const { return scope != wire::Scope::Worker; }
    uint64_t charged_bytes() const;
    bool proving() const { return state == PoolState::Finishing || state == PoolState::Orphaned; }
    uint64_t bytes_of(uint32_t segment) const;
    bool any_segment_made() const;
};

class PoolTable {
  public:
    // `index`: where the directory put it.
    Pool &add(PoolIndex index, std::unique_ptr<Pool> pool);
    void remove(Pool &pool);

    Pool *find(wire::Id id) const {
        auto found = by_id_.find(id);
        return found == by_id_.end() ? nullptr : found->second;
    }
    Pool *at(PoolIndex index) const {
        return index < slots_.size() ? slots_[index].get() : nullptr;
    }
    PoolIndex end() const { return static_cast<PoolIndex>(slots_.size()); }
    uint32_t size() const { return static_cast<uint32_t>(by_id_.size()); }
    uint32_t shared() const { return shared_; }  // how many of them are

    template <typename Fn>
    void each(Fn &&fn) const {
        for (size_t i = 0; i < slots_.size(); ++i)  // by index: fn may remove pools
            if (slots_[i])
                fn(*slots_[i]);
    }

  private:
    std::vector<std::unique_ptr<Pool>> slots_;
    std::unordered_map<wire::Id, Pool *> by_id_;
    uint32_t shared_ = 0;
};

}  // namespace maru
