// The inside of Service: tables, and one handler per request.
//
// The handlers are spread over the files of this directory, one per family of messages; they share
// this struct and nothing else. `now` is the time of the call being handled. Buffers that replies
// point into are members and reused: the common requests allocate nothing.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "daemon/directory/directory.h"
#include "daemon/directory/mutant.h"
#include "daemon/protocol/service.h"
#include "daemon/session/adopted_table.h"
#include "daemon/session/engine_registry.h"
#include "daemon/session/pool_table.h"
#include "daemon/session/quota.h"
#include "daemon/session/session_state.h"
#include "daemon/session/session_table.h"

namespace maru {

inline constexpr TimeNs kMillisecond = 1'000'000;
inline constexpr TimeNs kSecond = 1'000'000'000;
// Proofs are asked again after 1 ms, doubling. A dying process drops its mappings soon after it; a
// fenced one lives on and may keep them for days, so it is asked seldom.
inline constexpr TimeNs kFirstProofDelay = 1 * kMillisecond;
inline constexpr TimeNs kLastProofDelay = 500 * kMillisecond;
inline constexpr TimeNs kLastFencedProofDelay = 10 * kSecond;
// Tokens that lost their engine stay refused after the last proof of their session, so that a slow
// client learns that it was fenced and does not open a new session against its successor.
inline constexpr size_t kMaxFencedTokens = 4096;

// Pools of scope Host are charged as they fill, so that empty ones must be bounded by number.
inline constexpr uint32_t kMaxSharedPools = 64;

struct Connection {
    ConnectionId id = 0;
    Peer peer;
    ConnectionState state = ConnectionState::AwaitHello;
    uint64_t nonce = 0;
    std::string client_name;
    Session *session = nullptr;
    uint32_t deferred = 0;  // waiters that name it
};

// One request being handled.
struct Call {
    Connection &connection;
    uint64_t id;
    uint8_t kind;  // by place in RequestBody
    std::span<const AttachedDescriptor> descriptors;
    Session *session() const { return connection.session; }
};

// What stays charged after its pool: segments that carry F_SEAL_SEAL.
struct Unproven {
    wire::Id pool = 0;
    std::string engine;
    uint32_t page_bytes = 0;
    TimeNs since = 0;
    Quota::PoolCharge charge;
};

struct Service::Impl {
    Impl(ServiceConfig service_config, Effects &world, TimeNs start);

    ServiceConfig config;
    Effects &effects;
    const TimeNs started;
    TimeNs now;
    TimeNs deadline = INT64_MAX;  // a lower bound of what tick() has to do
    TimeNs expected_back_until;   // recorded workers keep their engine until then
    bool draining = false;

    Quota quota;  // before everything that holds charges
    Directory directory;
    SessionTable sessions;
    PoolTable pools;
    EngineRegistry engines;
    std::vector<Unproven> unproven;
    AdoptedTable adopted_segments;
    std::unordered_map<uint32_t, uint32_t> host_domains;  // by uid
    // By index: the record names it; and of a record that is being written anew.
    std::vector<bool> recorded_namespaces, rewritten_namespaces;
    bool rewriting = false;
    std::map<wire::Id, std::vector<RecordedObject>> recorded_objects;  // by pool, until restore()
    std::unordered_map<uint32_t, uint32_t> unknown_by_uid;  // sessions with leases_unknown
    bool unknown_readers_said = false;
    bool readers_lost = false;  // with a session record: any uid may have readers that are unknown
    bool restoring = false;     // not all sessions of the record are here yet
    std::unordered_map<ConnectionId, Connection> connections;
    std::deque<TokenHash> fenced_tokens;
    uint32_t next_session = 0, next_pool = 0, next_domain = 0;
    uint64_t requests = 0, refused = 0;
    uint32_t forced_closes = 0;  // pools with drain_waiters
    metrics::ServiceTally tally;

