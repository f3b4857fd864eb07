// Session: what one maru_client is: a connection that comes back, and everything held over it.
//
// One lock guards all of it, the transport included; it is held for table work and non-blocking
// sends only. A thread of its own keeps the heartbeat, answers reclaim events and reconnects: hello,
// attach, and then either the leases (marud never stopped) or everything this process holds (marud
// is new). What callers began meanwhile waits and goes out afterwards, with the new numbers.
#pragma once

#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "libmaru/base/result.h"
#include "libmaru/client/background_ops.h"
#include "libmaru/client/call_op.h"
#include "libmaru/client/commit_ledger.h"
#include "libmaru/client/held_table.h"
#include "libmaru/client/lease_table.h"
#include "libmaru/client/map_op.h"
#include "libmaru/client/transport.h"
#include "libmaru/client/view_table.h"
#include "libmaru/wire/messages.h"

namespace maru::client {

class AcquireOp;
class CommitOp;
class ProbeOp;
class RetireOp;

struct Namespace {
    Session &session;
    const std::string text;
    wire::Id id = 0;            // in this life of marud
    uint64_t object_bytes = 0;  // what describe said; format empty: not described
    std::string format;
};

enum class SessionState : uint8_t { Attached, Disconnected, Restoring, Fenced };

struct SessionOptions {
    std::string socket_path;
    std::string engine;
    std::string name;
    wire::Role role = wire::Role::Worker;
    uint32_t timeout_ms = 5000;
    uint32_t connect_ms = 10000;
    uint32_t spin_us = 0;
    // An answer that is later than this ends the connection; 0: twice timeout_ms, at least 10 s.
    uint32_t silence_ms = 0;
};

// What a call returns: a count or 0, or a negative errno with a message.
struct Outcome {
    int64_t value = 0;
    std::string message;
};
Outcome failure(const Error &error);

class Session final : public Transport::Listener {
  public:
    static Result<std::unique_ptr<Session>> open(const SessionOptions &options);
    // Ends the connection without a word: close() says goodbye.
    ~Session() override;

    // BUSY and nothing changed while something lives; else the session is over and may be deleted.
    Outcome close();

    // ---- everything but the data path
    Result<Namespace *> open_namespace(std::string_view text);
    Outcome describe(Namespace &ns, uint64_t object_bytes, std::string_view format);
    bool has_capability(std::string_view name);
    // The attached worker of this session's engine.
    struct EngineWorker {
        wire::Id session = 0;        // 0: there is none
        std::string namespace_text;  // empty: it has described none yet
    };
    Result<EngineWorker> engine_worker();
    struct Info {
        SessionState state = SessionState::Disconnected;
        uint32_t epoch = 0;
        wire::Id id = 0;
        uint64_t reconnects = 0, republished = 0, leases = 0, unknown_commits = 0;
        uint32_t uid = 0, probe_keys = 0;
        std::string server_version;
    };
    Info info();

    // ---- for ops and pools; all under lock()
    Lock lock() { return Lock(mutex_); }
    Transport &transport() { return transport_; }
    HeldTable &held() { return held_; }
    LeaseTable &leases() { return leases_; }
    ViewTable &views() { return views_; }
    MapOp &map_op() { return map_op_; }
    CommitLedger &ledger() { return ledger_; }
    const SessionOptions &options() const { return options_; }
    uint32_t epoch() const { return epoch_; }
    SessionState state() const { return state_; }
    TimeNs call_deadline(TimeNs now = now_ns()) const {
        return now + timeout_ms_.load(std::memory_order_relaxed) * kMillisecond;
    }
    // 0, or why nothing may be asked any more.
    int over() const { return state_ == SessionState::Fenced ? EKEYREVOKED : 0; }
    const std::string &over_why() const { return over_why_; }

    std::vector<std::unique_ptr<Pool>> &pools() { return pools_; }
    Pool *find_pool(wire::Id id);

    // One request, one reply, waiting; the lock is released meanwhile. 0 or a positive errno.
    struct CallResult {
        int code = 0;
        wire::Status status = wire::Status::Ok;
        std::string message;
        uint64_t detail = 0;  // StatusOnly's
    };
    CallResult call(Lock &lock, CallOp::Build build, CallOp::Reply reply, TimeNs deadline,
                    bool control = false, std::span<const int> fds = {}, bool patient = false);

    // The fate of one commit is known. Absent and Unknown are not fates. Both return the op that
    // waited for it, for Transport::check() unless the transport does that anyway.
    CommitOp *settle_commit(uint64_t op_id, const wire::CommitResult &result) {
        return settle_commit(op_id, result, nullptr);
    }
    // Those of one answer; none of them Absent or Unknown.
    void settle_commits(uint64_t first_op, std::span<const wire::CommitResult> results);
    // It was never applied and never will be: the content is sent again under another id.
    CommitOp *renew_commit(uint64_t op_id);
    void check(CommitOp *op);
    // A pause before marud is asked on the open connection what became of it.
    TimeNs commit_patience() const {
        return timeout_ms_.load(std::memory_order_relaxed) * kMillisecond;
    }
    // The session that probes of this one ask for; 0: marud decides.
    wire::Id probed_worker() const { return probed_worker_.load(std::memory_order_relaxed); }
    void probe_for(wire::Id worker) { probed_worker_.store(worker, std::memory_order_relaxed); }
    // Of blocking calls, from now on.
    void set_timeout(uint32_t ms) { timeout_ms_.store(ms, std::memory_order_relaxed); }

