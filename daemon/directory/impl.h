// Directory::Impl: the tables, and the few operations that more than one file needs.
//
// Who changes what: commit.cc installs replicas, retire.cc ends them, acquire.cc and release.cc
// change leases, lookup.cc and listing.cc only read.
#pragma once

#include <optional>
#include <vector>

#include "daemon/directory/directory.h"
#include "daemon/directory/hash.h"
#include "daemon/directory/index_table.h"
#include "daemon/directory/lease_table.h"
#include "daemon/directory/mutant.h"
#include "daemon/directory/namespaces.h"
#include "daemon/directory/records.h"
#include "daemon/directory/replica_state.h"

namespace maru {

using directory::kNone;

// Items that are looked up together: enough for the memory to answer in parallel, few enough that
// their lines are still in the first cache when the next step wants them.
inline constexpr uint32_t kLookupBatch = 32;

// Copies of one object that are retired and still read: each is another memory, so an honest client
// has a few. Finding one of them walks them all.
inline constexpr uint32_t kMaxRetiringCopies = 1024;

struct Directory::Impl {
    explicit Impl(const Config &cfg)
        : config(cfg),
          hash(cfg.hash_seed),
          namespaces(cfg.max_namespaces, cfg.max_namespaces_per_uid),
          objects(blocks),
          replicas(blocks),
          table(blocks),
          leases(replicas, blocks, cfg.hash_seed + 1) {
        if (cfg.make_blocks_ahead)
            (void)blocks.start_thread();
    }

    // ---- lookup.cc: reading only, no allocation
    class KeyReader;  // manifest_reader.h
    class ManifestReader;
    // Where a batch is: items run over keys, then shards, then parts.
    struct Place {
        size_t key = 0;
        uint32_t shard = 0, part = 0;
    };
    // The readable replica, or kNone, of `count` <= kLookupBatch items from `place`, which it
    // moves.
    void lookup(HolderIndex reader, NamespaceIndex ns, std::span<const wire::Digest> keys,
                const wire::Manifest &manifest, Place &place, uint32_t count,
                uint32_t *ret_replicas) const noexcept;
    // The same of `count` keys that are one object each.
    void lookup(HolderIndex reader, NamespaceIndex ns, const wire::Digest *keys, uint32_t shard,
                uint32_t part, uint32_t count, uint32_t *ret_replicas) const noexcept;
    template <typename Items>
    void lookup_hashed(HolderIndex reader, NamespaceIndex ns, const Items &items,
                       const uint32_t *hashes, uint32_t count,
                       uint32_t *ret_replicas) const noexcept;
    uint32_t find_object(NamespaceIndex ns, const wire::Key &key) const noexcept {
        return find_object(ns, key, hash_of(ns, key));
    }
    uint32_t find_object(NamespaceIndex ns, const wire::Key &key,
                         uint32_t hash_of_key) const noexcept;
    uint32_t hash_of(NamespaceIndex ns, const wire::Key &key) const noexcept;
    bool is_object(const directory::Object &object, NamespaceIndex ns, const wire::Digest &digest,
                   uint32_t shard, uint32_t part) const noexcept {
        return same_digest(object.key.digest, digest) && object.key.shard == shard &&
               object.key.part == part && (object.ns == ns || MARU_MUTANT(NamespaceMixUp));
    }
    // Without the call of memcmp that a loop over bytes becomes.
    static bool same_digest(const wire::Digest &a, const wire::Digest &b) noexcept {
        using directory::word;
        return !((word(a, 0) ^ word(b, 0)) | (word(a, 1) ^ word(b, 1)) | (word(a, 2) ^ word(b, 2)) |
                 (word(a, 3) ^ word(b, 3)));
    }
    uint32_t host_domain(HolderIndex holder) const noexcept {
        return holder < host_domains.size() ? host_domains[holder] : 0;
    }
    // The one definition of "readable", in two parts: by ownership and scope, and by state.
    bool may_read(HolderIndex reader, PoolIndex pool) const noexcept {
        const directory::PoolGate &gate = gates[pool];
        if (gate.owner == reader || MARU_MUTANT(ForeignPrivateHit))
            return true;
        return gate.shared && gate.domain && gate.domain == host_domain(reader);
    }
    bool readable(HolderIndex reader, PoolIndex pool, ReplicaState state) const noexcept {
        return (state == ReplicaState::Ready || MARU_MUTANT(AcquireRetiring)) &&
               (gates[pool].open || MARU_MUTANT(HiddenPoolHit)) && may_read(reader, pool);
    }
    uint32_t readable_of(HolderIndex reader, const directory::Object &object) const noexcept;
    struct Named {
        wire::Status status = wire::Status::Ok;
        uint32_t slot = kNone;
    };
    Named resolve(const wire::ReplicaName &name) const noexcept {
        if (wire::id_epoch(name.replica) != config.epoch && !MARU_MUTANT(StaleEpochAccepted))
            return {wire::Status::StaleEpoch, kNone};
        const uint32_t number = wire::id_number(name.replica);
        if (!number || number > replicas.end())
            return {wire::Status::NotFound, kNone};
        const directory::Replica &replica = replicas[number - 1];
        if (replica.state == ReplicaState::Free || gates[replica.pool].leaving)
            return {wire::Status::StaleGeneration, kNone};
        if (replica.generation != name.generation && !MARU_MUTANT(StaleGenerationAccepted))
            return {wire::Status::StaleGeneration, kNone};
        return {wire::Status::Ok, number - 1};
    }
    wire::Id id_of(uint32_t slot) const { return wire::make_id(config.epoch, slot + 1); }
    wire::ReplicaName name_of(uint32_t slot) const {
        return {id_of(slot), replicas[slot].generation};
    }

