#include <vector>

#include "libmaru/capi/handles.h"
#include "libmaru/capi/objects.h"
#include "libmaru/client/lease_table.h"
#include "libmaru/copy/copy.h"
#include "maru/object.h"

namespace maru::capi {
namespace {

using client::LeaseHandle;
using client::LeaseSlot;

// nullptr: NULL, released already, or the parent process's.
const LeaseSlot *live(const maru_lease *lease) {
    if (!lease)
        return nullptr;
    const LeaseSlot *slot = LeaseHandle::live(lease);
    return slot && slot->session->fork_mark == client::ForkGuard::mark() ? slot : nullptr;
}

}  // namespace

int release(maru_lease *const *leases, size_t count) {
    int result = 0;
    for (size_t i = 0; i < count;) {
        if (!leases[i]) {
            ++i;
            continue;
        }
        client::Session &session = *LeaseHandle::slot(leases[i])->session;
        if (int bad = check_fork(session))
            return bad;
        // One lock, and few messages, for all that belong to one client.
        auto lock = session.lock();
        session.transport().cork();
        for (; i < count; ++i) {
            if (!leases[i])
                continue;
            LeaseSlot *slot = LeaseHandle::slot(leases[i]);
            if (slot->session != &session)
                break;
            if (!LeaseHandle::end(leases[i])) {
                result = fail(ENOENT, "leases[" + std::to_string(i) + "]: was released before");
                continue;
            }
            session.drop_lease(slot->held, false);
            session.leases().recycle(slot);
        }
        session.transport().uncork();
    }
    return result;
}

namespace {

int64_t load(maru_namespace *ns, const maru_digest *digests, size_t count,
             const wire::Manifest &manifest, uint32_t flags, void *const *buffers, uint64_t length,
             int *ret_results) {
    thread_local std::vector<void *> leases;
    const uint32_t objects = manifest.objects();
    leases.assign(count * objects, nullptr);
    client::Session &session = session_of(ns);
    client::Outcome outcome;
    {
        auto lock = session.lock();
        auto *op = client::prepare(session, session.acquires, *inside(ns), wire_digests(digests),
                                   static_cast<uint32_t>(count), manifest,
                                   (flags & MARU_PREFIX_ONLY) != 0, leases.data());
        outcome = client::run(session, lock, *op);
    }
    if (outcome.value < 0)
        return report(outcome);
    int64_t loaded = 0;
    for (size_t key = 0; key < count; ++key) {
        bool whole = true;
        for (size_t i = key * objects; i < (key + 1) * objects; ++i) {
            int result = -ENOENT;
            if (leases[i]) {
                const LeaseSlot *slot = LeaseHandle::slot(leases[i]);
                result = slot->length == length ? 0 : -EMEDIUMTYPE;
                if (result == 0)
                    copy::copy_out(buffers[i], slot->data, length);
                else
                    fail(EMEDIUMTYPE, "object " + std::to_string(i) + ": has " +
                                          std::to_string(slot->length) + " bytes, length is " +
                                          std::to_string(length));
            }
            whole = whole && result == 0;
            if (ret_results)
                ret_results[i] = result;
        }
        loaded += whole;
    }
    release(reinterpret_cast<maru_lease *const *>(leases.data()), leases.size());
    return loaded;
}

}  // namespace
}  // namespace maru::capi

using namespace maru;
using namespace maru::capi;

extern "C" {

int64_t maru_acquire(maru_namespace *ns, const maru_digest *digests, size_t count,
                     const struct maru_manifest *manifest, uint32_t flags,
                     maru_lease **ret_leases) {
    return abi_guard([&]() -> int64_t {
        wire::Manifest wanted;
        if (int bad = check_batch(ns, manifest, count, flags, wanted))
            return bad;
        if (int bad = check_array(digests, count, "digests"))
            return bad;
        if (int bad = check_array(ret_leases, count, "ret_leases"))
            return bad;
        client::Session &session = session_of(ns);
        if (int bad = check_worker(session))
            return bad;
        auto lock = session.lock();
        auto *op =
            client::prepare(session, session.acquires, *inside(ns), wire_digests(digests),
                            static_cast<uint32_t>(count), wanted, (flags & MARU_PREFIX_ONLY) != 0,
                            reinterpret_cast<void **>(ret_leases));
        return report(client::run(session, lock, *op));
    });
}

const void *maru_lease_data(const maru_lease *lease) {
    const auto *slot = live(lease);
    return slot ? slot->data : nullptr;
}

uint64_t maru_lease_length(const maru_lease *lease) {
    const auto *slot = live(lease);
    return slot ? slot->length : 0;
}

uint64_t maru_lease_generation(const maru_lease *lease) {
    const auto *slot = live(lease);
    return slot ? slot->generation : 0;
}

int maru_lease_release(maru_lease *const *leases, size_t count) {
    return abi_guard([&]() -> int {
        if (int bad = check_array(leases, count, "leases"))
            return bad;
        return release(leases, count);
    });
}

int64_t maru_load(maru_namespace *ns, const maru_digest *digests, size_t count,
                  const struct maru_manifest *manifest, uint32_t flags, void *const *buffers,
                  uint64_t length, int *ret_results) {
    return abi_guard([&]() -> int64_t {
        wire::Manifest wanted;
        if (int bad = check_batch(ns, manifest, count, flags, wanted))
            return bad;
        if (int bad = check_array(digests, count, "digests"))
            return bad;
        if (int bad = check_array(buffers, count, "buffers"))
            return bad;
        for (size_t i = 0; i < count * wanted.objects(); ++i)
            if (!buffers[i])
                return fail(EINVAL, "buffers[" + std::to_string(i) + "]: must not be NULL");
        if (int bad = check_worker(session_of(ns)))
            return bad;
        return load(ns, digests, count, wanted, flags, buffers, length, ret_results);
    });
}

}  // extern "C"
