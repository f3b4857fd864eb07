// The messages of maru.capnp as plain structs: what every other file speaks of.
//
// codec.h turns bytes into these and back. Spans and string_views of a decoded message point into
// the received frame and live as long as it; those of a message to be encoded are borrowed until
// encode() returns. Nothing here owns memory except admin replies, which are rare.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "libmaru/wire/limits.h"
#include "libmaru/wire/records.h"

namespace maru::wire {

enum class Medium : uint16_t { Cpu = 0, Cxl = 1, Ssd = 2 };
enum class Tier : uint16_t { L1 = 0, L2 = 1 };
enum class Scope : uint16_t { Worker = 0, Host = 1, Domain = 2 };
enum class Role : uint16_t { Worker = 0, Scheduler = 1, Admin = 2 };
enum class HugePages : uint16_t { Off = 0, Try = 1, Required = 2 };
enum class Numa : uint16_t { Off = 0, Auto = 1, Strict = 2 };

using Token = std::array<uint8_t, 16>;  // 128 random bits, made by the client, never logged

// ---- requests ----------------------------------------------------------------------------------

struct HelloRequest {  // the first message of a connection
    uint16_t major = kProtocolMajor;
    uint16_t minor = kProtocolMinor;
    std::string_view client_name;                       // shown by maructl; at most 64 bytes
    std::vector<std::string_view> required_capabilities;  // one missing = Unsupported, naming it
};
struct HelloProofRequest {  // answers a non-zero HelloReply.nonce (kernels without SO_PEERPIDFD)
    uint64_t nonce = 0;
};
struct OpenSessionRequest {
    Token token{};
    Role role = Role::Worker;
    std::string_view engine;  // worker: whose it is; scheduler: whose worker it probes for
};
// Re-attach: same token over a new connection, after a lost one or after a restart of marud.
struct AttachRequest {
    Token token{};
    Role role = Role::Worker;
    std::string_view engine;
    uint32_t old_epoch = 0;       // the epoch the client knew; marud never draws it again
    uint64_t lowest_unanswered = 0;  // operation id; all below it are acknowledged
};
struct AttachPoolRequest {  // after a restart, for a pool that AttachReply.missing_pools is true for
    Id pool = 0;
    uint64_t capacity_bytes = 0;
    uint64_t segment_bytes = 0;
    uint32_t page_bytes = 0;
    uint32_t first_segment = 0;  // descriptors of the packet: segments first, first+1, ...
    uint32_t segment_count = 0;
    uint64_t next_generation = 0;
};
struct RepublishRequest {
    std::span<const RepublishItem> items;
};
struct AttachLeasesRequest {  // same life of marud: the whole truth about held leases, paged
    std::span<const LeaseItem> items;
};
struct AttachDoneRequest {};  // the session is whole again; leases not named are gone
struct DescribeRequest {      // once per session, before the first commit
    Id namespace_id = 0;
    uint64_t object_bytes = 0;  // every object of this session has this logical size
    std::string_view format;    // compared as text with the namespace's first describer
};
struct HeartbeatRequest {
    std::span<const PoolGauge> gauges;
};
struct RegisterNamespaceRequest {
    std::string_view text;  // the full text; 1 to 16 KiB of UTF-8 without NUL
};
struct OpenPoolRequest {
    Medium medium = Medium::Cpu;
    Tier tier = Tier::L1;
    Scope scope = Scope::Worker;
    HugePages huge_pages = HugePages::Off;
    Numa numa = Numa::Off;
    int32_t numa_node = -1;  // -1: the worker's own
    uint64_t capacity_bytes = 0;
    uint32_t page_bytes = 0;
    uint64_t request_key = 0;  // non-zero; a retry with the same key returns the first result
};
struct GrantSegmentRequest {  // the reply carries the descriptor of the segment
    Id pool = 0;
    uint32_t segment = 0;
};
struct SegmentMappedRequest {  // mapped and populated; marud seals, then commits may name it
    Id pool = 0;
    uint32_t segment = 0;
};
enum class ClosePhase : uint16_t {
    Drain = 0,   // refuse new commits and acquires; Busy (and nothing changed) while leases live
    Force = 1,   // retire everything, then answer when the last lease has ended
    Finish = 2,  // the worker has unmapped: seal, credit; Busy while a mapping or a pin is left
};
struct ClosePoolRequest {
    Id pool = 0;
    ClosePhase phase = ClosePhase::Drain;
};
struct CloseSessionRequest {};  // ends the leases; Busy while pools are open
struct CommitRequest {
    Id namespace_id = 0;
    uint64_t first_op = 0;  // item i has operation id first_op + i
    std::span<const CommitItem> items;
};
struct ResolveRequest {
    uint64_t first_op = 0;
    uint32_t count = 0;
};
struct ProbeRequest {
    Id namespace_id = 0;
    std::span<const Digest> keys;  // in prefix order
    Manifest manifest;
    bool stop_at_miss = false;  // only the prefix counts: bits after the first miss are 0
};
struct AcquireRequest {
    Id namespace_id = 0;
    std::span<const Digest> keys;
    Manifest manifest;           // results are key-major: keys.size() x manifest.objects()
    bool stop_at_miss = false;   // keys after the first miss are not acquired (Miss)
};
struct ReleaseRequest {
    std::span<const ReplicaName> items;
};
struct RetireRequest {  // of one's own replicas
    std::span<const ReplicaName> items;
};
struct ReclaimAckRequest {  // these pages are free for reuse by their owner; budget returns
    std::span<const ReplicaName> items;
};
struct UsageRequest {
    Id pool = 0;  // 0: the totals of the session's uid
};

// Admin: uid 0, marud's own uid or admin_group sees and changes everything, others their own.
struct StatusRequest {};
enum class ListKind : uint16_t { Sessions = 0, Pools = 1, Namespaces = 2, Objects = 3, Leases = 4 };
struct ListRequest {
    ListKind kind = ListKind::Sessions;
    uint64_t cursor = 0;     // 0 first; then ListReply.next_cursor until that is 0
    Id namespace_id = 0;     // objects: only of this namespace; 0 = all
};
struct ExplainRequest {  // why would this engine (not) read this object?
    Id namespace_id = 0;
    Key key;
    std::string_view engine;
    uint32_t uid = UINT32_MAX;  // whose engine; UINT32_MAX = the caller's
};
struct AdminRetireRequest {  // all replicas of an object; or of a whole namespace without a key
    Id namespace_id = 0;
    std::optional<Key> key;
};
struct DrainRequest {
    bool enable = true;  // draining: no new sessions, pools, commits; readers go on
};
struct ReloadRequest {};

using RequestBody =
    std::variant<HelloRequest, HelloProofRequest, OpenSessionRequest, AttachRequest,
                 AttachPoolRequest, RepublishRequest, AttachLeasesRequest, AttachDoneRequest,
                 DescribeRequest, HeartbeatRequest, RegisterNamespaceRequest, OpenPoolRequest,
                 GrantSegmentRequest, SegmentMappedRequest, ClosePoolRequest, CloseSessionRequest,
                 CommitRequest, ResolveRequest, ProbeRequest, AcquireRequest, ReleaseRequest,
                 RetireRequest, ReclaimAckRequest, UsageRequest, StatusRequest, ListRequest,
                 ExplainRequest, AdminRetireRequest, DrainRequest, ReloadRequest>;

struct Request {
    uint64_t id = 0;               // chosen by the client, not 0, unique among its unanswered ones
    uint32_t epoch = 0;            // server epoch of the hello; 0 only in hello itself
    uint64_t acknowledged_op = 0;  // watermark: every operation id up to it has been answered
    RequestBody body;
};

// ---- replies -----------------------------------------------------------------------------------

// A failed request. Also the reply to a request whose only result is success (status Ok).
struct StatusOnly {
    Status status = Status::Ok;
    std::string_view message;    // names what was wrong and what is allowed; empty for Ok
    uint64_t detail = 0;         // Again: the operation id that pins the ledger; else 0
};
struct Limits {  // of limits.h and of marud's configuration
    uint32_t frame_bytes = kMaxFrameBytes;
    uint32_t probe_keys = kMaxProbeKeys;
    uint32_t batch_items = kMaxBatchItems;
    uint32_t in_flight = kMaxInFlight;
    uint32_t ledger_items = kMaxLedgerItems;
    uint32_t leases = 0;  // per session
    uint32_t heartbeat_ms = 0;
    uint32_t session_timeout_ms = 0;
    uint32_t spin_us = 0;
};
struct HelloReply {
    uint16_t major = kProtocolMajor;
    uint16_t minor = kProtocolMinor;
    uint32_t epoch = 0;
    uint64_t nonce = 0;  // not 0: send it back in HelloProof before anything else
    uint32_t uid = 0;    // the caller as marud sees it
    uint32_t pid = 0;
    std::vector<std::string_view> capabilities;
    Limits limits;
    std::string_view version;  // of marud, for people
};
struct SessionReply {
    Id session = 0;
    bool existed = false;  // the token was known: a retried open
};
struct AttachReply {
    Id session = 0;
    bool same_life = false;          // true: send AttachLeases and resolve; false: republish
    std::vector<Id> missing_pools;   // whose segments marud has not: send AttachPool
};
struct NamespaceReply {
    Id namespace_id = 0;
};
struct PoolReply {
    Id pool = 0;
    uint64_t capacity_bytes = 0;  // granted; a multiple of segment_bytes except in the last segment
    uint64_t segment_bytes = 0;
    uint32_t segment_count = 0;
    uint64_t first_generation = 0;  // allocators start here: unlike any earlier pool's
};
struct SegmentReply {
    uint64_t bytes = 0;
    bool huge = false;  // backed by hugetlb
};
struct ClosePoolReply {
    Status status = Status::Ok;
    uint64_t leases = 0;          // Busy: how many hold it
    std::string_view message;     // Busy: who
};
struct CommitReply {
    std::span<const CommitResult> results;
};
struct ResolveReply {
    std::span<const CommitResult> results;  // status Committed, Absent or Unknown, or the error it got
};
enum class ProbeReason : uint16_t { None = 0, NoWorkerAttached = 1, Pending = 2 };
struct ProbeReply {
    uint32_t prefix = 0;                 // leading keys that are all readable
    std::span<const uint8_t> bitmap;     // bit i (LSB first): key i is readable
    ProbeReason reason = ProbeReason::None;
};
struct AcquireReply {
    std::span<const AcquireResult> results;
};
struct ItemStatusReply {  // release, retire, reclaimAck, republish, attachLeases
    std::span<const Status> statuses;  // retire: Ok = free to reclaim, Pending = readers left
    std::span<const Id> replicas;      // republish: the new ids; else empty
};
struct Usage {  // the RFC's seven, and what explains them; all bytes
    uint64_t capacity_bytes = 0;
    uint64_t reserved_bytes = 0;         // backing reserved for the pool, incl. rounding
    uint64_t allocated_bytes = 0;        // pages handed out
    uint64_t ready_bytes = 0;            // logical bytes of READY replicas
    uint64_t ready_allocated_bytes = 0;  // pages of READY replicas
    uint64_t quarantined_bytes = 0;      // pages whose fate is unknown
    uint64_t pinned_bytes = 0;           // registered with CUDA, really
    uint64_t retiring_bytes = 0;         // pages of RETIRING replicas; part of allocated
    uint64_t populated_bytes = 0;
    uint64_t replicas = 0;
    uint64_t leases = 0;
};
struct UsageReply {
    Usage usage;
    uint64_t limit_bytes = 0;  // the pool's grant, or the uid's quota
};

struct StatusReply {
    std::string_view version;
    uint32_t epoch = 0;
    uint32_t pid = 0;
    uint64_t uptime_ms = 0;
    bool draining = false;
    bool admin = false;  // whether the caller is one
    uint32_t sessions = 0, attached = 0, pools = 0, namespaces = 0;
    uint64_t objects = 0, replicas = 0, leases = 0;
    uint64_t host_limit_bytes = 0, host_reserved_bytes = 0, unproven_bytes = 0;
    Usage usage;
    std::string_view fdstore;  // "systemd" or "none"
};
struct SessionRow {
    Id session = 0;
    Role role = Role::Worker;
    std::string engine, client_name, command;
    std::string state;  // attached, detached, fenced, exiting
    uint32_t uid = 0, pid = 0, pools = 0;
    uint64_t age_ms = 0, beat_age_ms = 0, leases = 0, reserved_bytes = 0;
};
struct PoolRow {
    Id pool = 0;
    Id session = 0;
    Medium medium = Medium::Cpu;
    Tier tier = Tier::L1;
    Scope scope = Scope::Worker;
    std::string engine, state;  // open, closing, proving, quarantined
    std::string page_kind;      // "4K", "2M hugetlb"
    int32_t numa_node = -1;
    uint32_t uid = 0, page_bytes = 0, segments = 0;
    uint64_t age_ms = 0;
    Usage usage;
};
struct NamespaceRow {
    Id namespace_id = 0;
    std::string text;
    uint64_t objects = 0, replicas = 0, object_bytes = 0;
};
struct ObjectRow {
    Id namespace_id = 0;
    Key key;
    Id replica = 0, pool = 0;
    uint64_t offset = 0, length = 0, generation = 0;
    std::string state;
    uint32_t leases = 0;
};
struct LeaseRow {
    Id replica = 0, session = 0, pool = 0;
    uint64_t generation = 0, count = 0, age_ms = 0;
    uint32_t uid = 0, pid = 0;
    std::string command, engine;
};
struct ListReply {
    std::variant<std::vector<SessionRow>, std::vector<PoolRow>, std::vector<NamespaceRow>,
                 std::vector<ObjectRow>, std::vector<LeaseRow>>
        rows;
    uint64_t next_cursor = 0;
};
struct ExplainRow {
    Id replica = 0, pool = 0;
    std::string engine, state;
    bool eligible = false;
    std::string reason;  // "readable", "private to engine 'a' (uid 1000)", "owner detached 3 s ago", ...
};
struct ExplainReply {
    bool hit = false;
    std::string summary;
    std::vector<ExplainRow> replicas;
};
struct CountReply {  // adminRetire
    uint64_t count = 0;
    uint64_t pending = 0;
};

using ReplyBody =
    std::variant<StatusOnly, HelloReply, SessionReply, AttachReply, NamespaceReply, PoolReply,
                 SegmentReply, ClosePoolReply, CommitReply, ResolveReply, ProbeReply, AcquireReply,
                 ItemStatusReply, UsageReply, StatusReply, ListReply, ExplainReply, CountReply>;

// ---- events: pushed by marud, id 0 --------------------------------------------------------------

enum class EventKind : uint16_t {
    Reclaim = 0,   // the last reader of these RETIRING replicas is gone: free, then ReclaimAck
    Retired = 1,   // marud retired these (admin); no new acquire; Reclaim follows
    Fenced = 2,    // the session lost its engine; message says to whom
    Draining = 3,  // marud admits nothing new
    Shutdown = 4,  // marud stops; reconnect and re-attach
};
struct Event {
    EventKind kind = EventKind::Reclaim;
    std::span<const ReplicaName> items;
    std::string_view message;
};

struct Reply {
    uint64_t id = 0;  // the request's
    ReplyBody body;
};

// What a client receives: a reply or an event.
using ServerMessage = std::variant<Reply, Event>;

}  // namespace maru::wire