    // Scratch for replies, and what AttachPool adopted.
    std::array<wire::CommitResult, wire::kMaxBatchItems> commit_results;
    std::array<wire::AcquireResult, wire::kMaxBatchItems> acquire_results;
    std::array<wire::Status, wire::kMaxBatchItems> statuses;
    std::array<wire::Id, wire::kMaxBatchItems> ids;
    std::array<uint8_t, (wire::kMaxProbeKeys + 7) / 8> bitmap;
    std::vector<wire::ReplicaName> names;
    std::vector<SegmentRef> adopted;
    std::vector<ObjectRecord> to_record;

    struct RetiredReplica {
        PoolIndex pool;
        wire::ReplicaName name;
        bool has_readers;
    };

    // ---- answers (service.cc)
    // `body`: any of the bodies. It is moved once, into the reply that is sent.
    template <typename Body>
    void reply(const Call &call, Body &&body, std::span<const SegmentRef> segments = {}) {
        send(call, wire::Reply{call.id, std::forward<Body>(body)}, segments);
    }
    void send(const Call &call, const wire::Reply &reply, std::span<const SegmentRef> segments);
    void reply(const Waiter &waiter, wire::ReplyBody body,
               std::span<const SegmentRef> segments = {});
    void ok(const Call &call);
    void refuse(const Call &call, wire::Status status, std::string_view message,
                uint64_t detail = 0);
    void refuse(const Waiter &waiter, wire::Status status, std::string_view message);
    void reply_statuses(const Call &call, size_t count);
    void count_result(uint8_t kind, const wire::ReplyBody &body);
    void event(ConnectionId to, const wire::Event &event);
    // Registers one more deferred answer; false: refused already, too many are open.
    bool defer(const Call &call, std::vector<Waiter> &waiters);
    void answer_all(std::vector<Waiter> &waiters, const wire::ReplyBody &body,
                    std::span<const SegmentRef> segments = {});
    void forget_waiters(Connection &connection);

    // ---- shared checks (service.cc)
    bool allowed(const Call &call, const struct RequestRule &rule);
    // Refusals, which return false: apart from the checks, which are made for every request.
    bool not_now(const Call &call, const struct RequestRule &rule, std::string_view why);
    bool not_for_schedulers(const Call &call, const struct RequestRule &rule);
    // The index behind a wire id, or the refusal: StaleEpoch, NotFound.
    wire::Status namespace_of(const Call &call, wire::Id id, bool any_seen,
                              NamespaceIndex *ret_index) const;
    bool namespace_or_refuse(const Call &call, wire::Id id, bool any_seen,
                             NamespaceIndex *ret_index);
    // nullptr: refused already.
    Pool *own_pool_or_refuse(const Call &call, wire::Id id);
    bool batch_fits(const Call &call, size_t items, const char *what);
    uint64_t leases_left(const Session &session) const;

    // ---- hello.cc
    void on(Call &call, const wire::HelloRequest &request);
    void on(Call &call, const wire::HelloProofRequest &request);

    // ---- session_requests.cc
    void on(Call &call, const wire::OpenSessionRequest &request);
    void on(Call &call, const wire::AttachRequest &request);
    void on(Call &call, const wire::AttachLeasesRequest &request);
    void on(Call &call, const wire::AttachDoneRequest &request);
    void on(Call &call, const wire::DescribeRequest &request);
    void on(Call &call, const wire::HeartbeatRequest &request);
    void on(Call &call, const wire::RegisterNamespaceRequest &request);
    void on(Call &call, const wire::CloseSessionRequest &request);
    bool engine_and_token_fit(const Call &call, const wire::Token &token, wire::Role role,
                              std::string_view engine);
    bool same_process(const Session &session, const Peer &peer) const;
    void reopen(Call &call, Session &session, const wire::OpenSessionRequest &request);
    bool claim_engine(const Call &call, uint32_t uid, std::string_view engine);
    void send_reclaims(Session &session);

