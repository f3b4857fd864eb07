// HeldTable: the replicas that this process has published, and those of others that it reads.
//
// It is what a restarted marud is told again, and what every location in a reply is checked against:
// a lease is given out only on an entry found here with the same pool, range and generation. An
// entry leaves only when marud has acknowledged its reclaim (or does not know it) and no lease of
// this process is left on it. Guarded by the session's lock.
#pragma once

#include <cstdint>
#include <vector>

#include "libmaru/client/chunked.h"
#include "libmaru/client/slot_index.h"
#include "libmaru/pool/page_allocator.h"
#include "libmaru/wire/records.h"

namespace maru::client {

struct Namespace;
class Pool;
class View;

enum class HeldState : uint8_t {
    Free,
    Ready,
    Retiring,    // withdrawn; marud says when the last reader is gone
    Reclaiming,  // readers are gone; the acknowledgement is on its way or not answered
    Orphan,      // marud does not know it (any more): leases here go on, nothing new finds it
    Foreign,     // in a pool that is not this client's; here while a lease is, or its end is told
};

// What acquire and release touch is the first line.
struct alignas(64) Held {
    HeldState state = HeldState::Free;
    bool release_queued = false;
    bool ack_queued = false;
    bool sweep_queued = false;
    bool keep_pages = false;   // marud has it all the same, for others: not to be used again
    uint32_t leases = 0;       // held by this process now
    uint32_t told_leases = 0;  // that marud counts, once all sent messages have arrived
    Pool *pool = nullptr;      // nullptr: not this client's
    wire::Id replica = 0;
    pool::PageRun run;
    Namespace *ns = nullptr;
    wire::Key key;
    wire::Id pool_id = 0;
    View *view = nullptr;  // of a foreign one, while a lease is on it
};
static_assert(sizeof(Held) == 128);

class HeldTable {
  public:
    static constexpr uint32_t kNone = SlotIndex::kNone;

    void reserve(size_t more);  // so that add() cannot fail
    uint32_t add(Namespace *ns, Pool *pool, const wire::Key &key, wire::Id replica,
                 const pool::PageRun &run);
    // Not found by key: only marud says who may read it.
    uint32_t add_foreign(Namespace *ns, wire::Id pool, const wire::Key &key, wire::Id replica,
                         const pool::PageRun &run);
    void remove(uint32_t slot);
    Held &operator[](uint32_t slot) { return slots_[slot]; }
    const Held &operator[](uint32_t slot) const { return slots_[slot]; }

    uint32_t find_replica(wire::Id replica) const {
        return by_replica_.find(hash(replica),
                                [&](uint32_t s) { return slots_[s].replica == replica; });
    }
    // Only Ready ones are found by key.
    uint32_t find_ready(const Namespace *ns, const wire::Key &key) const;
    // No longer found by key.
    void withdraw(uint32_t slot, HeldState to);
    void rename(uint32_t slot, wire::Id replica);  // the id in a new life of marud

    uint32_t slots() const { return slots_.size(); }
    uint64_t size() const { return by_replica_.size(); }

  private:
    uint32_t insert(HeldState state, Namespace *ns, const wire::Key &key, wire::Id replica,
                    const pool::PageRun &run);
    static uint32_t hash(const Namespace *ns, const wire::Key &key);
    static uint32_t hash(wire::Id replica) {
        return static_cast<uint32_t>((replica * 0x9e3779b97f4a7c15ull) >> 32);
    }

    Chunked<Held, 256> slots_;
    std::vector<uint32_t> free_;
    SlotIndex by_replica_, by_key_;
};

}  // namespace maru::client
