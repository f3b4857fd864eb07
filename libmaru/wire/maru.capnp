@0xd1f6a5c0b7e94a31;
# The messages between marud and its clients. One packet of a SOCK_SEQPACKET Unix socket is one
# message: a Cap'n Proto flat array (segment table, then exactly one segment), at most 96 KiB.
#
# Clients send `Message`; marud sends `ServerMessage`. Every Message is answered by exactly one reply
# with its id, in any order. Which message is allowed when, and how each is refused, is told in
# libmaru/wire/messages.h, whose structs mirror these one to one.
#
# The limits named here are those of libmaru/wire/limits.h; over one, the request is answered
# TOO_LARGE. A malformed field is answered INVALID_ARGUMENT with the field's name. A packet whose id
# cannot be read ends the connection.
#
# What must stay true: numbers (@n), enum values and record layouts never change their meaning. A new
# message or field comes with a capability string of hello; a receiver that lacks it answers
# UNSUPPORTED to a message it does not know, and reads a field it does not know as absent.
#
# Conventions
#   ids       64 bits: server epoch in the upper 32, a number in the lower 32. An id of another epoch
#             is answered STALE_EPOCH. Only a session and its pools keep their ids over a restart.
#   bytes     unless a name says otherwise, sizes and offsets count bytes, times count as named (Ms).
#   Text      UTF-8 without NUL.
#   Data      a blob of fixed records, back to back, little-endian, in request order; its length is a
#             whole number of records. Records begin on an 8-byte boundary of the frame.
#
# Records (byte offset: field)
#   Digest         32 B   0: 32 bytes of the chained prefix digest
#   Key            40 B   0: Digest; 32: shard u32; 36: part u32
#   CommitItem     72 B   0: Key; 40: pool id u64; 48: offset in the pool u64, page-aligned;
#                         56: length u64, logical bytes; 64: generation u64
#   CommitResult   16 B   0: replica id u64 (OK and ALREADY_PRESENT); 8: Status u32; 12: reserved u32
#   AcquireResult  48 B   0: replica id u64; 8: pool id u64; 16: offset u64; 24: length u64;
#                         32: generation u64; 40: Status u32; 44: reserved u32
#   ReplicaName    16 B   0: replica id u64; 8: generation u64
#   LeaseItem      24 B   0: replica id u64; 8: generation u64; 16: count u64
#   RepublishItem  88 B   0: CommitItem; 72: namespace id u64 (of the new epoch);
#                         80: lease count u32; 84: retiring u32, 0, 1 or (scope host) 2
#   PoolGauge      40 B   0: pool id u64; 8: allocated bytes u64; 16: quarantined bytes u64;
#                         24: populated bytes u64; 32: pinned bytes u64
#   Id              8 B   0: id u64
#   ItemStatus      4 B   0: Status u32
#
# Status (u32, here and in records)
#    0 OK              7 QUOTA            14 STALE_GENERATION   21 UNKNOWN
#    1 ALREADY_PRESENT 8 UNAVAILABLE      15 STALE_EPOCH        22 ABSENT
#    2 PENDING         9 UNSUPPORTED      16 AGAIN              23 COMMITTED
#    3 MISS           10 INVALID_ARGUMENT 17 PROTOCOL           24 FD_LIMIT
#    4 NOT_FOUND      11 DENIED           18 TOO_LARGE          25 FENCED
#    5 NO_SPACE       12 BUSY             19 VERSION_MISMATCH   26 INTERNAL
#    6 NO_MEMORY      13 CONFLICT         20 INCOMPATIBLE
# Any request may also be answered PROTOCOL (not now: before hello, or without a session),
# STALE_EPOCH, FENCED (the session is over), DENIED, AGAIN (too many requests in flight), INTERNAL.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("maru::wire::schema");

enum Medium { cpu @0; cxl @1; ssd @2; }
enum Tier { l1 @0; l2 @1; }
enum Scope { worker @0; host @1; domain @2; }  # who may read the pool
enum Role { worker @0; scheduler @1; admin @2; }
enum HugePages { off @0; try @1; required @2; }
enum Numa { off @0; auto @1; strict @2; }

