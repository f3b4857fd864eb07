// CommitLedger: every commit that was sent and whose fate is not known yet, by operation id.
//
// Operation ids are a counter. The lowest id without a fate pins the watermark that goes with every
// request: all below it are acknowledged and forgotten on both sides. A record keeps everything
// needed to ask again or to send again, without the caller. Guarded by the session's lock.
#pragma once

#include <cassert>
#include <cstdint>
#include <vector>

#include "libmaru/client/clock.h"
#include "libmaru/pool/page_allocator.h"
#include "libmaru/wire/records.h"

namespace maru::client {

class CommitOp;
struct Namespace;
class Pool;

struct CommitRecord {
    CommitOp *op = nullptr;  // who waits for it; nullptr: the caller has gone
    uint32_t index = 0;      // in op
    bool settled = false;
    Namespace *ns = nullptr;
    Pool *pool = nullptr;
    wire::Key key;
    pool::PageRun run;
    TimeNs ask_at = kNever;  // when to ask marud for its fate on the open connection
};

class CommitLedger {
  public:
    uint64_t next_id() const { return next_; }
    uint64_t lowest_unsettled() const { return base_; }  // next_id() when there is none
    uint64_t watermark() const { return base_ - 1; }
    size_t span() const { return next_ - base_; }  // what marud must remember
    uint64_t unsettled() const { return unsettled_; }

    // A new one, to be filled in before the next is added. Its id is next_id() of before.
    CommitRecord &add() {
        if (span() == ring_.size())
            grow();
        ++unsettled_;
        return at(next_++) = CommitRecord{};
    }
    uint64_t add(const CommitRecord &record) {
        add() = record;
        return next_ - 1;
    }
    // nullptr: never given, or settled and forgotten.
    CommitRecord *find(uint64_t id) {
        if (id < base_ || id >= next_)
            return nullptr;
        CommitRecord &record = at(id);
        return record.settled ? nullptr : &record;
    }
    void settle(uint64_t id) {
        CommitRecord *record = find(id);
        assert(record);
        record->settled = true;
        --unsettled_;
        while (base_ < next_ && at(base_).settled)
            ++base_;
    }

  private:
    CommitRecord &at(uint64_t id) { return ring_[id & (ring_.size() - 1)]; }
    void grow() {
        std::vector<CommitRecord> larger(ring_.empty() ? 256 : 2 * ring_.size());
        for (uint64_t id = base_; id < next_; ++id)
            larger[id & (larger.size() - 1)] = at(id);
        ring_.swap(larger);
    }

    uint64_t base_ = 1, next_ = 1;
    uint64_t unsettled_ = 0;
    std::vector<CommitRecord> ring_;  // a power of two; the place of an id is its low bits
};

}  // namespace maru::client
