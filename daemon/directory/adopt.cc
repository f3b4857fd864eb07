// Adoption: one segment of a pool becomes a pool of its own, with what is READY or read in it.
//
// Names stay as they are. Readers of other sessions hold leases by (replica, generation), and will
// release them, or tell them again after a lost connection, under these; and the bytes, their place
// and their generation are the same, so that a name still means one memory only.
#include <algorithm>
#include <cassert>

#include "daemon/directory/impl.h"

namespace maru {

using directory::ObjectRing;
using directory::PageMap;
using directory::Pool;
using directory::PoolRing;
using directory::Replica;
using directory::ReplicaEvent;

void Directory::set_host_domain(HolderIndex holder, uint32_t domain) {
    if (impl_->host_domains.size() <= holder)
        impl_->host_domains.resize(holder + 1);
    impl_->host_domains[holder] = domain;
}

void Directory::revoke_segment(PoolIndex pool_index, uint32_t segment) {
    Impl &impl = *impl_;
    assert(impl.pool_exists(pool_index));
    Pool &pool = *impl.pools[pool_index];
    while (pool.first_replica[segment] != kNone)
        impl.forget(pool.first_replica[segment], ReplicaEvent::Remove);
    pool.pages.revoke(segment);
}

PoolIndex Directory::adopt_segment(PoolIndex pool_index, uint32_t segment, bool even_empty) {
    Impl &impl = *impl_;
    assert(impl.pool_exists(pool_index));
    if (std::count(impl.to_retire.begin(), impl.to_retire.end(), pool_index))
        retire_segment(pool_index, segment, [](PoolIndex, const wire::ReplicaName &, bool) {});
    for (uint32_t slot = impl.pools[pool_index]->first_replica[segment]; slot != kNone;) {
        const uint32_t next =
            PoolRing::next(impl.replicas, impl.pools[pool_index]->first_replica[segment], slot);
        if (impl.replicas[slot].state == ReplicaState::Retiring && !impl.replicas[slot].leases)
            impl.forget(slot, ReplicaEvent::Reclaim);
        slot = next;
    }
    if (impl.pools[pool_index]->first_replica[segment] == kNone && !even_empty)
        return kNoPool;
    PoolSpec spec = impl.pools[pool_index]->spec;
    const uint64_t skipped = segment * spec.segment_bytes;
    spec.owner = 0;
    spec.first_offset += skipped;
    spec.capacity_bytes = std::min(spec.segment_bytes, spec.capacity_bytes - skipped);
    spec.segment_bytes = spec.capacity_bytes;
    const PoolIndex adopted = add_pool(spec);
    grant_segment(adopted, 0);
    while (impl.pools[pool_index]->first_replica[segment] != kNone)
        impl.move_replica(impl.pools[pool_index]->first_replica[segment], adopted);
    return adopted;
}

void Directory::Impl::move_replica(uint32_t slot, PoolIndex to_index) {
    Replica &replica = replicas[slot];
    Pool &from = *pools[replica.pool];
    Pool &to = *pools[to_index];
    const std::optional<PageMap::Range> old_range = from.locate(replica.offset, replica.length);
    const std::optional<PageMap::Range> new_range = to.locate(replica.offset, replica.length);
    assert(old_range && new_range);
    from.pages.release(*old_range);
    to.pages.occupy(*new_range, replica.generation);
    PoolRing::remove(replicas, from.first_replica[from.segment_of(replica.offset)], slot);
    PoolRing::push(replicas, to.first_replica[to.segment_of(replica.offset)], slot,
                   replica.state == ReplicaState::Ready);
    const uint64_t pages = page_bytes_of(replica);
    --from.replicas;
    ++to.replicas;
    from.leases -= replica.leases;
    to.leases += replica.leases;
    if (replica.state == ReplicaState::Ready) {
        from.ready_bytes -= replica.length;
        to.ready_bytes += replica.length;
        from.ready_allocated_bytes -= pages;
        to.ready_allocated_bytes += pages;
    } else {
        from.retiring_bytes -= pages;
        to.retiring_bytes += pages;
    }
    replica.pool = to_index;
    refresh_first(replica.object);
}

}  // namespace maru
