#include "maru/object.h"

#include "libmaru/capi/handles.h"
#include "libmaru/capi/objects.h"
#include "libmaru/client/batch_ops.h"
#include "libmaru/copy/copy.h"

namespace maru::capi {

using pool::AllocationEvent;
using pool::PageRun;
using pool::RunStatus;

int read_manifest(const maru_manifest *from, size_t count, wire::Manifest &to) {
    to = wire::Manifest{};
    if (from) {
        maru_manifest in{};
        if (int bad = read_options(from, "manifest", offsetof(maru_manifest, first_part), in))
            return bad;
        to.first_shard = in.first_shard;
        to.shard_count = in.shard_count ? in.shard_count : 1;
        to.first_part = in.first_part;
        to.part_count = in.part_count ? in.part_count : 1;
        const uint64_t objects = uint64_t{to.shard_count} * to.part_count;
        if (objects > wire::kMaxBatchItems)
            return fail(EMSGSIZE, "manifest: has " + std::to_string(objects) +
                                      " objects, must be at most " +
                                      std::to_string(wire::kMaxBatchItems));
        if (uint64_t{to.first_shard} + to.shard_count > UINT32_MAX ||
            uint64_t{to.first_part} + to.part_count > UINT32_MAX)
            return fail(EINVAL, "manifest: its last shard and part must fit 32 bits");
    }
    if (count > kMaxObjects / to.objects())
        return fail(EMSGSIZE, "count: is " + std::to_string(count) +
                                  ", count x objects must be at most " +
                                  std::to_string(kMaxObjects));
    return 0;
}

int check_batch(maru_namespace *ns, const maru_manifest *manifest, size_t count, uint32_t flags,
                wire::Manifest &to) {
    if (int bad = check(ns, "ns"))
        return bad;
    if (flags & ~MARU_PREFIX_ONLY)
        return fail(EINVAL, "flags: must be 0 or MARU_PREFIX_ONLY");
    return read_manifest(manifest, count, to);
}

int check_worker(const client::Session &session) {
    if (session.options().role == wire::Role::Worker)
        return 0;
    return fail(EACCES, "a scheduler is metadata-only: it holds no objects");
}

client::CommitOp *prepare_commit(maru_namespace *ns, maru_pool *pool, const wire::Key *keys,
                                 std::span<const PageRun> runs, int *ret_results) {
    client::Session &session = session_of(ns);
    client::Pool &inner = *inside(pool);
    client::CommitOp *op =
        client::prepare(session, session.commits, *inside(ns), inner, keys, runs, ret_results);
    if (inner.allocator().apply_all(AllocationEvent::Send, runs) == RunStatus::Ok)
        return op;
    op->recycle();
    for (size_t i = 0; i < runs.size(); ++i)
        if (inner.allocator().state(runs[i]) != pool::AllocationState::Reserved) {
            fail(EINVAL, "reservations[" + std::to_string(i) +
                             "]: is not reserved in this pool (any more)");
            return nullptr;
        }
    fail(EINVAL, "reservations: one of them is named twice");
    return nullptr;
}

namespace {

std::vector<PageRun> &scratch_runs(const maru_reservation *reservations, size_t count) {
    thread_local std::vector<PageRun> runs;
    runs.clear();
    for (size_t i = 0; i < count; ++i)
        runs.push_back(
            {reservations[i].offset, reservations[i].length, reservations[i].generation});
    return runs;
}

}  // namespace

int check_commit(maru_namespace *ns, maru_pool *pool, const maru_key *keys,
                 const maru_reservation *reservations, size_t count, int *ret_results) {
    if (int bad = check(ns, "ns"))
        return bad;
    if (int bad = check(pool, "pool"))
        return bad;
    if (&session_of(ns) != &session_of(pool))
        return fail(EINVAL, "ns and pool: belong to different clients");
    if (int bad = check_array(keys, count, "keys"))
        return bad;
    if (int bad = check_array(reservations, count, "reservations"))
        return bad;
    if (int bad = check_array(ret_results, count, "ret_results"))
        return bad;
    if (count > kMaxObjects)
        return fail(EMSGSIZE, "count: must be at most " + std::to_string(kMaxObjects));
    return 0;
}

std::span<const PageRun> runs_of(const maru_reservation *reservations, size_t count) {
    return scratch_runs(reservations, count);
}

namespace {

int64_t store(maru_namespace *ns, maru_pool *pool, const maru_key *keys, const void *const *buffers,
              uint64_t length, size_t count, int *ret_results) {
    thread_local std::vector<wire::Key> to_store;
    thread_local std::vector<uint32_t> index;
    thread_local std::vector<PageRun> runs;
    thread_local std::vector<int> results, committed;

    client::Session &session = session_of(ns);
    client::Pool &inner = *inside(pool);
    results.assign(count, -ENOSPC);
    index.clear();
    {
        auto lock = session.lock();
        if (session.over())
            return fail(session.over(), session.over_why());
        for (size_t i = 0; i < count; ++i) {
            if (session.held().find_ready(inside(ns), wire_keys(keys)[i]) !=
                client::HeldTable::kNone)
                results[i] = -EEXIST;
            else
                index.push_back(static_cast<uint32_t>(i));
        }
    }
    // As many as there is room for, from the front.
    runs.resize(index.size());
    size_t admitted = 0;
    client::Outcome reserved;
    if (!index.empty()) {
        reserved = inner.reserve(length, runs);
        if (reserved.value == 0)
            admitted = index.size();
        else if (reserved.value == -EINVAL)
            return report(reserved);
        else
            while (admitted < index.size() &&
                   inner.reserve(length, {runs.data() + admitted, 1}).value == 0)
                ++admitted;
    }
    to_store.clear();
    for (size_t i = 0; i < admitted; ++i) {
        to_store.push_back(wire_keys(keys)[index[i]]);
        copy::copy_in(inner.place(runs[i].offset), buffers[index[i]], length);
    }
    committed.assign(admitted, -EINPROGRESS);
    client::Outcome outcome;
    if (admitted > 0) {
        auto lock = session.lock();
        client::CommitOp *op =
            prepare_commit(ns, pool, to_store.data(), {runs.data(), admitted}, committed.data());
        if (!op)
            return -EINVAL;
        outcome = client::run(session, lock, *op);
    }
    for (size_t i = 0; i < admitted; ++i)
        results[index[i]] = committed[i];
    int64_t present = 0;
    for (int result : results)
        present += result == 0 || result == -EEXIST;
    if (ret_results)
        std::copy(results.begin(), results.end(), ret_results);
    if (outcome.value < 0) {
        report(outcome);
        return present > 0 ? present : outcome.value;
    }
    if (admitted < index.size())
        report(reserved);
    return present;
}

}  // namespace
}  // namespace maru::capi

