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
//
// The order of a connection's life, and what is answered at each point:
//
//   opened        Hello. Everything else is Protocol.
//   hello done    HelloProof first if HelloReply.nonce is not 0. Then: OpenSession or Attach; and
//                 the admin family (Status to Reload) and Usage, which need no session.
//   in session    everything but Hello, HelloProof, OpenSession of another token, Attach.
//   attaching     between Attach and AttachDone: AttachPool, Republish, AttachLeases, AttachDone,
//                 RegisterNamespace, Describe, Resolve, Heartbeat, and what needs no session. The
//                 rest is Protocol: the session's pools are hidden until AttachDone.
//   after CloseSession: as after hello.
//
// Every request is refused before anything has changed, or it is done. A refusal is StatusOnly
// with a message. Requests of one connection are handled in the order they were sent; only the
// replies of GrantSegment, SegmentMapped and ClosePool (Force, Finish) may come later than those of
// requests behind them. Everything a client names must be its own: another session's pool or
// replica is Denied. The checks come in this order: epoch of the header (StaleEpoch), state of the
// connection (Protocol), role (Denied), fields (InvalidArgument, TooLarge, Unsupported), epochs of
// ids (StaleEpoch), existence (NotFound), ownership (Denied), limits.
//
// A scheduler session is metadata-only: it may register namespaces, heartbeat, probe, and close;
// everything that names memory or an operation is Denied.

