// check_invariants: counts everything again, from the replicas up. For tests and the simulation.
#include <algorithm>

#include "daemon/directory/impl.h"

namespace maru {

using directory::NamespaceRecord;
using directory::NamespaceRing;
using directory::Object;
using directory::ObjectRing;
using directory::PageMap;
using directory::Pool;
using directory::PoolRing;
using directory::Replica;

std::string Directory::Impl::check_objects() const {
    uint64_t live = 0;
    for (uint32_t slot = 0; slot < objects.end(); ++slot) {
        const Object &object = objects[slot];
        const std::string who = "object " + std::to_string(slot);
        if (!object.ns)
            continue;
        ++live;
        if (!namespaces.contains(object.ns))
            return who + " is in a namespace that does not exist";
        if (Impl::find_object(object.ns, object.key) != slot)
            return who + " is not found under its key";
        if (object.first_replica == kNone)
            return who + " has no replica";
        if (object.first_pool != replicas[object.first_replica].pool ||
            object.first_state != replicas[object.first_replica].state)
            return who + " and its first replica differ";
        bool retiring = false;
        uint64_t steps = 0, retired = 0;
        const uint32_t head = object.first_replica;
        for (uint32_t r = head; r != kNone; r = ObjectRing::next(replicas, head, r)) {
            if (replicas[r].object != slot || replicas[r].state == ReplicaState::Free)
                return who + " has a replica that is not its own";
            if (replicas[r].length != replicas[head].length)
                return who + " has replicas of two lengths";
            if (retiring && replicas[r].state == ReplicaState::Ready)
                return who + " has a READY replica behind a RETIRING one";
            retiring = replicas[r].state == ReplicaState::Retiring;
            retired += retiring;
            if (++steps > replicas.live())
                return who + " has an endless ring of replicas";
        }
        if (retired != object.retiring)
            return who + " counts its RETIRING replicas wrongly";
    }
    if (live != objects.live() || live != table.size())
        return "objects, their slots and their table differ in number";
    uint64_t in_namespaces = 0;
    for (NamespaceIndex ns = 1; ns <= namespaces.size(); ++ns) {
        const NamespaceRecord &record = namespaces[ns];
        uint64_t on_ring = 0;
        bool over = false;
        for (uint32_t slot = record.first_object; slot != kNone;
             slot = NamespaceRing::next(objects, record.first_object, slot)) {
            if (objects[slot].ns != ns)
                return "namespace " + std::to_string(ns) + " has an object of another";
            if (++on_ring > live)
                return "namespace " + std::to_string(ns) + " has an endless ring of objects";
            if (over && objects[slot].first_state == ReplicaState::Ready)
                return "namespace " + std::to_string(ns) +
                       " has an object that can be found behind one that cannot";
            over = objects[slot].first_state != ReplicaState::Ready;
        }
        if (on_ring != record.objects)
            return "namespace " + std::to_string(ns) + " counts its objects wrongly";
        in_namespaces += on_ring;
    }
    return in_namespaces == live ? "" : "an object is missing in its namespace";
}

std::string Directory::Impl::check_replicas() const {
    uint64_t live = 0;
    std::vector<uint64_t> in_namespace(namespaces.size() + 1);
    for (uint32_t slot = 0; slot < replicas.end(); ++slot) {
        const Replica &replica = replicas[slot];
        const std::string who = "replica " + std::to_string(slot + 1);
        if (replica.state == ReplicaState::Free) {
            if (replica.drained)
                return who + " is free, but queued as drained";
            continue;
        }
        ++live;
        if (replica.object >= objects.end() || !objects[replica.object].ns)
            return who + " has no object";
        if (replica.pool >= pools.size() || !pools[replica.pool])
            return who + " is in a pool that does not exist";
        const Object &object = objects[replica.object];
        ++in_namespace[object.ns];
        uint64_t steps = 0;
        uint32_t r = object.first_replica;
        while (r != kNone && r != slot && ++steps <= replicas.live())
            r = ObjectRing::next(replicas, object.first_replica, r);
        if (r != slot)
            return who + " is missing at its object";
        const Pool &pool = *pools[replica.pool];
        const PageMap &pages = pool.pages;
        const std::optional<PageMap::Range> range = pool.locate(replica.offset, replica.length);
        if (!range)
            return who + " lies outside its pool";
        if (!pages.is_used(*range))
            return who + " lies on pages that count as free";
        if (pages.is_newer(*range, replica.generation))
            return who + " has a generation above that of its pages";
        if (replica.drained && replica.state != ReplicaState::Retiring)
            return who + " is queued as drained, but not RETIRING";
    }
    if (live != replicas.live())
        return "replicas and their slots differ in number";
    for (NamespaceIndex ns = 1; ns <= namespaces.size(); ++ns)
        if (in_namespace[ns] != namespaces[ns].replicas)
            return "namespace " + std::to_string(ns) + " counts its replicas wrongly";
    return "";
}

std::string Directory::Impl::check_pools() const {
    uint64_t in_pools = 0, leased = 0;
    for (PoolIndex index = 0; index < pools.size(); ++index) {
        const std::string who = "pool " + std::to_string(index);
        if (!pools[index]) {
            if (gates[index].open || gates[index].visible)
                return who + " is gone, but its gate is open";
            continue;
        }
        const Pool &pool = *pools[index];
        const directory::PoolGate &gate = gates[index];
        const bool visible = pool.visible && !pool.closing && !pool.leaving;
        if (gate.owner != (pool.leaving ? 0 : pool.spec.owner) || gate.visible != visible ||
            gate.open != (visible && pool.spec.tier == wire::Tier::L1) ||
            gate.leaving != pool.leaving)
            return who + " and its gate differ";
        Pool recount(pool.spec);
        std::vector<std::pair<uint64_t, uint64_t>> ranges;
        for (uint32_t segment = 0; segment < pool.first_replica.size(); ++segment) {
            const uint32_t head = pool.first_replica[segment];
            bool retiring = false;
            for (uint32_t slot = head; slot != kNone; slot = PoolRing::next(replicas, head, slot)) {
                const Replica &replica = replicas[slot];
                if (replica.pool != index || replica.state == ReplicaState::Free ||
                    pool.segment_of(replica.offset) != segment)
                    return who + " has a replica that is not its own";
                if (++recount.replicas > replicas.live())
                    return who + " has an endless ring of replicas";
                if (retiring && replica.state == ReplicaState::Ready)
                    return who + " has a READY replica behind a RETIRING one";
                retiring = replica.state == ReplicaState::Retiring;
                recount.leases += replica.leases;
                if (replica.state == ReplicaState::Ready) {
                    recount.ready_bytes += replica.length;
                    recount.ready_allocated_bytes += page_bytes_of(replica);
                } else {
                    recount.retiring_bytes += page_bytes_of(replica);
                }
                ranges.emplace_back(replica.offset, page_bytes_of(replica));
            }
        }
        if (recount.replicas != pool.replicas || recount.leases != pool.leases)
            return who + " counts its replicas or leases wrongly";
        if (recount.ready_bytes != pool.ready_bytes ||
            recount.ready_allocated_bytes != pool.ready_allocated_bytes ||
            recount.retiring_bytes != pool.retiring_bytes)
            return who + " counts its bytes wrongly";
        std::sort(ranges.begin(), ranges.end());
        uint64_t pages = 0;
        for (size_t i = 0; i < ranges.size(); ++i) {
            if (i && ranges[i - 1].first + ranges[i - 1].second > ranges[i].first)
                return who + " has two replicas on one page";
            pages += ranges[i].second / pool.spec.page_bytes;
        }
        if (pages != pool.pages.used_pages())
            return who + " has pages in use that no replica has, or the reverse";
        in_pools += pool.replicas;
        leased += pool.leases;
    }
    if (in_pools != replicas.live())
        return "a replica is missing in its pool";
    return leased == leases.total() ? "" : "the leases of all pools are not all leases";
}

std::string Directory::check_invariants() const {
    for (std::string wrong :
         {impl_->check_replicas(), impl_->check_objects(), impl_->check_pools()})
        if (!wrong.empty())
            return wrong;
    const char *wrong = impl_->leases.check_invariants();
    return wrong ? wrong : "";
}

}  // namespace maru
