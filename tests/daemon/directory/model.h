// A directory of a few maps and loops: slow, plain, and written from the comments of directory.h
// alone. The real one must answer every question as this one does.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "daemon/directory/directory.h"

namespace maru {

class Model {
  public:
    using Status = wire::Status;

    struct Replica {
        wire::ReplicaName name;
        NamespaceIndex ns;
        wire::Key key;
        PoolIndex pool;
        uint64_t offset, length;
        bool ready;
        std::map<HolderIndex, uint32_t> leases;
        uint64_t sum() const {
            uint64_t total = 0;
            for (const auto &[holder, count] : leases)
                total += count;
            return total;
        }
    };
    struct Pool {
        PoolSpec spec;
        bool visible = true, closing = false;
        std::set<uint32_t> granted;
        std::map<uint64_t, uint64_t> generations;  // by page of the pool
    };

    std::map<PoolIndex, Pool> pools;
    std::vector<Replica> replicas;
    std::vector<wire::ReplicaName> gone;  // names that no longer name anything
    std::map<NamespaceIndex, uint64_t> object_bytes;
    std::map<HolderIndex, uint32_t> host_domains;
    std::map<HolderIndex, std::set<uint64_t>> unconfirmed;  // replica ids
    std::map<uint64_t, PoolIndex> drained;                  // by replica id

    bool may_read(HolderIndex reader, PoolIndex pool) const {
        const Pool &of = pools.at(pool);
        if (of.spec.owner == reader)
            return true;
        const auto domain = host_domains.find(reader);
        return of.spec.scope != wire::Scope::Worker && domain != host_domains.end() &&
               domain->second != 0 && domain->second == of.spec.domain;
    }
    bool readable(HolderIndex reader, const Replica &replica) const {
        const Pool &pool = pools.at(replica.pool);
        return replica.ready && pool.visible && !pool.closing && pool.spec.tier == wire::Tier::L1 &&
               may_read(reader, replica.pool);
    }
    std::vector<Replica *> readable_of(HolderIndex reader, NamespaceIndex ns,
                                       const wire::Key &key) {
        std::vector<Replica *> found;
        for (Replica &replica : replicas)
            if (replica.ns == ns && replica.key == key && readable(reader, replica))
                found.push_back(&replica);
        return found;
    }
    Replica *find(const wire::ReplicaName &name) {
        for (Replica &replica : replicas)
            if (replica.name.replica == name.replica && replica.name.generation == name.generation)
                return &replica;
        return nullptr;
    }