using namespace maru;
using namespace maru::capi;

extern "C" {

int64_t maru_probe(maru_namespace *ns, const maru_digest *digests, size_t count,
                   const struct maru_manifest *manifest, uint32_t flags, uint8_t *ret_bitmap) {
    return abi_guard([&]() -> int64_t {
        wire::Manifest wanted;
        if (int bad = check_batch(ns, manifest, count, flags, wanted))
            return bad;
        if (int bad = check_array(digests, count, "digests"))
            return bad;
        client::Session &session = session_of(ns);
        auto lock = session.lock();
        auto *op = client::prepare(session, session.probes, *inside(ns), wire_digests(digests),
                                   static_cast<uint32_t>(count), wanted,
                                   (flags & MARU_PREFIX_ONLY) != 0, ret_bitmap);
        return report(client::run(session, lock, *op));
    });
}

int maru_commit(maru_namespace *ns, maru_pool *pool, const struct maru_key *keys,
                const maru_reservation *reservations, size_t count, int *ret_results) {
    return abi_guard([&]() -> int {
        if (int bad = check_commit(ns, pool, keys, reservations, count, ret_results))
            return bad;
        client::Session &session = session_of(ns);
        auto lock = session.lock();
        auto *op =
            prepare_commit(ns, pool, wire_keys(keys), runs_of(reservations, count), ret_results);
        if (!op)
            return -EINVAL;
        return static_cast<int>(report(client::run(session, lock, *op)));
    });
}

int64_t maru_store(maru_namespace *ns, maru_pool *pool, const struct maru_key *keys,
                   const void *const *buffers, uint64_t length, size_t count, int *ret_results) {
    return abi_guard([&]() -> int64_t {
        if (int bad = check(ns, "ns"))
            return bad;
        if (int bad = check(pool, "pool"))
            return bad;
        if (&session_of(ns) != &session_of(pool))
            return fail(EINVAL, "ns and pool: belong to different clients");
        if (int bad = check_array(keys, count, "keys"))
            return bad;
        if (int bad = check_array(buffers, count, "buffers"))
            return bad;
        for (size_t i = 0; i < count; ++i)
            if (!buffers[i])
                return fail(EINVAL, "buffers[" + std::to_string(i) + "]: must not be NULL");
        if (length == 0)
            return fail(EINVAL, "length: must be at least 1");
        if (count > kMaxObjects)
            return fail(EMSGSIZE, "count: must be at most " + std::to_string(kMaxObjects));
        return store(ns, pool, keys, buffers, length, count, ret_results);
    });
}

int64_t maru_retire(maru_namespace *ns, const struct maru_key *keys, size_t count,
                    int *ret_results) {
    return abi_guard([&]() -> int64_t {
        if (int bad = check(ns, "ns"))
            return bad;
        if (int bad = check_array(keys, count, "keys"))
            return bad;
        if (count > kMaxObjects)
            return fail(EMSGSIZE, "count: must be at most " + std::to_string(kMaxObjects));
        client::Session &session = session_of(ns);
        if (int bad = check_worker(session))
            return bad;
        auto lock = session.lock();
        if (session.over())
            return fail(session.over(), session.over_why());
        auto *op = client::prepare(session, session.retires, *inside(ns), wire_keys(keys),
                                   static_cast<uint32_t>(count), ret_results);
        return report(client::run(session, lock, *op));
    });
}

void maru_copy_in(void *pool_memory, const void *source, size_t length) {
    copy::copy_in(pool_memory, source, length);
}

void maru_copy_out(void *destination, const void *pool_memory, size_t length) {
    copy::copy_out(destination, pool_memory, length);
}

}  // extern "C"