struct HelloRequest {  // the first message of a connection
    uint16_t major = kProtocolMajor;
    uint16_t minor = kProtocolMinor;
    std::string_view client_name;                         // shown by maructl; at most 64 bytes
    std::vector<std::string_view> required_capabilities;  // one missing = Unsupported, naming it
};  // another major: VersionMismatch, with both versions; hello may be tried again
struct HelloProofRequest {  // answers a non-zero HelloReply.nonce (kernels without SO_PEERPIDFD)
    uint64_t nonce = 0;     // a wrong one is Denied, and the connection is closed
};
// One session per connection. A retry (the same token, role, engine and process, over the same or
// another connection) answers the same session with existed = true, as long as that session has no
// pool, lease or operation yet; after that the client has seen an answer and must Attach
// (Conflict). Busy: the engine has another attached worker - named with pid, command and since when
// - or, for a session_timeout after a restart of marud, one that is expected back; try again until
// the deadline. A detached worker loses the engine to the newcomer and is Fenced for good. The
// engine of a process that has exited is free at once. Quota: too many sessions. Unavailable:
// draining. Fenced: this token lost its engine. Role::Admin is InvalidArgument: admin requests need
// no session.
struct OpenSessionRequest {
    Token token{};  // all zero is InvalidArgument
    Role role = Role::Worker;
    std::string_view engine;  // worker: whose it is; scheduler: whose worker it probes for. 1-256 B
};
// Re-attach: same token over a new connection, after a lost one or after a restart of marud.
// NotFound: no such session (marud does not know the token): open a new one. Denied: another uid or
// another process. Fenced: the engine went to another worker; over for good. Conflict: another role
// or engine than the session has.
//
// AttachReply.same_life = true: this marud never stopped; only the connection was lost. The old
//   connection, if marud still has it, is closed first, and what it had not delivered is dropped:
//   from here Resolve knows every operation. Then: AttachLeases (all pages; none if nothing is
//   held), AttachDone. Namespace and pool ids stay valid, and so does what Describe said.
// same_life = false: marud was restarted. Namespace and replica ids of the old epoch are StaleEpoch,
//   pool and session ids stay. Then, in this order: RegisterNamespace with each full text; Describe
//   for each namespace; AttachPool for each missing pool; Republish everything committed, with
//   leases; AttachDone. A commit whose result was not known is not republished: Resolve says
//   Absent.
// A connection lost before AttachDone: attach again and tell everything again (all is idempotent).
struct AttachRequest {
    Token token{};
    Role role = Role::Worker;
    std::string_view engine;
    uint32_t old_epoch = 0;          // the epoch the client knew; marud never draws it again
    uint64_t lowest_unanswered = 0;  // operation id; all below it are acknowledged; 0: says nothing
};
// After a restart, for each of AttachReply.missing_pools. Sizes must be those of the PoolReply
// (Incompatible). Each descriptor must be a segment that SegmentMapped was answered Ok for, with
// its seals, its size and the file that marud recorded; one that is not is InvalidArgument naming
// it, and none of the packet is adopted. A segment that SegmentMapped was not answered for is not
// passed. It may have been sealed all the same: ask SegmentMapped again after AttachDone, and on
// InvalidArgument forget it (unmap, close) and ask GrantSegment for it anew; Busy there means that
// somebody (a forked child, I/O in flight) is still on the old file: ask again later. Segments
// that marud still holds may be passed; they change nothing. At most kMaxDescriptors a packet.
struct AttachPoolRequest {
    Id pool = 0;
    uint64_t capacity_bytes = 0;
    uint64_t segment_bytes = 0;
    uint32_t page_bytes = 0;
    uint32_t first_segment = 0;    // descriptors of the packet: segments first, first+1, ...
    uint32_t segment_count = 0;    // = descriptors in this packet
    uint64_t next_generation = 0;  // of the allocator, for the journal; pages know their own
};
// After a restart only. Own pools of Scope::Worker: per item Ok and the new replica id (the
// same again for an identical item); Denied, not one's pool; StaleEpoch, namespace id of an earlier
// life; NotFound, no such namespace or pool; InvalidArgument, namespace not described; Conflict,
// overlap, or a segment that marud does not hold; Incompatible, size. lease_count leases are held
// at once by this session. retiring = 1: registered so that its pages stay taken, never found;
// Reclaim follows AttachDone when its leases are gone.
// Own pools of Scope::Host: what is READY comes from marud's own record, so everything is named:
// what is committed, what is retired and not acknowledged (retiring = 1, also without leases), and
// commits that no answer came for (retiring = 2: Ok and the id, or Absent, which is final). A
// replica that the record does not have, or not as READY, is registered as if retiring; Retired and
// Reclaim follow AttachDone. What is recorded and not named by AttachDone is retired.
// A pool of another session of the uid, or one that marud has adopted: the leases that are held in
// it. Ok and the new id; NotFound: marud does not know it, nothing is held any more, and a view of
// it stays readable until it is unmapped.
struct RepublishRequest {
    std::span<const RepublishItem> items;
};
// Same life only: the whole truth about held leases, paged; a replica is named once, count >= 1. A
// count above what marud knows is NotFound for that item (a lease is only given by Acquire), and
// one below it lowers it. What no page names is released by AttachDone.
struct AttachLeasesRequest {
    std::span<const LeaseItem> items;
};
// The session is whole again: pools visible, leases not named gone, the Reclaim events that could
// not be delivered before (or whose acknowledgement did not arrive) follow.
struct AttachDoneRequest {};
// Before the first commit into a namespace. Size and format are the session's, set once: the same
// again is Ok, also for a further namespace; another size or format is Conflict. Incompatible: the
// namespace was described differently by whoever described it first. Workers only.
struct DescribeRequest {
    Id namespace_id = 0;
    uint64_t object_bytes = 0;  // every object of this session has this logical size; not 0
    std::string_view format;    // compared as text with the namespace's first describer; 1-256 B
};
// Any request proves life; this one does when there is nothing to ask. Gauges of pools that are
// gone are ignored (a beat may cross a close).
struct HeartbeatRequest {
    std::span<const PoolGauge> gauges;
};
// A namespace belongs to the uid of the session: the same text of the same uid has the same id for
// the life of this marud, the same text of another uid has another, and an id of another uid is
// NotFound wherever a session names one. Quota: this uid has registered as many as it may; Again:
// no room for another text.
struct RegisterNamespaceRequest {
    std::string_view text;  // the full text; 1 to 16 KiB of UTF-8 without NUL
};
// Workers only. capacity_bytes is rounded up to whole pages (with huge pages not Off: and to 2
// MiB). page_bytes: a power of two, 4 KiB to 1 GiB. Medium Cpu, tier L1, scope Worker or Host;
// others are Unsupported naming the capability. NoSpace: host aggregate; Quota: worker grant, uid
// bytes, uid segments - the message has asked, used and limit. Unavailable: draining. Scope Worker is
// charged as a whole here; scope Host segment by segment in GrantSegment, so that a pool can be
// opened while adopted segments fill the quota.
struct OpenPoolRequest {
    Medium medium = Medium::Cpu;
    Tier tier = Tier::L1;
    Scope scope = Scope::Worker;
    HugePages huge_pages = HugePages::Off;
    Numa numa = Numa::Off;
    int32_t numa_node = -1;  // -1: the worker's own
    uint64_t capacity_bytes = 0;
    uint32_t page_bytes = 0;
    uint64_t request_key = 0;  // non-zero; a retry with the same key returns the first result, in
                               // the next life of marud too; with another content: Conflict
};
// The reply carries the descriptor of the segment. Asked again, the same segment again. NoMemory,
// FdLimit, Internal: it could not be made; ask again later. Busy: the pool is closing. Scope Host:
// NoSpace, Quota as for OpenPool: skip the admission, keep the hits, ask again later.
struct GrantSegmentRequest {
    Id pool = 0;
    uint32_t segment = 0;
};
// Mapped; marud seals, then answers Ok, and from then on commits may lie in it. After that nobody can
// map the segment for writing any more; the mapping that is there goes on, so the worker populates it
// afterwards and hands out no page before that. Asked again: Ok. InvalidArgument: this
// segment was not granted yet.
struct SegmentMappedRequest {
    Id pool = 0;
    uint32_t segment = 0;
};
// Busy is told by ClosePoolReply{Busy}; Ok by ClosePoolReply{Ok}. Closing is not taken back: after
// Drain or Force answered Ok, or Force was asked, the pool only ends. Each phase may be repeated.
enum class ClosePhase : uint16_t {
    Drain = 0,   // refuse new commits and acquires; Busy (and nothing changed) while leases live
    Force = 1,   // retire everything at once, answer when the last lease has ended. No Reclaim
                 // events follow for this pool: Finish frees it as a whole
    Finish = 2,  // the worker has unmapped: seal, credit; Busy while leases (leases > 0), or a
                 // mapping or a pin (leases = 0), are left; InvalidArgument before Drain or Force.
                 // Denied: a segment carries F_SEAL_SEAL; the pool is gone, those bytes stay
                 // charged until marud restarts. NotFound on a retry: it was done
    Leave = 3,  // scope Host, at any time: the worker has unmapped and goes. As Finish, but what is
                // READY or read by others is adopted, segment by segment, and stays a hit. Leases
                // of other sessions do not hinder it. InvalidArgument for scope Worker
};
struct ClosePoolRequest {
    Id pool = 0;
    ClosePhase phase = ClosePhase::Drain;
};
// Ends the leases and the session; its token is free. Busy while pools are open that a segment was
// granted of (a pool without one is closed by this).
struct CloseSessionRequest {};
// Operation ids are a counter per session, from 1. Per item the first result is kept until it is
// acknowledged (Request.acknowledged_op), and a retry - same id, same namespace and item - returns
// it, errors included; another content is Conflict and changes nothing. Item results: Ok,
// AlreadyPresent (with the replica that is there), Conflict, Incompatible (size), NotFound (no such
// pool), Denied (not one's pool), Unavailable (the pool is closing), InvalidArgument (generation 0),
// NoSpace (table), Absent (a Resolve said so: never run). Of the whole request, with nothing run:
// InvalidArgument, namespace not described by this session; InvalidArgument, an id at or below the
// watermark; Again, an id more than Limits.ledger_items above the watermark, with StatusOnly.detail =
// the id that pins it; Unavailable, draining (retries of known ids are still answered).
struct CommitRequest {
    Id namespace_id = 0;
    uint64_t first_op = 0;  // item i has operation id first_op + i; not 0
    std::span<const CommitItem> items;
};
// The fate of operations, in order. Committed, with the replica; AlreadyPresent, with the replica
// that was there (nothing of this operation's own range is in use); the error it got. For one that
// marud has not seen: Unknown while the session is still on the connection it was opened over,
// since the commit may be on its way; else Absent, which is final: a later commit with that id is
// answered Absent. Errors of the request as for commit.
struct ResolveRequest {
    uint64_t first_op = 0;
    uint32_t count = 0;
};
// Promises nothing and takes no lease; needs no pool. A worker asks for itself, a scheduler for the
// attached worker of its engine; none: prefix 0, no bit set, NoWorkerAttached.
// keys x manifest.objects() at most kMaxProbeObjects.
struct ProbeRequest {
    Id namespace_id = 0;
    std::span<const Digest> keys;  // in prefix order
    Manifest manifest;
    bool stop_at_miss = false;  // only the prefix counts: bits after the first miss are 0
    Id worker = 0;  // the session that must be the one asked for, else NoWorkerAttached; 0: any
};
// Whom probes of this session are answered for, if it is a scheduler: the attached worker of its uid
// and engine. engine_worker_v1.
struct EngineWorkerRequest {};
// One lease per Ok result, each to be released once. All objects of a key or none of them. Items
// that would pass Limits.leases are Quota. keys x manifest.objects() at most kMaxBatchItems.
struct AcquireRequest {
    Id namespace_id = 0;
    std::span<const Digest> keys;
    Manifest manifest;          // results are key-major: keys.size() x manifest.objects()
    bool stop_at_miss = false;  // keys after the first miss are not acquired (Miss)
};
// Per item: Ok; NotFound, no such lease of this session (nothing changes); StaleGeneration;
// StaleEpoch.
struct ReleaseRequest {
    std::span<const ReplicaName> items;
};
// A descriptor of the segment that a lease of this session lies in, for mapping it to read only. The
// lease is named and not the segment: who holds none has nothing to map. NotFound: no such lease;
// InvalidArgument: it is on the session's own private pool; Unavailable: marud has no descriptor of
// that segment now; FdLimit. Workers only. From now on SegmentGone events are sent to this session.
struct MapSegmentRequest {
    ReplicaName lease;
};
// Of one's own replicas. Per item: Ok, no reader: free the pages, then ReclaimAck; Pending, readers
// left, or of scope Host after a restart readers that are not back yet: Reclaim follows; Denied;
// NotFound; StaleGeneration; StaleEpoch. Again for a retiring one: same.
struct RetireRequest {
    std::span<const ReplicaName> items;
};
// These pages are free for reuse by their owner; marud may see them committed again from now on.
// Sent after Retire = Ok or a Reclaim event. Per item: Ok; Busy, readers left or not back yet (as
// for Retire), and Reclaim comes again; InvalidArgument, not retired; Denied; NotFound; StaleGeneration (acknowledged before); StaleEpoch. A Reclaim event for
// a replica that was acknowledged before (the acknowledgement was lost) is acknowledged again.
struct ReclaimAckRequest {
    std::span<const ReplicaName> items;
};
// Needs no session: of one's own uid, or, for an admin, of anyone. Denied otherwise.
struct UsageRequest {
    Id pool = 0;  // 0: the totals of the caller's uid
};