# ---- from clients ------------------------------------------------------------------------------

struct Message {
  id @0 :UInt64;              # chosen by the client; not 0; unique among its unanswered ones
  acknowledgedOp @1 :UInt64;  # every commit operation id up to this one has been answered
  epoch @2 :UInt32;           # server epoch of hello; 0 only in hello itself
  body :union {
    hello @3 :Hello;                          # -> HelloReply
    helloProof @4 :HelloProof;                # -> StatusOnly
    openSession @5 :OpenSession;              # -> SessionReply
    attach @6 :Attach;                        # -> AttachReply
    attachPool @7 :AttachPool;                # -> StatusOnly; the one message with descriptors
    republish @8 :Republish;                  # -> ItemStatusReply with replicas
    attachLeases @9 :AttachLeases;            # -> ItemStatusReply
    attachDone @10 :Void;                     # -> StatusOnly; leases not named before are over
    describe @11 :Describe;                   # -> StatusOnly
    heartbeat @12 :Heartbeat;                 # -> StatusOnly
    registerNamespace @13 :RegisterNamespace; # -> NamespaceReply
    openPool @14 :OpenPool;                   # -> PoolReply
    grantSegment @15 :SegmentRequest;         # -> SegmentReply, with the segment's descriptor
    segmentMapped @16 :SegmentRequest;        # -> StatusOnly; mapped and populated: marud seals it
    closePool @17 :ClosePool;                 # -> ClosePoolReply
    closeSession @18 :Void;                   # -> StatusOnly; BUSY while pools are open
    commit @19 :Commit;                       # -> CommitReply
    resolve @20 :Resolve;                     # -> ResolveReply
    probe @21 :Probe;                         # -> ProbeReply
    acquire @22 :Acquire;                     # -> AcquireReply
    release @23 :ReplicaNames;                # -> ItemStatusReply; NOT_FOUND: no such lease
    retire @24 :ReplicaNames;                 # -> ItemStatusReply; one's own replicas
    reclaimAck @25 :ReplicaNames;             # -> ItemStatusReply; the pages are free again
    usage @26 :UsageRequest;                  # -> UsageReply
    status @27 :Void;                         # -> StatusReply; admin requests from here on
    list @28 :ListRequest;                    # -> ListReply
    explain @29 :Explain;                     # -> ExplainReply
    adminRetire @30 :AdminRetire;             # -> CountReply
    drain @31 :Drain;                         # -> StatusOnly
    reload @32 :Void;                         # -> StatusOnly
    mapSegment @33 :MapSegment;               # -> ViewReply, with a descriptor to read through
    retireSegment @34 :SegmentRequest;        # -> CountReply; admin request
    engineWorker @35 :Void;                   # -> EngineWorkerReply; needs a session
  }
}

struct Hello {
  # The first message of a connection. VERSION_MISMATCH for another major, naming both;
  # UNSUPPORTED for a required capability that marud lacks, naming it.
  major @0 :UInt16;
  minor @1 :UInt16;
  clientName @2 :Text;                   # shown by maructl; 0 to 64 bytes
  requiredCapabilities @3 :List(Text);   # at most 32, each 1 to 64 bytes
}

struct HelloProof {
  # Answers a HelloReply.nonce that is not 0, before anything else. DENIED for another nonce.
  nonce @0 :UInt64;
}

struct OpenSession {
  # BUSY: a living worker has this engine, the message names it. QUOTA: sessions of this uid.
  token @0 :Data;   # exactly 16 random bytes, made by the client; a retry with it returns the first result
  role @1 :Role;
  engine @2 :Text;  # 1 to 256 bytes; worker: whose it is; scheduler: whose worker it probes for
}

