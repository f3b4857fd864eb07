// Directory: namespaces, objects, replicas, leases and the page maps of pools.
//
// Pure code, owned by one thread: no I/O, no clock; probe allocates nothing. A replica is
// named by (slot, generation): slots are reused, generations only grow, so a pair never names two
// memories. What must stay true (the RFC's invariants): a replica is found only while READY and its
// pool visible to the reader; a RETIRING one is never acquired again; pages leave the page map only
// by reclaim() or remove_pool(); a lease ends only by release() or drop_holder().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libmaru/wire/messages.h"

namespace maru {

using NamespaceIndex = uint32_t;  // 1.. ; the low half of the wire id
using PoolIndex = uint32_t;       // dense, reused; the wire id is PoolSpec::id
using HolderIndex = uint32_t;     // a session slot of session/, dense, reused after drop_holder()
inline constexpr PoolIndex kNoPool = UINT32_MAX;

enum class ReplicaState : uint8_t { Free, Ready, Retiring };

struct PoolSpec {
    wire::Id id = 0;  // on the wire; keeps its old epoch after a re-attach
    HolderIndex owner = 0;
    uint32_t domain = 0;  // placement domain: ALREADY_PRESENT is asked inside it
    wire::Medium medium = wire::Medium::Cpu;
    wire::Tier tier = wire::Tier::L1;
    wire::Scope scope = wire::Scope::Worker;
    uint64_t capacity_bytes = 0;
    uint64_t segment_bytes = 0;  // the last segment may be shorter
    uint32_t page_bytes = 0;
    // A part of the pool `id`: offsets are the whole pool's and begin here. 0: it is the whole.
    uint64_t first_offset = 0;
};

struct DrainedReplica {  // RETIRING, and its last lease has ended: ask the owner to reclaim
    PoolIndex pool = 0;
    wire::ReplicaName name;
};

class Directory {
  public:
    struct Config {
        uint32_t epoch = 0;
        uint32_t max_namespaces = 4096;
        uint32_t max_namespaces_per_uid = 1024;
        uint64_t max_replicas = 64ull << 20;
        uint64_t hash_seed = 0;  // random and secret: clients choose the keys of the tables
        // By a thread that only makes memory; without it a call may wait for the kernel to clear some.
        bool make_blocks_ahead = false;
    };
    explicit Directory(const Config &config);
    ~Directory();

    // ---- namespaces: by uid and full text; never removed in one life, so a number never changes
    // meaning. Whether a caller may use that number is the caller's to check.
    // Ok; Quota (max_namespaces_per_uid); Again (max_namespaces); InvalidArgument (empty), TooLarge.
    // UTF-8 is the caller's to check.
    wire::Status register_namespace(uint32_t uid, std::string_view text, NamespaceIndex *ret_index);
    void set_max_namespaces_per_uid(uint32_t limit);  // for those that are not there yet
    bool namespace_exists(NamespaceIndex index) const;
    uint32_t namespace_uid(NamespaceIndex index) const;  // UINT32_MAX: there is no such namespace
    std::string_view namespace_text(NamespaceIndex index) const;
    std::string_view namespace_format(NamespaceIndex index) const;  // empty: not described
    // First describer sets size and format; a later one must agree (Incompatible). NotFound;
    // InvalidArgument (0 bytes); TooLarge (a format over kMaxNamespaceBytes).
    wire::Status describe_namespace(NamespaceIndex index, uint64_t object_bytes,
                                    std::string_view format);

