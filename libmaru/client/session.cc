#include "libmaru/client/session.h"

#include <pthread.h>
#include <signal.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>

#include "libmaru/client/batch_ops.h"
#include "libmaru/client/completion_queue.h"
#include "libmaru/client/pool.h"
#include "libmaru/client/restore.h"
#include "libmaru/client/status.h"

namespace maru::client {

using pool::AllocationEvent;
using wire::Status;

namespace {

constexpr TimeNs kFirstBackoff = 10 * kMillisecond;
constexpr TimeNs kLastBackoff = 1'000 * kMillisecond;

Transport::Config transport_config(const SessionOptions &options) {
    Transport::Config config;
    config.spin_us = options.spin_us;
    const uint32_t silence =
        options.silence_ms ? options.silence_ms : std::max(10'000u, 2 * options.timeout_ms);
    config.silence = silence * kMillisecond;
    return config;
}

}  // namespace

Outcome failure(const Error &error) { return {-int64_t{error.code}, error.message}; }

// ---- opening and closing -------------------------------------------------------------------------

Session::Session(const SessionOptions &options)
    : fork_mark((ForkGuard::install(), ForkGuard::mark())),
      options_(options),
      timeout_ms_(options.timeout_ms),
      transport_(mutex_, *this, transport_config(options)) {}

Result<std::unique_ptr<Session>> Session::open(const SessionOptions &options) {
    std::unique_ptr<Session> session(new Session(options));
    const TimeNs deadline = after_ms(options.connect_ms);
    if (::getrandom(session->token_.data(), session->token_.size(), 0) !=
        static_cast<ssize_t>(session->token_.size()))
        return Error{errno, "getrandom for a session token"};
    // The token stays the same: a marud that is restarted in the middle may have recorded the session.
    for (bool first = true;; first = false) {
        auto opened = session->try_open(deadline, first);
        if (!opened)
            return opened.error();
        if (*opened)
            break;
        const timespec pause{0, kFirstBackoff};
        ::nanosleep(&pause, nullptr);
    }
    if (auto started = session->start_thread(); !started)
        return started.error();
    return session;
}

// False: marud went away in the middle, and there is time to try again.
Result<bool> Session::try_open(TimeNs deadline, bool first) {
    const bool last = now_ns() + kFirstBackoff >= deadline;
    auto socket = wire::connect_seqpacket(options_.socket_path, deadline);
    if (!socket) {
        if (first || last)
            return socket.error();
        return false;
    }
    auto guard = lock();
    transport_.adopt(std::move(*socket));
    Restore restore(*this, guard, deadline);
    auto result = restore.hello();
    if (result.code == 0)
        result = restore.open_session();
    if (result.code == 0) {
        connections_ = 1;
        transport_.set_open(true);
        return true;
    }
    const bool lost = result.code == ENOTCONN && !transport_.connected();
    transport_.disconnect(result.code, result.message);
    if (lost && !last)
        return false;
    return Error{result.code, "open session at '" + options_.socket_path + "': " + result.message};
}

Result<void> Session::start_thread() {
    // Signals are the host program's: none may arrive in a thread that it does not know.
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    Result<void> result;
    try {
        thread_ = std::thread([this] { io_loop(); });
        ::pthread_setname_np(thread_.native_handle(), "maru-io");
    } catch (const std::system_error &error) {
        result = Error{error.code().value(), "start the I/O thread"};
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return result;
}

Session::~Session() {
    {
        auto guard = lock();
        stop_ = true;
        transport_.wake();
    }
    if (thread_.joinable())
        thread_.join();
    std::vector<std::unique_ptr<Pool>> pools;
    {
        // Nobody connects any more: the threads of pools, which end next, must not wait for marud.
        auto guard = lock();
        pools.swap(pools_);
        state_ = SessionState::Fenced;
        over_why_ = "the client is closed";
        transport_.fail_all(ENOTCONN, over_why_);
        map_op_.fail_all();
        transport_.disconnect(ENOTCONN, over_why_);
    }
    pools.clear();
}

Outcome Session::close() {
    const TimeNs deadline = call_deadline();
    auto guard = lock();
    auto busy = [](std::string what) {
        return Outcome{-EBUSY, "close client: " + std::move(what)};
    };
    if (leases_.live() > 0)
        return busy(std::to_string(leases_.live()) + " leases are held");
    if (queues > 0)
        return busy(std::to_string(queues) + " completion queues are open");
    for (auto &pool : pools_)
        if (const uint64_t n = pool->allocator().count(pool::AllocationState::Reserved))
            return busy(std::to_string(n) + " reservations are not committed or aborted");
    // Known before the pages go: marud must not publish what is unmapped here.
    auto known = [&] {
        return (ledger_.unsettled() == 0 && !recommit_op_.unsent()) ||
               state_ != SessionState::Attached;
    };
    while (!known()) {
        if (now_ns() >= deadline)
            return busy("the fate of " + std::to_string(ledger_.unsettled()) +
                        " commits is not known yet");
        transport_.wait(guard, this, std::min(deadline, now_ns() + 10 * kMillisecond), known);
    }
    // A marud that is just being restarted would keep nothing that it does not hear of now.
    auto reachable = [&] {
        return state_ == SessionState::Attached || state_ == SessionState::Fenced;
    };
    const bool sharing =
        std::any_of(pools_.begin(), pools_.end(), [](const auto &pool) { return pool->shared(); });
    while (sharing && !reachable() && now_ns() < deadline)
        transport_.wait(guard, this, std::min(deadline, now_ns() + 10 * kMillisecond), reachable);
    while (state_ == SessionState::Attached && !pools_.empty()) {
        Pool &pool = *pools_.back();
        // What others of the uid may read outlives this client.
        const auto how = pool.shared() ? Pool::Close::Left : Pool::Close::Drained;
        guard.unlock();
        Outcome closed = Pool::close(pool, how, deadline);
        guard.lock();
        if (closed.value == -EBUSY)
            return busy(closed.message);
        if (closed.value != 0)
            break;  // marud is away: it learns the rest from our exit
    }
    if (state_ == SessionState::Attached) {
        closing_ = true;
        (void)call(
            guard, [](wire::RequestBody &body) { body = wire::CloseSessionRequest{}; }, accept_ok,
            deadline);
    }
    return {};
}

// ---- the I/O thread ------------------------------------------------------------------------------

void Session::io_loop() {
    auto guard = lock();
    while (!stop_) {
        const TimeNs now = now_ns();
        if (state_ == SessionState::Disconnected && !closing_ && now >= next_attempt_) {
            reconnect(guard);
            continue;
        }
        TimeNs until = run_timers(now);
        if (state_ == SessionState::Disconnected && !closing_)
            until = std::min(until, next_attempt_);
        if (views_.populate_step(guard))
            until = 0;  // there may be more, and others first
        transport_.serve(guard, until);
    }
}

TimeNs Session::run_timers(TimeNs now) {
    expire_async(now);
    TimeNs next = async_.empty() ? kNever : async_.front()->deadline;
    if (state_ != SessionState::Attached)
        return next;
    next = std::min(next, transport_.check_silence(now));
    if (now >= next_heartbeat_) {
        next_heartbeat_ = now + transport_.limits().heartbeat_ms * kMillisecond;
        heartbeat_op_.beat();
    }
    if (now >= next_resolve_)
        next_resolve_ = resolve_op_.ask(now);
    return std::min({next, next_heartbeat_, next_resolve_});
}

void Session::expire_async(TimeNs now) {
    while (!async_.empty() && async_.front()->deadline <= now)
        transport_.detach(*async_.front(), transport_.connected() ? ETIMEDOUT : ENOTCONN);
}

void Session::reconnect(Lock &lock) {
    lock.unlock();
    auto socket = wire::connect_seqpacket(options_.socket_path, after_ms(1000));
    lock.lock();
    if (stop_)
        return;
    std::string why;
    if (socket) {
        state_ = SessionState::Restoring;
        transport_.adopt(std::move(*socket));
        Restore restore(*this, lock, after_ms(options_.connect_ms));
        auto result = restore.attach();
        if (result.code == 0 && transport_.connected()) {
            ++connections_;
            backoff_ = 0;
            state_ = SessionState::Attached;
            next_heartbeat_ = transport_.limits().heartbeat_ms
                                  ? now_ns() + transport_.limits().heartbeat_ms * kMillisecond
                                  : kNever;
            restore.after();
            transport_.set_open(true);
            transport_.notify(this);
            return;
        }
        if (state_ != SessionState::Fenced) {
            transport_.disconnect(ENOTCONN, result.message);
            state_ = SessionState::Disconnected;
        }
    }
    backoff_ = std::clamp(backoff_ * 2, kFirstBackoff, kLastBackoff);
    next_attempt_ = now_ns() + backoff_;
}

// ---- what the transport tells --------------------------------------------------------------------

void Session::stamp(wire::Request &request) {
    request.epoch = std::holds_alternative<wire::HelloRequest>(request.body) ? 0 : epoch_;
    request.acknowledged_op = ledger_.watermark();
}

void Session::on_event(const wire::Event &event) {
    switch (event.kind) {
        case wire::EventKind::Reclaim:
        case wire::EventKind::Retired:
            for (const wire::ReplicaName &name : event.items) {
                const uint32_t held = held_.find_replica(name.replica);
                if (held == HeldTable::kNone || held_[held].run.generation != name.generation ||
                    !held_[held].pool)
                    continue;
                withdraw(held);
                if (event.kind == wire::EventKind::Reclaim)
                    retire_answer(held, Status::Ok);
            }
            break;
        case wire::EventKind::Fenced:
            on_fenced(event.message);
            break;
        case wire::EventKind::Refused:
            transport_.disconnect(ECONNREFUSED, event.message);
            break;
        case wire::EventKind::SegmentGone:
            for (const wire::ReplicaName &item : event.items)
                views_.gone(item.replica, static_cast<uint32_t>(item.generation));
            break;
        case wire::EventKind::Draining:  // told by each refusal
        case wire::EventKind::Shutdown:  // the end of the connection follows
            break;
    }
}

void Session::on_disconnected(int, std::string_view) {
    if (state_ != SessionState::Fenced)
        state_ = SessionState::Disconnected;
    next_attempt_ = std::max(next_attempt_, now_ns() + backoff_);
    next_heartbeat_ = kNever;
    // Nobody reconnects for a client that closes: marud learns the rest from our exit.
    if (closing_)
        transport_.fail_all(ENOTCONN, "marud is away, and the client closes");
    if (closing_)
        map_op_.fail_all();
}

void Session::on_fenced(std::string_view why) {
    if (state_ == SessionState::Fenced)
        return;
    state_ = SessionState::Fenced;
    over_why_ = why.empty() ? "the session lost its engine to another worker" : std::string(why);
    // Nobody will ever tell what became of these; their pages stay nobody's.
    for (uint64_t id = ledger_.lowest_unsettled(); id < ledger_.next_id(); ++id) {
        CommitRecord *record = ledger_.find(id);
        if (!record)
            continue;
        record->pool->allocator().apply(AllocationEvent::Lost, record->run);
        record->ask_at = kNever;
        if (CommitOp *op = std::exchange(record->op, nullptr)) {
            op->settled_item(record->index, Status::Fenced);
            transport_.check(*op);
        }
    }
    transport_.fail_all(EKEYREVOKED, over_why_);
    map_op_.fail_all();
    transport_.disconnect(EKEYREVOKED, over_why_);
}

void Session::on_done(Op &op) {
    auto &batch = static_cast<BatchOp &>(op);
    CompletionQueue &queue = *op.queue;
    const int64_t result = complete(batch).value;
    async_.erase(std::find(async_.begin(), async_.end(), &op));
    transport_.add_async(-1);
    queue.push({op.user_data, result});
    transport_.release(op);
    transport_.notify(&queue);
}

void Session::track_async(Op &op) {
    // The timeout may have been another one at the submit of the others.
    async_.insert(
        std::upper_bound(async_.begin(), async_.end(), op.deadline,
                         [](TimeNs when, const Op *other) { return when < other->deadline; }),
        &op);
    transport_.add_async(1);
    transport_.wake_by(op.deadline);
}

// ---- calls ---------------------------------------------------------------------------------------

Session::CallResult Session::call(Lock &lock, CallOp::Build build, CallOp::Reply reply,
                                  TimeNs deadline, bool control, std::span<const int> fds,
                                  bool patient) {
    if (over())
        return {over(), Status::Fenced, over_why_};
    auto *op = new CallOp(std::move(build), std::move(reply));
    op->control = control;
    op->patient = patient;
    op->attach(fds);
    transport_.start(*op);
    if (std::this_thread::get_id() == thread_.get_id()) {
        // Asynchronous calls expire while this thread is busy reconnecting.
        while (!op->done() && now_ns() < deadline && !stop_) {
            const TimeNs next = async_.empty() ? kNever : async_.front()->deadline;
            transport_.wait(lock, op, std::min({deadline, next, now_ns() + 100 * kMillisecond}),
                            [&] { return op->done(); });
            expire_async(now_ns());
        }
        deadline = std::min(deadline, now_ns());
    }
    transport_.finish(lock, *op, deadline);
    CallResult result{op->code(), op->status(), op->message(), op->detail()};
    transport_.release(*op);
    return result;
}

Result<Namespace *> Session::open_namespace(std::string_view text) {
    auto guard = lock();
    Namespace *found = nullptr;
    auto find = [&] {
        for (auto &ns : namespaces_)
            if (ns->text == text)
                found = ns.get();
        return found != nullptr;
    };
    if (find())
        return found;
    auto ns = std::make_unique<Namespace>(Namespace{*this, std::string(text), 0, 0, {}});
    namespaces_.reserve(namespaces_.size() + 1);
    auto result = call(
        guard, [&](wire::RequestBody &body) { body = wire::RegisterNamespaceRequest{text}; },
        [&](const wire::ReplyBody &body, std::vector<UniqueFd> &, bool) {
            const auto *reply = std::get_if<wire::NamespaceReply>(&body);
            if (!reply)
                return false;
            if (!find()) {  // of two threads at once, one is enough
                found = ns.get();
                ns->id = reply->namespace_id;
                namespaces_.push_back(std::move(ns));
            }
            return true;
        },
        call_deadline());
    if (result.code != 0)
        return Error{result.code, "register namespace: " + result.message};
    return found;
}

Outcome Session::describe(Namespace &ns, uint64_t object_bytes, std::string_view format) {
    auto guard = lock();
    auto result = call(
        guard,
        [&](wire::RequestBody &body) {
            body = wire::DescribeRequest{ns.id, object_bytes, format};
        },
        [&](const wire::ReplyBody &body, std::vector<UniqueFd> &, bool) {
            if (!std::holds_alternative<wire::StatusOnly>(body))
                return false;
            ns.object_bytes = object_bytes;
            ns.format = format;
            return true;
        },
        call_deadline());
    if (result.code != 0)
        return {-int64_t{result.code}, "describe: " + result.message};
    return {};
}

Result<Session::EngineWorker> Session::engine_worker() {
    EngineWorker worker;
    auto guard = lock();
    auto result = call(
        guard, [](wire::RequestBody &body) { body = wire::EngineWorkerRequest{}; },
        [&](const wire::ReplyBody &body, std::vector<UniqueFd> &, bool) {
            const auto *reply = std::get_if<wire::EngineWorkerReply>(&body);
            if (!reply)
                return false;
            worker = {reply->session, std::string(reply->namespace_text)};
            return true;
        },
        call_deadline());
    if (result.code != 0)
        return Error{result.code, "worker of the engine: " + result.message};
    return worker;
}

bool Session::has_capability(std::string_view name) {
    auto guard = lock();
    return std::find(capabilities_.begin(), capabilities_.end(), name) != capabilities_.end();
}

Session::Info Session::info() {
    auto guard = lock();
    Info info;
    info.state = state_;
    info.epoch = epoch_;
    info.id = id_;
    info.reconnects = connections_ - 1;
    info.republished = republished_;
    info.leases = leases_.live();
    info.unknown_commits = 0;
    for (auto &pool : pools_)
        info.unknown_commits += pool->allocator().count(pool::AllocationState::Quarantined);
    info.uid = uid_;
    info.probe_keys = transport_.limits().probe_keys;
    info.server_version = server_version_;
    return info;
}

Pool *Session::find_pool(wire::Id id) {
    for (auto &pool : pools_)
        if (pool->id() == id)
            return pool.get();
    return nullptr;
}

std::vector<wire::PoolGauge> Session::gauges() {
    std::vector<wire::PoolGauge> gauges;
    for (auto &pool : pools_)
        gauges.push_back(pool->gauge());
    return gauges;
}

}  // namespace maru::client