    // ---- restore.cc
    void restore(const SessionRecord &record, std::span<const SegmentRef> held, ProcessId64 process,
                 bool alive);
    void on(Call &call, const wire::AttachPoolRequest &request);
    void on(Call &call, const wire::RepublishRequest &request);
    PoolIndex place_of(const wire::CommitItem &item) const;  // kNoPool: marud knows no such pool
    uint64_t leases_told(const Session &session, NamespaceIndex ns,
                         const wire::CommitItem &item) const;
    wire::Status republish_item(const Call &call, const wire::RepublishItem &item,
                                wire::Id *ret_replica);
    void forget_unmapped_segments(Session &session);
    void refuse_pool(const Call &call, const QuotaRefusal &refusal, uint64_t bytes,
                     bool shared = false);
    // A request whose answer promises what a later life of marud must know is refused if this fails.
    // Everything else goes on: an older record charges at least as much as it should.
    Result<void> save(const Session &session);
    static std::string not_recorded(const Error &why);
    static wire::Status unrecorded_status(const Error &why);

    // ---- pool_requests.cc
    void on(Call &call, const wire::OpenPoolRequest &request);
    void on(Call &call, const wire::GrantSegmentRequest &request);
    void on(Call &call, const wire::SegmentMappedRequest &request);
    void on(Call &call, const wire::ClosePoolRequest &request);
    void on_segment_created(SegmentRef ref, const Result<CreatedSegment> &result);
    void on_segment_sealed(SegmentRef ref, const Result<void> &result);
    void drain_pool(Call &call, Pool &pool);
    void force_pool(Call &call, Pool &pool);
    void finish_pool(Call &call, Pool &pool);
    void leave_pool(Call &call, Pool &pool);
    void answer_forced_closes();
    std::string lease_holders(const Pool &pool, uint64_t leases) const;
    bool has_readers(const Pool &pool) const;
    bool shared_pool_fits(const Call &call, uint64_t capacity, uint64_t segments);
    bool charge_segment(const Call &call, Pool &pool, uint32_t segment);

    // ---- shared.cc: what several sessions of a uid read
    void on(Call &call, const wire::MapSegmentRequest &request);
    void on(Call &call, const wire::RetireSegmentRequest &request);
    uint32_t host_domain(uint32_t uid);
    // Whose a pool of the directory is; nullptr: nobody's that anybody may know of.
    struct Keeper {
        wire::Id pool = 0;
        uint32_t uid = 0;
        std::string_view engine;
        const Session *session = nullptr;  // nullptr: marud itself
        const AdoptedSegment *adopted = nullptr;
    };
    std::optional<Keeper> keeper_of(PoolIndex index) const;
    // Could somebody be reading in it who is not back after a restart of marud?
    bool unknown_readers(uint32_t uid, wire::Id pool) const;
    void readers_known(Session &session);
    const Session *an_unknown_reader(uint32_t uid) const;
    void say_unknown_readers(TimeNs &ret_next);
    bool adopt(Pool &pool, uint32_t segment);
    void drop_if_over(AdoptedSegment &segment);
    void tell_gone(uint32_t uid, SegmentRef segment);
    template <typename Fact>
    void record(Fact fact) {
        to_record.emplace_back(std::move(fact));
    }
    void record_retirement(const Directory::ReplicaView &view, wire::Id pool);
    void record_retired(std::span<const RetiredReplica> retired);
    void record_commit(NamespaceIndex ns, uint32_t uid, const wire::CommitItem &item);
    void flush_records();
    void restore_objects(std::span<const ObjectRecord> records, std::span<const SegmentRef> held,
                         bool sessions_lost);
    void restored();
    void restore_pool_objects(Pool &pool);
    std::vector<ObjectRecord> object_records(uint64_t &cursor, uint32_t most);
    wire::Status republish_shared(Session &session, Pool &pool, NamespaceIndex ns,
                                  const wire::RepublishItem &item, wire::Id *ret_replica);
    wire::Status republish_foreign(Session &session, NamespaceIndex ns,
                                   const wire::RepublishItem &item, wire::Id *ret_replica);
    void retire_unnamed(Session &session);
    void tell_retired_unheard(Session &session);
    wire::Usage usage_of(const AdoptedSegment &segment) const;