    // ---- pools
    PoolIndex add_pool(const PoolSpec &spec);
    void grant_segment(PoolIndex pool, uint32_t segment);  // from now commits may lie in it
    // Hidden pools are never hits and refuse commits and acquires; charges and leases stay.
    void set_visible(PoolIndex pool, bool visible);
    void set_closing(PoolIndex pool, bool closing);  // refuses commits and acquires
    // Of a segment that its worker has forgotten: its replicas go, commits may not lie in it.
    void revoke_segment(PoolIndex pool, uint32_t segment);
    // Adoption: what is READY or leased in the segment moves, under the same names, to a pool of its
    // own that is visible and belongs to marud (owner 0); RETIRING ones without leases are freed.
    // Nothing of that kind in it: kNoPool, and the segment is empty; a pool all the same if
    // `even_empty`, for readers that are still to be told of.
    PoolIndex adopt_segment(PoolIndex pool, uint32_t segment, bool even_empty = false);
    // Whose pools of a scope beyond Worker `holder` may read: those of this domain; 0: of none.
    void set_host_domain(HolderIndex holder, uint32_t domain);
    // Forgets pool and replicas. Only after proof, or when no replica is left. From now none of them
    // has a name or is listed, and their leases count for their holders only until sweep() has come
    // by: the index is not given to another pool before.
    void remove_pool(PoolIndex pool);
    // Goes on with what remove_pool() and retire_pool() have begun, for a millisecond or so. True:
    // there is more to do.
    bool sweep();
    bool sweeping() const;
    static constexpr uint32_t kSwept = 2048;  // replicas at once
    // What the directory knows: capacity, ready, ready_allocated, retiring, replicas, leases; and
    // as allocated the pages of committed replicas only.
    wire::Usage pool_usage(PoolIndex pool) const;
    uint64_t pool_leases(PoolIndex pool) const;

    // ---- replicas
    // Checked in this order, and nothing is changed unless Ok: NotFound (namespace, pool),
    // InvalidArgument (length or generation 0), Unavailable (pool hidden or closing), Conflict
    // (outside the pool or a granted segment, misaligned, crossing a segment's end), Incompatible
    // (size: of the namespace, or of any replica of the object), Conflict (overlapping a READY or
    // RETIRING replica, generation not above the ones its pages had), AlreadyPresent (READY in the
    // same domain, its pool visible, and readable by this pool's owner), NoSpace (table; or so many
    // copies of the object are RETIRING that looking for one of them would take too long).
    // `pool` belongs to the caller: checked before; item.pool is not looked at.
    wire::CommitResult commit(NamespaceIndex ns, PoolIndex pool, const wire::CommitItem &item);
    // For batches: asks for the memory that a commit will look at, some items ahead of it, and gives
    // the hash that it needs.
    uint32_t prefetch(NamespaceIndex ns, const wire::Key &key) const;
    wire::CommitResult commit(NamespaceIndex ns, PoolIndex pool, const wire::CommitItem &item,
                              uint32_t prefetched);
    // The same without the duplicate check, for a re-attached worker's word; retiring ones are
    // registered but never found. Idempotent for an identical (key, pool, range, generation): Ok and
    // the same id; one that was READY retires if it is told so now. Hidden and closing pools take
    // it. A second copy in one domain, which no commit could have made, is registered RETIRING.
    // RETIRING ones without leases come out of take_drained(): set_lease() first.
    wire::CommitResult republish(NamespaceIndex ns, PoolIndex pool, const wire::CommitItem &item,
                                 bool retiring);
    // Readable: READY, pool visible, not closing and of tier L1, and either `reader`'s own or of a
    // scope beyond Worker and of the reader's host domain. A manifest without objects, or with numbers past 2^32, is a miss.
    // Leading readable keys; bit i of `bitmap` (size (n+7)/8, zeroed here) for each readable key.
    uint32_t probe(HolderIndex reader, NamespaceIndex ns, std::span<const wire::Digest> keys,
                   const wire::Manifest &manifest, bool stop_at_miss,
                   std::span<uint8_t> bitmap) const noexcept;
    // All-or-nothing per key over the manifest. `results` has keys x manifest.objects() places.
    // At most `lease_room` new leases: a key for which there is no room is Quota as a whole (Miss, if
    // it cannot be read anyway), and with stop_at_miss so are all after it. `now_s`: when, for
    // people. Returns the leases taken: one per item that is Ok, also if the holder had it already.
    uint32_t acquire(HolderIndex reader, NamespaceIndex ns, std::span<const wire::Digest> keys,
                     const wire::Manifest &manifest, bool stop_at_miss, uint32_t lease_room,
                     uint32_t now_s, std::span<wire::AcquireResult> results);
    // One count of it. Ok; NotFound (this holder has no such lease: nothing changes); and for every
    // name: StaleEpoch, StaleGeneration (also when the slot is free), NotFound (never used).
    wire::Status release(HolderIndex holder, const wire::ReplicaName &name);
    // Sets the count that `holder` has on one replica (attach, republish), READY or RETIRING; 0
    // drops it, Ok also when there is none. Denied for a private replica of somebody else.
    wire::Status set_lease(HolderIndex holder, const wire::ReplicaName &name, uint32_t count,
                           uint32_t now_s);
    // What `holder` has on it now; 0 for any name that does not fit. Attach may lower it, never raise.
    uint32_t lease_count(HolderIndex holder, const wire::ReplicaName &name) const;
    void drop_holder(HolderIndex holder);              // ends all its leases
    uint64_t holder_leases(HolderIndex holder) const;  // the sum of counts, as everywhere
    // Attach: every lease of `holder` neither set nor acquired since begin is dropped at the end.
    void begin_lease_restore(HolderIndex holder);
    void end_lease_restore(HolderIndex holder);

