#include "daemon/session/pool_table.h"

#include <algorithm>
#include <cassert>

namespace maru {

uint64_t Pool::bytes_of(uint32_t segment) const {
    uint64_t start = uint64_t{segment} * segment_bytes;
    return std::min(segment_bytes, capacity_bytes - start);
}

uint64_t Pool::charged_bytes() const {
    uint64_t sum = charge.bytes();
    for (const Segment &segment : segments)
        sum += segment.charge.bytes();
    return sum;
}

bool Pool::any_segment_made() const {
    return std::any_of(segments.begin(), segments.end(),
                       [](const Segment &s) { return s.state != SegmentState::None; });
}

Pool &PoolTable::add(PoolIndex index, std::unique_ptr<Pool> pool) {
    if (index >= slots_.size())
        slots_.resize(index + 1);
    assert(!slots_[index] && !by_id_.contains(pool->id));
    pool->index = index;
    slots_[index] = std::move(pool);
    by_id_[slots_[index]->id] = slots_[index].get();
    shared_ += slots_[index]->shared();
    return *slots_[index];
}

void PoolTable::remove(Pool &pool) {
    PoolIndex index = pool.index;
    assert(at(index) == &pool);
    by_id_.erase(pool.id);
    shared_ -= pool.shared();
    slots_[index].reset();
}

}  // namespace maru
