// LeaseTable: how often which holder has acquired which replica.
//
// Each lease is on two rings, that of its holder and that of its replica, so that ending a session
// or removing a replica costs what it ends and nothing more. Replica::leases is kept here: it is
// the sum of the counts on the replica's ring. What the end of a lease means for the replica is not
// decided here.
//
// Nearly every replica has one holder or a few, who are found by a walk along its ring. One with more
// is crowded until its last lease ends: all of its leases are in a table as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/directory/hash.h"
#include "daemon/directory/index_table.h"
#include "daemon/directory/records.h"

namespace maru::directory {

struct Lease {
    HolderIndex holder = 0;
    uint32_t replica = kNone;
    uint32_t count = 0;  // 0: a free slot
    uint32_t since_s = 0;
    uint32_t holder_prev = kNone, holder_next = kNone;  // holder_next: the free list
    uint32_t replica_prev = kNone, replica_next = kNone;
};
static_assert(sizeof(Lease) == 32);

class LeaseTable {
  public:
    LeaseTable(Replicas &replicas, Blocks &blocks, uint64_t seed)
        : replicas_(replicas), hash_(seed), leases_(blocks), table_(blocks) {}

    uint32_t count(HolderIndex holder, uint32_t replica) const;
    bool add_one(HolderIndex holder, uint32_t replica, uint32_t now_s);  // false: 2^32 of them
    bool remove_one(HolderIndex holder, uint32_t replica);               // false: there is none
    // What the count was before.
    uint32_t set(HolderIndex holder, uint32_t replica, uint32_t count, uint32_t now_s);

    // Leases of `holder` that nobody confirms, by set() or add_one(), can be ended together.
    void mark_unconfirmed(HolderIndex holder);
    struct Ended {
        uint32_t replica = kNone;  // kNone: there was none left
        uint32_t count = 0;
    };
    Ended end_unconfirmed(HolderIndex holder);  // one of them; call until there is none
    Ended end_any(HolderIndex holder);          // one of all
    // Ends every lease on a replica; returns the sum of their counts.
    uint64_t end_all(uint32_t replica);
    // One of those who hold it; only for a replica with leases.
    HolderIndex a_holder_of(uint32_t replica) const {
        return leases_[replicas_[replica].first_lease].holder;
    }

    uint64_t held_by(HolderIndex holder) const {
        return holder < holders_.size() ? holders_[holder].leases : 0;
    }
    uint64_t total() const { return total_; }

    // For listings: slots 0 .. end(), free ones have count 0.
    uint32_t end() const { return leases_.end(); }
    const Lease &at(uint32_t slot) const { return leases_[slot]; }

    size_t memory_bytes() const;
    const char *check_invariants() const;  // nullptr, or what is wrong

  private:
    using Leases = Slab<Lease, &Lease::holder_next>;
    using HolderRing = Ring<Lease, &Lease::holder_prev, &Lease::holder_next>;
    using ReplicaRing = Ring<Lease, &Lease::replica_prev, &Lease::replica_next>;
    static constexpr uint32_t kFew = 4;
    struct Holder {
        uint32_t first = kNone;        // confirmed
        uint32_t unconfirmed = kNone;  // a session that re-attaches has not named these yet
        uint64_t leases = 0;           // the sum of both
    };

    uint32_t find(HolderIndex holder, uint32_t replica) const;
    uint32_t find_in_crowd(HolderIndex holder, uint32_t replica) const;
    // With a count of 1. kNone: no room in the table.
    uint32_t create(HolderIndex holder, uint32_t replica, uint32_t now_s);
    bool crowd(uint32_t replica);  // false: no room in the table, and nothing has changed
    void confirm(Holder &holder, uint32_t slot);
    void change(uint32_t slot, uint32_t count);  // 0 removes it
    Ended end_lease(uint32_t slot);

    Replicas &replicas_;
    KeyHash hash_;
    Leases leases_;
    IndexTable table_;  // of the leases on crowded replicas
    std::vector<Holder> holders_;
    uint64_t total_ = 0;
};

}  // namespace maru::directory
