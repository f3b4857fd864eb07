// How leases end: by release, by the end of their holder, or with a session that comes back and
// does not name them. Never by a clock.
#include "daemon/directory/impl.h"
#include "daemon/directory/mutant.h"

namespace maru {

using directory::Replica;
using wire::Status;

void Directory::Impl::queue_if_drained(uint32_t slot) {
    Replica &replica = replicas[slot];
    if (replica.state != ReplicaState::Retiring || replica.leases || replica.drained ||
        gates[replica.pool].leaving)
        return;
    replica.drained = true;
    drained.push_back(slot);
}

bool Directory::Impl::release_one(HolderIndex holder, uint32_t slot) {
    if (MARU_MUTANT(DoubleReleaseAccepted) && !leases.count(holder, slot)) {
        if (!replicas[slot].leases)
            return true;
        holder = leases.a_holder_of(slot);
    }
    if (!leases.remove_one(holder, slot))
        return false;
    ended(slot, 1);
    return true;
}

Status Directory::release(HolderIndex holder, const wire::ReplicaName &name) {
    const Impl::Named named = impl_->resolve(name);
    if (named.status != Status::Ok)
        return named.status;
    return impl_->release_one(holder, named.slot) ? Status::Ok : Status::NotFound;
}

Status Directory::set_lease(HolderIndex holder, const wire::ReplicaName &name, uint32_t count,
                            uint32_t now_s) {
    Impl &impl = *impl_;
    const Impl::Named named = impl.resolve(name);
    if (named.status != Status::Ok)
        return named.status;
    Replica &replica = impl.replicas[named.slot];
    if (!impl.may_read(holder, replica.pool))
        return Status::Denied;
    const uint32_t before = impl.leases.set(holder, named.slot, count, now_s);
    if (count && !impl.leases.count(holder, named.slot))
        return Status::Quota;
    impl.pools[replica.pool]->leases += count;
    if (before)
        impl.ended(named.slot, before);
    return Status::Ok;
}

uint32_t Directory::lease_count(HolderIndex holder, const wire::ReplicaName &name) const {
    const Impl::Named named = impl_->resolve(name);
    return named.status == Status::Ok ? impl_->leases.count(holder, named.slot) : 0;
}

void Directory::drop_holder(HolderIndex holder) {
    while (true) {
        const directory::LeaseTable::Ended lease = impl_->leases.end_any(holder);
        if (lease.replica == kNone)
            return;
        impl_->ended(lease.replica, lease.count);
    }
}

uint64_t Directory::holder_leases(HolderIndex holder) const {
    return impl_->leases.held_by(holder);
}

void Directory::begin_lease_restore(HolderIndex holder) { impl_->leases.mark_unconfirmed(holder); }

void Directory::end_lease_restore(HolderIndex holder) {
    while (true) {
        const directory::LeaseTable::Ended lease = impl_->leases.end_unconfirmed(holder);
        if (lease.replica == kNone)
            return;
        impl_->ended(lease.replica, lease.count);
    }
}

std::vector<DrainedReplica> Directory::take_drained() {
    Impl &impl = *impl_;
    std::vector<DrainedReplica> taken;
    for (const uint32_t slot : impl.drained) {
        // What was reclaimed meanwhile is not flagged; what is leased again was restored, and will
        // be queued again when that lease ends.
        Replica &replica = impl.replicas[slot];
        if (!replica.drained)
            continue;
        replica.drained = false;
        if (!replica.leases && !impl.gates[replica.pool].leaving)
            taken.push_back({replica.pool, impl.name_of(slot)});
    }
    impl.drained.clear();
    return taken;
}

}  // namespace maru