struct Attach {
  # Takes a session up again over a new connection, after a lost one or a restart of marud.
  # FENCED: the session is over for good.
  token @0 :Data;             # exactly 16 bytes, as in OpenSession
  role @1 :Role;
  engine @2 :Text;            # 1 to 256 bytes
  oldEpoch @3 :UInt32;        # the epoch the client knew; marud never draws it again
  lowestUnanswered @4 :UInt64;  # commit operation id; all below are acknowledged; 0: says nothing
}

struct AttachPool {
  # After a restart, for a pool of AttachReply.missingPools: hands marud the segments' descriptors
  # (those of this packet, in order). At most 253 in one message.
  pool @0 :UInt64;
  capacityBytes @1 :UInt64;
  segmentBytes @2 :UInt64;
  pageBytes @3 :UInt32;
  firstSegment @4 :UInt32;
  segmentCount @5 :UInt32;
  nextGeneration @6 :UInt64;
}

struct Republish {
  # Tells a new marud what the worker's private pools hold, and which shared memory it still reads.
  items @0 :Data;  # RepublishItem; at most 1024
}

struct AttachLeases {
  # Same life of marud: the whole truth about held leases, in as many messages as it takes.
  items @0 :Data;  # LeaseItem; at most 1024
}

struct Describe {
  # Before the first commit into a namespace. INCOMPATIBLE: differs from the namespace's first
  # describer. CONFLICT: differs from what this session said before.
  namespaceId @0 :UInt64;
  objectBytes @1 :UInt64;  # not 0; every object of this session has this logical size
  format @2 :Text;         # 1 to 256 bytes; compared as text
}

struct Heartbeat {
  gauges @0 :Data;  # PoolGauge; at most 1024
}

struct RegisterNamespace {
  # A namespace belongs to the session's uid: the same text of another uid is another namespace.
  # QUOTA: namespaces of this uid.
  text @0 :Text;  # the full text, 1 to 16384 bytes; the same text always gets the same id
}

struct OpenPool {
  # NO_SPACE, QUOTA: host aggregate, uid or worker grant; UNAVAILABLE: no such medium here.
  medium @0 :Medium;
  tier @1 :Tier;
  scope @2 :Scope;
  hugePages @3 :HugePages;
  numa @4 :Numa;
  numaNode @5 :Int32 = -1;    # -1: the worker's own
  capacityBytes @6 :UInt64;
  pageBytes @7 :UInt32;
  requestKey @8 :UInt64;      # not 0; a retry with the same key returns the first result
}

struct SegmentRequest {
  pool @0 :UInt64;
  segment @1 :UInt32;
}

enum ClosePhase {
  drain @0;   # refuse new commits and acquires; BUSY, and nothing changed, while leases live
  force @1;   # retire everything, answer when the last lease has ended
  finish @2;  # the worker has unmapped: seal and give the bytes back
  leave @3;   # scope host: the worker has unmapped; marud keeps what is READY (shared_storage_v1)
}

struct ClosePool {
  pool @0 :UInt64;
  phase @1 :ClosePhase;
}

struct Commit {
  namespaceId @0 :UInt64;
  firstOp @1 :UInt64;  # item i has operation id firstOp + i, which must not wrap around
  items @2 :Data;      # CommitItem; at most 1024
}

struct Resolve {
  firstOp @0 :UInt64;
  count @1 :UInt32;    # at most 1024; firstOp + count must not wrap around
}

struct Manifest {
  # Which shards and parts make one chunk. Counts are 1 or more, their product at most 65536.
  firstShard @0 :UInt32;
  shardCount @1 :UInt32 = 1;
  firstPart @2 :UInt32;
  partCount @3 :UInt32 = 1;
}

struct Probe {
  # Which of these chunks could this session read now? Promises nothing, takes no lease. A scheduler
  # asks for the attached worker of its engine.
  namespaceId @0 :UInt64;
  keys @1 :Data;         # Digest, in prefix order; at most 2048; times objects at most 65536
  manifest @2 :Manifest;
  stopAtMiss @3 :Bool;   # only the prefix counts: bits after the first miss are 0
  worker @4 :UInt64;     # 0, or the session that must be the one asked for: else all are misses
}