    // What commit or republish must answer; Ok and a replica id when that one is it already.
    struct Verdict {
        Status status;
        std::vector<wire::Id> any_of;  // AlreadyPresent: one of these; Ok: this one, if any
    };
    Verdict judge(NamespaceIndex ns, PoolIndex pool_index, const wire::CommitItem &item,
                  bool republish) const {
        const auto found = pools.find(pool_index);
        if (found == pools.end() || !object_bytes.count(ns))
            return {Status::NotFound, {}};
        const Pool &pool = found->second;
        if (item.length == 0 || item.generation == 0)
            return {Status::InvalidArgument, {}};
        if (!republish && (!pool.visible || pool.closing))
            return {Status::Unavailable, {}};
        const PoolSpec &spec = pool.spec;
        using wide = unsigned __int128;
        const wide end = static_cast<wide>(item.offset) + item.length;
        const wide page_end = (end + spec.page_bytes - 1) / spec.page_bytes * spec.page_bytes;
        const wide segment = item.offset / spec.segment_bytes;
        if (item.offset % spec.page_bytes || page_end > spec.capacity_bytes ||
            page_end > (segment + 1) * spec.segment_bytes ||
            !pool.granted.count(static_cast<uint32_t>(segment)))
            return {Status::Conflict, {}};
        if (object_bytes.at(ns) && object_bytes.at(ns) != item.length)
            return {Status::Incompatible, {}};
        for (const Replica &replica : replicas)
            if (replica.ns == ns && replica.key == item.key && replica.length != item.length)
                return {Status::Incompatible, {}};
        for (const Replica &replica : replicas) {
            if (replica.pool != pool_index || !overlaps(spec, replica, item))
                continue;
            if (republish && replica.ns == ns && replica.key == item.key &&
                replica.offset == item.offset && replica.name.generation == item.generation)
                return {Status::Ok, {replica.name.replica}};
            return {Status::Conflict, {}};
        }
        for (const auto &[page, generation] : pool.generations)
            if (page >= item.offset / spec.page_bytes && page * spec.page_bytes < end &&
                generation >= item.generation)
                return {Status::Conflict, {}};
        if (republish)
            return {Status::Ok, {}};
        std::vector<wire::Id> present;
        for (const Replica &replica : replicas) {
            const Pool &other = pools.at(replica.pool);
            if (replica.ns == ns && replica.key == item.key && replica.ready && other.visible &&
                !other.closing && other.spec.domain == spec.domain &&
                may_read(spec.owner, replica.pool))
                present.push_back(replica.name.replica);
        }
        if (!present.empty())
            return {Status::AlreadyPresent, present};
        return {Status::Ok, {}};
    }
    bool surplus(NamespaceIndex ns, PoolIndex pool, const wire::Key &key) const {
        const PoolSpec &spec = pools.at(pool).spec;
        return std::any_of(replicas.begin(), replicas.end(), [&](const Replica &replica) {
            const PoolSpec &other = pools.at(replica.pool).spec;
            return replica.ns == ns && replica.key == key && replica.ready &&
                   other.domain == spec.domain && other.owner == spec.owner;
        });
    }
    void add(NamespaceIndex ns, PoolIndex pool, const wire::CommitItem &item, wire::Id id,
             bool ready) {
        replicas.push_back(
            {{id, item.generation}, ns, item.key, pool, item.offset, item.length, ready, {}});
        Pool &of = pools.at(pool);
        const uint64_t first = item.offset / of.spec.page_bytes;
        for (uint64_t page = first; page * of.spec.page_bytes < item.offset + item.length; ++page)
            of.generations[page] = item.generation;
    }
    void retire(Replica &replica) { replica.ready = false; }
    void drain_if_unread(const Replica &replica) {
        if (!replica.ready && replica.leases.empty())
            drained[replica.name.replica] = replica.pool;
    }
    void remove(const wire::ReplicaName &name) {
        gone.push_back(name);
        drained.erase(name.replica);
        for (auto &[holder, ids] : unconfirmed)
            ids.erase(name.replica);
        replicas.erase(std::find_if(replicas.begin(), replicas.end(), [&](const Replica &replica) {
            return replica.name.replica == name.replica;
        }));
    }
    void end_lease(Replica &replica, HolderIndex holder) {
        unconfirmed[holder].erase(replica.name.replica);
        if (replica.leases.erase(holder))
            drain_if_unread(replica);
    }
    void drop_holder(HolderIndex holder, bool only_unconfirmed) {
        for (Replica &replica : replicas)
            if (!only_unconfirmed || unconfirmed[holder].count(replica.name.replica))
                end_lease(replica, holder);
        unconfirmed[holder].clear();
    }
    uint64_t held_by(HolderIndex holder) const {
        uint64_t total = 0;
        for (const Replica &replica : replicas)
            if (const auto it = replica.leases.find(holder); it != replica.leases.end())
                total += it->second;
        return total;
    }

  private:
    static bool overlaps(const PoolSpec &spec, const Replica &replica,
                         const wire::CommitItem &item) {
        const uint64_t page = spec.page_bytes;
        const uint64_t a = item.offset / page,
                       a_end = (item.offset + item.length + page - 1) / page;
        const uint64_t b = replica.offset / page;
        const uint64_t b_end = (replica.offset + replica.length + page - 1) / page;
        return a < b_end && b < a_end;
    }
};

}  // namespace maru