    void resolve_at(TimeNs time);

    void take_lease(uint32_t held);
    // A lease of this process ends; `told_only`: marud gave one that nobody here took.
    void drop_lease(uint32_t held, bool told_only);
    void stray_lease(wire::Id replica, uint64_t generation) {
        release_op_.add_stray(replica, generation);
    }
    // Every release is on its way to marud, or attach will tell the counts instead.
    bool releases_sent() const { return !release_op_.unsent() || state_ != SessionState::Attached; }
    // READY -> RETIRING here; marud hears it by the caller's own request or the sweep.
    void withdraw(uint32_t held);
    void sweep(uint32_t held) { sweep_op_.add(held); }
    void retire_answer(uint32_t held, wire::Status status);
    void reclaim_answer(uint32_t held, wire::Status status);
    // marud does not know it.
    void orphan(uint32_t held);
    void free_held(uint32_t held);
    // No lease of this process is left on an entry that others keep.
    void leave_view(uint32_t held);
    // Everything of a pool that is unmapped.
    void forget_pool(Pool &pool);
    std::vector<wire::PoolGauge> gauges();

    // Ops are kept and used again: no allocation per call once warm.
    template <typename T>
    struct Idle {
        std::vector<std::unique_ptr<T>> all;
        std::vector<T *> idle;
    };
    template <typename T>
    T *take(Idle<T> &from) {
        if (!from.idle.empty()) {
            T *op = from.idle.back();
            from.idle.pop_back();
            return op;
        }
        from.all.push_back(std::make_unique<T>(*this));
        from.idle.reserve(from.all.size());  // giving back never allocates
        return from.all.back().get();
    }
    Idle<ProbeOp> probes;
    Idle<AcquireOp> acquires;
    Idle<CommitOp> commits;
    Idle<RetireOp> retires;

    uint32_t queues = 0;     // open ones
    uint64_t acquiring = 0;  // objects of acquires that are not answered; space is kept for them
    const uint64_t fork_mark;

  private:
    friend class Restore;
    explicit Session(const SessionOptions &options);

    void on_event(const wire::Event &event) override;
    void on_disconnected(int code, std::string_view why) override;
    void on_fenced(std::string_view why) override;
    void on_done(Op &op) override;
    void stamp(wire::Request &request) override;

    Result<bool> try_open(TimeNs deadline, bool first);
    Result<void> start_thread();
    void io_loop();
    void reconnect(Lock &lock);
    TimeNs run_timers(TimeNs now);
    void expire_async(TimeNs now);

    std::mutex mutex_;
    const SessionOptions options_;
    std::atomic<wire::Id> probed_worker_ = 0;
    std::atomic<uint32_t> timeout_ms_;  // options_.timeout_ms, unless it was set later
    wire::Token token_{};

    SessionState state_ = SessionState::Disconnected;
    std::string over_why_;
    uint32_t epoch_ = 0;       // of the last hello
    uint32_t told_epoch_ = 0;  // of the last life that was told everything
    wire::Id id_ = 0;
    uint32_t uid_ = 0;
    std::string server_version_;
    std::vector<std::string> capabilities_;
    uint64_t connections_ = 0, republished_ = 0;

    std::vector<std::unique_ptr<Namespace>> namespaces_;
    std::vector<std::unique_ptr<Pool>> pools_;
    HeldTable held_;
    LeaseTable leases_;
    ViewTable views_;
    CommitLedger ledger_;
    std::vector<pool::PageRun> settled_runs_;  // of settle_commits()

    CommitOp *settle_commit(uint64_t op_id, const wire::CommitResult &result, const Pool *moved);

    ReleaseOp release_op_{*this};
    AckOp ack_op_{*this};
    SweepOp sweep_op_{*this};
    HeartbeatOp heartbeat_op_{*this};
    ResolveOp resolve_op_{*this};
    RecommitOp recommit_op_{*this};
    MapOp map_op_{*this};
    std::vector<Op *> async_;  // unfinished, the earliest deadline first

    Transport transport_;

    bool stop_ = false;
    bool closing_ = false;
    TimeNs next_attempt_ = 0;
    TimeNs backoff_ = 0;
    TimeNs next_heartbeat_ = kNever;
    TimeNs next_resolve_ = kNever;
    std::thread thread_;

  public:
    // For ops in flight asynchronously.
    void track_async(Op &op);
};

}  // namespace maru::client
