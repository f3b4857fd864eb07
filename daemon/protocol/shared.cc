// Shared memory: pools of scope Host while their worker lives, and what marud keeps of them after.
//
// Everybody of the uid reads, and only the worker writes. When the worker is gone each segment is
// adopted by itself, as soon as F_SEAL_WRITE says that nothing can write it any more; until then
// nothing in it is a hit. An adopted segment never changes and never gives back a part: it goes, and
// its charge returns, when its last replica is retired and its last lease has ended.
//
// After a restart of marud a worker that is not back may be reading: until all of the uid are, or
// are gone, no page that was lent before may be reused and no adopted segment goes.
#include <algorithm>
#include <cassert>

#include "daemon/protocol/service_impl.h"

namespace maru {

uint32_t Service::Impl::host_domain(uint32_t uid) {
    uint32_t &domain = host_domains[uid];
    if (!domain)
        domain = ++next_domain;
    return domain;
}

std::optional<Service::Impl::Keeper> Service::Impl::keeper_of(PoolIndex index) const {
    if (const Pool *pool = pools.at(index))
        return Keeper{pool->id, pool->owner->uid, pool->owner->engine, pool->owner, nullptr};
    if (const AdoptedSegment *adopted_segment = adopted_segments.at(index))
        return Keeper{adopted_segment->ref.pool, adopted_segment->uid, adopted_segment->engine,
                      nullptr, adopted_segment};
    return std::nullopt;
}

// ---- readers
// -------------------------------------------------------------------------------------

void Service::Impl::on(Call &call, const wire::MapSegmentRequest &request) {
    Session &session = *call.session();
    std::optional<Directory::ReplicaView> view;
    if (directory.lease_count(session.holder, request.lease))
        view = directory.find_replica(request.lease);
    if (!view) {
        refuse(call, wire::Status::NotFound, "this session has no such lease: Acquire comes first");
        return;
    }
    wire::ViewReply answer;
    SegmentRef ref;
    if (const AdoptedSegment *kept = adopted_segments.at(view->pool)) {
        ref = kept->ref;
        answer = {ref.pool, ref.segment, kept->first_offset, kept->bytes, kept->huge};
    } else {
        const Pool &pool = *pools.at(view->pool);
        if (!pool.shared()) {
            refuse(call, wire::Status::InvalidArgument,
                   "that lease is on this session's private pool, which it has mapped already");
            return;
        }
        auto number = static_cast<uint32_t>(view->offset / pool.segment_bytes);
        const Segment &segment = pool.segments[number];
        ref = {pool.id, number};
        answer = {ref.pool, number, uint64_t{number} * pool.segment_bytes, pool.bytes_of(number),
                  segment.huge};
        // A descriptor that could become writable is never given to a reader.
        if (!segment.held || !segment.sealed) {
            refuse(call, wire::Status::Unavailable, "marud has no descriptor of that segment now");
            return;
        }
    }
    // A later life of marud must know who may be reading what.
    if (!session.maps_shared) {
        session.maps_shared = true;
        if (auto saved = save(session); !saved) {
            session.maps_shared = false;
            refuse(call, unrecorded_status(saved.error()), not_recorded(saved.error()));
            return;
        }
    }
    reply(call, answer, std::span(&ref, 1));
}

// Also to those who are in the middle of attaching: an old view would be read for what is new there.
void Service::Impl::tell_gone(uint32_t uid, SegmentRef segment) {
    wire::ReplicaName item{segment.pool, segment.segment};
    sessions.each([&](const Session &session) {
        if (session.connection && session.maps_shared && session.uid == uid)
            event(session.connection, {wire::EventKind::SegmentGone, std::span(&item, 1), {}});
    });
}

bool Service::Impl::unknown_readers(uint32_t uid, wire::Id pool) const {
    if (wire::id_epoch(pool) == config.epoch)
        return false;
    return restoring || readers_lost || unknown_by_uid.contains(uid);
}

// It has told all its leases, or will never hold one again. The last of its uid frees what waited: a
// walk over all that the uid shares, once.
void Service::Impl::readers_known(Session &session) {
    if (!std::exchange(session.leases_unknown, false))
        return;
    auto unknown = unknown_by_uid.find(session.uid);
    if (--unknown->second != 0)
        return;
    unknown_by_uid.erase(unknown);
    pools.each([&](const Pool &pool) {
        if (pool.shared() && pool.owner->uid == session.uid)
            directory.queue_drained(pool.index);
    });
    adopted_segments.each([&](AdoptedSegment &segment) {
        if (segment.uid == session.uid) {
            directory.queue_drained(segment.index);
            drop_if_over(segment);
        }
    });
}

const Session *Service::Impl::an_unknown_reader(uint32_t uid) const {
    const Session *found = nullptr;
    sessions.each([&](const Session &session) {
        if (session.leases_unknown && session.uid == uid)
            found = &session;
    });
    return found;
}

// Once, when they should have been back: whoever stays away holds up all that its uid shares.
void Service::Impl::say_unknown_readers(TimeNs &ret_next) {
    if (unknown_readers_said || unknown_by_uid.empty())
        return;
    if (expected_back_until > now) {
        ret_next = std::min(ret_next, expected_back_until);
        return;
    }
    unknown_readers_said = true;
    sessions.each([&](const Session &session) {
        if (!session.leases_unknown)
            return;
        const std::string uid = std::to_string(session.uid);
        effects.log(4,
                    person(session) + ", uid " + uid +
                        ", is not back after the restart of marud: retired shared memory of uid " +
                        uid + " is not reused until it is back or exits",
                    session.id);
    });
}

// ---- adoption
// ------------------------------------------------------------------------------------

bool Service::Impl::adopt(Pool &pool, uint32_t number) {
    if (!pool.leaving || !pool.shared())
        return false;
    // Also for those who are not back and may be reading what is retired.
    PoolIndex index =
        directory.adopt_segment(pool.index, number, unknown_readers(pool.owner->uid, pool.id));
    if (index == kNoPool)
        return false;
    Segment &segment = pool.segments[number];
    AdoptedSegment kept;
    kept.ref = {pool.id, number};
    kept.index = index;
    kept.uid = pool.owner->uid;
    kept.first_offset = uint64_t{number} * pool.segment_bytes;
    kept.bytes = pool.bytes_of(number);
    kept.segment_bytes = pool.segment_bytes;
    kept.page_bytes = pool.page_bytes;
    kept.huge = segment.huge;
    kept.identity = segment.identity;
    kept.engine = pool.owner->engine;
    kept.since = now;
    kept.charge = std::move(segment.charge);
    kept.charge.keep_only(kept.bytes, 1);
    segment.state = SegmentState::Adopted;
    segment.held = false;
    // Before the worker's own record goes, which is the other one that names this memory.
    record(RecordedAdoption{kept.ref, kept.uid, kept.segment_bytes, kept.first_offset, kept.bytes,
                            kept.page_bytes, kept.huge, kept.identity, kept.engine});
    flush_records();
    wire::Usage usage = directory.pool_usage(index);
    effects.log(6,
                "segment " + std::to_string(number) + " of " + person(*pool.owner) +
                    " is adopted: " + std::to_string(usage.replicas) + " replicas of " +
                    std::to_string(usage.ready_allocated_bytes) + " bytes stay hits for uid " +
                    std::to_string(kept.uid),
                pool.owner->id);
    adopted_segments.add(std::move(kept));
    return true;
}

// `segment` is gone afterwards if nothing in it is found or read any more.
void Service::Impl::drop_if_over(AdoptedSegment &segment) {
    wire::Usage usage = directory.pool_usage(segment.index);
    bool over = usage.replicas == 0 ||
                (MARU_MUTANT(AdoptedDroppedUnderLease) && usage.ready_allocated_bytes == 0);
    if (!over || unknown_readers(segment.uid, segment.ref.pool))
        return;
    SegmentRef ref = segment.ref;
    uint32_t uid = segment.uid;
    record(RecordedEnd{ref});
    flush_records();
    effects.drop_segment(ref);
    directory.remove_pool(segment.index);
    sweep_soon();
    adopted_segments.remove(segment);
    tell_gone(uid, ref);
}

void Service::Impl::on(Call &call, const wire::RetireSegmentRequest &request) {
    AdoptedSegment *kept = adopted_segments.find({request.pool, request.segment});
    Pool *pool = kept ? nullptr : pools.find(request.pool);
    if (pool && (!pool->shared() || request.segment >= pool->segments.size()))
        pool = nullptr;
    if (!kept && !pool) {
        refuse(call, wire::Status::NotFound,
               "no shared pool has that segment; 'maructl pool' lists pools and adopted segments");
        return;
    }
    if (!may_see(call, kept ? kept->uid : pool->owner->uid) &&
        !MARU_MUTANT(ForeignSegmentRetired)) {
        refuse(call, wire::Status::Denied, "that segment belongs to another uid");
        return;
    }
    std::vector<RetiredReplica> retired;
    directory.retire_segment(
        kept ? kept->index : pool->index, kept ? 0 : request.segment,
        [&](PoolIndex index, const wire::ReplicaName &name, bool readers) {
            retired.push_back({index, name, readers});
        },
        wire::kMaxRetired);
    record_retired(retired);
    wire::CountReply answer;
    answer.count = retired.size();
    for (const RetiredReplica &one : retired)
        answer.pending += one.has_readers;
    reply(call, answer);
    tell_owners(retired);
}

wire::Usage Service::Impl::usage_of(const AdoptedSegment &segment) const {
    wire::Usage usage = directory.pool_usage(segment.index);
    usage.capacity_bytes = usage.reserved_bytes = usage.populated_bytes = segment.charge.bytes();
    // It gives back nothing before all of it: what no replica uses is in use all the same.
    usage.allocated_bytes = segment.charge.bytes();
    return usage;
}

// ---- the record
// ----------------------------------------------------------------------------------

void Service::Impl::flush_records() {
    if (to_record.empty())
        return;
    effects.record_objects(to_record);
    to_record.clear();
}

void Service::Impl::record_commit(NamespaceIndex ns, uint32_t uid, const wire::CommitItem &item) {
    const auto add = [ns](std::vector<bool> &set) {
        if (set.size() <= ns)
            set.resize(ns + 1);
        const bool known = set[ns];
        set[ns] = true;
        return !known;
    };
    const bool first = add(recorded_namespaces),
               first_anew = rewriting && add(rewritten_namespaces);
    if (first || first_anew)
        record(RecordedNamespace{ns, uid, directory.namespace_view(ns).object_bytes,
                                 std::string(directory.namespace_text(ns)),
                                 std::string(directory.namespace_format(ns))});
    record(RecordedObject{ns, item});
}

void Service::Impl::record_retirement(const Directory::ReplicaView &view, wire::Id pool) {
    record(RecordedRetirement{pool, view.offset, view.name.generation});
}

void Service::Impl::record_retired(std::span<const RetiredReplica> retired) {
    for (const RetiredReplica &one : retired) {
        const Pool *pool = pools.at(one.pool);
        if (pool && !pool->shared())
            continue;
        if (auto view = directory.find_replica(one.name))
            record_retirement(*view, keeper_of(one.pool)->pool);
    }
}

// A fact is always younger than those before it, in a part or between two: so the last one about a
// place is true, whatever has changed since the first part.
std::vector<ObjectRecord> Service::Impl::object_records(uint64_t &cursor, uint32_t most) {
    flush_records();
    if (cursor == 0) {
        rewriting = true;
        rewritten_namespaces.clear();
        // Before the end of the pools that they came from.
        adopted_segments.each([&](const AdoptedSegment &kept) {
            record(RecordedAdoption{kept.ref, kept.uid, kept.segment_bytes, kept.first_offset,
                                    kept.bytes, kept.page_bytes, kept.huge, kept.identity,
                                    kept.engine});
        });
    }
    std::vector<Directory::ReplicaView> views;
    cursor = directory.list_replicas(cursor, 0, most, views);
    for (const Directory::ReplicaView &view : views) {
        const Pool *pool = pools.at(view.pool);
        if (view.state != ReplicaState::Ready || (pool && !pool->shared()))
            continue;
        const auto keeper = keeper_of(view.pool);
        record_commit(view.ns, keeper->uid,
                      {view.key, keeper->pool, view.offset, view.length, view.name.generation});
    }
    if (cursor == 0) {
        rewriting = false;
        recorded_namespaces = rewritten_namespaces;
    }
    return std::exchange(to_record, {});
}

}  // namespace maru
