// The fixed records that batches carry as flat blobs, and the names of things on the wire.
//
// A batch is one Cap'n Proto Data field holding n records back to back, little-endian, in request
// order. That costs nothing per item to encode or decode. Sizes and offsets are ABI: a new field
// is a new record type behind a capability.
#pragma once

#include <array>
#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace maru::wire {

static_assert(std::endian::native == std::endian::little, "records travel in host order");

// 32 bits of server epoch above 32 bits of a number: an id of another epoch is STALE_EPOCH.
// Only a session and its pools keep their ids when it re-attaches after a restart of marud.
using Id = uint64_t;
constexpr uint32_t id_epoch(Id id) { return static_cast<uint32_t>(id >> 32); }
constexpr uint32_t id_number(Id id) { return static_cast<uint32_t>(id); }
constexpr Id make_id(uint32_t epoch, uint32_t number) {
    return (static_cast<uint64_t>(epoch) << 32) | number;
}

struct Digest {
    std::array<uint8_t, 32> bytes{};
    auto operator<=>(const Digest &) const = default;
};
static_assert(sizeof(Digest) == 32);

// The outcome of a request, or of one item of a batch. Never renumbered.
enum class Status : uint32_t {
    Ok = 0,
    AlreadyPresent = 1,    // a READY replica of the object is in that placement domain
    Pending = 2,           // accepted, not finished; an event or a later request tells the end
    Miss = 3,              // no replica that this reader may read
    NotFound = 4,          // the thing named does not exist (a released lease, an unknown op)
    NoSpace = 5,           // capacity, host aggregate or grant is used up
    NoMemory = 6,          // the kernel had no memory (or no huge pages)
    Quota = 7,             // a limit of this uid or session
    Unavailable = 8,       // no such medium or no pool here, now
    Unsupported = 9,       // a capability that this marud does not have
    InvalidArgument = 10,  // malformed: says which field and what is allowed
    Denied = 11,           // not yours
    Busy = 12,             // leases, views or another holder; the message names them
    Conflict = 13,         // same operation id with other content; overlapping or misaligned range
    StaleGeneration = 14,  // the name was right once; the memory has moved on
    StaleEpoch = 15,       // an id of an earlier life of marud
    Again = 16,            // a bounded table is full; the message names what pins it
    Protocol = 17,         // not a message, or not now
    TooLarge = 18,         // over a limit of limits.h
    VersionMismatch = 19,  // carries both versions
    Incompatible =
        20,          // size or format differs from the schema or from the object's other replicas
    Unknown = 21,    // resolve: the commit may still be queued; not an abort
    Absent = 22,     // resolve: it was never applied and never will be; final
    Committed = 23,  // resolve: it was applied; final
    FdLimit = 24,    // a descriptor could not be passed
    Fenced = 25,     // the session is over; its token is stale for good
    Internal = 26,   // an I/O error of marud; the message says which
};

// ---- one per line below: bytes on the wire -----------------------------------------------------

struct Key {  // 40 B: an object inside a namespace
    Digest digest;
    uint32_t shard = 0;
    uint32_t part = 0;
    auto operator<=>(const Key &) const = default;
};
static_assert(sizeof(Key) == 40);

struct CommitItem {  // 72 B
    Key key;
    Id pool = 0;
    uint64_t offset = 0;      // bytes from the start of the pool; page-aligned
    uint64_t length = 0;      // logical bytes; the pool charges whole pages
    uint64_t generation = 0;  // given by the allocator that owns the pool; only grows
};
static_assert(sizeof(CommitItem) == 72 && offsetof(CommitItem, pool) == 40);

struct CommitResult {  // 16 B
    Id replica = 0;    // for Ok and AlreadyPresent
    Status status = Status::Internal;
    uint32_t reserved = 0;
};
static_assert(sizeof(CommitResult) == 16);

struct AcquireResult {  // 48 B
    Id replica = 0;
    Id pool = 0;
    uint64_t offset = 0;
    uint64_t length = 0;
    uint64_t generation = 0;
    Status status = Status::Miss;
    uint32_t reserved = 0;
};
static_assert(sizeof(AcquireResult) == 48);

struct ReplicaName {  // 16 B; both must match, so a reused number never names the wrong memory
    Id replica = 0;
    uint64_t generation = 0;
};
static_assert(sizeof(ReplicaName) == 16);

struct LeaseItem {  // 24 B: what a session holds; count > 1 when it acquired more than once
    Id replica = 0;
    uint64_t generation = 0;
    uint64_t count = 0;
};
static_assert(sizeof(LeaseItem) == 24);

struct RepublishItem {  // 88 B: what a worker holds, told to a new marud
    CommitItem item;
    Id namespace_id = 0;       // of the new epoch
    uint32_t lease_count = 0;  // leases that this same session holds on it
    uint32_t retiring = 0;     // 1: retired before, and not to be found again; 2: a commit without
                               // an answer, to be told whether it was published
};
static_assert(sizeof(RepublishItem) == 88);

struct PoolGauge {  // 40 B: what only the worker knows, sent with heartbeats
    Id pool = 0;
    uint64_t allocated_bytes = 0;    // pages handed out, committed or not
    uint64_t quarantined_bytes = 0;  // pages of commits whose result is unknown
    uint64_t populated_bytes = 0;    // pages that memory stands behind
    uint64_t pinned_bytes = 0;       // bytes registered with CUDA, really
};
static_assert(sizeof(PoolGauge) == 40);

// Which shards and parts make one logical chunk. A hit needs all of them.
struct Manifest {
    uint32_t first_shard = 0;
    uint32_t shard_count = 1;
    uint32_t first_part = 0;
    uint32_t part_count = 1;
    uint32_t objects() const { return shard_count * part_count; }
};

}  // namespace maru::wire