    // ---- commit.cc
    bool pool_exists(PoolIndex pool) const {
        return pool < pools.size() && pools[pool] && !pools[pool]->leaving;
    }
    bool is_ready(uint32_t slot) const {  // kNone is not
        return slot != kNone && replicas[slot].state == ReplicaState::Ready;
    }
    bool fits(NamespaceIndex ns, uint32_t object, uint64_t length) const noexcept;
    uint32_t same_placement(const directory::Object &object, PoolIndex pool) const noexcept;
    wire::CommitResult install(NamespaceIndex ns, uint32_t object, uint32_t hash_of_key,
                               PoolIndex pool, const wire::CommitItem &item,
                               const directory::PageMap::Range &range,
                               directory::ReplicaEvent event);
    void set_gate(PoolIndex pool);
    void move_replica(uint32_t slot, PoolIndex to);
    uint32_t published(uint32_t object, PoolIndex pool, const wire::CommitItem &item) const;
    bool ready_in_domain(const directory::Object &object, PoolIndex pool) const;

    // ---- retire.cc
    uint64_t page_bytes_of(const directory::Replica &replica) const;  // what the pool charges
    void retire(uint32_t slot);                                       // READY -> RETIRING
    void forget(uint32_t slot, directory::ReplicaEvent event);        // -> FREED, leases included
    void remove_object(uint32_t slot);
    void refresh_first(uint32_t object);  // after its first replica changed

    // ---- acquire.cc, release.cc
    template <typename Reader>
    uint32_t acquire_keys(Reader &&items, HolderIndex reader, size_t keys, bool stop_at_miss,
                          uint32_t lease_room, uint32_t now_s,
                          std::span<wire::AcquireResult> results);
    wire::Status take_leases(HolderIndex reader, std::span<wire::AcquireResult> items,
                             uint32_t now_s);
    bool release_one(HolderIndex holder, uint32_t slot);
    void queue_if_drained(uint32_t slot);
    void ended(uint32_t slot, uint64_t count) {  // `count` leases on it are gone
        const directory::Replica &replica = replicas[slot];
        pools[replica.pool]->leases -= count;
        if (replica.state == ReplicaState::Retiring)
            queue_if_drained(slot);
    }

    // ---- listing.cc, invariants.cc
    ReplicaView view_of(uint32_t slot) const;
    std::string check_objects() const;
    std::string check_replicas() const;
    std::string check_pools() const;

    Config config;
    directory::KeyHash hash;
    directory::Namespaces namespaces;
    directory::Blocks blocks;  // before the tables that give theirs back
    directory::Objects objects;
    directory::Replicas replicas;
    directory::IndexTable table;  // of objects
    directory::LeaseTable leases;
    std::vector<std::optional<directory::Pool>> pools;
    std::vector<directory::PoolGate> gates;  // beside pools
    std::vector<PoolIndex> free_pools;
    std::vector<PoolIndex> to_retire, to_remove;  // for sweep()
    std::vector<uint32_t> host_domains;           // by holder
    std::vector<uint32_t> drained;
};

}  // namespace maru
