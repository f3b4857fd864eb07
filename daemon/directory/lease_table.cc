#include "daemon/directory/lease_table.h"

#include <cassert>

namespace maru::directory {

uint32_t LeaseTable::find_in_crowd(HolderIndex holder, uint32_t replica) const {
    return table_.find(hash_(holder, replica), [&](uint32_t slot) {
        return leases_[slot].holder == holder && leases_[slot].replica == replica;
    });
}

inline uint32_t LeaseTable::find(HolderIndex holder, uint32_t replica) const {
    const Replica &on = replicas_[replica];
    if (on.crowded)
        return find_in_crowd(holder, replica);
    for (uint32_t slot = on.first_lease; slot != kNone;
         slot = ReplicaRing::next(leases_, on.first_lease, slot))
        if (leases_[slot].holder == holder)
            return slot;
    return kNone;
}

uint32_t LeaseTable::count(HolderIndex holder, uint32_t replica) const {
    const uint32_t slot = find(holder, replica);
    return slot == kNone ? 0 : leases_[slot].count;
}

bool LeaseTable::crowd(uint32_t replica) {
    Replica &on = replicas_[replica];
    uint32_t few = 0;
    for (uint32_t slot = on.first_lease; slot != kNone;
         slot = ReplicaRing::next(leases_, on.first_lease, slot))
        ++few;
    if (few < kFew)
        return true;
    for (uint32_t slot = on.first_lease; slot != kNone;
         slot = ReplicaRing::next(leases_, on.first_lease, slot)) {
        if (table_.insert(hash_(leases_[slot].holder, replica), slot))
            continue;
        for (uint32_t other = on.first_lease; other != slot;
             other = ReplicaRing::next(leases_, on.first_lease, other))
            table_.erase(hash_(leases_[other].holder, replica), other);
        return false;
    }
    on.crowded = true;
    return true;
}

uint32_t LeaseTable::create(HolderIndex holder, uint32_t replica, uint32_t now_s) {
    if (holder >= holders_.size())
        holders_.resize(static_cast<size_t>(holder) + 1);
    Replica &on = replicas_[replica];
    if (!on.crowded && on.first_lease != kNone && !crowd(replica))
        return kNone;
    const uint32_t slot = leases_.allocate();
    if (on.crowded && !table_.insert(hash_(holder, replica), slot)) {
        leases_.release(slot);
        return kNone;
    }
    Lease &lease = leases_[slot];
    lease.holder = holder;
    lease.replica = replica;
    lease.count = 1;
    lease.since_s = now_s;
    HolderRing::push_back(leases_, holders_[holder].first, slot);
    ReplicaRing::push_back(leases_, on.first_lease, slot);
    ++holders_[holder].leases;
    ++on.leases;
    ++total_;
    return slot;
}

void LeaseTable::change(uint32_t slot, uint32_t count) {
    Lease &lease = leases_[slot];
    Holder &holder = holders_[lease.holder];
    Replica &replica = replicas_[lease.replica];
    const uint64_t delta = uint64_t{count} - lease.count;  // modulo 2^64: also downwards
    holder.leases += delta;
    replica.leases += delta;
    total_ += delta;
    lease.count = count;
    if (count)
        return;
    // Which ring it is on matters only if it is a head.
    HolderRing::remove(leases_, slot == holder.unconfirmed ? holder.unconfirmed : holder.first,
                       slot);
    ReplicaRing::remove(leases_, replica.first_lease, slot);
    if (replica.crowded) {
        table_.erase(hash_(lease.holder, lease.replica), slot);
        replica.crowded = replica.first_lease != kNone;
    }
    leases_.release(slot);
}

void LeaseTable::confirm(Holder &holder, uint32_t slot) {
    if (holder.unconfirmed == kNone)
        return;
    HolderRing::remove(leases_, slot == holder.unconfirmed ? holder.unconfirmed : holder.first,
                       slot);
    HolderRing::push_back(leases_, holder.first, slot);
}

bool LeaseTable::add_one(HolderIndex holder, uint32_t replica, uint32_t now_s) {
    const uint32_t slot = find(holder, replica);
    if (slot == kNone)
        return create(holder, replica, now_s) != kNone;
    confirm(holders_[holder], slot);
    if (leases_[slot].count == UINT32_MAX)
        return false;
    change(slot, leases_[slot].count + 1);
    return true;
}

bool LeaseTable::remove_one(HolderIndex holder, uint32_t replica) {
    const uint32_t slot = find(holder, replica);
    if (slot == kNone)
        return false;
    change(slot, leases_[slot].count - 1);
    return true;
}

uint32_t LeaseTable::set(HolderIndex holder, uint32_t replica, uint32_t count, uint32_t now_s) {
    uint32_t slot = find(holder, replica);
    if (slot != kNone) {
        confirm(holders_[holder], slot);
        const uint32_t before = leases_[slot].count;
        change(slot, count);
        return before;
    }
    if (count && (slot = create(holder, replica, now_s)) != kNone)
        change(slot, count);
    return 0;
}

void LeaseTable::mark_unconfirmed(HolderIndex holder) {
    if (holder < holders_.size())
        HolderRing::splice(leases_, holders_[holder].unconfirmed, holders_[holder].first);
}

LeaseTable::Ended LeaseTable::end_lease(uint32_t slot) {
    if (slot == kNone)
        return {};
    const Ended ended{leases_[slot].replica, leases_[slot].count};
    change(slot, 0);
    return ended;
}

LeaseTable::Ended LeaseTable::end_unconfirmed(HolderIndex holder) {
    if (holder >= holders_.size())
        return {};
    return end_lease(holders_[holder].unconfirmed);
}

LeaseTable::Ended LeaseTable::end_any(HolderIndex holder) {
    if (holder >= holders_.size())
        return {};
    const Holder &of = holders_[holder];
    return end_lease(of.first != kNone ? of.first : of.unconfirmed);
}

uint64_t LeaseTable::end_all(uint32_t replica) {
    const uint64_t ended = replicas_[replica].leases;
    while (replicas_[replica].first_lease != kNone)
        change(replicas_[replica].first_lease, 0);
    assert(!replicas_[replica].leases);
    return ended;
}

size_t LeaseTable::memory_bytes() const {
    return leases_.memory_bytes() + table_.memory_bytes() + holders_.capacity() * sizeof(Holder);
}

const char *LeaseTable::check_invariants() const {
    uint64_t live = 0, total = 0, tabled = 0;
    std::vector<uint64_t> by_holder(holders_.size());
    for (uint32_t slot = 0; slot < leases_.end(); ++slot) {
        const Lease &lease = leases_[slot];
        if (!lease.count)
            continue;
        ++live;
        total += lease.count;
        if (lease.holder >= holders_.size())
            return "a lease of an unknown holder";
        if (lease.replica >= replicas_.end() ||
            replicas_[lease.replica].state == ReplicaState::Free)
            return "a lease on a free replica";
        if (find(lease.holder, lease.replica) != slot)
            return "a lease that is not found";
        tabled += replicas_[lease.replica].crowded;
        by_holder[lease.holder] += lease.count;
    }
    if (live != leases_.live())
        return "leases and their slots differ in number";
    if (tabled != table_.size())
        return "the leases on crowded replicas and their table differ in number";
    if (total != total_)
        return "the total of leases is not their sum";
    uint64_t on_rings = 0;
    for (size_t holder = 0; holder < holders_.size(); ++holder) {
        if (by_holder[holder] != holders_[holder].leases)
            return "the leases of a holder are not their sum";
        for (uint32_t head : {holders_[holder].first, holders_[holder].unconfirmed}) {
            for (uint32_t slot = head; slot != kNone;
                 slot = HolderRing::next(leases_, head, slot)) {
                if (leases_[slot].holder != holder || !leases_[slot].count)
                    return "a foreign lease on the ring of a holder";
                if (++on_rings > live)
                    return "more leases on the rings of holders than there are";
            }
        }
    }
    if (on_rings != live)
        return "a lease is missing on the ring of its holder";
    on_rings = 0;
    for (uint32_t replica = 0; replica < replicas_.end(); ++replica) {
        if (replicas_[replica].state == ReplicaState::Free)
            continue;
        uint64_t sum = 0;
        uint32_t length = 0;
        const uint32_t head = replicas_[replica].first_lease;
        for (uint32_t slot = head; slot != kNone; slot = ReplicaRing::next(leases_, head, slot)) {
            if (leases_[slot].replica != replica || !leases_[slot].count)
                return "a foreign lease on the ring of a replica";
            if (++on_rings > live)
                return "more leases on the rings of replicas than there are";
            sum += leases_[slot].count;
            ++length;
        }
        if (replicas_[replica].crowded ? !length : length > kFew)
            return "a replica is crowded without leases, or is not and has many";
        if (sum != replicas_[replica].leases)
            return "the leases of a replica are not their sum";
    }
    return on_rings == live ? nullptr : "a lease is missing on the ring of its replica";
}

}  // namespace maru::directory
