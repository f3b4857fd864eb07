// Objects from an engine's blocks to a commit, and from leases back into blocks.
//
// What must stay true: reservations that were not committed, and leases, do not outlive the call that made
// them, however it ends; neither does a GPU's copy to or from them.
#include "maru/blocks.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "libmaru/capi/handles.h"
#include "libmaru/capi/objects.h"
#include "libmaru/capi/paged_arguments.h"
#include "libmaru/client/batch_ops.h"
#include "libmaru/client/clock.h"
#include "libmaru/client/lease_table.h"
#include "libmaru/cuda/device.h"
#include "libmaru/cuda/paged.h"

namespace maru::capi {
namespace {

using pool::AllocationEvent;
using pool::PageRun;

// The engine's side of a call.
struct Blocks {
    copy::PagedMemory memory;
    copy::Transfer transfer;
    const cuda::Device *gpu = nullptr;
    CUstream stream = nullptr;

    uint64_t object_bytes() const {
        return memory.object_bytes(transfer.blocks_per_object) +
               (transfer.checksum ? copy::kChecksumBytes : 0);
    }
    copy::Transfer first(size_t count, void *const *objects) const {
        copy::Transfer some = transfer;
        some.objects = objects;
        some.count = count;
        return some;
    }
};

int read(const maru_paged_memory *memory, const uint32_t *ids, size_t per_object, size_t count,
         bool may_be_left_out, int device, void *stream, Blocks &to) {
    if (int bad =
            read_blocks(memory, ids, per_object, count, may_be_left_out, to.memory, to.transfer))
        return bad;
    if (device < MARU_CPU)
        return fail(EINVAL, "device: is " + std::to_string(device) +
                                ", must be MARU_CPU (-1) or the number of a GPU");
    if (device == MARU_CPU)
        return 0;
    auto gpu = cuda::Device::system(device);
    if (!gpu)
        return fail(gpu.error());
    to.gpu = *gpu;
    to.stream = static_cast<CUstream>(stream);
    return 0;
}

class Stopwatch {
  public:
    explicit Stopwatch(uint64_t &took) : took_(took), began_(client::now_ns()) {}
    ~Stopwatch() { took_ = static_cast<uint64_t>(client::now_ns() - began_); }
    Stopwatch(const Stopwatch &) = delete;
    Stopwatch &operator=(const Stopwatch &) = delete;

  private:
    uint64_t &took_;
    const client::TimeNs began_;
};

// Nothing of the copy runs any more afterwards, whether it went well or not.
int ended(const Blocks &blocks, const Result<void> &copied) {
    const auto waited = cuda::wait(*blocks.gpu, blocks.stream);
    if (!copied)
        return fail(copied.error());
    return waited ? 0 : fail(waited.error());
}

int gather(const Blocks &from, const copy::Transfer &transfer, uint64_t &took) {
    const Stopwatch watch(took);
    if (from.gpu)
        return ended(from, cuda::gather(*from.gpu, from.memory, transfer, from.stream));
    copy::gather(from.memory, transfer);
    return 0;
}

// Damage is in the results.
int scatter(const Blocks &to, const copy::Transfer &transfer, int *results, uint64_t &took) {
    const Stopwatch watch(took);
    if (!to.gpu) {
        if (!copy::scatter(to.memory, transfer, results))
            fail(EBADMSG, "objects: the checksum of at least one is wrong");
        return 0;
    }
    const auto copied = cuda::scatter(*to.gpu, to.memory, transfer, results, to.stream);
    const int result = ended(to, copied);
    return result == -EBADMSG ? 0 : result;
}

// ---- store ---------------------------------------------------------------------------------------

// Given back, unless a commit took them.
class Reserved {
  public:
    Reserved(client::Pool &pool, std::span<const PageRun> runs) : pool_(pool), runs_(runs) {}
    ~Reserved() {
        for (const PageRun &run : runs_)
            pool_.allocator().apply(AllocationEvent::Abort, run);
    }
    Reserved(const Reserved &) = delete;
    Reserved &operator=(const Reserved &) = delete;
    void taken() { runs_ = {}; }

  private:
    client::Pool &pool_;
    std::span<const PageRun> runs_;
};

// Room in a queue, given back unless an op took it.
class Place {
  public:
    explicit Place(maru_queue *queue) : queue_(queue) {}
    ~Place() {
        if (!queue_)
            return;
        auto lock = session_of(queue_).lock();
        inside(queue_)->withdraw();
    }
    Place(const Place &) = delete;
    Place &operator=(const Place &) = delete;
    void taken() { queue_ = nullptr; }

  private:
    maru_queue *queue_;
};

// Publish: what is done with the op, under the lock.
template <typename Publish>
int store(maru_namespace *ns, maru_pool *pool, const maru_key *keys, const Blocks &from,
          int *ret_results, uint64_t *ret_copy_ns, Publish publish) {
    thread_local std::vector<PageRun> runs;
    thread_local std::vector<void *> objects;
    const size_t count = from.transfer.count;
    client::Pool &inner = *inside(pool);
    runs.resize(count);
    if (count > 0)
        if (auto outcome = inner.reserve(from.object_bytes(), runs); outcome.value != 0)
            return static_cast<int>(report(outcome));
    Reserved reserved(inner, runs);
    objects.resize(count);
    for (size_t i = 0; i < count; ++i)
        objects[i] = inner.place(runs[i].offset);
    uint64_t took = 0;
    if (int bad = gather(from, from.first(count, objects.data()), took))
        return bad;
    client::Session &session = session_of(ns);
    auto lock = session.lock();
    client::CommitOp *op = prepare_commit(ns, pool, wire_keys(keys), runs, ret_results);
    if (!op)
        return -EINVAL;
    reserved.taken();
    if (ret_copy_ns)
        *ret_copy_ns = took;
    return publish(session, lock, *op);
}

int check_store(maru_namespace *ns, maru_pool *pool, const maru_key *keys, size_t count,
                int *ret_results) {
    static const maru_reservation none{};  // they are made later
    return check_commit(ns, pool, keys, &none, count, ret_results);
}

// ---- load ----------------------------------------------------------------------------------------

class Leases {
  public:
    explicit Leases(size_t count) : leases_(count) {}
    ~Leases() {
        try {
            release(leases_.data(), leases_.size());
        } catch (const std::bad_alloc &) {
            // No room to note them down: marud is told when the session ends, and the copy was good.
        }
    }
    Leases(const Leases &) = delete;
    Leases &operator=(const Leases &) = delete;
    void **room() { return reinterpret_cast<void **>(leases_.data()); }
    const client::LeaseSlot &slot(size_t i) const { return *client::LeaseHandle::slot(leases_[i]); }

