#include "libmaru/client/restore.h"

#include <algorithm>
#include <cerrno>

#include "libmaru/client/batch_ops.h"
#include "libmaru/client/pool.h"
#include "libmaru/client/status.h"

namespace maru::client {

using wire::Status;

namespace {

bool failed(const Session::CallResult &result) { return result.code != 0; }

}  // namespace

Restore::Result Restore::call(CallOp::Build build, CallOp::Reply reply, std::span<const int> fds) {
    return session_.call(lock_, std::move(build), std::move(reply), deadline_, true, fds);
}

Restore::Result Restore::hello() {
    uint64_t nonce = 0;
    uint16_t major = 0;
    auto result = call(
        [&](wire::RequestBody &body) {
            wire::HelloRequest request;
            request.client_name = session_.options_.name;
            body = request;
        },
        [&](const wire::ReplyBody &body, std::vector<UniqueFd> &, bool) {
            const auto *reply = std::get_if<wire::HelloReply>(&body);
            if (!reply || reply->epoch == 0)
                return false;
            nonce = reply->nonce;
            major = reply->major;
            session_.epoch_ = reply->epoch;
            session_.uid_ = reply->uid;
            session_.server_version_ = reply->version;
            session_.capabilities_.assign(reply->capabilities.begin(), reply->capabilities.end());
            session_.transport_.set_limits(reply->limits);
            return true;
        });
    if (failed(result))
        return result;
    if (major != wire::kProtocolMajor)
        return {EPROTONOSUPPORT, Status::VersionMismatch,
                "marud speaks protocol " + std::to_string(major) + ", this library " +
                    std::to_string(wire::kProtocolMajor)};
    if (nonce == 0)
        return result;
    return call([&](wire::RequestBody &body) { body = wire::HelloProofRequest{nonce}; }, accept_ok);
}

Restore::Result Restore::open_session() {
    TimeNs pause = 10 * kMillisecond;
    for (;;) {
        auto result = call(
            [&](wire::RequestBody &body) {
                body = wire::OpenSessionRequest{session_.token_, session_.options_.role,
                                                session_.options_.engine};
            },
            [&](const wire::ReplyBody &body, std::vector<UniqueFd> &, bool) {
                const auto *reply = std::get_if<wire::SessionReply>(&body);
                if (!reply)
                    return false;
                session_.id_ = reply->session;
                return true;
            });
        // The holder may be dying, or not be back yet after a restart of marud.
        if (result.status == Status::Busy && now_ns() + pause < deadline_) {
            session_.transport_.wait(lock_, this, now_ns() + pause, [] { return false; });
            pause = std::min(pause * 2, 200 * kMillisecond);
            continue;
        }
        if (!failed(result)) {
            session_.state_ = SessionState::Attached;
            session_.told_epoch_ = session_.epoch_;
            session_.next_heartbeat_ =
                session_.transport_.limits().heartbeat_ms
                    ? now_ns() + session_.transport_.limits().heartbeat_ms * kMillisecond
                    : kNever;
        }
        return result;
    }
}

Restore::Result Restore::attach() {
    old_epoch_ = session_.told_epoch_;
    auto result = hello();
    if (failed(result))
        return result;
    bool same = false;
    std::vector<wire::Id> missing;
    result = call(
        [&](wire::RequestBody &body) {
            body = wire::AttachRequest{session_.token_, session_.options_.role,
                                       session_.options_.engine, old_epoch_,
                                       session_.ledger_.lowest_unsettled()};
        },
        [&](const wire::ReplyBody &body, std::vector<UniqueFd> &, bool) {
            const auto *reply = std::get_if<wire::AttachReply>(&body);
            if (!reply)
                return false;
            same = reply->same_life;
            missing = reply->missing_pools;
            session_.id_ = reply->session;
            return true;
        });
    if (result.status == Status::NotFound)
        return lost_session(result);
    if (failed(result))
        return result;
    // Releases that were on their way are told by the counts instead.
    session_.release_op_.forget();
    session_.ack_op_.forget();
    session_.sweep_op_.forget();
    session_.views_.forget_unused();
    if (!same)
        return new_life(missing);
    if (session_.told_epoch_ != session_.epoch_)
        return {EPROTO, Status::Protocol, "marud claims to know what it was never told"};
    return same_life();
}

// marud knows nothing of this session. Without memory in its hands it may simply begin again.
Restore::Result Restore::lost_session(const Result &why) {
    if (!session_.pools_.empty()) {
        session_.on_fenced("marud does not know this session any more: " + why.message);
        return {EKEYREVOKED, Status::Fenced, session_.over_why_};
    }
    // Of what it reads of others the leases are over; the bytes stay mapped as long as they are used.
    for (uint32_t held = 0; held < session_.held_.slots(); ++held)
        if (session_.held_[held].state == HeldState::Foreign)
            session_.orphan(held);
    auto result = open_session();
    if (!failed(result))
        result = register_namespaces();
    if (!failed(result))
        result = resolve();
    return result;
}

Restore::Result Restore::same_life() {
    auto result = attach_leases();
    if (!failed(result))
        result = attach_done();
    if (!failed(result))
        result = resolve();
    return result;
}

Restore::Result Restore::new_life(const std::vector<wire::Id> &missing) {
    auto result = register_namespaces();
    if (!failed(result))
        result = attach_pools(missing);
    if (!failed(result))
        result = republish();
    if (!failed(result))
        result = ask_published();
    if (!failed(result)) {
        // Should the answer be lost: marud may have it all, and then says that it is the same life.
        session_.told_epoch_ = session_.epoch_;
        result = attach_done();
    }
    if (!failed(result))
        result = resolve();
    return result;
}

Restore::Result Restore::register_namespaces() {
    Result result;
    // By index: a thread that opens a namespace waits, but its answer may come from before.
    for (size_t i = 0; i < session_.namespaces_.size(); ++i) {
        Namespace &ns = *session_.namespaces_[i];
        result =
            call([&](wire::RequestBody &body) { body = wire::RegisterNamespaceRequest{ns.text}; },
                 [&](const wire::ReplyBody &body, std::vector<UniqueFd> &, bool) {
                     const auto *reply = std::get_if<wire::NamespaceReply>(&body);
                     if (!reply)
                         return false;
                     ns.id = reply->namespace_id;
                     return true;
                 });
        if (failed(result))
            return result;
        if (ns.format.empty())
            continue;
        result = call(
            [&](wire::RequestBody &body) {
                body = wire::DescribeRequest{ns.id, ns.object_bytes, ns.format};
            },
            accept_ok);
        // Described differently by somebody since: then its objects are refused one by one.
        if (failed(result) && result.status != Status::Incompatible)
            return result;
    }
    return {};
}

Restore::Result Restore::attach_pools(const std::vector<wire::Id> &missing) {
    std::vector<int> fds;
    for (const wire::Id id : missing) {
        Pool *pool = session_.find_pool(id);
        if (!pool)
            continue;  // its open was given up; see after()
        for (uint32_t first = 0; first < pool->confirmed_segments();) {
            auto request = pool->attach_request(first, fds);
            auto result = call([&](wire::RequestBody &body) { body = request; }, accept_ok, fds);
            if (failed(result))
                return result;
            first += request.segment_count;
        }
    }
    return {};
}

// Pages of what is told with leases stay taken; what is withdrawn and unread is only ours to free.
Restore::Result Restore::republish() {
    HeldTable &table = session_.held_;
    std::vector<wire::RepublishItem> items;
    std::vector<uint32_t> slots;
    const uint32_t limit = session_.transport_.limits().batch_items;
    for (uint32_t held = 0; held < table.slots();) {
        items.clear();
        slots.clear();
        for (; held < table.slots() && items.size() < limit; ++held) {
            Held &entry = table[held];
            if (entry.state == HeldState::Free || entry.state == HeldState::Orphan)
                continue;
            const bool shared = entry.pool && entry.pool->shared();
            // Nobody else can hold a lease on a private object, and the new marud has not heard of it.
            if (entry.state != HeldState::Ready && entry.leases == 0 && !shared) {
                session_.orphan(held);
                continue;
            }
            if (entry.state == HeldState::Reclaiming)
                entry.state = HeldState::Retiring;
            entry.told_leases = entry.leases;
            items.push_back({{entry.key, entry.pool ? entry.pool->id() : entry.pool_id,
                              entry.run.offset, entry.run.length, entry.run.generation},
                             entry.ns->id,
                             entry.leases,
                             entry.state == HeldState::Retiring});
            slots.push_back(held);
        }
        if (items.empty())
            break;
        auto result = call([&](wire::RequestBody &body) { body = wire::RepublishRequest{items}; },
                           [&](const wire::ReplyBody &body, std::vector<UniqueFd> &, bool) {
                               const auto *reply = std::get_if<wire::ItemStatusReply>(&body);
                               if (!reply || reply->statuses.size() != items.size() ||
                                   reply->replicas.size() != items.size())
                                   return false;
                               for (size_t i = 0; i < slots.size(); ++i) {
                                   if (reply->statuses[i] != Status::Ok) {
                                       // Shared memory marud knows by its own record, and
                                       // takes back by itself when others have read it.
                                       Held &entry = table[slots[i]];
                                       entry.keep_pages = entry.pool && entry.pool->shared();
                                       session_.orphan(slots[i]);
                                       continue;
                                   }
                                   table.rename(slots[i], reply->replicas[i]);
                                   ++session_.republished_;
                               }
                               return true;
                           });
        if (failed(result))
            return result;
    }
    return {};
}

// Commits into a shared pool that no answer came for. marud's own record knows them, and whoever is
// not told of one that was published would give its pages to somebody else.
Restore::Result Restore::ask_published() {
    CommitLedger &ledger = session_.ledger_;
    const uint32_t limit = session_.transport_.limits().batch_items;
    std::vector<wire::RepublishItem> items;
    std::vector<uint64_t> ids;
    const uint64_t end = ledger.next_id();
    for (uint64_t id = ledger.lowest_unsettled(); id < end;) {
        items.clear();
        ids.clear();
        for (; id < end && items.size() < limit; ++id) {
            const CommitRecord *record = ledger.find(id);
            if (!record || !record->pool->shared())
                continue;
            items.push_back({{record->key, record->pool->id(), record->run.offset,
                              record->run.length, record->run.generation},
                             record->ns->id,
                             0,
                             2});
            ids.push_back(id);
        }
        if (items.empty())
            break;
        auto result = call([&](wire::RequestBody &body) { body = wire::RepublishRequest{items}; },
                           [&](const wire::ReplyBody &body, std::vector<UniqueFd> &, bool) {
                               const auto *reply = std::get_if<wire::ItemStatusReply>(&body);
                               if (!reply || reply->statuses.size() != items.size() ||
                                   reply->replicas.size() != items.size())
                                   return false;
                               for (size_t i = 0; i < ids.size(); ++i)
                                   if (reply->statuses[i] == Status::Ok && ledger.find(ids[i]))
                                       session_.check(session_.settle_commit(
                                           ids[i], {reply->replicas[i], Status::Committed, 0}));
                               return true;
                           });
        if (failed(result))
            return result;
    }
    return {};
}

Restore::Result Restore::attach_leases() {
    HeldTable &table = session_.held_;
    std::vector<wire::LeaseItem> items;
    const uint32_t limit = session_.transport_.limits().batch_items;
    for (uint32_t held = 0; held < table.slots();) {
        items.clear();
        for (; held < table.slots() && items.size() < limit; ++held) {
            Held &entry = table[held];
            if (entry.state == HeldState::Free || entry.state == HeldState::Orphan)
                continue;
            entry.told_leases = entry.leases;
            if (entry.leases > 0)
                items.push_back({entry.replica, entry.run.generation, entry.leases});
        }
        if (items.empty())
            break;
        auto result =
            call([&](wire::RequestBody &body) { body = wire::AttachLeasesRequest{items}; },
                 [&](const wire::ReplyBody &body, std::vector<UniqueFd> &, bool) {
                     const auto *reply = std::get_if<wire::ItemStatusReply>(&body);
                     return reply && reply->statuses.size() == items.size();
                 });
        if (failed(result))
            return result;
    }
    return {};
}

Restore::Result Restore::attach_done() {
    return call([](wire::RequestBody &body) { body = wire::AttachDoneRequest{}; }, accept_ok);
}

// Over a new connection every answer is final: published, refused, or never applied.
Restore::Result Restore::resolve() {
    CommitLedger &ledger = session_.ledger_;
    const uint32_t limit = session_.transport_.limits().batch_items;
    const uint64_t end = ledger.next_id();
    for (uint64_t first = ledger.lowest_unsettled(); first < end;) {
        const auto count = static_cast<uint32_t>(std::min<uint64_t>(limit, end - first));
        auto result = call(
            [&](wire::RequestBody &body) {
                body = wire::ResolveRequest{first, count};
            },
            [&](const wire::ReplyBody &body, std::vector<UniqueFd> &, bool) {
                const auto *reply = std::get_if<wire::ResolveReply>(&body);
                if (!reply || reply->results.size() != count)
                    return false;
                for (uint32_t i = 0; i < count; ++i) {
                    const wire::CommitResult &answer = reply->results[i];
                    CommitRecord *record = ledger.find(first + i);
                    if (!record)
                        continue;
                    if (answer.status == Status::Unknown) {  // against the protocol: asked again
                        record->ask_at = now_ns() + session_.commit_patience();
                        session_.resolve_at(record->ask_at);
                        continue;
                    }
                    session_.check(answer.status == Status::Absent
                                       ? session_.renew_commit(first + i)
                                       : session_.settle_commit(first + i, answer));
                }
                return true;
            });
        if (failed(result))
            return result;
        first += count;
    }
    return {};
}

void Restore::after() {
    HeldTable &table = session_.held_;
    for (uint32_t held = 0; held < table.slots(); ++held) {
        Held &entry = table[held];
        if (entry.state == HeldState::Reclaiming)
            entry.state = HeldState::Retiring;
        if (entry.state == HeldState::Retiring && !entry.pool->closing())
            session_.sweep(held);
    }
}

}  // namespace maru::client