    // READY -> RETIRING. Ok = no readers, reclaim may follow; Pending = readers left; NotFound,
    // StaleGeneration, StaleEpoch; Ok or Pending again for one that is RETIRING already.
    // `owner`: whose pool it must be in (Denied), or UINT32_MAX for marud itself.
    wire::Status retire(const wire::ReplicaName &name, HolderIndex owner);
    void retire_pool(
        PoolIndex pool);  // all of it, with sweep(); it should take no commits any more
    // RETIRING replicas of the pool without leases come out of take_drained() (again).
    void queue_drained(PoolIndex pool);
    // All replicas of an object (key), of the namespace, or of a segment; `most` of them: again until
    // it is 0. fn(pool, name, has_readers) for each that was READY; it must not call Directory.
    // Returns how many.
    using RetireFn = std::function<void(PoolIndex, const wire::ReplicaName &, bool)>;
    uint64_t retire_object(NamespaceIndex ns, const wire::Key *key, const RetireFn &fn,
                           uint64_t most = UINT64_MAX);
    uint64_t retire_segment(PoolIndex pool, uint32_t segment, const RetireFn &fn,
                            uint64_t most = UINT64_MAX);
    // RETIRING without leases -> FREED: its pages may be committed again. Busy while readers live;
    // InvalidArgument for a READY one; Denied; and as for every name.
    wire::Status reclaim(const wire::ReplicaName &name, HolderIndex owner);
    // RETIRING replicas whose last lease ended since the last call, by whatever ended it, and the
    // republished RETIRING ones that have none.
    std::vector<DrainedReplica> take_drained();

    // ---- for people and tests; cursor-paged, never a long walk: a call may return fewer rows than
    // `max`, even none, and a cursor to go on with. What exists throughout is listed exactly once.
    struct ReplicaView {
        wire::ReplicaName name;
        NamespaceIndex ns = 0;
        wire::Key key;
        PoolIndex pool = 0;
        uint64_t offset = 0, length = 0;
        ReplicaState state = ReplicaState::Free;
        uint32_t leases = 0;
    };
    struct LeaseView {
        wire::ReplicaName name;
        HolderIndex holder = 0;
        PoolIndex pool = 0;
        uint32_t count = 0, since_s = 0;
    };
    uint64_t list_replicas(uint64_t cursor, NamespaceIndex ns_or_0, uint32_t max,
                           std::vector<ReplicaView> &out) const;  // next cursor, 0 at the end
    uint64_t list_leases(uint64_t cursor, uint32_t max, std::vector<LeaseView> &out) const;
    void find_object(NamespaceIndex ns, const wire::Key &key, std::vector<ReplicaView> &out) const;
    // The replica of that name; nothing for any name that does not fit.
    std::optional<ReplicaView> find_replica(const wire::ReplicaName &name) const;
    // The copy of item.key that lies there, READY or RETIRING. item.pool is not looked at.
    std::optional<ReplicaView> find_at(NamespaceIndex ns, PoolIndex pool,
                                       const wire::CommitItem &item) const;
    // All of a pool, READY or not: fn must not call Directory.
    void each_replica(PoolIndex pool, const std::function<void(const ReplicaView &)> &fn) const;
    struct NamespaceView {
        uint64_t objects = 0, replicas = 0, object_bytes = 0;
    };
    NamespaceView namespace_view(NamespaceIndex index) const;
    struct Totals {
        uint64_t objects = 0, replicas = 0, leases = 0;
        uint32_t namespaces = 0, pools = 0;
    };
    Totals totals() const;
    uint64_t memory_bytes() const;
    std::string check_invariants() const;  // "" or what is wrong; walks everything

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace maru
