// The next life of marud, shared memory: what its own record says is true, and what a worker says
// adds nothing to it.
//
// A worker may give up what the record has, and it may name memory that must not be reused while it
// is read; neither makes anything a hit.
#include <algorithm>
#include <cassert>
#include <map>

#include "daemon/protocol/service_impl.h"

namespace maru {
namespace {

// The state that a list of facts ends in.
struct Replay {
    std::map<uint32_t, RecordedNamespace> namespaces;
    std::map<wire::Id, std::map<uint64_t, RecordedObject>> objects;  // by pool and offset
    std::map<SegmentRef, RecordedAdoption> adopted;

    bool in_adopted(wire::Id pool, uint64_t offset) const {
        for (auto at = adopted.lower_bound({pool, 0});
             at != adopted.end() && at->first.pool == pool; ++at)
            if (offset >= at->second.first_offset &&
                offset - at->second.first_offset < at->second.bytes)
                return true;
        return false;
    }
    void operator()(const RecordedNamespace &fact) { namespaces[fact.number] = fact; }
    void operator()(const RecordedObject &fact) {
        objects[fact.item.pool][fact.item.offset] = fact;
    }
    void operator()(const RecordedRetirement &fact) {
        auto &of_pool = objects[fact.pool];
        auto found = of_pool.find(fact.offset);
        if (found != of_pool.end() && found->second.item.generation == fact.generation)
            of_pool.erase(found);
    }
    void operator()(const RecordedAdoption &fact) { adopted[fact.segment] = fact; }
    void operator()(const RecordedEnd &fact) {
        auto &of_pool = objects[fact.segment.pool];
        if (fact.segment.segment == UINT32_MAX) {
            std::erase_if(of_pool, [&](const auto &entry) {
                return !in_adopted(fact.segment.pool, entry.first);
            });
            return;
        }
        auto found = adopted.find(fact.segment);
        if (found == adopted.end())
            return;
        const uint64_t begin = found->second.first_offset, end = begin + found->second.bytes;
        of_pool.erase(of_pool.lower_bound(begin), of_pool.lower_bound(end));
        adopted.erase(found);
    }
};

}  // namespace

std::vector<RecordedAdoption> adoptions_in(std::span<const ObjectRecord> records) {
    std::map<SegmentRef, RecordedAdoption> adopted;
    for (const ObjectRecord &fact : records) {
        if (const auto *adoption = std::get_if<RecordedAdoption>(&fact))
            adopted[adoption->segment] = *adoption;
        else if (const auto *end = std::get_if<RecordedEnd>(&fact))
            adopted.erase(end->segment);
    }
    std::vector<RecordedAdoption> list;
    for (auto &[ref, adoption] : adopted)
        list.push_back(std::move(adoption));
    return list;
}

void Service::Impl::restore_objects(std::span<const ObjectRecord> records,
                                    std::span<const SegmentRef> held, bool sessions_lost) {
    restoring = true;
    readers_lost = sessions_lost;
    if (readers_lost)
        effects.log(4,
                    "a session record is lost, and its process may be reading shared memory: none "
                    "that was retired or adopted before is reused until marud starts again");
    Replay replay;
    for (const ObjectRecord &fact : records)
        std::visit(replay, fact);

    std::map<uint32_t, NamespaceIndex> indices;
    for (const auto &[number, fact] : replay.namespaces) {
        NamespaceIndex ns = 0;
        if (directory.register_namespace(fact.uid, fact.text, &ns) != wire::Status::Ok)
            continue;
        if (fact.object_bytes)
            directory.describe_namespace(ns, fact.object_bytes, fact.format);
        indices[number] = ns;
    }
    for (const auto &[ref, fact] : replay.adopted) {
        auto &of_pool = replay.objects[ref.pool];
        const auto begin = of_pool.lower_bound(fact.first_offset);
        const auto end = of_pool.lower_bound(fact.first_offset + fact.bytes);
        // Without a store it ended with the last life of marud, which alone held it.
        if (std::find(held.begin(), held.end(), ref) != held.end() &&
            fact.bytes % std::max(fact.page_bytes, 1u) == 0 && fact.page_bytes && fact.bytes) {
            AdoptedSegment kept;
            kept.ref = ref;
            kept.uid = fact.uid;
            kept.first_offset = fact.first_offset;
            kept.bytes = fact.bytes;
            kept.segment_bytes = fact.segment_bytes;
            kept.page_bytes = fact.page_bytes;
            kept.huge = fact.huge;
            kept.identity = fact.identity;
            kept.engine = fact.engine;
            kept.since = now;
            WorkerAccount nobody;
            kept.charge = quota.recorded_pool(fact.uid, nobody, fact.bytes, 1);
            kept.charge.keep_only(fact.bytes, 1);
            kept.index = directory.add_pool({.id = ref.pool,
                                             .owner = 0,
                                             .domain = host_domain(fact.uid),
                                             .scope = wire::Scope::Host,
                                             .capacity_bytes = fact.bytes,
                                             .segment_bytes = fact.bytes,
                                             .page_bytes = fact.page_bytes,
                                             .first_offset = fact.first_offset});
            directory.grant_segment(kept.index, 0);
            for (auto at = begin; at != end; ++at)
                if (auto ns = indices.find(at->second.ns); ns != indices.end())
                    directory.republish(ns->second, kept.index, at->second.item, false);
            // Second copies of one object are RETIRING now; they go when their readers are known.
            adopted_segments.add(std::move(kept));
        }
        of_pool.erase(begin, end);
    }
    for (auto &[pool, objects] : replay.objects)
        for (auto &[offset, object] : objects)
            if (auto ns = indices.find(object.ns); ns != indices.end())
                recorded_objects[pool].push_back({ns->second, object.item});
}

// The last session is restored: what nobody can be reading goes.
void Service::Impl::restored() {
    restoring = false;
    recorded_objects.clear();  // of pools that no session record names
    pools.each([&](const Pool &pool) {
        if (pool.shared())
            directory.queue_drained(pool.index);
    });
    adopted_segments.each([&](AdoptedSegment &kept) {
        directory.queue_drained(kept.index);
        drop_if_over(kept);
    });
    distribute_drained();
    if (!unknown_by_uid.empty())
        note_deadline(expected_back_until);
}

// Into a pool that was restored just now, and is hidden until its worker is back.
void Service::Impl::restore_pool_objects(Pool &pool) {
    auto found = recorded_objects.find(pool.id);
    if (found == recorded_objects.end())
        return;
    for (const RecordedObject &object : found->second)
        directory.republish(object.ns, pool.index, object.item, false);
    recorded_objects.erase(found);
}

// Where the directory has that part of a pool: what is adopted of it is a pool of its own there.
PoolIndex Service::Impl::place_of(const wire::CommitItem &item) const {
    if (const AdoptedSegment *kept = adopted_segments.holding(item.pool, item.offset))
        return kept->index;
    const Pool *pool = pools.find(item.pool);
    return pool ? pool->index : kNoPool;
}

// A worker's own pool of scope Host.
wire::Status Service::Impl::republish_shared(Session &session, Pool &pool, NamespaceIndex ns,
                                             const wire::RepublishItem &item,
                                             wire::Id *ret_replica) {
    auto same = directory.find_at(ns, pool.index, item.item);
    wire::ReplicaName name;
    if (same) {
        name = same->name;
        if (item.retiring == 1 && same->state == ReplicaState::Ready) {
            directory.retire(name, session.holder);
            record_retirement(*same, pool.id);
        } else if (item.retiring != 1 && same->state == ReplicaState::Retiring) {
            session.retired_unheard.push_back(name);
        }
    } else if (item.retiring == 2) {
        return wire::Status::Absent;
    } else {
        bool believed = MARU_MUTANT(WorkersWordBelieved);
        wire::CommitResult result =
            directory.republish(ns, pool.index, item.item, !believed || item.retiring == 1);
        if (result.status != wire::Status::Ok)
            return result.status;
        name = {result.replica, item.item.generation};
        if (item.retiring != 1 && !believed)
            session.retired_unheard.push_back(name);
    }
    wire::Status status = directory.set_lease(session.holder, name, item.lease_count,
                                              static_cast<uint32_t>(now / kSecond));
    if (status != wire::Status::Ok)
        return status;
    // Retired before its own readers had told of themselves: Reclaim follows when they have finished.
    if (item.lease_count)
        session.reclaimable.erase(name.replica);
    session.named.insert(name.replica);
    *ret_replica = name.replica;
    return wire::Status::Ok;
}

// Its pages are as they were when marud died: it commits nothing before it has told everything.
static bool not_back(const Session &owner) {
    return owner.state == SessionState::Recorded || owner.state == SessionState::Restoring ||
           owner.state == SessionState::Fenced;
}

// Memory of another session of the uid, or marud's: this one has been reading it.
wire::Status Service::Impl::republish_foreign(Session &session, NamespaceIndex ns,
                                              const wire::RepublishItem &item,
                                              wire::Id *ret_replica) {
    Pool *pool = pools.find(item.item.pool);
    if (pool && (pool->owner->uid != session.uid || !pool->shared()))
        return wire::Status::Denied;
    const AdoptedSegment *kept = adopted_segments.holding(item.item.pool, item.item.offset);
    if (kept && kept->uid != session.uid)
        return wire::Status::NotFound;
    const PoolIndex index = place_of(item.item);
    if (auto known = directory.find_at(ns, index, item.item)) {
        // Nobody has waited for one without a view: what is RETIRING may be written to by now.
        if (known->state != ReplicaState::Ready && !session.leases_unknown)
            return wire::Status::NotFound;
        *ret_replica = known->name.replica;
        return directory.set_lease(session.holder, known->name, item.lease_count,
                                   static_cast<uint32_t>(now / kSecond));
    }
    // Retired before, and read still: its owner, who is not back either, must not reuse the pages, and
    // an adopted segment must not go.
    const bool told_in_time = session.leases_unknown && (kept || (pool && not_back(*pool->owner)));
    if (!told_in_time || !item.lease_count)
        return wire::Status::NotFound;
    wire::CommitResult result = directory.republish(ns, index, item.item, true);
    if (result.status != wire::Status::Ok)
        return wire::Status::NotFound;
    *ret_replica = result.replica;
    return directory.set_lease(session.holder, {result.replica, item.item.generation},
                               item.lease_count, static_cast<uint32_t>(now / kSecond));
}

// The worker has told everything. What it did not name it does not have: marud takes the pages back
// by itself when nobody reads them.
void Service::Impl::retire_unnamed(Session &session) {
    std::vector<Directory::ReplicaView> unnamed;
    for (PoolIndex index : session.pools) {
        const Pool &pool = *pools.at(index);
        if (!pool.shared())
            continue;
        directory.each_replica(index, [&](const Directory::ReplicaView &view) {
            if (!session.named.contains(view.name.replica))
                unnamed.push_back(view);
        });
        for (const Directory::ReplicaView &view : unnamed) {
            if (view.state == ReplicaState::Ready) {
                directory.retire(view.name, UINT32_MAX);
                record_retirement(view, pool.id);
            }
            session.unnamed[view.name.replica] = view.name.generation;
        }
        unnamed.clear();
        directory.queue_drained(index);
    }
    session.named.clear();
}

void Service::Impl::tell_retired_unheard(Session &session) {
    std::span<const wire::ReplicaName> rest(session.retired_unheard);
    while (!rest.empty() && session.connection) {
        auto part = rest.first(std::min<size_t>(rest.size(), wire::kMaxBatchItems));
        event(session.connection, {wire::EventKind::Retired, part, {}});
        rest = rest.subspan(part.size());
    }
    session.retired_unheard.clear();
}

}  // namespace maru
