#include "libmaru/client/held_table.h"

#include <cassert>
#include <cstring>

namespace maru::client {

// Digests are uniform already; shard and part must not fall on the same place.
uint32_t HeldTable::hash(const Namespace *ns, const wire::Key &key) {
    uint64_t head;
    std::memcpy(&head, key.digest.bytes.data(), sizeof head);
    return hash(head ^ (static_cast<uint64_t>(key.shard) << 32 | key.part) ^
                reinterpret_cast<uintptr_t>(ns));
}

void HeldTable::reserve(size_t more) {
    while (free_.size() < more) {
        const uint32_t before = slots_.size();
        slots_.grow();
        free_.reserve(slots_.size());  // remove() never allocates
        for (uint32_t slot = slots_.size(); slot-- > before;)
            free_.push_back(slot);
    }
    by_replica_.reserve(more);
    by_key_.reserve(more);
}

uint32_t HeldTable::insert(HeldState state, Namespace *ns, const wire::Key &key, wire::Id replica,
                           const pool::PageRun &run) {
    if (free_.empty())
        reserve(1);
    const uint32_t slot = free_.back();
    free_.pop_back();
    Held &held = slots_[slot];  // a new one, by remove() or by growth
    held.state = state;
    held.ns = ns;
    held.key = key;
    held.replica = replica;
    held.run = run;
    by_replica_.insert(slot, hash(replica));
    return slot;
}

uint32_t HeldTable::add(Namespace *ns, Pool *pool, const wire::Key &key, wire::Id replica,
                        const pool::PageRun &run) {
    const uint32_t slot = insert(HeldState::Ready, ns, key, replica, run);
    slots_[slot].pool = pool;
    by_key_.insert(slot, hash(ns, key));
    return slot;
}

uint32_t HeldTable::add_foreign(Namespace *ns, wire::Id pool, const wire::Key &key,
                                wire::Id replica, const pool::PageRun &run) {
    const uint32_t slot = insert(HeldState::Foreign, ns, key, replica, run);
    slots_[slot].pool_id = pool;
    return slot;
}

void HeldTable::withdraw(uint32_t slot, HeldState to) {
    Held &held = slots_[slot];
    assert(to != HeldState::Ready && to != HeldState::Free);
    if (held.state == HeldState::Ready)
        by_key_.erase(slot, hash(slots_[slot].ns, slots_[slot].key));
    held.state = to;
}

void HeldTable::remove(uint32_t slot) {
    assert(slots_[slot].state != HeldState::Free);
    if (slots_[slot].state == HeldState::Ready)
        by_key_.erase(slot, hash(slots_[slot].ns, slots_[slot].key));
    by_replica_.erase(slot, hash(slots_[slot].replica));
    slots_[slot] = Held{};
    free_.push_back(slot);
}

void HeldTable::rename(uint32_t slot, wire::Id replica) {
    by_replica_.erase(slot, hash(slots_[slot].replica));
    slots_[slot].replica = replica;
    by_replica_.insert(slot, hash(replica));
}

uint32_t HeldTable::find_ready(const Namespace *ns, const wire::Key &key) const {
    return by_key_.find(hash(ns, key),
                        [&](uint32_t s) { return slots_[s].ns == ns && slots_[s].key == key; });
}

}  // namespace maru::client
