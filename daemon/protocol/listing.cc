// Listings, a page at a time.
//
// A page has at most kMaxListRows rows and fits in a frame; it walks a bounded number of entries,
// so a page may be empty although more follow. Rows of other uids are left out for everybody but
// admins.
#include <algorithm>

#include "daemon/protocol/service_impl.h"

namespace maru {
namespace {

// Leaves room in a frame for what the rows do not count.
constexpr size_t kPageBytes = 64 * 1024;
constexpr size_t kMaxCommandBytes = 64;  // comm has 16; a shell may pass more

uint64_t ms(TimeNs duration) {
    return static_cast<uint64_t>(std::max<TimeNs>(duration, 0) / kMillisecond);
}

const char *pool_state_name(PoolState state) {
    switch (state) {
        case PoolState::Open:
            return "open";
        case PoolState::Closing:
            return "closing";
        case PoolState::Finishing:
        case PoolState::Orphaned:
            return "proving";
    }
    return "?";
}

const char *replica_state_name(ReplicaState state) {
    switch (state) {
        case ReplicaState::Ready:
            return "ready";
        case ReplicaState::Retiring:
            return "retiring";
        case ReplicaState::Free:
            break;
    }
    return "free";
}

std::string command_of(const Session &session) {
    return session.command.substr(0, kMaxCommandBytes);
}

}  // namespace

void Service::Impl::on(Call &call, const wire::ListRequest &request) {
    NamespaceIndex ns = 0;
    switch (request.kind) {
        case wire::ListKind::Sessions:
            reply(call, list_sessions(call, request.cursor));
            return;
        case wire::ListKind::Pools:
            reply(call, list_pools(call, request.cursor));
            return;
        case wire::ListKind::Namespaces:
            reply(call, list_namespaces(call, request.cursor));
            return;
        case wire::ListKind::Objects:
            if (request.namespace_id && !namespace_or_refuse(call, request.namespace_id, true, &ns))
                return;
            reply(call, list_objects(call, request.cursor, ns));
            return;
        case wire::ListKind::Leases:
            reply(call, list_leases(call, request.cursor));
            return;
    }
    refuse(call, wire::Status::InvalidArgument,
           "kind is " + std::to_string(static_cast<unsigned>(request.kind)) +
               "; sessions, pools, namespaces, objects and leases are allowed");
}

wire::ListReply Service::Impl::list_sessions(const Call &call, uint64_t cursor) const {
    std::vector<wire::SessionRow> rows;
    uint64_t next = 0;
    for (uint64_t at = std::max<uint64_t>(cursor, 1); at < sessions.end(); ++at) {
        const Session *session = sessions.at(static_cast<HolderIndex>(at));
        if (!session || !may_see(call, session->uid))
            continue;
        if (rows.size() == wire::kMaxListRows) {
            next = at;
            break;
        }
        wire::SessionRow &row = rows.emplace_back();
        row.session = session->id;
        row.role = session->role;
        row.engine = session->engine;
        row.client_name = session->client_name;
        row.command = command_of(*session);
        row.state = session_state_name(session->state);
        row.uid = session->uid;
        row.pid = session->pid;
        row.pools = static_cast<uint32_t>(session->pools.size());
        row.age_ms = ms(now - session->opened);
        row.beat_age_ms = ms(now - session->last_heard);
        row.leases = directory.holder_leases(session->holder);
        row.reserved_bytes = session->account.bytes;
    }
    return {std::move(rows), next};
}

// Pools by place, then what stayed charged after its pool.
wire::ListReply Service::Impl::list_pools(const Call &call, uint64_t cursor) const {
    std::vector<wire::PoolRow> rows;
    const uint64_t places = std::max<uint64_t>(pools.end(), adopted_segments.end());
    uint64_t end = places + uint64_t{unproven.size()};
    uint64_t at = cursor ? cursor - 1 : 0;  // a cursor is never 0
    for (; at < end && rows.size() < wire::kMaxListRows; ++at) {
        if (at >= places) {
            const Unproven &rest = unproven[at - places];
            if (!may_see(call, rest.charge.uid()))
                continue;
            wire::PoolRow &row = rows.emplace_back();
            row.pool = rest.pool;
            row.engine = rest.engine;
            row.state = "quarantined";
            row.page_kind = "-";
            row.uid = rest.charge.uid();
            row.page_bytes = rest.page_bytes;
            row.age_ms = ms(now - rest.since);
            row.usage.reserved_bytes = row.usage.quarantined_bytes = rest.charge.bytes();
            continue;
        }
        if (const AdoptedSegment *kept = adopted_segments.at(static_cast<PoolIndex>(at));
            kept && may_see(call, kept->uid)) {
            wire::PoolRow &row = rows.emplace_back();
            row.pool = kept->ref.pool;
            row.segment = kept->ref.segment;
            row.scope = wire::Scope::Host;
            row.engine = kept->engine;
            row.state = "adopted";
            row.page_kind = kept->huge ? "2M hugetlb" : "4K";
            row.uid = kept->uid;
            row.page_bytes = kept->page_bytes;
            row.segments = 1;
            row.age_ms = ms(now - kept->since);
            row.usage = usage_of(*kept);
            continue;
        }
        const Pool *pool = pools.at(static_cast<PoolIndex>(at));
        if (!pool || !may_see(call, pool->owner->uid))
            continue;
        bool huge = std::any_of(pool->segments.begin(), pool->segments.end(),
                                [](const Segment &segment) { return segment.huge; });
        wire::PoolRow &row = rows.emplace_back();
        row.pool = pool->id;
        row.session = pool->owner->id;
        row.medium = pool->medium;
        row.tier = pool->tier;
        row.scope = pool->scope;
        row.engine = pool->owner->engine;
        row.state = pool_state_name(pool->state);
        row.page_kind = huge ? "2M hugetlb" : "4K";
        // Asked for is not bound: only a strict pool fails where the kernel refuses.
        row.numa_node = pool->numa == wire::Numa::Strict ? pool->numa_node : -1;
        row.uid = pool->owner->uid;
        row.page_bytes = pool->page_bytes;
        row.segments = static_cast<uint32_t>(pool->segments.size());
        row.age_ms = ms(now - pool->opened);
        row.usage = usage_of(*pool);
    }
    return {std::move(rows), at < end ? at + 1 : 0};
}

wire::ListReply Service::Impl::list_namespaces(const Call &call, uint64_t cursor) const {
    std::vector<wire::NamespaceRow> rows;
    size_t bytes = 0;
    // An index has 32 bits: a made-up cursor beyond them must not name a row a second time.
    uint64_t at = std::clamp<uint64_t>(cursor, 1, UINT32_MAX);
    for (; directory.namespace_exists(static_cast<NamespaceIndex>(at)); ++at) {
        auto ns = static_cast<NamespaceIndex>(at);
        uint32_t uid = directory.namespace_uid(ns);
        if (!may_see(call, uid))
            continue;
        std::string_view text = directory.namespace_text(ns);
        if (rows.size() == wire::kMaxListRows ||
            (!rows.empty() && bytes + text.size() > kPageBytes))
            break;
        bytes += text.size();
        Directory::NamespaceView view = directory.namespace_view(ns);
        rows.push_back({wire::make_id(config.epoch, ns), std::string(text), uid, view.objects,
                        view.replicas, view.object_bytes});
    }
    return {std::move(rows), directory.namespace_exists(static_cast<NamespaceIndex>(at)) ? at : 0};
}

wire::ListReply Service::Impl::list_objects(const Call &call, uint64_t cursor,
                                            NamespaceIndex ns) const {
    std::vector<Directory::ReplicaView> views;
    uint64_t next = directory.list_replicas(cursor, ns, wire::kMaxListRows, views);
    std::vector<wire::ObjectRow> rows;
    for (const Directory::ReplicaView &view : views) {
        auto keeper = keeper_of(view.pool);
        if (!keeper || !may_see(call, keeper->uid))
            continue;
        rows.push_back({wire::make_id(config.epoch, view.ns), view.key, view.name.replica,
                        keeper->pool, view.offset, view.length, view.name.generation,
                        replica_state_name(view.state), view.leases});
    }
    return {std::move(rows), next};
}

wire::ListReply Service::Impl::list_leases(const Call &call, uint64_t cursor) const {
    std::vector<Directory::LeaseView> views;
    uint64_t next = directory.list_leases(cursor, wire::kMaxListRows, views);
    std::vector<wire::LeaseRow> rows;
    for (const Directory::LeaseView &view : views) {
        auto keeper = keeper_of(view.pool);
        const Session *holder = sessions.at(view.holder);
        if (!keeper || !holder || !may_see(call, holder->uid))
            continue;
        TimeNs since = TimeNs{view.since_s} * kSecond;
        rows.push_back({view.name.replica, holder->id, keeper->pool, view.name.generation,
                        view.count, ms(now - since), holder->uid, holder->pid, command_of(*holder),
                        holder->engine});
    }
    return {std::move(rows), next};
}

}  // namespace maru
