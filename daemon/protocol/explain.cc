// Explain: for one object and one engine, why each replica is (not) read.
//
// The reasons are those that probe and acquire go by, in words; a row is eligible exactly when a
// probe for that engine's attached worker would find it.
#include "daemon/protocol/service_impl.h"

namespace maru {

// Empty: the worker may read it.
std::string Service::Impl::why_not(const Directory::ReplicaView &view, uint32_t uid,
                                   const Session *target) const {
    const auto keeper = keeper_of(view.pool);
    const bool shared = keeper && (keeper->adopted || pools.at(view.pool)->shared());
    if (view.state == ReplicaState::Retiring && !view.leases && shared &&
        unknown_readers(keeper->uid, keeper->pool)) {
        const Session *reader = an_unknown_reader(keeper->uid);
        return "retiring: " + (reader ? person(*reader) : "a session whose record was lost") +
               " is not back after the restart of marud and may be reading it";
    }
    if (view.state == ReplicaState::Retiring)
        return "retiring: " + std::to_string(view.leases) +
               (view.leases ? " leases are left" : " leases are left, its owner may reclaim it");
    if (const AdoptedSegment *kept = adopted_segments.at(view.pool))
        return kept->uid != uid ? "adopted, for sessions of uid " + std::to_string(kept->uid)
               : !target        ? "adopted; no worker of the engine is there to read it"
                                : "";
    const Pool &pool = *pools.at(view.pool);
    const Session &owner = *pool.owner;
    bool for_all = pool.shared() && owner.uid == uid && target;
    std::string ago = seconds_text(now - owner.state_since) + " ago";
    if (!for_all && (!target || &owner != target)) {
        switch (owner.state) {
            case SessionState::Exiting:
                return "its owner exited " + ago + "; its memory is being proven free";
            case SessionState::Fenced:
                return "its owner was fenced " + ago + ": another worker has the engine";
            default:
                if (pool.shared())
                    return "shared, by engine '" + owner.engine + "' for sessions of uid " +
                           std::to_string(owner.uid);
                return "private to engine '" + owner.engine + "' (uid " +
                       std::to_string(owner.uid) + ")";
        }
    }
    switch (owner.state) {
        case SessionState::Attached:
            break;
        case SessionState::Silent:
            return "its owner has been silent since " + seconds_text(now - owner.last_heard) +
                   " ago";
        case SessionState::Detached:
            return "its owner detached " + ago;
        case SessionState::Attaching:
        case SessionState::Restoring:
            return "its owner is re-attaching since " + ago;
        case SessionState::Recorded:
            return "its owner is expected back after the restart of marud " + ago;
        default:
            return "its owner is " + std::string(session_state_name(owner.state));
    }
    if (pool.state != PoolState::Open)
        return "its pool is closing";
    return {};
}

void Service::Impl::on(Call &call, const wire::ExplainRequest &request) {
    uint32_t uid = request.uid == UINT32_MAX ? call.connection.peer.uid : request.uid;
    if (!may_see(call, uid)) {
        refuse(call, wire::Status::Denied, "an engine of another uid is shown to admins only");
        return;
    }
    if (request.engine.empty() || request.engine.size() > wire::kMaxEngineIdBytes) {
        refuse(call, wire::Status::InvalidArgument,
               "engine has " + std::to_string(request.engine.size()) + " bytes; 1 to " +
                   std::to_string(wire::kMaxEngineIdBytes) + " are allowed");
        return;
    }
    NamespaceIndex ns = 0;
    if (!namespace_or_refuse(call, request.namespace_id, true, &ns))
        return;
    const Session *target = sessions.at(engines.holder(uid, request.engine));
    std::vector<Directory::ReplicaView> views;
    directory.find_object(ns, request.key, views);

    wire::ExplainReply answer;
    for (const Directory::ReplicaView &view : views) {
        auto keeper = keeper_of(view.pool);
        if (!keeper || !may_see(call, keeper->uid))
            continue;
        if (answer.replicas.size() == wire::kMaxListRows)
            break;
        std::string reason = why_not(view, uid, target);
        bool eligible = reason.empty();
        answer.hit |= eligible;
        answer.replicas.push_back({view.name.replica, keeper->pool, std::string(keeper->engine),
                                   view.state == ReplicaState::Ready ? "ready" : "retiring",
                                   eligible, eligible ? "readable" : reason});
    }
    std::string engine =
        "engine '" + std::string(request.engine) + "' (uid " + std::to_string(uid) + ")";
    if (!target || target->state != SessionState::Attached)
        answer.summary = "miss: no worker is attached to " + engine;
    else if (answer.hit)
        answer.summary = "hit for " + engine;
    else if (answer.replicas.empty())
        answer.summary = "miss: no replica that you may see; " + engine + " has a worker attached";
    else
        answer.summary = "miss: no replica is readable by " + engine;
    reply(call, std::move(answer));
}

}  // namespace maru
