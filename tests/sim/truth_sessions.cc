// Truth, part 2: every reply against what it may say. Sessions, namespaces and pools.
#include "tests/sim/truth.h"
#include "tests/sim/world.h"

namespace maru::sim {

using wire::Status;
using ull = unsigned long long;

namespace {

// The reply's status if it is a bare one; Ok for a reply with content.
Status bare_status(const wire::Reply &reply) {
    const auto *only = std::get_if<wire::StatusOnly>(&reply.body);
    return only ? only->status : Status::Ok;
}

bool needs_session(const wire::RequestBody &body) {
    return !std::holds_alternative<wire::HelloRequest>(body) &&
           !std::holds_alternative<wire::HelloProofRequest>(body) &&
           !std::holds_alternative<wire::OpenSessionRequest>(body) &&
           !std::holds_alternative<wire::AttachRequest>(body) &&
           !std::holds_alternative<wire::StatusRequest>(body) &&
           !std::holds_alternative<wire::ListRequest>(body) &&
           !std::holds_alternative<wire::ExplainRequest>(body) &&
           !std::holds_alternative<wire::AdminRetireRequest>(body) &&
           !std::holds_alternative<wire::RetireSegmentRequest>(body) &&
           !std::holds_alternative<wire::DrainRequest>(body) &&
           !std::holds_alternative<wire::ReloadRequest>(body) &&
           !std::holds_alternative<wire::UsageRequest>(body) &&
           !std::holds_alternative<wire::RegisterNamespaceRequest>(body);
}

}  // namespace

uint32_t Truth::text_index(std::string_view text) {
    auto found = texts_.find(text);
    if (found == texts_.end())
        found = texts_.emplace(std::string(text), static_cast<uint32_t>(texts_.size())).first;
    return found->second;
}

const Truth::Namespace *Truth::fresh_namespace(wire::Id id) const {
    auto found = namespaces_.find(id);
    return found == namespaces_.end() || found->second.epoch != epoch_ ? nullptr : &found->second;
}

const Truth::Namespace *Truth::own_namespace(const Session &session, wire::Id id,
                                             const char *what) const {
    const Namespace *space = fresh_namespace(id);
    if (space && space->uid != session.uid)
        violated(Rule::NamespaceIsolation, "%s of uid %u works in a namespace of uid %u", what,
                 session.uid, space->uid);
    return space;
}

uint32_t Truth::text_of_id(wire::Id ns) const {
    const Namespace *space = fresh_namespace(ns);
    return space ? space->text : UINT32_MAX;
}

void Truth::on_request(Link &link, const wire::Request &request) {
    ++statistics_.requests;
    Session *session = session_of(link);
    if (!session)
        return;
    if (const auto *close = std::get_if<wire::ClosePoolRequest>(&request.body)) {
        auto pool = pools_.find(close->pool);
        if (pool != pools_.end() && pool->second.owner == session) {
            pool->second.unsure = true;
            pool->second.forced |= close->phase == wire::ClosePhase::Force;
            pool->second.finishing |=
                close->phase == wire::ClosePhase::Finish && pool->second.closing;
        }
    }
}

void Truth::on_reply(Link &link, const wire::Request &request, const wire::Reply &reply,
                     std::span<Memfd *const> fds) {
    const Status status = bare_status(reply);
    if (status == Status::StaleEpoch)
        ++statistics_.stale;
    if (!std::holds_alternative<wire::HelloRequest>(request.body) && request.epoch != epoch_ &&
        status == Status::Ok)
        violated(Rule::EpochFences, "a request of epoch %x was served in epoch %x", request.epoch,
                 epoch_);
    if (!fds.empty() && !std::holds_alternative<wire::GrantSegmentRequest>(request.body) &&
        !std::holds_alternative<wire::MapSegmentRequest>(request.body))
        violated(Rule::OwnerIsolation, "descriptors travel with a reply that carries none");
    if (status != Status::Ok) {
        ++statistics_.refused;
        if (std::holds_alternative<wire::ClosePoolRequest>(request.body))
            if (Session *session = session_of(link))
                replied(*session, request, std::get<wire::ClosePoolRequest>(request.body), reply);
        return;
    }
    if (const auto *open = std::get_if<wire::OpenSessionRequest>(&request.body))
        return replied(link, request, *open, reply);
    if (const auto *attach = std::get_if<wire::AttachRequest>(&request.body))
        return replied(link, request, *attach, reply);
    if (const auto *text = std::get_if<wire::RegisterNamespaceRequest>(&request.body))
        return namespace_replied(link, *text, reply);
    if (const auto *retire = std::get_if<wire::AdminRetireRequest>(&request.body))
        return admin_retired(link, *retire, reply);
    if (const auto *retire = std::get_if<wire::RetireSegmentRequest>(&request.body))
        shared_.segment_retired(link, *retire);
    if (std::holds_alternative<wire::MapSegmentRequest>(request.body))
        shared_.viewed(link, reply, fds);
    Session *session = session_of(link);
    if (!session) {
        if (needs_session(request.body))
            violated(Rule::EpochFences,
                     "a request that needs a session was served without a living one");
        return;
    }
    // Only a request that was served proves life and moves the watermark, so far as Truth relies on
    // it; and only one that was answered at once says when.
    if (!std::holds_alternative<wire::GrantSegmentRequest>(request.body) &&
        !std::holds_alternative<wire::SegmentMappedRequest>(request.body) &&
        !std::holds_alternative<wire::ClosePoolRequest>(request.body))
        session->heard = world_.now();
    session->watermark = std::max(session->watermark, request.acknowledged_op);
    session->operations.erase(session->operations.begin(),
                              session->operations.upper_bound(session->watermark));
    if (link.process->sharer && !std::holds_alternative<wire::AttachDoneRequest>(request.body) &&
        !std::holds_alternative<wire::CloseSessionRequest>(request.body))
        return shared_.on_reply(link, request, reply);
    std::visit(
        [&](const auto &body) {
            using T = std::decay_t<decltype(body)>;
            if constexpr (std::is_same_v<T, wire::GrantSegmentRequest>)
                segment_replied(*session, body, reply, fds);
            else if constexpr (std::is_same_v<T, wire::AttachDoneRequest>) {
                session->whole = session->this_life = true;
                session->heard = world_.now();
                for (auto &[id, replica] : replicas_)
                    if (replica.owner == session && !replica.named)
                        replica.leases = 0;
            } else if constexpr (std::is_same_v<T, wire::CloseSessionRequest>) {
                for (const auto &file : world_.memfds()) {
                    const auto pool = pools_.find(file->ref.pool);
                    if (pool != pools_.end() && pool->second.owner == session &&
                        file->touchable() && !file->lost)
                        violated(Rule::ChargeUntilProof,
                                 "session %llx closed while pool %llx may be touched",
                                 static_cast<ull>(session->id), static_cast<ull>(pool->first));
                }
                std::erase_if(pools_,
                              [&](const auto &entry) { return entry.second.owner == session; });
                end_session(*session);
                session->token_known =
                    false;  // closed, not fenced: the token is simply unknown now
            } else if constexpr (requires { replied(*session, request, body, reply); })
                replied(*session, request, body, reply);
        },
        request.body);
}

// ---- sessions ----------------------------------------------------------------------------------

void Truth::replied(Link &link, const Request &, const wire::OpenSessionRequest &open,
                    const wire::Reply &reply) {
    const auto *answer = std::get_if<wire::SessionReply>(&reply.body);
    if (!answer)
        violated(Rule::OneReply, "open-session answered by another kind");
    Session *session = nullptr;
    for (auto &known : sessions_)
        if (known->id == answer->session ||
            (known->token_known && known->token == open.token && !known->ended))
            session = known.get();
    // A session that left no memory and was away for a while may be forgotten, its token free again.
    if (session && !answer->existed) {
        if (owns_pools(*session) || session->connection != 0)
            violated(Rule::TokenBinds, "the token of session %llx opened another one",
                     static_cast<ull>(session->id));
        end_session(*session);
        session->token_known = false;
        session = nullptr;
    }
    if (session && session->process != link.process->number)
        violated(Rule::TokenBinds, "session %llx of p%llu opened by p%llu",
                 static_cast<ull>(answer->session), static_cast<ull>(session->process),
                 static_cast<ull>(link.process->number));
    for (auto &known : sessions_)
        if (known->fenced && known->token_known && known->token == open.token)
            violated(Rule::TokenBinds, "a fenced token opened session %llx",
                     static_cast<ull>(answer->session));
    if (!session) {
        sessions_.push_back(std::make_unique<Session>());
        session = sessions_.back().get();
        ++statistics_.opens;
    }
    if (Session *other = session_of(link); other && other != session)
        violated(Rule::TokenBinds, "one connection answers for two sessions");
    session->id = answer->session;
    session->token = open.token;
    session->token_known = true;
    session->process = link.process->number;
    session->liar = link.process->liar;
    session->uid = link.process->uid;
    session->role = open.role;
    session->engine = std::string(open.engine);
    if (session->connection != link.id)  // else: a retry over the same connection changes nothing
        session->this_life = session->whole = true;
    session->connection = link.id;
    session->heard = world_.now();
    world_.remember(session->id);
    take_engine(*session);
}

void Truth::replied(Link &link, const Request &, const wire::AttachRequest &attach,
                    const wire::Reply &reply) {
    const auto *answer = std::get_if<wire::AttachReply>(&reply.body);
    if (!answer)
        violated(Rule::OneReply, "attach answered by another kind");
    ++statistics_.attaches;
    Session *session = nullptr;
    for (auto &known : sessions_) {
        const bool same = known->token_known ? known->token == attach.token
                                             : known->process == link.process->number &&
                                                   !known->ended && known->engine == attach.engine;
        if (same && (!session || !known->ended))
            session = known.get();
    }
    if (!session)
        violated(Rule::TokenBinds, "attached with a token that nobody opened a session with");
    if (session->process != link.process->number)
        violated(Rule::TokenBinds, "session of p%llu re-attached by p%llu",
                 static_cast<ull>(session->process), static_cast<ull>(link.process->number));
    if (session->ended)
        violated(Rule::TokenBinds, "a session that had ended (%s) re-attached",
                 session->fenced ? "fenced" : "exited");
    if (session->role != attach.role || session->engine != attach.engine)
        violated(Rule::TokenBinds, "a session re-attached with another role or engine");
    if (answer->same_life != session->this_life)
        violated(Rule::EpochFences, "attach says %s life, which it is not",
                 answer->same_life ? "the same" : "a new");
    session->token = attach.token;
    session->token_known = true;
    session->id = answer->session;
    session->connection = link.id;
    session->whole = false;
    session->heard = world_.now();
    if (attach.lowest_unanswered > 0)
        session->watermark = std::max(session->watermark, attach.lowest_unanswered - 1);
    for (auto &[id, replica] : replicas_)
        if (replica.owner == session)
            replica.named = false;
    world_.remember(session->id);
    take_engine(*session);
}

void Truth::namespace_replied(const Link &link, const wire::RegisterNamespaceRequest &request,
                              const wire::Reply &reply) {
    const auto *answer = std::get_if<wire::NamespaceReply>(&reply.body);
    if (!answer)
        violated(Rule::OneReply, "register-namespace answered by another kind");
    namespace_known(answer->namespace_id, text_index(request.text), link.process->uid);
}

void Truth::namespace_known(wire::Id id, uint32_t text, uint32_t uid) {
    if (wire::id_epoch(id) != epoch_)
        violated(Rule::EpochFences, "namespace id %llx does not carry epoch %x",
                 static_cast<ull>(id), epoch_);
    const auto found = namespaces_.find(id);
    if (found != namespaces_.end() && found->second.text != text)
        violated(Rule::NamespaceIsolation, "two texts share namespace id %llx",
                 static_cast<ull>(id));
    if (found != namespaces_.end() && found->second.uid != uid)
        violated(Rule::NamespaceIsolation, "uids %u and %u share namespace id %llx",
                 found->second.uid, uid, static_cast<ull>(id));
    for (const auto &[other, known] : namespaces_)
        if (known.text == text && known.uid == uid && known.epoch == epoch_ && other != id)
            violated(Rule::NamespaceIsolation, "one text of one uid has two namespace ids");
    namespaces_[id] = {text, epoch_, uid};
    world_.remember(id);
}

void Truth::replied(Session &session, const Request &, const wire::DescribeRequest &describe,
                    const wire::Reply &) {
    if (!own_namespace(session, describe.namespace_id, "a describe"))
        violated(Rule::EpochFences, "describe of a stale or unknown namespace was accepted");
    if (session.object_bytes && session.object_bytes != describe.object_bytes)
        violated(Rule::ContentImmutable, "the schema of a session changed");
    session.object_bytes = describe.object_bytes;
    session.described.push_back(describe.namespace_id);
}

// ---- pools -------------------------------------------------------------------------------------

void Truth::replied(Session &session, const Request &, const wire::OpenPoolRequest &,
                    const wire::Reply &reply) {
    const auto *answer = std::get_if<wire::PoolReply>(&reply.body);
    if (!answer)
        violated(Rule::OneReply, "open-pool answered by another kind");
    if (session.role != wire::Role::Worker)
        violated(Rule::OwnerIsolation, "a session without the role of a worker was granted memory");
    auto found = pools_.find(answer->pool);
    if (found != pools_.end() && found->second.owner != &session)
        violated(Rule::OwnerIsolation, "pool %llx given to two sessions",
                 static_cast<ull>(answer->pool));
    if (found == pools_.end())
        ++statistics_.pools;
    Pool &pool = pools_[answer->pool];
    pool.id = answer->pool;
    pool.owner = &session;
    pool.capacity = answer->capacity_bytes;
    pool.segment_bytes = answer->segment_bytes;
    pool.page_bytes = world_.settings().page_bytes;
    pool.segments = answer->segment_count;
    pool.granted.resize(answer->segment_count);
    world_.remember(answer->pool);
}

void Truth::segment_replied(Session &session, const wire::GrantSegmentRequest &grant,
                            const wire::Reply &reply, std::span<Memfd *const> fds) {
    if (!std::holds_alternative<wire::SegmentReply>(reply.body) || fds.size() != 1)
        violated(Rule::OneReply, "grant-segment answered without a descriptor");
    const auto pool = pools_.find(grant.pool);
    if (pool == pools_.end() || pool->second.owner != &session)
        violated(Rule::OwnerIsolation, "a writable descriptor of pool %llx given to a stranger",
                 static_cast<ull>(grant.pool));
    if (fds[0]->ref != SegmentRef{grant.pool, grant.segment})
        violated(Rule::OwnerIsolation, "the descriptor of another segment was given");
}

void Truth::replied(Session &session, const Request &, const wire::SegmentMappedRequest &mapped,
                    const wire::Reply &) {
    const auto pool = pools_.find(mapped.pool);
    const Memfd *file = world_.memfd({mapped.pool, mapped.segment});
    if (pool == pools_.end() || pool->second.owner != &session)
        violated(Rule::OwnerIsolation, "a segment of another's pool was granted");
    if (!file || !file->future_sealed)
        violated(Rule::ReadyAfterWrite,
                 "segment %llx/%u is granted for commits before it is sealed",
                 static_cast<ull>(mapped.pool), mapped.segment);
    pool->second.granted[mapped.segment] = true;
}

uint64_t Truth::leases_on(wire::Id pool) const {
    uint64_t count = 0;
    for (const auto &[id, replica] : replicas_)
        if (replica.pool == pool)
            count += replica.leases;
    return count;
}

void Truth::replied(Session &session, const Request &, const wire::ClosePoolRequest &close,
                    const wire::Reply &reply) {
    const auto found = pools_.find(close.pool);
    const auto *answer = std::get_if<wire::ClosePoolReply>(&reply.body);
    const bool done = answer && answer->status == Status::Ok;
    if (!done) {
        if (found != pools_.end() && found->second.owner == &session &&
            close.phase == wire::ClosePhase::Drain)
            found->second.unsure = found->second.closing || found->second.forced;
        return;
    }
    if (found == pools_.end() && finished_.count({close.pool, &session}))
        return;  // asked for more than once, and answered as often
    if (found == pools_.end() || found->second.owner != &session)
        violated(Rule::OwnerIsolation, "pool %llx closed by a stranger",
                 static_cast<ull>(close.pool));
    if (const uint64_t leases = leases_on(close.pool))
        violated(Rule::NoReuseUnderReader, "pool %llx is closed with %llu leases on it",
                 static_cast<ull>(close.pool), static_cast<ull>(leases));
    found->second.closing = true;
    if (close.phase != wire::ClosePhase::Finish)
        return;
    for (const auto &file : world_.memfds())
        if (file->ref.pool == close.pool && file->touchable() && !file->lost)
            violated(Rule::ChargeUntilProof,
                     "pool %llx is credited while segment %u may be touched",
                     static_cast<ull>(close.pool), file->ref.segment);
    ++statistics_.closed;
    finished_.insert({close.pool, &session});
    forget_pool(close.pool);
}

}  // namespace maru::sim
