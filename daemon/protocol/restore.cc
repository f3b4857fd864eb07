// The next life of marud: what was recorded is charged at once, and believed when its worker is
// back.
//
// Until its worker has attached, nothing of a record is found and nothing of it is granted to
// anyone. A worker's word republishes only into its own private pools, into segments whose
// descriptor marud holds or has checked against the record.
#include <algorithm>
#include <cassert>
#include <cerrno>

#include "daemon/protocol/service_impl.h"

namespace maru {

Result<void> Service::Impl::save(const Session &session) {
    SessionRecord record;
    record.epoch = config.epoch;
    record.token_hash = session.token_hash;
    record.session = session.id;
    record.uid = session.uid;
    record.pid = session.pid;
    record.start_time = session.start_time;
    record.role = session.role;
    record.engine = session.engine;
    record.client_name = session.client_name;
    record.command = session.command;
    record.fenced = session.fenced;
    record.reads_shared = session.maps_shared;
    for (PoolIndex index : session.pools) {
        const Pool &pool = *pools.at(index);
        SessionRecord::Pool &saved = record.pools.emplace_back();
        saved.pool = pool.id;
        saved.medium = pool.medium;
        saved.scope = pool.scope;
        saved.capacity_bytes = pool.capacity_bytes;
        saved.segment_bytes = pool.segment_bytes;
        saved.page_bytes = pool.page_bytes;
        saved.huge_pages = pool.huge_pages;
        saved.numa = pool.numa;
        saved.numa_node = pool.numa_node;
        saved.asked_bytes = pool.asked_bytes;
        saved.request_key = pool.request_key;
        saved.first_generation = pool.first_generation;
        for (const Segment &segment : pool.segments) {
            bool made =
                segment.state != SegmentState::None && segment.state != SegmentState::Creating &&
                segment.state != SegmentState::Proven && segment.state != SegmentState::Refused &&
                segment.state != SegmentState::Adopted;
            saved.segments.push_back(
                {made, made && segment.sealed, segment.huge, segment.identity});
        }
    }
    return effects.save_session(record);
}

wire::Status Service::Impl::unrecorded_status(const Error &why) {
    return why.code == EMFILE || why.code == ENFILE ? wire::Status::FdLimit
                                                    : wire::Status::Internal;
}

std::string Service::Impl::not_recorded(const Error &why) {
    return "marud cannot record it for its next life, so it does not begin: " + describe(why);
}

void Service::Impl::restore(const SessionRecord &record, std::span<const SegmentRef> held,
                            ProcessId64 process, bool alive) {
    assert(wire::id_epoch(record.session) != config.epoch);
    Session &session = sessions.create(config.max_ledger_items);
    ++tally.sessions_restored;
    session.id = record.session;
    session.domain = ++next_domain;
    session.state = SessionState::Recorded;
    session.token_hash = record.token_hash;
    session.role = record.role;
    session.engine = record.engine;
    session.client_name = record.client_name;
    session.command = record.command;
    session.uid = record.uid;
    session.pid = record.pid;
    session.start_time = record.start_time;
    session.process = process;
    session.fenced = record.fenced;
    session.reattached = true;
    session.opened = session.state_since = session.last_heard = now;
    session.charge = quota.recorded_session(record.uid);
    session.host_domain = host_domain(record.uid);
    directory.set_host_domain(session.holder, session.host_domain);
    session.maps_shared = record.reads_shared;
    // Without a view it reads nothing of others, whatever leases it has.
    if (session.worker() && session.maps_shared) {
        session.leases_unknown = true;
        ++unknown_by_uid[session.uid];
    }

    for (const SessionRecord::Pool &saved : record.pools) {
        auto pool = std::make_unique<Pool>();
        pool->id = saved.pool;
        pool->owner = &session;
        pool->medium = saved.medium;
        pool->scope = saved.scope;
        pool->huge_pages = saved.huge_pages;
        pool->numa = saved.numa;
        pool->numa_node = saved.numa_node;
        pool->asked_bytes = saved.asked_bytes;
        pool->capacity_bytes = saved.capacity_bytes;
        pool->segment_bytes = saved.segment_bytes;
        pool->page_bytes = saved.page_bytes;
        pool->request_key = saved.request_key;
        pool->first_generation = saved.first_generation;
        pool->opened = now;
        if (!pool->shared())
            pool->charge = quota.recorded_pool(record.uid, session.account, saved.capacity_bytes,
                                               static_cast<uint32_t>(saved.segments.size()));
        for (uint32_t i = 0; i < saved.segments.size(); ++i) {
            Segment &segment = pool->segments.emplace_back();
            // Its worker has not left all of the pool yet, or marud died before this was recorded.
            if (adopted_segments.find({saved.pool, i})) {
                segment.state = SegmentState::Adopted;
                continue;
            }
            segment.huge = saved.segments[i].huge;
            segment.identity = saved.segments[i].identity;
            segment.held =
                std::find(held.begin(), held.end(), SegmentRef{saved.pool, i}) != held.end();
            segment.sealed = saved.segments[i].sealed;
            if (segment.sealed)
                segment.state = SegmentState::Granted;
            else if (saved.segments[i].created || segment.held)
                segment.state = SegmentState::Created;
            if (pool->shared() && segment.state != SegmentState::None)
                segment.charge =
                    quota.recorded_pool(record.uid, session.account, pool->bytes_of(i), 1);
        }
        PoolIndex index =
            directory.add_pool({.id = pool->id,
                                .owner = session.holder,
                                .domain = pool->shared() ? session.host_domain : session.domain,
                                .medium = pool->medium,
                                .tier = pool->tier,
                                .scope = pool->scope,
                                .capacity_bytes = pool->capacity_bytes,
                                .segment_bytes = pool->segment_bytes,
                                .page_bytes = pool->page_bytes});
        directory.set_visible(index, false);
        for (uint32_t i = 0; i < pool->segments.size(); ++i)
            // Shared memory is known by the record before its descriptor is there.
            if ((pool->segments[i].held || pool->shared()) &&
                pool->segments[i].state == SegmentState::Granted)
                directory.grant_segment(index, i);
        session.pools.push_back(index);
        Pool &added = pools.add(index, std::move(pool));
        if (added.shared())
            restore_pool_objects(added);
    }

    if (session.fenced)
        fenced_tokens.push_back(session.token_hash);  // also of a dead process: others may have it
    if (!alive) {
        exit_session(session);
        distribute_drained();
        return;
    }
    if (session.fenced) {
        transition(session, SessionEvent::Fence);
        orphan(session);
        return;
    }
    if (session.worker() && engines.holder(session.uid, session.engine) == EngineRegistry::kNobody)
        engines.take(session.uid, session.engine, session.holder);
}

// Of a pool that was being closed its worker has some that marud is done with: proven and dropped, or
// adopted. It passes all that it has mapped; those are closed.
static bool over(const Segment &segment) {
    return segment.state == SegmentState::None || segment.state == SegmentState::Adopted;
}

void Service::Impl::on(Call &call, const wire::AttachPoolRequest &request) {
    Session &session = *call.session();
    if (session.state != SessionState::Restoring) {
        refuse(call, wire::Status::Protocol,
               "AttachPool: only after a restart of marud; this one has the segments");
        return;
    }
    Pool *pool = own_pool_or_refuse(call, request.pool);
    if (!pool)
        return;
    if (request.capacity_bytes != pool->capacity_bytes ||
        request.segment_bytes != pool->segment_bytes || request.page_bytes != pool->page_bytes) {
        refuse(call, wire::Status::Incompatible,
               "the record has capacity " + std::to_string(pool->capacity_bytes) +
                   ", segments of " + std::to_string(pool->segment_bytes) + ", pages of " +
                   std::to_string(pool->page_bytes) + " bytes");
        return;
    }
    size_t count = call.descriptors.size();
    if (request.segment_count != count || count == 0) {
        refuse(call, wire::Status::InvalidArgument,
               "segment_count is " + std::to_string(request.segment_count) + ", but " +
                   std::to_string(count) + " descriptors came; they must be equal, and not 0");
        return;
    }
    if (request.first_segment >= pool->segments.size() ||
        count > pool->segments.size() - request.first_segment) {
        refuse(call, wire::Status::InvalidArgument,
               "the pool has segments 0 to " + std::to_string(pool->segments.size() - 1));
        return;
    }
    for (uint32_t i = 0; i < count; ++i) {
        uint32_t number = request.first_segment + i;
        const Segment &segment = pool->segments[number];
        const AttachedDescriptor &given = call.descriptors[i];
        std::string why;
        if (over(segment))
            continue;
        if (!given.sealed)
            why = "it lacks a seal: shrink, grow and future-write are needed";
        else if (segment.state != SegmentState::Granted && segment.state != SegmentState::Created)
            why = "the record has no such segment";
        else if (given.bytes != pool->bytes_of(number))
            why = "it has " + std::to_string(given.bytes) + " bytes, the record " +
                  std::to_string(pool->bytes_of(number));
        else if (given.identity != segment.identity)
            why = "it is not the file that marud made";
        if (!why.empty()) {
            refuse(call, wire::Status::InvalidArgument,
                   "descriptor of segment " + std::to_string(number) + ": " + why);
            return;
        }
    }
    for (uint32_t i = 0; i < count; ++i) {
        Segment &segment = pool->segments[request.first_segment + i];
        bool granted = segment.held && segment.state == SegmentState::Granted;
        if (granted || over(segment))
            continue;  // ours is as good as theirs
        if (!segment.held)
            adopted[i] = {pool->id, request.first_segment + i};
        segment.held = true;
        // Sealed and recorded as created only: marud died between the seal and its record.
        segment.state = SegmentState::Granted;
        segment.sealed = true;
        directory.grant_segment(pool->index, request.first_segment + i);
    }
    ok(call);
}

void Service::Impl::on(Call &call, const wire::RepublishRequest &request) {
    Session &session = *call.session();
    if (session.state != SessionState::Restoring) {
        refuse(call, wire::Status::Protocol,
               "Republish: only after a restart of marud; this one knows its replicas");
        return;
    }
    if (!batch_fits(call, request.items.size(), "replicas"))
        return;
    for (size_t i = 0; i < request.items.size(); ++i) {
        ids[i] = 0;
        statuses[i] = republish_item(call, request.items[i], &ids[i]);
        tally.republished.add(statuses[i]);
    }
    reply(call, wire::ItemStatusReply{std::span(statuses).first(request.items.size()),
                                      std::span(ids).first(request.items.size())});
}

// What the same item holds already, told before a connection was lost in the middle of the restore.
uint64_t Service::Impl::leases_told(const Session &session, NamespaceIndex ns,
                                    const wire::CommitItem &item) const {
    auto known = directory.find_at(ns, place_of(item), item);
    return known ? directory.lease_count(session.holder, known->name) : 0;
}

wire::Status Service::Impl::republish_item(const Call &call, const wire::RepublishItem &item,
                                           wire::Id *ret_replica) {
    Session &session = *call.session();
    NamespaceIndex ns = 0;
    if (wire::Status status = namespace_of(call, item.namespace_id, false, &ns);
        status != wire::Status::Ok)
        return status;
    Pool *pool = pools.find(item.item.pool);
    // What others may read is never published by a worker's word.
    if (!pool || pool->owner != &session ||
        adopted_segments.holding(item.item.pool, item.item.offset)) {
        if (item.lease_count > leases_left(session) + leases_told(session, ns, item.item))
            return wire::Status::Quota;
        return republish_foreign(session, ns, item, ret_replica);
    }
    if (!session.has_described(ns))
        return wire::Status::InvalidArgument;
    if (item.item.length != session.object_bytes)
        return wire::Status::Incompatible;
    if (item.lease_count > leases_left(session) &&
        item.lease_count > leases_left(session) + leases_told(session, ns, item.item))
        return wire::Status::Quota;
    if (pool->shared())
        return republish_shared(session, *pool, ns, item, ret_replica);
    if (item.retiring > 1)
        return wire::Status::InvalidArgument;
    wire::CommitResult result = directory.republish(ns, pool->index, item.item, item.retiring != 0);
    if (result.status != wire::Status::Ok)
        return result.status;
    wire::ReplicaName name{result.replica, item.item.generation};
    // Also for none: a reader may have finished since it was told before.
    wire::Status status = directory.set_lease(session.holder, name, item.lease_count,
                                              static_cast<uint32_t>(now / kSecond));
    if (status != wire::Status::Ok) {
        // Never published without the leases of its readers: its owner would reclaim under them.
        directory.retire(name, session.holder);
        directory.reclaim(name, session.holder);
        return status;
    }
    if (item.retiring && !item.lease_count)
        session.reclaimable[name.replica] = {name.generation, pool->index};
    else
        session.reclaimable.erase(name.replica);
    *ret_replica = result.replica;
    return wire::Status::Ok;
}

// A segment that SegmentMapped was not answered for, or that its worker did not pass again, is one
// the worker has forgotten: its bytes stay charged with the pool, the next GrantSegment makes it anew.
// A forked child or a page pin may still be on the old file, and the pool is charged only once: so it
// is proven first. One that marud has no descriptor of cannot be: the worker's word is all there is.
// Others may have views of it, and what was READY in it must not be taken for what comes there next.
void Service::Impl::forget_unmapped_segments(Session &session) {
    for (PoolIndex index : session.pools) {
        Pool &pool = *pools.at(index);
        for (uint32_t i = 0; i < pool.segments.size(); ++i) {
            Segment &segment = pool.segments[i];
            if (over(segment) || (segment.state == SegmentState::Granted && segment.held))
                continue;
            if (pool.shared()) {
                std::vector<RetiredReplica> retired;
                directory.retire_segment(
                    index, i, [&](PoolIndex in, const wire::ReplicaName &name, bool readers) {
                        retired.push_back({in, name, readers});
                    });
                record_retired(retired);
                directory.revoke_segment(index, i);
                tell_gone(session.uid, {pool.id, i});
            }
            if (segment.held && MARU_MUTANT(ForgottenWithoutProof)) {
                effects.drop_segment({pool.id, i});
                segment = Segment{};
            } else if (segment.held) {
                segment.forgotten = true;
                segment.state = SegmentState::Proving;
                ask_proof({pool.id, i});
            } else {
                segment = Segment{};
            }
        }
    }
}

}  // namespace maru