    // ---- object_requests.cc
    void on(Call &call, const wire::CommitRequest &request);
    void on(Call &call, const wire::ResolveRequest &request);
    void on(Call &call, const wire::ProbeRequest &request);
    void on(Call &call, const wire::EngineWorkerRequest &request);
    // Whom probes of a scheduler are answered for; nullptr: nobody is attached.
    const Session *engine_worker(const Session &session) const;
    void on(Call &call, const wire::AcquireRequest &request);
    void on(Call &call, const wire::ReleaseRequest &request);
    void on(Call &call, const wire::RetireRequest &request);
    void on(Call &call, const wire::ReclaimAckRequest &request);
    bool operations_fit(const Call &call, uint64_t first, size_t count);
    wire::CommitResult commit_one(Session &session, NamespaceIndex ns, wire::Id ns_id, uint64_t op,
                                  const wire::CommitItem &item, const Pool *pool,
                                  uint32_t prefetched);
    bool manifest_fits(const Call &call, size_t keys, const wire::Manifest &manifest,
                       uint64_t max_objects);
    bool too_many_objects(const Call &call, size_t keys, uint64_t per_key, uint64_t max_objects);
    void distribute_drained();

    // ---- admin_requests.cc, listing.cc, explain.cc
    void on(Call &call, const wire::UsageRequest &request);
    void on(Call &call, const wire::StatusRequest &request);
    void on(Call &call, const wire::ListRequest &request);
    void on(Call &call, const wire::ExplainRequest &request);
    void on(Call &call, const wire::AdminRetireRequest &request);
    void on(Call &call, const wire::DrainRequest &request);
    void on(Call &call, const wire::ReloadRequest &request);
    void set_draining(bool enable);
    bool may_see(const Call &call, uint32_t uid) const {
        return call.connection.peer.admin || call.connection.peer.uid == uid;
    }
    wire::ListReply list_sessions(const Call &call, uint64_t cursor) const;
    wire::ListReply list_pools(const Call &call, uint64_t cursor) const;
    wire::ListReply list_namespaces(const Call &call, uint64_t cursor) const;
    wire::ListReply list_objects(const Call &call, uint64_t cursor, NamespaceIndex ns) const;
    wire::ListReply list_leases(const Call &call, uint64_t cursor) const;
    void tell_owners(std::vector<RetiredReplica> &retired);
    std::string why_not(const Directory::ReplicaView &view, uint32_t uid,
                        const Session *target) const;
    wire::Usage usage_of(const Pool &pool) const;
    wire::Usage usage_of_uid(uint32_t uid, bool everybody) const;
    uint64_t unproven_bytes(uint32_t uid, bool everybody) const;
    metrics::ServiceGauges gauges() const;

    // ---- liveness.cc
    void transition(Session &session, SessionEvent event);
    void heard(Session &session);
    void bind(Connection &connection, Session &session);
    // Takes the session off its connection; the connection itself is told to go.
    void lose_connection(Session &session, std::string_view why);
    void connection_lost(Session &session);
    void hide(Session &session);
    void show(Session &session);
    void fence(Session &session, std::string_view by_whom);
    void process_exited(ProcessId64 process);
    void exit_session(Session &session);
    void forget(Session &session, metrics::SessionEnd how);
    void connection_closed(ConnectionId connection);
    void stalled(TimeNs gap);
    void tick();
    void note_deadline(TimeNs when) { deadline = when < deadline ? when : deadline; }
    void sweep_soon() {  // after something of which the directory has done a part only
        if (directory.sweeping())
            note_deadline(now);
    }
    bool reapable(const Session &session) const;
    bool holds_nothing(const Session &session) const;
    std::string person(const Session &session) const;  // "pid 12 (python3)"

    // ---- proof.cc
    void orphan(Session &session);
    void ask_proof(SegmentRef ref);
    void advance_proof(Pool &pool);
    void conclude_proof(Pool &pool);
    void conclude_forgotten(Pool &pool, uint32_t number);
    static std::string never_made_anew(uint32_t segment);
    void on_segment_proven(SegmentRef ref, Proof proof);
    void drop(Pool &pool, uint32_t segment);
    void remove_pool(Pool &pool);
    void session_proven(Session &session);

    std::string check_invariants() const;  // invariants.cc
};

std::string seconds_text(TimeNs duration);  // "3 s"

}  // namespace maru