struct Acquire {
  # Takes a lease on every object of every key, all or none per key.
  namespaceId @0 :UInt64;
  keys @1 :Data;         # Digest; keys times objects of the manifest at most 1024
  manifest @2 :Manifest;
  stopAtMiss @3 :Bool;   # keys after the first miss are not acquired
}

struct MapSegment {
  # shared_storage_v1. A way to read the segment that a lease of this session lies in. The descriptor
  # is read-only, and its file sealed against new writers.
  replica @0 :UInt64;
  generation @1 :UInt64;
}

struct ReplicaNames {
  items @0 :Data;        # ReplicaName; at most 1024
}

struct UsageRequest {
  pool @0 :UInt64;       # 0: the totals of the caller's uid
}

enum ListKind { sessions @0; pools @1; namespaces @2; objects @3; leases @4; }

struct ListRequest {
  kind @0 :ListKind;
  cursor @1 :UInt64;       # 0 first, then ListReply.nextCursor until that is 0
  namespaceId @2 :UInt64;  # objects: only of this namespace; 0: all
}

struct Explain {
  # Why would this engine (not) read this object?
  namespaceId @0 :UInt64;
  key @1 :Data;                     # exactly one Key
  engine @2 :Text;                  # 0 to 256 bytes
  uid @3 :UInt32 = 0xffffffff;      # whose engine; 0xffffffff: the caller's
}

struct AdminRetire {
  namespaceId @0 :UInt64;
  key @1 :Data;  # exactly one Key; empty: every object of the namespace
}

struct Drain {
  enable @0 :Bool = true;  # no new sessions, pools and commits; readers go on
}

# ---- from marud --------------------------------------------------------------------------------

struct ServerMessage {
  union {
    reply @0 :Reply;
    event @1 :Event;
  }
}

struct Reply {
  id @0 :UInt64;  # of the request
  body :union {
    statusOnly @1 :StatusOnly;  # every failure, and success that has no other result
    hello @2 :HelloReply;
    session @3 :SessionReply;
    attach @4 :AttachReply;
    namespaceReply @5 :NamespaceReply;
    pool @6 :PoolReply;
    segment @7 :SegmentReply;
    closePool @8 :ClosePoolReply;
    commit @9 :Results;         # CommitResult, one per item
    resolve @10 :Results;       # CommitResult: COMMITTED, ALREADY_PRESENT, ABSENT, UNKNOWN, error
    probe @11 :ProbeReply;
    acquire @12 :Results;       # AcquireResult, key-major: keys times objects of the manifest
    itemStatus @13 :ItemStatusReply;
    usage @14 :UsageReply;
    status @15 :StatusReply;
    list @16 :ListReply;
    explain @17 :ExplainReply;
    count @18 :CountReply;
    view @19 :ViewReply;
    engineWorker @20 :EngineWorkerReply;
  }
}

struct StatusOnly {
  status @0 :UInt32;   # Status
  message @1 :Text;    # what was wrong and what is allowed; empty for OK
  detail @2 :UInt64;   # AGAIN: the operation id that pins the ledger; QUOTA, NO_SPACE of OpenPool: bytes to be proven free soon
}

struct Limits {  # of this marud
  frameBytes @0 :UInt32;
  probeKeys @1 :UInt32;
  batchItems @2 :UInt32;
  inFlight @3 :UInt32;         # requests of one connection
  ledgerItems @4 :UInt32;      # unacknowledged commits per session
  leases @5 :UInt32;           # per session
  heartbeatMs @6 :UInt32;      # send one at least this often
  sessionTimeoutMs @7 :UInt32; # without any message for so long, a session is detached
  spinUs @8 :UInt32;           # marud polls this long before it sleeps
}

