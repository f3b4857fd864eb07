// The records of the directory: one cache line per object and one per replica, because a probe of
// thousands of keys costs what the lines it touches cost.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/directory/directory.h"
#include "daemon/directory/page_map.h"
#include "daemon/directory/ring.h"
#include "daemon/directory/slab.h"

namespace maru::directory {

// (namespace, key) with at least one replica. What a probe must know of the first one is repeated
// here, so that a hit on it, which is nearly every hit, ends at this line.
struct alignas(64) Object {
    wire::Key key;
    NamespaceIndex ns = 0;           // 0: a free slot
    uint32_t first_replica = kNone;  // the READY ones first, then the RETIRING ones
    PoolIndex first_pool = 0;
    ReplicaState first_state = ReplicaState::Free;
    uint32_t retiring : 24 = 0;  // how many of its replicas are RETIRING
    // All objects of the namespace, those with a READY replica first; the free list.
    uint32_t ns_prev = kNone, ns_next = kNone;
};
static_assert(sizeof(Object) == 64);

struct alignas(64) Replica {
    uint64_t offset = 0;
    uint64_t length = 0;      // the same for all replicas of an object: content is immutable
    uint64_t generation = 0;  // kept in a free slot, which never gets the same one twice in a row
    uint64_t leases = 0;      // the sum of the counts
    uint32_t object = kNone;
    PoolIndex pool = 0;
    uint32_t prev = kNone, next = kNone;            // of its object; next: the free list
    uint32_t pool_prev = kNone, pool_next = kNone;  // of its segment of its pool, READY ones first
    uint32_t first_lease = kNone;
    ReplicaState state = ReplicaState::Free;
    bool drained = false;  // queued for take_drained()
    bool crowded = false;  // its leases are in the table of LeaseTable
};
static_assert(sizeof(Replica) == 64);

using Objects = Slab<Object, &Object::ns_next>;
using Replicas = Slab<Replica, &Replica::next>;
using ObjectRing = Ring<Replica, &Replica::prev, &Replica::next>;
using PoolRing = Ring<Replica, &Replica::pool_prev, &Replica::pool_next>;
using NamespaceRing = Ring<Object, &Object::ns_prev, &Object::ns_next>;

// What decides whether a reader may read from a pool, apart from the rest of it: 12 bytes, so that
// those of all pools stay in the cache while a probe runs.
struct PoolGate {
    HolderIndex owner = 0;
    uint32_t domain = 0;
    bool visible = false;  // in use, not hidden, not closing
    bool open = false;     // visible, and of a tier that can be read
    bool shared = false;   // scope host or domain: not only for its owner
    bool leaving = false;  // removed: what is left in it is nobody's
};

struct Pool {
    Pool(const PoolSpec &pool_spec)
        : spec(pool_spec),
          segment_bytes(pool_spec.segment_bytes),
          page_bytes(pool_spec.page_bytes),
          pages(pool_spec.capacity_bytes, pool_spec.segment_bytes, pool_spec.page_bytes),
          first_replica(pages.segment_count(), kNone) {}

    std::optional<PageMap::Range> locate(uint64_t offset, uint64_t length) const {
        // One before the part wraps around to far behind it.
        return pages.locate(offset - spec.first_offset, length);
    }
    uint32_t segment_of(uint64_t offset) const {
        return static_cast<uint32_t>(segment_bytes.quotient(offset - spec.first_offset));
    }

    PoolSpec spec;
    Divisor segment_bytes, page_bytes;  // as in spec
    PageMap pages;
    bool visible = true;
    bool closing = false;
    bool leaving = false;
    std::vector<uint32_t> first_replica;  // a ring per segment: the unit of adoption
    uint64_t replicas = 0;
    uint64_t leases = 0;
    uint64_t ready_bytes = 0;            // logical
    uint64_t ready_allocated_bytes = 0;  // whole pages
    uint64_t retiring_bytes = 0;         // whole pages
};

}  // namespace maru::directory
