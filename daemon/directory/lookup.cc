// Finding what a reader may read: the batched search.
//
// A lookup of one key touches two cache lines, each found through the one before: a slot of the
// table and the object; and the replicas, if it is not the first one that can be read. A batch
// takes each of these steps for all its keys before the next, so that the misses of a step overlap
// instead of adding up.
#include "daemon/directory/impl.h"
#include "daemon/directory/mutant.h"

namespace maru {

using directory::Object;
using directory::ObjectRing;
using directory::Replica;

uint32_t Directory::Impl::readable_of(HolderIndex reader, const Object &object) const noexcept {
    for (uint32_t slot = object.first_replica; slot != kNone;
         slot = ObjectRing::next(replicas, object.first_replica, slot)) {
        const Replica &replica = replicas[slot];
        if (readable(reader, replica.pool, replica.state))
            return slot;
        if (replica.state != ReplicaState::Ready)
            return kNone;  // behind the first RETIRING one there are no others
    }
    return kNone;
}

uint32_t Directory::Impl::hash_of(NamespaceIndex ns, const wire::Key &key) const noexcept {
    return hash(MARU_MUTANT(NamespaceMixUp) ? 0 : ns, key.digest, key.shard, key.part);
}

uint32_t Directory::Impl::find_object(NamespaceIndex ns, const wire::Key &key,
                                      uint32_t hash_of_key) const noexcept {
    return table.find(hash_of_key, [&](uint32_t slot) {
        return is_object(objects[slot], ns, key.digest, key.shard, key.part);
    });
}

// `items` says what the digest, shard and part of each is; its hash is on the way to the cache.
template <typename Items>
void Directory::Impl::lookup_hashed(HolderIndex reader, NamespaceIndex ns, const Items &items,
                                    const uint32_t *hashes, uint32_t count,
                                    uint32_t *ret_replicas) const noexcept {
    uint32_t candidates[kLookupBatch];
    uint32_t others[kLookupBatch], other_count = 0;
    for (uint32_t i = 0; i < count; ++i) {
        candidates[i] = table.candidate(hashes[i]);
        if (candidates[i] != kNone)
            objects.prefetch(candidates[i]);
    }
    for (uint32_t i = 0; i < count; ++i) {
        ret_replicas[i] = kNone;
        if (candidates[i] == kNone)
            continue;
        const wire::Digest &digest = items.digest(i);
        if (!is_object(objects[candidates[i]], ns, digest, items.shard(i), items.part(i)))
            candidates[i] = find_object(ns, {digest, items.shard(i), items.part(i)});
        if (candidates[i] == kNone)  // another object of that hash
            continue;
        const Object &object = objects[candidates[i]];
        if (readable(reader, object.first_pool, object.first_state)) {
            ret_replicas[i] = object.first_replica;
        } else {
            replicas.prefetch(object.first_replica);
            others[other_count++] = i;
        }
    }
    for (uint32_t i = 0; i < other_count; ++i)
        ret_replicas[others[i]] = readable_of(reader, objects[candidates[others[i]]]);
}

void Directory::Impl::lookup(HolderIndex reader, NamespaceIndex ns, const wire::Digest *keys,
                             uint32_t shard, uint32_t part, uint32_t count,
                             uint32_t *ret_replicas) const noexcept {
    struct OneEach {
        const wire::Digest *digests;
        uint32_t only_shard, only_part;
        const wire::Digest &digest(uint32_t i) const { return digests[i]; }
        uint32_t shard(uint32_t) const { return only_shard; }
        uint32_t part(uint32_t) const { return only_part; }
    };
    uint32_t hashes[kLookupBatch];
    const auto rest = hash.rest(MARU_MUTANT(NamespaceMixUp) ? 0 : ns, shard, part);
    for (uint32_t i = 0; i < count; ++i) {
        hashes[i] = hash(rest, keys[i]);
        table.prefetch(hashes[i]);
    }
    lookup_hashed(reader, ns, OneEach{keys, shard, part}, hashes, count, ret_replicas);
}

void Directory::Impl::lookup(HolderIndex reader, NamespaceIndex ns,
                             std::span<const wire::Digest> keys, const wire::Manifest &manifest,
                             Place &place, uint32_t count, uint32_t *ret_replicas) const noexcept {
    struct Mixed {
        const wire::Digest *digests[kLookupBatch];
        uint32_t shards[kLookupBatch], parts[kLookupBatch];
        const wire::Digest &digest(uint32_t i) const { return *digests[i]; }
        uint32_t shard(uint32_t i) const { return shards[i]; }
        uint32_t part(uint32_t i) const { return parts[i]; }
    } items;
    uint32_t hashes[kLookupBatch];

    // The place is kept in registers: copying it from memory right after its fields were written
    // one by one cost a quarter of a whole lookup (the processor cannot forward such a store).
    size_t key = place.key;
    uint32_t shard = place.shard, part = place.part;
    for (uint32_t i = 0; i < count; ++i) {
        items.digests[i] = &keys[key];
        items.shards[i] = manifest.first_shard + shard;
        items.parts[i] = manifest.first_part + part;
        hashes[i] =
            hash(MARU_MUTANT(NamespaceMixUp) ? 0 : ns, keys[key], items.shards[i], items.parts[i]);
        table.prefetch(hashes[i]);
        if (++part == manifest.part_count) {
            part = 0;
            if (++shard == manifest.shard_count) {
                shard = 0;
                ++key;
            }
        }
    }
    place = Place{key, shard, part};
    lookup_hashed(reader, ns, items, hashes, count, ret_replicas);
}

}  // namespace maru
