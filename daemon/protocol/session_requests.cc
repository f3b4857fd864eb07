// Opening, re-attaching, describing and closing a session.
//
// A session is (uid, process identity, token). Within one life of marud only the same process gets
// it back; after a restart the record must agree about uid, pid and start time as well. Everything
// is checked before the first table changes.
#include <algorithm>
#include <cassert>

#include "daemon/protocol/service_impl.h"

namespace maru {
namespace {

constexpr size_t kMaxFormatBytes = 256;

bool was_recorded(const Session &session) {
    return session.state == SessionState::Recorded || session.state == SessionState::Restoring;
}

// Nothing that a client could only know from an answer.
bool unused(const Session &session) {
    return session.pools.empty() && session.ledger.empty() && session.format.empty() &&
           !session.maps_shared;
}

}  // namespace

bool Service::Impl::engine_and_token_fit(const Call &call, const wire::Token &token,
                                         wire::Role role, std::string_view engine) {
    if (role != wire::Role::Worker && role != wire::Role::Scheduler) {
        refuse(call, wire::Status::InvalidArgument,
               "role: a session is of a worker or a scheduler; admin requests need no session");
        return false;
    }
    if (engine.empty() || engine.size() > wire::kMaxEngineIdBytes) {
        refuse(call, wire::Status::InvalidArgument,
               "engine has " + std::to_string(engine.size()) + " bytes; 1 to " +
                   std::to_string(wire::kMaxEngineIdBytes) + " are allowed");
        return false;
    }
    if (!token_is_drawn(token)) {
        refuse(call, wire::Status::InvalidArgument,
               "token: 16 zero bytes were not drawn at random");
        return false;
    }
    return true;
}

bool Service::Impl::same_process(const Session &session, const Peer &peer) const {
    if (MARU_MUTANT(TokenOfAnyProcess))
        return true;
    if (session.uid != peer.uid)
        return false;
    if (!was_recorded(session))
        return session.process == peer.process;
    // A pid that is not visible cannot be compared with the record.
    return session.pid != 0 && session.pid == peer.pid && session.start_time == peer.start_time;
}

void Service::Impl::on(Call &call, const wire::OpenSessionRequest &request) {
    if (!engine_and_token_fit(call, request.token, request.role, request.engine))
        return;
    const Peer &peer = call.connection.peer;
    TokenHash hash = hash_token(request.token);
    Session *known = sessions.find(hash);
    if (call.session() && call.session() != known) {
        refuse(call, wire::Status::Protocol,
               "OpenSession: this connection has a session already; CloseSession first");
        return;
    }
    if (known) {
        reopen(call, *known, request);
        return;
    }
    if (std::find(fenced_tokens.begin(), fenced_tokens.end(), hash) != fenced_tokens.end()) {
        refuse(call, wire::Status::Fenced, "this session lost its engine; its token is over");
        return;
    }
    if (draining) {
        refuse(call, wire::Status::Unavailable, "marud is draining: no new sessions");
        return;
    }
    auto charge = quota.charge_session(peer.uid);
    if (auto *refusal = std::get_if<QuotaRefusal>(&charge)) {
        refuse(call, refusal->status, refusal->message);
        return;
    }
    if (request.role == wire::Role::Worker && !claim_engine(call, peer.uid, request.engine))
        return;

    Session &session = sessions.create(config.max_ledger_items);
    session.id = wire::make_id(config.epoch, ++next_session);
    session.domain = ++next_domain;
    session.token_hash = hash;
    session.role = request.role;
    session.engine = request.engine;
    session.client_name = call.connection.client_name;
    session.command = peer.command;
    session.uid = peer.uid;
    session.pid = peer.pid;
    session.start_time = peer.start_time;
    session.process = peer.process;
    session.opened = session.state_since = now;
    ++tally.sessions_opened[session.worker() ? 0 : 1];
    session.charge = std::move(std::get<Quota::SessionCharge>(charge));
    session.host_domain = host_domain(peer.uid);
    directory.set_host_domain(session.holder, session.host_domain);
    if (session.worker())
        engines.take(session.uid, session.engine, session.holder);
    bind(call.connection, session);
    heard(session);
    if (auto saved = save(session); !saved) {
        Connection &connection = call.connection;
        transition(session, SessionEvent::Close);
        forget(session, metrics::SessionEnd::Closed);
        refuse(Call{connection, call.id, call.kind, {}}, unrecorded_status(saved.error()),
               not_recorded(saved.error()));
        return;
    }
    effects.log(6,
                std::string(session.worker() ? "worker" : "scheduler") + " of engine '" +
                    session.engine + "' opened a session: " + person(session) + ", uid " +
                    std::to_string(session.uid),
                session.id);
    reply(call, wire::SessionReply{session.id, false});
}

// The reply to an earlier OpenSession was lost, or this is a token that must not be opened again.
void Service::Impl::reopen(Call &call, Session &session, const wire::OpenSessionRequest &request) {
    if (!same_process(session, call.connection.peer)) {
        refuse(call, wire::Status::Denied, "that token belongs to another process");
        return;
    }
    if (session.fenced) {
        refuse(call, wire::Status::Fenced, "this session lost its engine; its token is over");
        return;
    }
    bool same = session.role == request.role && session.engine == request.engine;
    if (!same || !unused(session) || session.state == SessionState::Exiting) {
        refuse(call, wire::Status::Conflict,
               same ? "this session is in use: Attach to it"
                    : "this token opened a session of another role or engine");
        return;
    }
    if (call.session() != &session) {
        if (session.connection)
            lose_connection(session, "the session was opened again over another connection");
        transition(session, SessionEvent::Attach);
        session.process = call.connection.peer.process;
        bind(call.connection, session);
        session.reattached = true;
        transition(session, SessionEvent::AttachDone);
        heard(session);
    }
    reply(call, wire::SessionReply{session.id, true});
}

// Frees the engine for a newcomer, or says who has it.
bool Service::Impl::claim_engine(const Call &call, uint32_t uid, std::string_view engine) {
    Session *holder = sessions.at(engines.holder(uid, engine));
    if (!holder)
        return true;
    bool expected_back = now < expected_back_until;
    if (MARU_MUTANT(TwoWorkersOfAnEngine))
        return true;
    if (may_claim(holder->state, expected_back) == Claim::Busy) {
        std::string message = "engine '" + std::string(engine) + "' is held by " + person(*holder) +
                              ", " + session_state_name(holder->state) + " since " +
                              seconds_text(now - holder->state_since) + " ago";
        if (holder->state == SessionState::Recorded)
            message += "; it is expected back after the restart of marud for another " +
                       seconds_text(expected_back_until - now);
        refuse(call, wire::Status::Busy, message);
        return false;
    }
    fence(*holder, "pid " + std::to_string(call.connection.peer.pid) + " (" +
                       call.connection.peer.command + ")");
    return true;
}

void Service::Impl::on(Call &call, const wire::AttachRequest &request) {
    if (call.session()) {
        refuse(call, wire::Status::Protocol, "Attach: this connection has a session already");
        return;
    }
    if (!engine_and_token_fit(call, request.token, request.role, request.engine))
        return;
    TokenHash hash = hash_token(request.token);
    Session *session = sessions.find(hash);
    if (!session) {
        if (std::find(fenced_tokens.begin(), fenced_tokens.end(), hash) != fenced_tokens.end())
            refuse(call, wire::Status::Fenced, "this session lost its engine; its token is over");
        else
            refuse(call, wire::Status::NotFound, "no session has that token: open a new one");
        return;
    }
    if (!same_process(*session, call.connection.peer)) {
        bool hidden_pid = was_recorded(*session) && session->pid == 0;
        refuse(call, wire::Status::Denied,
               hidden_pid ? "the session's pid was not visible to marud (a container's namespace): "
                            "it cannot be told from another after a restart of marud"
                          : "that token belongs to another process");
        return;
    }
    if (session->fenced) {
        refuse(call, wire::Status::Fenced, "this session lost its engine; its token is over");
        return;
    }
    if (session->state == SessionState::Exiting) {
        refuse(call, wire::Status::NotFound, "that session's process has exited: open a new one");
        return;
    }
    if (session->role != request.role || session->engine != request.engine) {
        refuse(call, wire::Status::Conflict,
               std::string("that session is of a ") + (session->worker() ? "worker" : "scheduler") +
                   " of engine '" + session->engine + "'");
        return;
    }
    if (session->connection)
        lose_connection(*session, "the session was attached over another connection");
    bool same_life = !was_recorded(*session);
    transition(*session, SessionEvent::Attach);
    session->process = call.connection.peer.process;
    session->command = call.connection.peer.command;
    session->reattached = true;
    if (request.lowest_unanswered)
        session->ledger.acknowledge(request.lowest_unanswered - 1);
    bind(call.connection, *session);
    heard(*session);
    // Half told is not told, leases included.
    directory.begin_lease_restore(session->holder);
    session->named.clear();
    session->retired_unheard.clear();

    wire::AttachReply answer{session->id, same_life, {}};
    for (PoolIndex index : session->pools) {
        const Pool &pool = *pools.at(index);
        bool missing =
            std::any_of(pool.segments.begin(), pool.segments.end(), [](const Segment &segment) {
                return segment.state == SegmentState::Granted && !segment.held;
            });
        if (missing)
            answer.missing_pools.push_back(pool.id);
    }
    reply(call, std::move(answer));
}

void Service::Impl::on(Call &call, const wire::AttachLeasesRequest &request) {
    Session &session = *call.session();
    if (session.state != SessionState::Attaching) {
        refuse(call, wire::Status::Protocol,
               "AttachLeases: after a restart of marud leases travel with Republish");
        return;
    }
    if (!batch_fits(call, request.items.size(), "leases"))
        return;
    for (size_t i = 0; i < request.items.size(); ++i) {
        const wire::LeaseItem &item = request.items[i];
        wire::ReplicaName name{item.replica, item.generation};
        // A lease is only given by Acquire; here it may be given back, never taken.
        if (wire::id_epoch(item.replica) != config.epoch)
            statuses[i] = wire::Status::StaleEpoch;
        else if (item.count == 0 || item.count > directory.lease_count(session.holder, name))
            statuses[i] = wire::Status::NotFound;
        else
            statuses[i] =
                directory.set_lease(session.holder, name, static_cast<uint32_t>(item.count),
                                    static_cast<uint32_t>(now / kSecond));
    }
    reply_statuses(call, request.items.size());
    distribute_drained();
}

void Service::Impl::on(Call &call, const wire::AttachDoneRequest &) {
    Session &session = *call.session();
    bool same_life = session.state == SessionState::Attaching;
    directory.end_lease_restore(session.holder);
    if (!same_life) {
        forget_unmapped_segments(session);
        retire_unnamed(session);
        readers_known(session);
    }
    distribute_drained();  // before the session counts as attached: told once, below
    transition(session, SessionEvent::AttachDone);
    ++tally.reattaches[same_life ? 0 : 1];
    (void)save(session);  // its record of the life before says the same of what is charged
    ok(call);
    tell_retired_unheard(session);
    send_reclaims(session);
    answer_forced_closes();
}

// What was told over a lost connection, or could not be told, is told again: an acknowledgement is
// the only end of it.
void Service::Impl::send_reclaims(Session &session) {
    if (!session.connection)
        return;
    names.clear();
    auto flush = [&] {
        if (!names.empty())
            event(session.connection, {wire::EventKind::Reclaim, names, {}});
        names.clear();
    };
    for (const auto &[replica, waiting] : session.reclaimable) {
        names.push_back({replica, waiting.generation});
        if (names.size() == wire::kMaxBatchItems)
            flush();
    }
    flush();
}

void Service::Impl::on(Call &call, const wire::DescribeRequest &request) {
    Session &session = *call.session();
    if (request.object_bytes == 0) {
        refuse(call, wire::Status::InvalidArgument, "object_bytes must not be 0");
        return;
    }
    if (request.format.empty() || request.format.size() > kMaxFormatBytes) {
        refuse(call, wire::Status::InvalidArgument,
               "format has " + std::to_string(request.format.size()) + " bytes; 1 to " +
                   std::to_string(kMaxFormatBytes) + " are allowed");
        return;
    }
    NamespaceIndex ns = 0;
    if (!namespace_or_refuse(call, request.namespace_id, false, &ns))
        return;
    bool first = session.format.empty();
    if (!first &&
        (session.object_bytes != request.object_bytes || session.format != request.format)) {
        refuse(call, wire::Status::Conflict,
               "this session is described already: " + std::to_string(session.object_bytes) +
                   " bytes, format '" + session.format + "'");
        return;
    }
    wire::Status status = directory.describe_namespace(ns, request.object_bytes, request.format);
    if (status != wire::Status::Ok) {
        refuse(call, status,
               "the namespace was described before with another size or format: its objects have " +
                   std::to_string(directory.namespace_view(ns).object_bytes) + " bytes");
        return;
    }
    session.object_bytes = request.object_bytes;
    session.format = request.format;
    if (!session.has_described(ns))
        session.described.push_back(ns);
    ok(call);
}

void Service::Impl::on(Call &call, const wire::HeartbeatRequest &request) {
    Session &session = *call.session();
    if (!batch_fits(call, request.gauges.size(), "gauges"))
        return;
    for (const wire::PoolGauge &gauge : request.gauges) {
        Pool *pool = pools.find(gauge.pool);
        if (pool && pool->owner != &session) {
            refuse(call, wire::Status::Denied, "a gauge names a pool of another session");
            return;
        }
    }
    for (const wire::PoolGauge &gauge : request.gauges)
        if (Pool *pool = pools.find(gauge.pool))
            pool->gauge = gauge;
    ok(call);
}

void Service::Impl::on(Call &call, const wire::RegisterNamespaceRequest &request) {
    if (request.text.empty() || request.text.size() > wire::kMaxNamespaceBytes) {
        refuse(call, wire::Status::InvalidArgument,
               "text has " + std::to_string(request.text.size()) + " bytes; 1 to " +
                   std::to_string(wire::kMaxNamespaceBytes) + " are allowed");
        return;
    }
    NamespaceIndex ns = 0;
    uint32_t uid = call.session()->uid;
    wire::Status status = directory.register_namespace(uid, request.text, &ns);
    if (status == wire::Status::Quota) {
        refuse(call, status,
               "uid " + std::to_string(uid) + " has registered " +
                   std::to_string(config.max_namespaces_per_uid) +
                   " namespaces, as many as limits.namespaces_per_uid allows for this life of "
                   "marud");
        return;
    }
    if (status != wire::Status::Ok) {
        refuse(call, status,
               "all " + std::to_string(config.max_namespaces) +
                   " namespaces are taken for this life of marud");
        return;
    }
    reply(call, wire::NamespaceReply{wire::make_id(config.epoch, ns)});
}

void Service::Impl::on(Call &call, const wire::CloseSessionRequest &) {
    Session &session = *call.session();
    for (PoolIndex index : session.pools) {
        const Pool &pool = *pools.at(index);
        if (pool.any_segment_made()) {
            refuse(call, wire::Status::Busy,
                   std::to_string(session.pools.size()) +
                       " pools are open, the first with segments that were granted: close them "
                       "with ClosePool first");
            return;
        }
    }
    while (!session.pools.empty())
        remove_pool(*pools.at(session.pools.back()));
    effects.log(6, "session closed by " + person(session), session.id);
    Connection &connection = call.connection;
    transition(session, SessionEvent::Close);
    forget(session, metrics::SessionEnd::Closed);
    reply(Call{connection, call.id, call.kind, {}}, wire::StatusOnly{});
    distribute_drained();
    answer_forced_closes();  // it may have been reading what others gave up
}

}  // namespace maru