struct HelloReply {
  major @0 :UInt16;
  minor @1 :UInt16;
  epoch @2 :UInt32;            # never 0; to be sent with every further request
  nonce @3 :UInt64;            # not 0: send it back in HelloProof first
  uid @4 :UInt32;              # the caller as marud sees it
  pid @5 :UInt32;
  capabilities @6 :List(Text); # at most 32; see libmaru/wire/capabilities.h
  limits @7 :Limits;
  version @8 :Text;            # of marud, for people
}

struct SessionReply {
  session @0 :UInt64;
  existed @1 :Bool;            # the token was known: a retried open
}

struct AttachReply {
  session @0 :UInt64;
  sameLife @1 :Bool;           # true: send AttachLeases and resolve; false: republish
  missingPools @2 :Data;       # Id of each pool whose segments marud needs: send AttachPool
}

struct NamespaceReply {
  namespaceId @0 :UInt64;
}

struct PoolReply {
  pool @0 :UInt64;
  capacityBytes @1 :UInt64;    # granted; segmentBytes each, the last segment may be shorter
  segmentBytes @2 :UInt64;
  segmentCount @3 :UInt32;
  firstGeneration @4 :UInt64;  # the pool's allocator starts here
}

struct SegmentReply {
  bytes @0 :UInt64;
  huge @1 :Bool;               # backed by hugetlb pages
}

struct ViewReply {
  pool @0 :UInt64;
  segment @1 :UInt32;
  huge @2 :Bool;
  offset @3 :UInt64;           # in the pool, of the segment's first byte
  bytes @4 :UInt64;
}

struct ClosePoolReply {
  status @0 :UInt32;           # Status
  leases @1 :UInt64;           # BUSY: how many hold the pool
  message @2 :Text;            # BUSY: who
}

struct Results {
  results @0 :Data;            # one record per item, in request order; at most 1024
}

enum ProbeReason { none @0; noWorkerAttached @1; pending @2; }

struct ProbeReply {
  prefix @0 :UInt32;           # leading keys that are all readable
  bitmap @1 :Data;             # bit i, least significant first: key i is readable; at most 256 bytes
  reason @2 :ProbeReason;
}

struct EngineWorkerReply {
  # engine_worker_v1. The attached worker of the session's uid and engine, whom a scheduler's probes are
  # answered for.
  session @0 :UInt64;          # 0: none attached
  namespaceText @1 :Text;      # of the namespace that it described last; empty: none yet
}

struct ItemStatusReply {
  statuses @0 :Data;           # ItemStatus; at most 1024
  replicas @1 :Data;           # Id; republish: the new ids; else empty
}

struct Usage {                 # bytes, unless a count
  capacityBytes @0 :UInt64;
  reservedBytes @1 :UInt64;    # backing reserved for the pool, with rounding
  allocatedBytes @2 :UInt64;   # pages handed out
  readyBytes @3 :UInt64;       # logical bytes of READY replicas
  readyAllocatedBytes @4 :UInt64;  # pages of READY replicas
  quarantinedBytes @5 :UInt64; # pages whose fate is unknown
  pinnedBytes @6 :UInt64;      # registered with CUDA, really
  retiringBytes @7 :UInt64;    # pages of RETIRING replicas; part of allocated
  populatedBytes @8 :UInt64;   # pages that memory stands behind
  replicas @9 :UInt64;         # count
  leases @10 :UInt64;          # count
}

struct UsageReply {
  usage @0 :Usage;
  limitBytes @1 :UInt64;       # the pool's grant, or the uid's quota
}

struct StatusReply {
  version @0 :Text;
  epoch @1 :UInt32;
  pid @2 :UInt32;
  uptimeMs @3 :UInt64;
  draining @4 :Bool;
  admin @5 :Bool;              # the caller may see and change what belongs to others
  sessions @6 :UInt32;
  attached @7 :UInt32;
  pools @8 :UInt32;
  namespaces @9 :UInt32;
  objects @10 :UInt64;
  replicas @11 :UInt64;
  leases @12 :UInt64;
  hostLimitBytes @13 :UInt64;
  hostReservedBytes @14 :UInt64;
  unprovenBytes @15 :UInt64;   # charged to dead sessions whose memory is not proven unwritable
  usage @16 :Usage;
  fdstore @17 :Text;           # "systemd" or "none"
  adopted @18 :Text;           # adopted segments: "kept" over a restart of marud, or "volatile"
  adoptedSegments @19 :UInt32;
  adoptedBytes @20 :UInt64;
}

