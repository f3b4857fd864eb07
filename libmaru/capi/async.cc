#include "maru/async.h"

#include "libmaru/capi/handles.h"
#include "libmaru/capi/objects.h"

namespace maru::capi {

int admit(maru_queue *queue, maru_namespace *ns) {
    if (&session_of(queue) != &session_of(ns))
        return fail(EINVAL, "queue and ns: belong to different clients");
    if (!inside(queue)->admit())
        return fail(EAGAIN, "the queue has " +
                                std::to_string(client::CompletionQueue::kMaxUnfinished) +
                                " operations that are not reaped: reap first");
    return 0;
}

namespace {

// Under the lock: admits, prepares and submits one op.
template <typename Prepare>
int submit(maru_queue *queue, maru_namespace *ns, uint64_t user_data, Prepare prepare) {
    client::Session &session = session_of(ns);
    auto lock = session.lock();
    if (int bad = admit(queue, ns))
        return bad;
    client::BatchOp *op = nullptr;
    try {
        op = prepare(session);
    } catch (...) {
        inside(queue)->withdraw();
        throw;
    }
    if (!op) {
        inside(queue)->withdraw();
        return -EINVAL;
    }
    client::submit(session, *op, *inside(queue), user_data);
    return 0;
}

}  // namespace
}  // namespace maru::capi

using namespace maru;
using namespace maru::capi;

extern "C" {

int maru_queue_open(maru_client *client, maru_queue **ret_queue) {
    return abi_guard([&]() -> int {
        if (int bad = check(client, "client"))
            return bad;
        if (!ret_queue)
            return fail(EINVAL, "ret_queue: must not be NULL");
        client::Session &session = *inside(client);
        auto queue = client::CompletionQueue::create(session);
        if (!queue)
            return fail(queue.error());
        auto lock = session.lock();
        ++session.queues;
        *ret_queue = outside(*queue);
        return 0;
    });
}

int maru_queue_close(maru_queue *queue) {
    return abi_guard([&]() -> int {
        if (!queue)
            return 0;
        if (int bad = check(queue, "queue"))
            return bad;
        client::Session &session = session_of(queue);
        {
            auto lock = session.lock();
            if (!inside(queue)->idle())
                return fail(EBUSY, "the queue has operations that are not finished or not reaped");
            --session.queues;
        }
        delete inside(queue);
        return 0;
    });
}

int maru_queue_fd(maru_queue *queue) {
    return abi_guard([&]() -> int {
        if (int bad = check(queue, "queue"))
            return bad;
        return inside(queue)->fd();
    });
}

int64_t maru_queue_reap(maru_queue *queue, struct maru_completion *ret_completions, size_t max,
                        uint32_t timeout_ms) {
    return abi_guard([&]() -> int64_t {
        if (int bad = check(queue, "queue"))
            return bad;
        if (max == 0)
            return fail(EINVAL, "max: must be at least 1");
        if (int bad = check_array(ret_completions, max, "ret_completions"))
            return bad;
        client::CompletionQueue &inner = *inside(queue);
        client::Session &session = inner.session;
        auto lock = session.lock();
        if (inner.empty() && timeout_ms > 0)
            session.transport().wait(lock, &inner, client::after_ms(timeout_ms),
                                     [&] { return !inner.empty(); });
        static_assert(sizeof(maru_completion) == sizeof(client::Completion));
        return static_cast<int64_t>(
            inner.pop(reinterpret_cast<client::Completion *>(ret_completions), max));
    });
}

int maru_probe_submit(maru_queue *queue, maru_namespace *ns, const maru_digest *digests,
                      size_t count, const struct maru_manifest *manifest, uint32_t flags,
                      uint8_t *ret_bitmap, uint64_t user_data) {
    return abi_guard([&]() -> int {
        wire::Manifest wanted;
        if (int bad = check(queue, "queue"))
            return bad;
        if (int bad = check_batch(ns, manifest, count, flags, wanted))
            return bad;
        if (int bad = check_array(digests, count, "digests"))
            return bad;
        return submit(queue, ns, user_data, [&](client::Session &session) -> client::BatchOp * {
            return client::prepare(session, session.probes, *inside(ns), wire_digests(digests),
                                   static_cast<uint32_t>(count), wanted,
                                   (flags & MARU_PREFIX_ONLY) != 0, ret_bitmap);
        });
    });
}

int maru_commit_submit(maru_queue *queue, maru_namespace *ns, maru_pool *pool,
                       const struct maru_key *keys, const maru_reservation *reservations,
                       size_t count, int *ret_results, uint64_t user_data) {
    return abi_guard([&]() -> int {
        if (int bad = check(queue, "queue"))
            return bad;
        if (int bad = check_commit(ns, pool, keys, reservations, count, ret_results))
            return bad;
        return submit(queue, ns, user_data, [&](client::Session &) -> client::BatchOp * {
            return prepare_commit(ns, pool, wire_keys(keys), runs_of(reservations, count),
                                  ret_results);
        });
    });
}

int maru_acquire_submit(maru_queue *queue, maru_namespace *ns, const maru_digest *digests,
                        size_t count, const struct maru_manifest *manifest, uint32_t flags,
                        maru_lease **ret_leases, uint64_t user_data) {
    return abi_guard([&]() -> int {
        wire::Manifest wanted;
        if (int bad = check(queue, "queue"))
            return bad;
        if (int bad = check_batch(ns, manifest, count, flags, wanted))
            return bad;
        if (int bad = check_array(digests, count, "digests"))
            return bad;
        if (int bad = check_array(ret_leases, count, "ret_leases"))
            return bad;
        if (int bad = check_worker(session_of(ns)))
            return bad;
        return submit(queue, ns, user_data, [&](client::Session &session) -> client::BatchOp * {
            return client::prepare(session, session.acquires, *inside(ns), wire_digests(digests),
                                   static_cast<uint32_t>(count), wanted,
                                   (flags & MARU_PREFIX_ONLY) != 0,
                                   reinterpret_cast<void **>(ret_leases));
        });
    });
}

int maru_retire_submit(maru_queue *queue, maru_namespace *ns, const struct maru_key *keys,
                       size_t count, int *ret_results, uint64_t user_data) {
    return abi_guard([&]() -> int {
        if (int bad = check(queue, "queue"))
            return bad;
        if (int bad = check(ns, "ns"))
            return bad;
        if (int bad = check_array(keys, count, "keys"))
            return bad;
        if (count > kMaxObjects)
            return fail(EMSGSIZE, "count: must be at most " + std::to_string(kMaxObjects));
        if (int bad = check_worker(session_of(ns)))
            return bad;
        return submit(queue, ns, user_data, [&](client::Session &session) -> client::BatchOp * {
            return client::prepare(session, session.retires, *inside(ns), wire_keys(keys),
                                   static_cast<uint32_t>(count), ret_results);
        });
    });
}

}  // extern "C"
