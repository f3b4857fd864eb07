// What people ask: status, usage, retire, drain, reload.
//
// An admin (uid 0, marud's own uid, admin_group) sees and changes everything, everybody else what
// belongs to their own uid. None of it needs a session.
#include <algorithm>
#include <cassert>

#include "daemon/protocol/service_impl.h"

namespace maru {
namespace {

void add(wire::Usage &sum, const wire::Usage &one) {
    sum.capacity_bytes += one.capacity_bytes;
    sum.reserved_bytes += one.reserved_bytes;
    sum.allocated_bytes += one.allocated_bytes;
    sum.ready_bytes += one.ready_bytes;
    sum.ready_allocated_bytes += one.ready_allocated_bytes;
    sum.quarantined_bytes += one.quarantined_bytes;
    sum.pinned_bytes += one.pinned_bytes;
    sum.retiring_bytes += one.retiring_bytes;
    sum.populated_bytes += one.populated_bytes;
    sum.replicas += one.replicas;
    sum.leases += one.leases;
}

}  // namespace

// The directory's own count, and the worker's word within the bounds that it leaves.
wire::Usage Service::Impl::usage_of(const Pool &pool) const {
    wire::Usage usage = directory.pool_usage(pool.index);
    uint64_t known = usage.ready_allocated_bytes + usage.retiring_bytes;
    usage.capacity_bytes = pool.capacity_bytes;
    usage.reserved_bytes = pool.charged_bytes();
    usage.allocated_bytes =
        std::max(known, std::min(pool.gauge.allocated_bytes, pool.capacity_bytes));
    usage.quarantined_bytes = std::min(pool.gauge.quarantined_bytes, usage.allocated_bytes - known);
    usage.populated_bytes = std::min(pool.gauge.populated_bytes, pool.capacity_bytes);
    usage.pinned_bytes = std::min(pool.gauge.pinned_bytes, pool.capacity_bytes);
    return usage;
}

wire::Usage Service::Impl::usage_of_uid(uint32_t uid, bool everybody) const {
    wire::Usage sum;
    pools.each([&](const Pool &pool) {
        if (everybody || pool.owner->uid == uid)
            add(sum, usage_of(pool));
    });
    adopted_segments.each([&](const AdoptedSegment &segment) {
        if (everybody || segment.uid == uid)
            add(sum, usage_of(segment));
    });
    for (const Unproven &rest : unproven) {
        if (!everybody && rest.charge.uid() != uid)
            continue;
        sum.reserved_bytes += rest.charge.bytes();
        sum.quarantined_bytes += rest.charge.bytes();
    }
    return sum;
}

// Charged, and nobody is left who could give it back in order.
uint64_t Service::Impl::unproven_bytes(uint32_t uid, bool everybody) const {
    uint64_t sum = 0;
    pools.each([&](const Pool &pool) {
        if (pool.state == PoolState::Orphaned && (everybody || pool.owner->uid == uid))
            sum += pool.charged_bytes();
    });
    for (const Unproven &rest : unproven)
        if (everybody || rest.charge.uid() == uid)
            sum += rest.charge.bytes();
    return sum;
}

metrics::ServiceGauges Service::Impl::gauges() const {
    metrics::ServiceGauges out;
    sessions.each([&](const Session &session) {
        SessionState state =
            session.state == SessionState::Restoring ? SessionState::Attaching : session.state;
        ++out.sessions[session.worker() ? 0 : 1][static_cast<size_t>(state)];
    });
    // A pool of no known kind could not have been opened.
    auto usage_at = [&](const Pool &pool) -> wire::Usage & {
        size_t place = metrics::placement_of(pool.medium, pool.tier, pool.scope);
        assert(place < out.usage.size());
        return out.usage[place];
    };
    pools.each([&](const Pool &pool) {
        ++out.pools[static_cast<size_t>(pool.state)];
        add(usage_at(pool), usage_of(pool));
    });
    const size_t host = metrics::placement_of(wire::Medium::Cpu, wire::Tier::L1, wire::Scope::Host);
    adopted_segments.each(
        [&](const AdoptedSegment &kept) { add(out.usage[host], usage_of(kept)); });
    // Whatever scope they had: nobody reads them any more.
    for (const Unproven &rest : unproven) {
        out.usage[0].reserved_bytes += rest.charge.bytes();
        out.usage[0].quarantined_bytes += rest.charge.bytes();
    }
    Directory::Totals totals = directory.totals();
    out.objects = totals.objects;
    out.replicas = totals.replicas;
    out.leases = totals.leases;
    out.namespaces = totals.namespaces;
    out.charged_bytes = quota.host_bytes();
    out.limit_bytes = config.host_cpu_bytes;
    out.unproven_bytes = unproven_bytes(0, true);
    out.draining = draining;
    return out;
}

void Service::Impl::on(Call &call, const wire::UsageRequest &request) {
    if (request.pool == 0) {
        uint32_t uid = call.connection.peer.uid;
        reply(call, wire::UsageReply{usage_of_uid(uid, false), config.uid_cpu_bytes});
        return;
    }
    // What marud has adopted of a pool goes on under its id.
    const Pool *pool = pools.find(request.pool);
    wire::Usage usage;
    std::optional<uint32_t> uid;
    if (pool) {
        uid = pool->owner->uid;
        usage = usage_of(*pool);
    }
    for (const AdoptedSegment *kept = adopted_segments.from({request.pool, 0});
         kept && kept->ref.pool == request.pool;
         kept = adopted_segments.from({request.pool, kept->ref.segment + 1})) {
        uid = kept->uid;
        add(usage, usage_of(*kept));
    }
    if (!uid) {
        refuse(call, wire::Status::NotFound, "no pool has that id");
        return;
    }
    if (!may_see(call, *uid)) {
        refuse(call, wire::Status::Denied, "that pool belongs to another uid");
        return;
    }
    reply(call, wire::UsageReply{usage, pool ? pool->capacity_bytes : usage.reserved_bytes});
}

void Service::Impl::on(Call &call, const wire::StatusRequest &) {
    const Peer &peer = call.connection.peer;
    Directory::Totals totals = directory.totals();
    wire::StatusReply status;
    status.version = config.version;
    status.epoch = config.epoch;
    status.pid = config.pid;
    status.uptime_ms = static_cast<uint64_t>((now - started) / kMillisecond);
    status.draining = draining;
    status.admin = peer.admin;
    status.sessions = sessions.size();
    sessions.each([&](const Session &session) {
        status.attached += session.state == SessionState::Attached;
    });
    status.pools = pools.size() + static_cast<uint32_t>(unproven.size());
    status.namespaces = totals.namespaces;
    status.objects = totals.objects;
    status.replicas = totals.replicas;
    status.leases = totals.leases;
    status.host_limit_bytes = config.host_cpu_bytes;
    status.host_reserved_bytes = quota.host_bytes();
    status.unproven_bytes = unproven_bytes(peer.uid, peer.admin);
    status.usage = usage_of_uid(peer.uid, peer.admin);
    status.fdstore = config.fdstore_name;
    status.adopted = config.fdstore ? "kept" : "volatile";
    adopted_segments.each([&](const AdoptedSegment &segment) {
        if (!peer.admin && segment.uid != peer.uid)
            return;
        ++status.adopted_segments;
        status.adopted_bytes += segment.charge.bytes();
    });
    reply(call, status);
}

void Service::Impl::on(Call &call, const wire::AdminRetireRequest &request) {
    NamespaceIndex ns = 0;
    if (!namespace_or_refuse(call, request.namespace_id, true, &ns))
        return;
    const wire::Key *key = request.key ? &*request.key : nullptr;
    std::vector<RetiredReplica> retired;
    // What is in a namespace is of its uid, whose namespaces the caller may see.
    directory.retire_object(
        ns, key,
        [&](PoolIndex pool, const wire::ReplicaName &name, bool readers) {
            retired.push_back({pool, name, readers});
        },
        wire::kMaxRetired);
    record_retired(retired);
    wire::CountReply answer;
    answer.count = retired.size();
    tally.admin_retired += retired.size();
    for (const RetiredReplica &one : retired)
        answer.pending += one.has_readers;
    reply(call, answer);
    tell_owners(retired);
}

// Retired, so that an owner stops counting on them; then Reclaim for those that nobody reads.
void Service::Impl::tell_owners(std::vector<RetiredReplica> &retired) {
    std::sort(retired.begin(), retired.end(), [](const auto &a, const auto &b) {
        return std::pair(a.pool, a.has_readers) < std::pair(b.pool, b.has_readers);
    });
    auto send = [&](const Session &owner, wire::EventKind kind) {
        bool there = owner.state == SessionState::Attached || owner.state == SessionState::Silent;
        if (there && !names.empty())
            event(owner.connection, {kind, names, {}});
        names.clear();
    };
    auto each_batch = [&](size_t begin, size_t end, const Session &owner, wire::EventKind kind) {
        names.clear();
        for (size_t i = begin; i < end; ++i) {
            names.push_back(retired[i].name);
            if (names.size() == wire::kMaxBatchItems)
                send(owner, kind);
        }
        send(owner, kind);
    };
    for (size_t begin = 0; begin < retired.size();) {
        PoolIndex index = retired[begin].pool;
        size_t unread = begin, end = begin;
        for (; end < retired.size() && retired[end].pool == index; ++end)
            unread += !retired[end].has_readers;
        if (AdoptedSegment *kept = adopted_segments.at(index)) {
            const bool wait = unknown_readers(kept->uid, kept->ref.pool);
            for (size_t i = begin; i < unread && !wait; ++i)
                directory.reclaim(retired[i].name, UINT32_MAX);
            drop_if_over(*kept);
            begin = end;
            continue;
        }
        const Pool &pool = *pools.at(index);
        // Reclaim waits for those who may be reading, like for those who are.
        if (pool.shared() && unknown_readers(pool.owner->uid, pool.id))
            unread = begin;
        if (pool.state == PoolState::Open) {
            each_batch(begin, end, *pool.owner, wire::EventKind::Retired);
            for (size_t i = begin; i < unread; ++i)
                pool.owner->reclaimable[retired[i].name.replica] = {retired[i].name.generation,
                                                                    index};
            each_batch(begin, unread, *pool.owner, wire::EventKind::Reclaim);
        }
        begin = end;
    }
}

void Service::Impl::set_draining(bool enable) {
    if (std::exchange(draining, enable) == enable)
        return;
    effects.log(5, enable ? "draining: no new sessions, pools or commits" : "no longer draining");
    if (!enable)
        return;
    for (const auto &[id, connection] : connections)
        if (connection.session)
            event(id, {wire::EventKind::Draining, {}, "marud is draining"});
}

void Service::Impl::on(Call &call, const wire::DrainRequest &request) {
    if (!call.connection.peer.admin) {
        refuse(call, wire::Status::Denied, "Drain needs uid 0, marud's uid or the admin group");
        return;
    }
    set_draining(request.enable);
    ok(call);
}

void Service::Impl::on(Call &call, const wire::ReloadRequest &) {
    if (!call.connection.peer.admin) {
        refuse(call, wire::Status::Denied, "Reload needs uid 0, marud's uid or the admin group");
        return;
    }
    effects.reload();
    ok(call);
}

}  // namespace maru
