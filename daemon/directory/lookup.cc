// Finding what a reader may read: the one definition of "readable", and the batched search.
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

bool Directory::Impl::may_read(HolderIndex reader, PoolIndex pool) const noexcept {
    const directory::PoolGate &gate = gates[pool];
    return gate.shared || gate.owner == reader || MARU_MUTANT(ForeignPrivateHit);
}

bool Directory::Impl::readable(HolderIndex reader, PoolIndex pool,
                               ReplicaState state) const noexcept {
    return (state == ReplicaState::Ready || MARU_MUTANT(AcquireRetiring)) &&
           (gates[pool].open || MARU_MUTANT(HiddenPoolHit)) && may_read(reader, pool);
}

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

bool Directory::Impl::is_object(const Object &object, NamespaceIndex ns, const wire::Digest &digest,
                                uint32_t shard, uint32_t part) const noexcept {
    return object.key.digest == digest && object.key.shard == shard && object.key.part == part &&
           (object.ns == ns || MARU_MUTANT(NamespaceMixUp));
}

uint32_t Directory::Impl::hash_of(NamespaceIndex ns, const wire::Key &key) const noexcept {
    return hash(MARU_MUTANT(NamespaceMixUp) ? 0 : ns, key.digest, key.shard, key.part);
}

uint32_t Directory::Impl::find_object(NamespaceIndex ns, const wire::Key &key) const noexcept {
    return table.find(hash_of(ns, key), [&](uint32_t slot) {
        return is_object(objects[slot], ns, key.digest, key.shard, key.part);
    });
}

void Directory::Impl::lookup(HolderIndex reader, NamespaceIndex ns,
                             std::span<const wire::Digest> keys, const wire::Manifest &manifest,
                             Place &place, uint32_t count, uint32_t *ret_replicas) const noexcept {
    uint32_t hashes[kLookupBatch];
    uint32_t candidates[kLookupBatch];
    uint32_t others[kLookupBatch], other_count = 0;
    Place places[kLookupBatch];

    for (uint32_t i = 0; i < count; ++i) {
        places[i] = place;
        hashes[i] = hash(MARU_MUTANT(NamespaceMixUp) ? 0 : ns, keys[place.key],
                         manifest.first_shard + place.shard, manifest.first_part + place.part);
        table.prefetch(hashes[i]);
        if (++place.part == manifest.part_count) {
            place.part = 0;
            if (++place.shard == manifest.shard_count) {
                place.shard = 0;
                ++place.key;
            }
        }
    }
    for (uint32_t i = 0; i < count; ++i) {
        candidates[i] = table.candidate(hashes[i]);
        if (candidates[i] != kNone)
            objects.prefetch(candidates[i]);
    }
    for (uint32_t i = 0; i < count; ++i) {
        ret_replicas[i] = kNone;
        if (candidates[i] == kNone)
            continue;
        const wire::Digest &digest = keys[places[i].key];
        const uint32_t shard = manifest.first_shard + places[i].shard;
        const uint32_t part = manifest.first_part + places[i].part;
        if (!is_object(objects[candidates[i]], ns, digest, shard, part))
            candidates[i] = find_object(ns, wire::Key{digest, shard, part});  // equal hashes: rare
        if (candidates[i] == kNone)
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

Directory::Impl::Named Directory::Impl::resolve(const wire::ReplicaName &name) const noexcept {
    if (wire::id_epoch(name.replica) != config.epoch && !MARU_MUTANT(StaleEpochAccepted))
        return {wire::Status::StaleEpoch, kNone};
    const uint32_t number = wire::id_number(name.replica);
    if (!number || number > replicas.end())
        return {wire::Status::NotFound, kNone};
    const Replica &replica = replicas[number - 1];
    if (replica.state == ReplicaState::Free)
        return {wire::Status::StaleGeneration, kNone};
    if (replica.generation != name.generation && !MARU_MUTANT(StaleGenerationAccepted))
        return {wire::Status::StaleGeneration, kNone};
    return {wire::Status::Ok, number - 1};
}

}  // namespace maru