// Admin: uid 0, marud's own uid or admin_group sees and changes everything, others their own: rows
// and replicas of other uids are left out, Drain and Reload are Denied. These need hello only.
struct StatusRequest {};
enum class ListKind : uint16_t { Sessions = 0, Pools = 1, Namespaces = 2, Objects = 3, Leases = 4 };
struct ListRequest {
    ListKind kind = ListKind::Sessions;
    uint64_t cursor = 0;  // 0 first; then ListReply.next_cursor until it is 0; a page may be empty
    Id namespace_id = 0;  // objects: only of this namespace; 0 = all
};
struct ExplainRequest {  // why would this engine (not) read this object?
    Id namespace_id = 0;
    Key key;
    std::string_view engine;
    uint32_t uid = UINT32_MAX;  // whose engine; UINT32_MAX = the caller's
};
// All replicas of an object; or of a whole namespace without a key. kMaxRetired of them at once: a
// count of that many says that there may be more. So it is with RetireSegment.
struct AdminRetireRequest {
    Id namespace_id = 0;
    std::optional<Key> key;
};
// Everything in one segment of a pool of scope Host; an adopted one is dropped when its last lease
// ends. Of one's own uid, or for an admin of anyone; Denied otherwise. NotFound: no such segment.
struct RetireSegmentRequest {
    Id pool = 0;
    uint32_t segment = 0;
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
                 ExplainRequest, AdminRetireRequest, DrainRequest, ReloadRequest, MapSegmentRequest,
                 RetireSegmentRequest, EngineWorkerRequest>;

struct Request {
    uint64_t id = 0;               // chosen by the client, not 0, unique among its unanswered ones
    uint32_t epoch = 0;            // server epoch of the hello; 0 only in hello itself
    uint64_t acknowledged_op = 0;  // watermark: every operation id up to it has been answered, or
                                   // was never sent and never will be; never goes back
    RequestBody body;
};

// ---- replies -----------------------------------------------------------------------------------

// A failed request. Also the reply to a request whose only result is success (status Ok).
struct StatusOnly {
    Status status = Status::Ok;
    std::string_view message;  // names what was wrong and what is allowed; empty for Ok
    // Again: the operation id that pins the ledger. Quota and NoSpace of OpenPool and GrantSegment:
    // bytes of ended engines that come back when they are proven free, so asking again may help.
    // Else 0.
    uint64_t detail = 0;
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
    bool same_life = false;         // true: send AttachLeases and resolve; false: republish
    std::vector<Id> missing_pools;  // mapped segments of these marud has not: send AttachPool
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
struct ViewReply {  // mapSegment: which bytes of which pool the descriptor is
    Id pool = 0;
    uint32_t segment = 0;
    uint64_t offset = 0;  // in the pool, of its first byte
    uint64_t bytes = 0;
    bool huge = false;
};
struct ClosePoolReply {
    Status status = Status::Ok;
    uint64_t leases = 0;       // Busy: how many hold it
    std::string_view message;  // Busy: who
};
struct CommitReply {
    std::span<const CommitResult> results;
};
struct ResolveReply {
    std::span<const CommitResult> results;  // Committed, AlreadyPresent, Absent, Unknown or error
};
enum class ProbeReason : uint16_t { None = 0, NoWorkerAttached = 1, Pending = 2 };
struct ProbeReply {
    uint32_t prefix = 0;              // leading keys that are all readable
    std::span<const uint8_t> bitmap;  // bit i (LSB first): key i is readable
    ProbeReason reason = ProbeReason::None;
};
struct EngineWorkerReply {
    Id session = 0;                   // 0: none is attached
    std::string_view namespace_text;  // of the one that it described last; empty: none yet
};
struct AcquireReply {
    std::span<const AcquireResult> results;
};
struct ItemStatusReply {               // release, retire, reclaimAck, republish, attachLeases
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
    std::string_view adopted;  // "kept" over a restart of marud, or "volatile"
    uint32_t adopted_segments = 0;
    uint64_t adopted_bytes = 0;
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
    std::string engine, state;  // open, closing, proving, adopted, quarantined
    std::string page_kind;      // "4K", "2M hugetlb"
    int32_t numa_node = -1;
    uint32_t uid = 0, page_bytes = 0, segments = 0;
    uint64_t age_ms = 0;
    Usage usage;
    uint32_t segment = UINT32_MAX;  // of an adopted segment: which of its pool
};
struct NamespaceRow {
    Id namespace_id = 0;
    std::string text;
    uint32_t uid = 0;  // whose it is
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
    std::string
        reason;  // "readable", "private to engine 'a' (uid 1000)", "owner detached 3 s ago", ...
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

using ReplyBody = std::variant<StatusOnly, HelloReply, SessionReply, AttachReply, NamespaceReply,
                               PoolReply, SegmentReply, ClosePoolReply, CommitReply, ResolveReply,
                               ProbeReply, AcquireReply, ItemStatusReply, UsageReply, StatusReply,
                               ListReply, ExplainReply, CountReply, ViewReply, EngineWorkerReply>;

// ---- events: pushed by marud, id 0 --------------------------------------------------------------

enum class EventKind : uint16_t {
    Reclaim = 0,      // the last reader of these RETIRING replicas is gone: free, then ReclaimAck
    Retired = 1,      // marud retired these (admin); no new acquire; Reclaim follows
    Fenced = 2,       // the session lost its engine; message says to whom; the connection is closed
    Draining = 3,     // marud admits nothing new
    Shutdown = 4,     // marud stops; reconnect and re-attach
    Refused = 5,      // marud does not take this connection; message says why; its end follows
    SegmentGone = 6,  // items are (pool, segment): nothing of them is lent any more, unmap them
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
