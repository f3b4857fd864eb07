// Acquire: verifies READY and takes the lease in one step, all the objects of a key or none.
#include <algorithm>
#include <cassert>

#include "daemon/directory/manifest_reader.h"
#include "daemon/directory/mutant.h"

namespace maru {

using directory::Replica;
using wire::AcquireResult;
using wire::Status;

namespace {

void fill_with(std::span<AcquireResult> items, Status status) {
    AcquireResult none;
    none.status = status;
    std::fill(items.begin(), items.end(), none);
}

}  // namespace

// One lease on each of `items`, which name READY replicas, and their places; all or none.
inline Status Directory::Impl::take_leases(HolderIndex reader, std::span<AcquireResult> items,
                                           uint32_t now_s) {
    for (size_t i = 0; i < items.size(); ++i) {
        const uint32_t slot = wire::id_number(items[i].replica) - 1;
        if (!leases.add_one(reader, slot, now_s)) {
            for (size_t j = 0; j < i; ++j)
                release_one(reader, wire::id_number(items[j].replica) - 1);
            return Status::Quota;
        }
        const Replica &replica = replicas[slot];
        directory::Pool &pool = *pools[replica.pool];
        ++pool.leases;
        items[i] = {items[i].replica,
                    pool.spec.id,
                    replica.offset,
                    replica.length,
                    replica.generation,
                    Status::Ok,
                    0};
    }
    return Status::Ok;
}

template <typename Reader>
uint32_t Directory::Impl::acquire_keys(Reader &&items, HolderIndex reader, size_t keys,
                                       bool stop_at_miss, uint32_t lease_room, uint32_t now_s,
                                       std::span<AcquireResult> results) {
    const uint64_t per_key = items.per_key();
    uint32_t taken = 0;
    for (size_t key = 0; key < keys; ++key) {
        const std::span<AcquireResult> of_key = results.subspan(key * per_key, per_key);
        size_t found = 0;
        for (; found < per_key; ++found) {
            const uint32_t slot = items.next();
            if (slot == kNone)
                break;
            of_key[found].replica = id_of(slot);
        }
        // A miss outranks a lack of room: what cannot be read will not be when there is room.
        Status status = found < per_key                ? Status::Miss
                        : per_key > lease_room - taken ? Status::Quota
                                                       : Status::Ok;
        if (status == Status::Miss && MARU_MUTANT(PartialManifest))
            (void)take_leases(reader, of_key.first(found), now_s);
        if (status == Status::Ok)
            status = take_leases(reader, of_key, now_s);
        if (status == Status::Ok && MARU_MUTANT(AcquireWithoutLease))
            for (const AcquireResult &item : of_key)
                release_one(reader, wire::id_number(item.replica) - 1);
        if (status == Status::Ok) {
            taken += static_cast<uint32_t>(per_key);
            continue;
        }
        fill_with(of_key, status);
        if (stop_at_miss) {
            // The prefix ends here; if for want of room, so do the keys that might have followed.
            fill_with(results.subspan((key + 1) * per_key, (keys - key - 1) * per_key), status);
            break;
        }
        items.skip_key();
    }
    return taken;
}

uint32_t Directory::acquire(HolderIndex reader, NamespaceIndex ns,
                            std::span<const wire::Digest> keys, const wire::Manifest &manifest,
                            bool stop_at_miss, uint32_t lease_room, uint32_t now_s,
                            std::span<AcquireResult> results) {
    Impl &impl = *impl_;
    const uint64_t per_key = objects_of(manifest);
    if (!per_key || !impl.namespaces.contains(ns)) {
        fill_with(results, Status::Miss);
        return 0;
    }
    assert(keys.size() <= results.size() / per_key);
    if (per_key == 1)
        return impl.acquire_keys(Impl::KeyReader(impl, reader, ns, keys, manifest), reader,
                                 keys.size(), stop_at_miss, lease_room, now_s, results);
    return impl.acquire_keys(Impl::ManifestReader(impl, reader, ns, keys, manifest), reader,
                             keys.size(), stop_at_miss, lease_room, now_s, results);
}

}  // namespace maru