struct SessionRow {
  session @0 :UInt64;
  role @1 :Role;
  engine @2 :Text;
  clientName @3 :Text;
  command @4 :Text;
  state @5 :Text;              # attached, detached, fenced, exiting
  uid @6 :UInt32;
  pid @7 :UInt32;
  pools @8 :UInt32;
  ageMs @9 :UInt64;
  beatAgeMs @10 :UInt64;       # since the last message
  leases @11 :UInt64;
  reservedBytes @12 :UInt64;
}

struct PoolRow {
  pool @0 :UInt64;
  session @1 :UInt64;
  medium @2 :Medium;
  tier @3 :Tier;
  scope @4 :Scope;
  engine @5 :Text;
  state @6 :Text;              # open, closing, proving, adopted, quarantined
  pageKind @7 :Text;           # "4K", "2M hugetlb"
  numaNode @8 :Int32 = -1;
  uid @9 :UInt32;
  pageBytes @10 :UInt32;
  segments @11 :UInt32;
  ageMs @12 :UInt64;
  usage @13 :Usage;
  segment @14 :UInt32 = 0xffffffff;  # of an adopted segment: which of its pool
}

struct NamespaceRow {
  namespaceId @0 :UInt64;
  text @1 :Text;
  objects @2 :UInt64;
  replicas @3 :UInt64;
  objectBytes @4 :UInt64;      # 0: not described yet
  uid @5 :UInt32;              # whose it is
}

struct ObjectRow {             # one replica of an object
  namespaceId @0 :UInt64;
  key @1 :Data;                # exactly one Key
  replica @2 :UInt64;
  pool @3 :UInt64;
  offset @4 :UInt64;
  length @5 :UInt64;
  generation @6 :UInt64;
  state @7 :Text;              # ready, retiring
  leases @8 :UInt32;
}

struct LeaseRow {
  replica @0 :UInt64;
  session @1 :UInt64;          # the holder
  pool @2 :UInt64;
  generation @3 :UInt64;
  count @4 :UInt64;
  ageMs @5 :UInt64;
  uid @6 :UInt32;
  pid @7 :UInt32;
  command @8 :Text;
  engine @9 :Text;
}

struct ListReply {
  rows :union {                # at most 128 rows a page, and no more than fit in a frame
    sessions @0 :List(SessionRow);
    pools @1 :List(PoolRow);
    namespaces @2 :List(NamespaceRow);
    objects @3 :List(ObjectRow);
    leases @4 :List(LeaseRow);
  }
  nextCursor @5 :UInt64;       # 0: the end
}

struct ExplainRow {
  replica @0 :UInt64;
  pool @1 :UInt64;
  engine @2 :Text;
  state @3 :Text;
  eligible @4 :Bool;
  reason @5 :Text;             # a sentence for people
}

struct ExplainReply {
  hit @0 :Bool;
  summary @1 :Text;
  replicas @2 :List(ExplainRow);  # at most 128
}

struct CountReply {
  count @0 :UInt64;            # replicas retired
  pending @1 :UInt64;          # of which readers still hold
}

enum EventKind {
  reclaim @0;   # the last reader of these RETIRING replicas is gone: free, then reclaimAck
  retired @1;   # marud retired these; no new acquire; reclaim follows
  fenced @2;    # the session lost its engine; the message says to whom
  draining @3;  # marud admits nothing new
  shutdown @4;  # marud stops; reconnect and attach
  refused @5;   # the first and last packet of a connection that marud does not take; the message says why
  segmentGone @6;  # items name pools and segments: nothing of them is lent any more
}

struct Event {
  kind @0 :EventKind;
  items @1 :Data;              # ReplicaName; at most 1024
  message @2 :Text;
}
