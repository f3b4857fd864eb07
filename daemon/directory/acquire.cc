// Acquire: verifies READY and takes the lease in one step, all the objects of a key or none.
#include <algorithm>
#include <cassert>

#include "daemon/directory/manifest_reader.h"
#include "daemon/directory/mutant.h"

namespace maru {

using directory::Replica;
using wire::AcquireResult;
using wire::Status;

uint32_t Directory::acquire(HolderIndex reader, NamespaceIndex ns,
                            std::span<const wire::Digest> keys, const wire::Manifest &manifest,
                            bool stop_at_miss, uint32_t lease_room, uint32_t now_s,
                            std::span<AcquireResult> results) {
    Impl &impl = *impl_;
    std::fill(results.begin(), results.end(), AcquireResult{});  // Miss
    const uint64_t per_key = objects_of(manifest);
    if (!per_key || !impl.namespaces.contains(ns))
        return 0;
    assert(keys.size() <= results.size() / per_key);

    const auto give_back = [&](std::span<AcquireResult> items, Status why) {
        for (AcquireResult &item : items) {
            if (item.status == Status::Ok)
                impl.release_one(reader, wire::id_number(item.replica) - 1);
            item = AcquireResult{};
            item.status = why;
        }
    };

    uint32_t taken = 0;
    Impl::ManifestReader items(impl, reader, ns, keys, manifest);
    for (size_t key = 0; key < keys.size(); ++key) {
        const std::span<AcquireResult> of_key = results.subspan(key * per_key, per_key);
        Status status = Status::Ok;
        for (size_t item = 0; item < per_key; ++item) {
            const uint32_t slot = items.next();
            // A miss outranks a lack of room: what cannot be read will not be when there is room.
            if (slot == kNone) {
                status = Status::Miss;
                break;
            }
            if (status == Status::Ok && !impl.take_lease(reader, slot, per_key <= lease_room - taken,
                                                         now_s, of_key[item]))
                status = Status::Quota;
        }
        if (status == Status::Ok) {
            taken += static_cast<uint32_t>(per_key);
            continue;
        }
        if (MARU_MUTANT(PartialManifest))
            for (AcquireResult &item : of_key)
                item.status = status;
        else
            give_back(of_key, status);
        if (stop_at_miss) {
            // The prefix ends here; without room, so do the keys that might have followed.
            if (status == Status::Quota)
                give_back(results.subspan((key + 1) * per_key, (keys.size() - key - 1) * per_key),
                          status);
            break;
        }
        items.skip_key();
    }
    return taken;
}

bool Directory::Impl::take_lease(HolderIndex reader, uint32_t slot, bool room, uint32_t now_s,
                                 AcquireResult &ret_result) {
    if (!room || !leases.add_one(reader, slot, now_s))
        return false;
    const Replica &replica = replicas[slot];
    directory::Pool &pool = *pools[replica.pool];
    ++pool.leases;
    ret_result.replica = id_of(slot);
    ret_result.pool = pool.spec.id;
    ret_result.offset = replica.offset;
    ret_result.length = objects[replica.object].length;
    ret_result.generation = replica.generation;
    ret_result.status = Status::Ok;
    return true;
}

}  // namespace maru