  private:
    std::vector<maru_lease *> leases_;
};

int64_t load(maru_namespace *ns, const maru_digest *digests, const Blocks &to, int *ret_results,
             uint64_t *ret_copy_ns) {
    const size_t count = to.transfer.count;
    const uint64_t wanted = to.object_bytes();
    client::Session &session = session_of(ns);
    Leases leases(count);
    client::Outcome outcome;
    {
        auto lock = session.lock();
        auto *op =
            client::prepare(session, session.acquires, *inside(ns), wire_digests(digests),
                            static_cast<uint32_t>(count), wire::Manifest{}, true, leases.room());
        outcome = client::run(session, lock, *op);
    }
    if (outcome.value < 0)
        return report(outcome);
    const auto found = static_cast<size_t>(outcome.value);
    std::vector<void *> objects(found);
    for (size_t i = 0; i < found; ++i) {
        const client::LeaseSlot &slot = leases.slot(i);
        if (slot.length != wanted)  // and so have all of a namespace
            return fail(EMEDIUMTYPE, "object " + std::to_string(i) + ": has " +
                                         std::to_string(slot.length) + " bytes, its blocks make " +
                                         std::to_string(wanted));
        objects[i] = const_cast<std::byte *>(slot.data);
    }
    uint64_t took = 0;
    std::vector<int> results(count, -ENOENT);
    std::fill_n(results.begin(), found, 0);
    if (found > 0)
        if (int bad = scatter(to, to.first(found, objects.data()), results.data(), took))
            return bad;
    if (ret_copy_ns)
        *ret_copy_ns = took;
    if (ret_results)
        std::copy(results.begin(), results.end(), ret_results);
    return std::count(results.begin(), results.end(), 0);
}

}  // namespace
}  // namespace maru::capi

using namespace maru;
using namespace maru::capi;

extern "C" {

int maru_store_blocks(maru_namespace *ns, maru_pool *pool, const struct maru_key *keys,
                      size_t count, const struct maru_paged_memory *memory, const uint32_t *blocks,
                      size_t blocks_per_object, int device, void *stream, int *ret_results,
                      uint64_t *ret_copy_ns) {
    return abi_guard([&]() -> int {
        Blocks from;
        if (int bad = check_store(ns, pool, keys, count, ret_results))
            return bad;
        if (int bad = read(memory, blocks, blocks_per_object, count, false, device, stream, from))
            return bad;
        return store(ns, pool, keys, from, ret_results, ret_copy_ns,
                     [&](client::Session &session, auto &lock, client::CommitOp &op) {
                         return static_cast<int>(report(client::run(session, lock, op)));
                     });
    });
}

int maru_store_blocks_submit(maru_queue *queue, maru_namespace *ns, maru_pool *pool,
                             const struct maru_key *keys, size_t count,
                             const struct maru_paged_memory *memory, const uint32_t *blocks,
                             size_t blocks_per_object, int device, void *stream, int *ret_results,
                             uint64_t *ret_copy_ns, uint64_t user_data) {
    return abi_guard([&]() -> int {
        Blocks from;
        if (int bad = check(queue, "queue"))
            return bad;
        if (int bad = check_store(ns, pool, keys, count, ret_results))
            return bad;
        if (int bad = read(memory, blocks, blocks_per_object, count, false, device, stream, from))
            return bad;
        {
            auto lock = session_of(ns).lock();
            if (int bad = admit(queue, ns))
                return bad;
        }
        Place place(queue);  // before the copy: it is not made for nothing
        return store(ns, pool, keys, from, ret_results, ret_copy_ns,
                     [&](client::Session &session, auto &, client::CommitOp &op) {
                         place.taken();
                         client::submit(session, op, *inside(queue), user_data);
                         return 0;
                     });
    });
}

int64_t maru_load_blocks(maru_namespace *ns, const maru_digest *digests, size_t count,
                         const struct maru_paged_memory *memory, const uint32_t *blocks,
                         size_t blocks_per_object, int device, void *stream, int *ret_results,
                         uint64_t *ret_copy_ns) {
    return abi_guard([&]() -> int64_t {
        Blocks to;
        wire::Manifest one;
        if (int bad = check_batch(ns, nullptr, count, MARU_PREFIX_ONLY, one))
            return bad;
        if (int bad = check_array(digests, count, "digests"))
            return bad;
        if (int bad = check_worker(session_of(ns)))
            return bad;
        if (int bad = read(memory, blocks, blocks_per_object, count, true, device, stream, to))
            return bad;
        return load(ns, digests, to, ret_results, ret_copy_ns);
    });
}

}  // extern "C"
