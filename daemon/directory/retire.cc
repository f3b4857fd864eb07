// Retire and reclaim: READY -> RETIRING -> FREED, and the end of a whole pool.
//
// What there may be a million of goes in steps: a call does the first, sweep() the others. The rings
// have what is READY in front, so that each step goes on where the last one stopped.
#include "daemon/directory/impl.h"
#include "daemon/directory/mutant.h"

namespace maru {

using directory::NamespaceRing;
using directory::Object;
using directory::ObjectRing;
using directory::PageMap;
using directory::Pool;
using directory::PoolRing;
using directory::Replica;
using directory::ReplicaEvent;
using wire::Status;

uint64_t Directory::Impl::page_bytes_of(const Replica &replica) const {
    const Divisor &page = pools[replica.pool]->page_bytes;
    return page.ceiling(replica.length) * page.value();
}

void Directory::Impl::refresh_first(uint32_t slot) {
    Object &object = objects[slot];
    const Replica &first = replicas[object.first_replica];
    const bool ready = first.state == ReplicaState::Ready;
    object.first_pool = first.pool;
    if (ready != (object.first_state == ReplicaState::Ready)) {
        uint32_t &head = namespaces[object.ns].first_object;
        NamespaceRing::remove(objects, head, slot);
        NamespaceRing::push(objects, head, slot, ready);
    }
    object.first_state = first.state;
}

void Directory::Impl::retire(uint32_t slot) {
    Replica &replica = replicas[slot];
    directory::transition(replica.state, ReplicaEvent::Retire);
    Object &object = objects[replica.object];
    ObjectRing::remove(replicas, object.first_replica, slot);
    ObjectRing::push_back(replicas, object.first_replica, slot);
    object.retiring = object.retiring + 1;
    refresh_first(replica.object);
    Pool &pool = *pools[replica.pool];
    uint32_t &head = pool.first_replica[pool.segment_of(replica.offset)];
    PoolRing::remove(replicas, head, slot);
    PoolRing::push_back(replicas, head, slot);
    pool.ready_bytes -= replica.length;
    pool.ready_allocated_bytes -= page_bytes_of(replica);
    pool.retiring_bytes += page_bytes_of(replica);
}

void Directory::Impl::forget(uint32_t slot, ReplicaEvent event) {
    Replica &replica = replicas[slot];
    Pool &pool = *pools[replica.pool];
    Object &object = objects[replica.object];
    if (replica.state == ReplicaState::Ready) {
        pool.ready_bytes -= replica.length;
        pool.ready_allocated_bytes -= page_bytes_of(replica);
    } else {
        pool.retiring_bytes -= page_bytes_of(replica);
        object.retiring = object.retiring - 1;
    }
    pool.leases -= leases.end_all(slot);
    if (const std::optional<PageMap::Range> range = pool.locate(replica.offset, replica.length))
        pool.pages.release(*range);
    directory::transition(replica.state, event);
    replica.drained = false;
    PoolRing::remove(replicas, pool.first_replica[pool.segment_of(replica.offset)], slot);
    --pool.replicas;
    --namespaces[object.ns].replicas;
    ObjectRing::remove(replicas, object.first_replica, slot);
    if (object.first_replica == kNone)
        remove_object(replica.object);
    else
        refresh_first(replica.object);
    replicas.release(slot);
}

void Directory::Impl::remove_object(uint32_t slot) {
    Object &object = objects[slot];
    directory::NamespaceRecord &ns = namespaces[object.ns];
    table.erase(hash_of(object.ns, object.key), slot);
    NamespaceRing::remove(objects, ns.first_object, slot);
    --ns.objects;
    object.ns = 0;
    objects.release(slot);
}

Status Directory::retire(const wire::ReplicaName &name, HolderIndex owner) {
    Impl &impl = *impl_;
    const Impl::Named named = impl.resolve(name);
    if (named.status != Status::Ok)
        return named.status;
    const Replica &replica = impl.replicas[named.slot];
    if (owner != UINT32_MAX && impl.gates[replica.pool].owner != owner)
        return Status::Denied;
    if (replica.state == ReplicaState::Ready)
        impl.retire(named.slot);
    return replica.leases && !MARU_MUTANT(RetireIgnoresReaders) ? Status::Pending : Status::Ok;
}

Status Directory::reclaim(const wire::ReplicaName &name, HolderIndex owner) {
    Impl &impl = *impl_;
    const Impl::Named named = impl.resolve(name);
    if (named.status != Status::Ok)
        return named.status;
    const Replica &replica = impl.replicas[named.slot];
    if (owner != UINT32_MAX && impl.gates[replica.pool].owner != owner)
        return Status::Denied;
    if (replica.state != ReplicaState::Retiring)
        return Status::InvalidArgument;
    if (replica.leases && !MARU_MUTANT(ReuseBeforeRelease))
        return Status::Busy;
    impl.forget(named.slot, ReplicaEvent::Reclaim);
    return Status::Ok;
}

uint64_t Directory::retire_segment(PoolIndex pool_index, uint32_t segment, const RetireFn &fn,
                                   uint64_t most) {
    Impl &impl = *impl_;
    if (!impl.pool_exists(pool_index) || segment >= impl.pools[pool_index]->first_replica.size())
        return 0;
    uint64_t retired = 0;
    const uint32_t &head = impl.pools[pool_index]->first_replica[segment];
    for (; retired < most && impl.is_ready(head); ++retired) {
        const uint32_t slot = head;
        impl.retire(slot);
        fn(pool_index, impl.name_of(slot), impl.replicas[slot].leases != 0);
    }
    return retired;
}

void Directory::queue_drained(PoolIndex pool_index) {
    Impl &impl = *impl_;
    if (!impl.pool_exists(pool_index))
        return;
    for (const uint32_t head : impl.pools[pool_index]->first_replica)
        for (uint32_t slot = head; slot != kNone; slot = PoolRing::next(impl.replicas, head, slot))
            impl.queue_if_drained(slot);
}

uint64_t Directory::retire_object(NamespaceIndex ns, const wire::Key *key, const RetireFn &fn,
                                  uint64_t most) {
    Impl &impl = *impl_;
    if (!impl.namespaces.contains(ns))
        return 0;
    uint64_t retired = 0;
    const auto retire_all = [&](const Object &object) {
        while (retired < most && impl.is_ready(object.first_replica)) {
            const uint32_t slot = object.first_replica;
            impl.retire(slot);
            if (impl.gates[impl.replicas[slot].pool].leaving)
                continue;  // nobody is to be told of it
            ++retired;
            fn(impl.replicas[slot].pool, impl.name_of(slot), impl.replicas[slot].leases != 0);
        }
    };
    if (key) {
        if (const uint32_t object = impl.find_object(ns, *key); object != kNone)
            retire_all(impl.objects[object]);
        return retired;
    }
    const uint32_t &head = impl.namespaces[ns].first_object;
    while (retired < most && head != kNone && impl.objects[head].first_state == ReplicaState::Ready)
        retire_all(impl.objects[head]);
    return retired;
}

void Directory::retire_pool(PoolIndex pool_index) {
    if (!impl_->pool_exists(pool_index))
        return;
    std::erase(impl_->to_retire, pool_index);  // asked for twice is done once
    impl_->to_retire.push_back(pool_index);
    sweep();
}

void Directory::remove_pool(PoolIndex pool_index) {
    Impl &impl = *impl_;
    if (!impl.pool_exists(pool_index))
        return;
    impl.pools[pool_index]->leaving = true;
    impl.set_gate(pool_index);
    std::erase(impl.to_retire, pool_index);
    impl.to_remove.push_back(pool_index);
    sweep();
}

bool Directory::sweeping() const { return !impl_->to_remove.empty() || !impl_->to_retire.empty(); }

bool Directory::sweep() {
    Impl &impl = *impl_;
    uint32_t left = kSwept;
    while (!impl.to_remove.empty()) {
        const PoolIndex index = impl.to_remove.back();
        for (const uint32_t &head : impl.pools[index]->first_replica)
            for (; head != kNone; impl.forget(head, ReplicaEvent::Remove))
                if (left-- == 0)
                    return true;
        impl.pools[index].reset();
        impl.gates[index] = {};
        impl.free_pools.push_back(index);
        impl.to_remove.pop_back();
    }
    while (!impl.to_retire.empty()) {
        for (const uint32_t &head : impl.pools[impl.to_retire.back()]->first_replica)
            for (; impl.is_ready(head); impl.retire(head))
                if (left-- == 0)
                    return true;
        impl.to_retire.pop_back();
    }
    return false;
}

}  // namespace maru
