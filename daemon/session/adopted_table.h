// Adopted segments: memory that outlived its worker, kept by marud for the sessions of one uid.
//
// Each is immutable (F_SEAL_WRITE was granted on it) and ends as a whole: when its last replica is
// retired and its last lease has ended. Until then its charge stays, the unused tail included. It is
// a pool of its own in the directory; on the wire it keeps the pool and segment it came from.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "daemon/directory/directory.h"
#include "daemon/session/quota.h"
#include "daemon/session/types.h"

namespace maru {

struct AdoptedSegment {
    SegmentRef ref;
    PoolIndex index = 0;
    uint32_t uid = 0;
    uint64_t first_offset = 0, bytes = 0;  // where in its pool
    uint64_t segment_bytes = 0;            // of its pool
    uint32_t page_bytes = 0;
    bool huge = false;
    SegmentIdentity identity;
    std::string engine;  // whose it was, for people
    TimeNs since = 0;
    Quota::PoolCharge charge;
};

class AdoptedTable {
  public:
    AdoptedSegment &add(AdoptedSegment segment) {
        auto owned = std::make_unique<AdoptedSegment>(std::move(segment));
        AdoptedSegment &added = *owned;
        by_index_[added.index] = &added;
        by_ref_[added.ref] = std::move(owned);
        return added;
    }
    void remove(AdoptedSegment &segment) {
        by_index_.erase(segment.index);
        by_ref_.erase(SegmentRef(segment.ref));
    }
    AdoptedSegment *at(PoolIndex index) const {
        auto found = by_index_.find(index);
        return found == by_index_.end() ? nullptr : found->second;
    }
    AdoptedSegment *find(SegmentRef ref) const {
        auto found = by_ref_.find(ref);
        return found == by_ref_.end() ? nullptr : found->second.get();
    }
    // The one that has this byte of its pool.
    AdoptedSegment *holding(wire::Id pool, uint64_t offset) const {
        const AdoptedSegment *any = from({pool, 0});  // they are all of one size, but for the last
        if (!any || any->ref.pool != pool || !any->segment_bytes)
            return nullptr;
        const uint64_t number = offset / any->segment_bytes;
        AdoptedSegment *found =
            number < UINT32_MAX ? find({pool, static_cast<uint32_t>(number)}) : nullptr;
        const bool inside =
            found && offset >= found->first_offset && offset - found->first_offset < found->bytes;
        return inside ? found : nullptr;
    }
    // The first segment at or after `ref`; for a pool's segments and for listings.
    AdoptedSegment *from(SegmentRef ref) const {
        auto found = by_ref_.lower_bound(ref);
        return found == by_ref_.end() ? nullptr : found->second.get();
    }
    size_t size() const { return by_ref_.size(); }
    // Above every index; where listings by place end.
    PoolIndex end() const { return by_index_.empty() ? 0 : by_index_.rbegin()->first + 1; }

    // fn may remove the segment it is given.
    template <typename Fn>
    void each(Fn &&fn) const {
        for (auto at = by_ref_.begin(); at != by_ref_.end();) {
            AdoptedSegment &segment = *at->second;
            ++at;
            fn(segment);
        }
    }

  private:
    std::map<SegmentRef, std::unique_ptr<AdoptedSegment>> by_ref_;  // in order, for listings
    std::map<PoolIndex, AdoptedSegment *> by_index_;
};

}  // namespace maru
