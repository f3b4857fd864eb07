// The door: every call comes in here, is dated and counted, and goes to its handler.
#include "daemon/protocol/service.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "daemon/protocol/request_rules.h"
#include "daemon/protocol/service_impl.h"

namespace maru {
namespace {

QuotaLimits quota_limits(const ServiceConfig &config) {
    return {.max_sessions = config.max_sessions,
            .max_sessions_per_uid = config.max_sessions_per_uid,
            .max_segments_per_uid = config.max_descriptors_per_uid,
            .host_bytes = config.host_cpu_bytes,
            .uid_bytes = config.uid_cpu_bytes,
            .worker_bytes = config.worker_cpu_bytes};
}

}  // namespace

Service::Impl::Impl(ServiceConfig service_config, Effects &world, TimeNs start)
    : config(std::move(service_config)),
      effects(world),
      started(start),
      now(start),
      expected_back_until(start + config.session_timeout),
      quota(quota_limits(config)),
      directory({.epoch = config.epoch,
                 .max_namespaces = config.max_namespaces,
                 .max_namespaces_per_uid = config.max_namespaces_per_uid,
                 .max_replicas = config.max_objects,
                 .hash_seed = config.hash_seed,
                 .make_blocks_ahead = config.make_blocks_ahead}) {
    assert(config.epoch != 0);
}

// ---- answers
// -------------------------------------------------------------------------------------

void Service::Impl::send(const Call &call, const wire::Reply &reply,
                         std::span<const SegmentRef> segments) {
    count_result(call.kind, reply.body);
    flush_records();
    effects.reply(call.connection.id, reply, segments);
}

void Service::Impl::reply(const Waiter &waiter, wire::ReplyBody body,
                          std::span<const SegmentRef> segments) {
    auto found = connections.find(waiter.connection);
    assert(found != connections.end() && found->second.deferred > 0);
    --found->second.deferred;
    count_result(waiter.kind, body);
    flush_records();
    effects.reply(waiter.connection, wire::Reply{waiter.request, std::move(body)}, segments);
}

void Service::Impl::count_result(uint8_t kind, const wire::ReplyBody &body) {
    wire::Status status = wire::Status::Ok;
    if (const auto *only = std::get_if<wire::StatusOnly>(&body))
        status = only->status;
    else if (const auto *close = std::get_if<wire::ClosePoolReply>(&body))
        status = close->status;
    ++tally.requests[kind][static_cast<size_t>(metrics::outcome_of(status))];
    if (status != wire::Status::Ok)
        ++tally.refusals[static_cast<size_t>(status)];
}

void Service::Impl::event(ConnectionId to, const wire::Event &event) {
    flush_records();
    effects.event(to, event);
}

void Service::Impl::ok(const Call &call) { reply(call, wire::StatusOnly{}); }

void Service::Impl::refuse(const Call &call, wire::Status status, std::string_view message,
                           uint64_t detail) {
    ++refused;
    reply(call, wire::StatusOnly{status, message, detail});
}

void Service::Impl::refuse(const Waiter &waiter, wire::Status status, std::string_view message) {
    ++refused;
    reply(waiter, wire::StatusOnly{status, message, 0});
}

void Service::Impl::reply_statuses(const Call &call, size_t count) {
    reply(call, wire::ItemStatusReply{std::span(statuses).first(count), {}});
}

bool Service::Impl::defer(const Call &call, std::vector<Waiter> &waiters) {
    if (call.connection.deferred >= config.max_in_flight) {
        refuse(call, wire::Status::Again,
               "this connection has " + std::to_string(call.connection.deferred) +
                   " unanswered requests, which is the limit; read their answers first");
        return false;
    }
    ++call.connection.deferred;
    waiters.push_back({call.connection.id, call.id, call.kind});
    return true;
}

void Service::Impl::answer_all(std::vector<Waiter> &waiters, const wire::ReplyBody &body,
                               std::span<const SegmentRef> segments) {
    for (const Waiter &waiter : std::exchange(waiters, {}))
        reply(waiter, body, segments);
}

// Only the pools of its own session can make a connection wait.
void Service::Impl::forget_waiters(Connection &connection) {
    if (!connection.deferred)
        return;
    auto drop_from = [&](std::vector<Waiter> &waiters) {
        std::erase_if(waiters, [&](const Waiter &w) {
            if (w.connection != connection.id)
                return false;
            ++tally.requests[w.kind][static_cast<size_t>(metrics::Outcome::Dropped)];
            return true;
        });
    };
    assert(connection.session);
    for (PoolIndex index : connection.session->pools) {
        Pool &pool = *pools.at(index);
        bool forced = !pool.drain_waiters.empty();
        drop_from(pool.drain_waiters);
        if (forced && pool.drain_waiters.empty())
            --forced_closes;
        drop_from(pool.finish_waiters);
        for (Segment &segment : pool.segments)
            drop_from(segment.waiters);
    }
    connection.deferred = 0;
}

// ---- shared checks
// -------------------------------------------------------------------------------

bool Service::Impl::not_now(const Call &call, const RequestRule &rule, std::string_view why) {
    refuse(call, wire::Status::Protocol, std::string(rule.name) + ": " + std::string(why));
    return false;
}

bool Service::Impl::not_for_schedulers(const Call &call, const RequestRule &rule) {
    refuse(call, wire::Status::Denied,
           std::string(rule.name) +
               ": a scheduler session is metadata-only; only a worker session may do this");
    return false;
}

bool Service::Impl::allowed(const Call &call, const RequestRule &rule) {
    const Connection &connection = call.connection;
    switch (connection.state) {
        case ConnectionState::AwaitHello:
            return rule.need == Need::Fresh ||
                   not_now(call, rule, "the first message must be Hello");
        case ConnectionState::AwaitProof:
            return rule.need == Need::Proof ||
                   not_now(call, rule, "HelloProof with the nonce of Hello comes next");
        default:
            break;
    }
    const Session *session = call.session();
    switch (rule.need) {
        case Need::Fresh:
            return not_now(call, rule, "said already on this connection");
        case Need::Proof:
            return not_now(call, rule, "no nonce was asked on this connection, or it was answered");
        case Need::Hello:
        case Need::NoSession:
            return true;
        case Need::Session:
        case Need::Joining:
        case Need::Attaching:
            break;
    }
    if (!session)
        return not_now(call, rule, "needs a session: OpenSession or Attach first");
    bool attaching =
        session->state == SessionState::Attaching || session->state == SessionState::Restoring;
    if (rule.worker_only && !session->worker())
        return not_for_schedulers(call, rule);
    if (rule.need == Need::Session && attaching)
        return not_now(call, rule, "the session is being re-attached; AttachDone comes first");
    if (rule.need == Need::Attaching && !attaching)
        return not_now(call, rule, "only between Attach and AttachDone");
    return true;
}

// A session works in the namespaces of its own uid, whoever it is; without one (`any_seen`) an
// admin may look at those of all. What is another's is not told apart from what is not there.
wire::Status Service::Impl::namespace_of(const Call &call, wire::Id id, bool any_seen,
                                         NamespaceIndex *ret_index) const {
    bool any_epoch = MARU_MUTANT(NamespaceByNumberAfterRestart) || MARU_MUTANT(StaleEpochAccepted);
    if (wire::id_epoch(id) != config.epoch && !any_epoch)
        return wire::Status::StaleEpoch;
    uint32_t uid = directory.namespace_uid(wire::id_number(id));
    if (uid == UINT32_MAX)  // no namespace
        return wire::Status::NotFound;
    bool usable = any_seen ? may_see(call, uid) : call.connection.peer.uid == uid;
    if (!usable && !MARU_MUTANT(ForeignNamespaceServed))
        return wire::Status::NotFound;
    *ret_index = wire::id_number(id);
    return wire::Status::Ok;
}

bool Service::Impl::namespace_or_refuse(const Call &call, wire::Id id, bool any_seen,
                                        NamespaceIndex *ret_index) {
    wire::Status status = namespace_of(call, id, any_seen, ret_index);
    if (status == wire::Status::Ok)
        return true;
    if (status == wire::Status::StaleEpoch)
        refuse(call, status,
               "namespace id of another life of marud: register the text again, with epoch " +
                   std::to_string(config.epoch));
    else
        refuse(call, status,
               "no namespace of uid " + std::to_string(call.connection.peer.uid) +
                   " has that id; register its text first");
    return false;
}

Pool *Service::Impl::own_pool_or_refuse(const Call &call, wire::Id id) {
    Pool *pool = pools.find(id);
    if (!pool) {
        refuse(call, wire::Status::NotFound, "no pool has that id");
        return nullptr;
    }
    if (pool->owner != call.session()) {
        refuse(call, wire::Status::Denied, "that pool belongs to another session");
        return nullptr;
    }
    return pool;
}

bool Service::Impl::batch_fits(const Call &call, size_t items, const char *what) {
    if (items <= wire::kMaxBatchItems)
        return true;
    refuse(call, wire::Status::TooLarge,
           std::to_string(items) + " " + what + " in one request; at most " +
               std::to_string(wire::kMaxBatchItems));
    return false;
}

uint64_t Service::Impl::leases_left(const Session &session) const {
    uint64_t held = directory.holder_leases(session.holder);
    return held < config.max_leases_per_session ? config.max_leases_per_session - held : 0;
}

// ---- the door
// ------------------------------------------------------------------------------------

Service::Service(ServiceConfig config, Effects &effects, TimeNs now)
    : impl_(std::make_unique<Impl>(std::move(config), effects, now)) {}

Service::~Service() = default;

void Service::restore(const SessionRecord &record, std::span<const SegmentRef> held,
                      ProcessId64 process, bool alive, TimeNs now) {
    impl_->now = now;
    impl_->restore(record, held, process, alive);
}

void Service::restore_objects(std::span<const ObjectRecord> records,
                              std::span<const SegmentRef> held, TimeNs now, bool sessions_lost) {
    impl_->now = now;
    impl_->restore_objects(records, held, sessions_lost);
}

void Service::restored(TimeNs now) {
    impl_->now = now;
    impl_->restored();
}

std::vector<ObjectRecord> Service::object_records() {
    std::vector<ObjectRecord> facts;
    uint64_t cursor = 0;
    do
        for (ObjectRecord &fact : impl_->object_records(cursor, UINT32_MAX))
            facts.push_back(std::move(fact));
    while (cursor);
    return facts;
}

std::vector<ObjectRecord> Service::object_records(uint64_t &cursor, uint32_t most) {
    return impl_->object_records(cursor, most);
}

bool Service::end_object_records() {
    if (impl_->adopted_segments.size() > 0 || impl_->pools.shared() > 0 ||
        !impl_->to_record.empty())
        return false;
    impl_->recorded_namespaces.clear();
    return true;
}

void Service::connection_opened(ConnectionId connection, const Peer &peer, uint64_t proof_nonce,
                                TimeNs now) {
    impl_->now = now;
    Connection &opened = impl_->connections[connection];
    assert(opened.id == 0 && connection != 0);
    opened.id = connection;
    opened.peer = peer;
    opened.nonce = proof_nonce;
}

void Service::connection_closed(ConnectionId connection, TimeNs now) {
    impl_->now = now;
    impl_->connection_closed(connection);
}

void Service::handle(ConnectionId connection, const wire::Request &request,
                     std::span<const AttachedDescriptor> descriptors, TimeNs now) {
    Impl &impl = *impl_;
    impl.now = now;
    impl.adopted.assign(descriptors.size(), SegmentRef{});
    auto found = impl.connections.find(connection);
    if (found == impl.connections.end())
        return;  // told to close: what it still sends is dropped
    ++impl.requests;
    Call call{found->second, request.id, static_cast<uint8_t>(request.body.index()), descriptors};
    if (request.id == 0) {
        impl.refuse(call, wire::Status::Protocol, "request id 0 is for events");
        return;
    }
    std::visit(
        [&](const auto &body) {
            using Body = std::decay_t<decltype(body)>;
            constexpr const RequestRule &rule = RuleOf<Body>::kRule;
            // Before hello there is no epoch to be wrong about.
            bool fresh = call.connection.state == ConnectionState::AwaitHello;
            if (rule.need != Need::Fresh && !fresh && request.epoch != impl.config.epoch &&
                !MARU_MUTANT(StaleEpochAccepted)) {
                impl.refuse(call, wire::Status::StaleEpoch,
                            "epoch " + std::to_string(request.epoch) +
                                " is over; this marud has epoch " +
                                std::to_string(impl.config.epoch) + ": re-attach");
                return;
            }
            if (!descriptors.empty() && !std::is_same_v<Body, wire::AttachPoolRequest>) {
                impl.refuse(call, wire::Status::Protocol,
                            std::string(rule.name) + ": only AttachPool may carry descriptors");
                return;
            }
            if (!impl.allowed(call, rule))
                return;
            if (Session *session = call.session()) {
                impl.heard(*session);
                session->ledger.acknowledge(request.acknowledged_op);
            }
            impl.on(call, body);
        },
        request.body);
}

std::span<const SegmentRef> Service::adopted_descriptors() const { return impl_->adopted; }

void Service::refuse(ConnectionId connection, uint64_t request_id, wire::Status status,
                     std::string_view message, TimeNs now) {
    impl_->now = now;
    auto found = impl_->connections.find(connection);
    if (found == impl_->connections.end())
        return;
    ++impl_->requests;
    impl_->refuse(Call{found->second, request_id, metrics::kMalformedRequest, {}}, status, message);
}

void Service::on_segment_created(SegmentRef segment, const Result<CreatedSegment> &result,
                                 TimeNs now) {
    impl_->now = now;
    impl_->on_segment_created(segment, result);
}

void Service::on_segment_sealed(SegmentRef segment, const Result<void> &result, TimeNs now) {
    impl_->now = now;
    impl_->on_segment_sealed(segment, result);
}

void Service::on_segment_proven(SegmentRef segment, Proof proof, TimeNs now) {
    impl_->now = now;
    impl_->on_segment_proven(segment, proof);
}

void Service::process_exited(ProcessId64 process, TimeNs now) {
    impl_->now = now;
    impl_->process_exited(process);
}

void Service::stalled(TimeNs gap, TimeNs now) {
    impl_->now = now;
    impl_->stalled(gap);
}

TimeNs Service::next_deadline() const { return impl_->deadline; }

void Service::tick(TimeNs now) {
    impl_->now = now;
    impl_->tick();
}

void Service::reconfigure(const ServiceConfig &config) {
    ServiceConfig merged = config;
    // These belong to the life, not to the configuration.
    merged.epoch = impl_->config.epoch;
    merged.hash_seed = impl_->config.hash_seed;
    merged.pid = impl_->config.pid;
    merged.version = impl_->config.version;
    merged.fdstore = impl_->config.fdstore;
    merged.fdstore_name = impl_->config.fdstore_name;
    // The directory sized its tables by these.
    merged.max_namespaces = impl_->config.max_namespaces;
    merged.max_objects = impl_->config.max_objects;
    impl_->config = merged;
    impl_->quota.set_limits(quota_limits(merged));
    impl_->directory.set_max_namespaces_per_uid(merged.max_namespaces_per_uid);
    impl_->sessions.each(
        [&](Session &session) { session.ledger.set_max_items(merged.max_ledger_items); });
    impl_->note_deadline(impl_->now);  // a shorter timeout may have passed already
}

void Service::drain(bool enable) { impl_->set_draining(enable); }

void Service::shutdown(TimeNs now) {
    impl_->now = now;
    for (const auto &[id, connection] : impl_->connections)
        if (connection.session)
            impl_->effects.event(id, {wire::EventKind::Shutdown, {}, "marud stops"});
}

bool Service::watched(ProcessId64 process) const {
    bool found = false;
    impl_->sessions.each([&](const Session &session) {
        found |= session.process == process && session.state != SessionState::Exiting;
    });
    for (const auto &[id, connection] : impl_->connections)
        found |= connection.peer.process == process;
    return found && process != 0;
}

Service::Counters Service::counters() const {
    Directory::Totals totals = impl_->directory.totals();
    Counters counters;
    counters.sessions = impl_->sessions.size();
    impl_->sessions.each([&](const Session &session) {
        counters.attached += session.state == SessionState::Attached;
    });
    counters.connections = static_cast<uint32_t>(impl_->connections.size());
    counters.replicas = totals.replicas;
    counters.leases = totals.leases;
    counters.objects = totals.objects;
    counters.reserved_bytes = impl_->quota.host_bytes();
    counters.unproven_bytes = impl_->unproven_bytes(0, true);
    counters.requests = impl_->requests;
    counters.refused = impl_->refused;
    return counters;
}

const metrics::ServiceTally &Service::tally() const { return impl_->tally; }

metrics::ServiceGauges Service::gauges() const { return impl_->gauges(); }

std::string Service::check_invariants() const { return impl_->check_invariants(); }

std::string seconds_text(TimeNs duration) {
    return std::to_string(std::max<TimeNs>(duration, 0) / kSecond) + " s";
}

}  // namespace maru
