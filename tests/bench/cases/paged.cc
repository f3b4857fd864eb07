// What a connector does per step: whole blocks between an engine's paged memory and objects in a pool,
// beside the same bytes as one copy each. No message is in these figures, but for those of a chunk that is
// stored or loaded by itself, which waits for marud.
#include <maru/maru.h>

#include <algorithm>
#include <random>

#include "tests/bench/cases/cases.h"
#include "tests/bench/client_worker.h"
#include "tests/bench/marud_process.h"

namespace maru::bench {

namespace {

constexpr size_t kObject = 2 << 20;
constexpr size_t kLayers = 8;

// Blocks in layers, of which an object has some of each layer; never two neighbours, so every block is a run.
struct PagedMemory {
    const size_t block_bytes, per_object;
    EngineMemory bytes;
    void *layers[kLayers];
    std::vector<uint32_t> blocks;  // object after object

    PagedMemory(size_t run_bytes, size_t objects)
        : block_bytes(run_bytes),
          per_object(kObject / kLayers / run_bytes),
          bytes(2 * objects * kObject) {
        const size_t blocks_here = 2 * objects * per_object;
        for (size_t layer = 0; layer < kLayers; ++layer)
            layers[layer] = bytes.data() + layer * blocks_here * block_bytes;
        for (size_t block = 0; block < blocks_here; block += 2)
            blocks.push_back(static_cast<uint32_t>(block));
        std::mt19937 random(1);
        std::shuffle(blocks.begin(), blocks.end(), random);
    }
    maru_paged_memory description() const {
        maru_paged_memory made = {};
        made.size = sizeof made;
        made.layers = layers;
        made.layer_count = kLayers;
        made.block_bytes = block_bytes;
        made.block_count = 2 * blocks.size();
        return made;
    }
    const uint32_t *batch(size_t number) const {
        return blocks.data() + number * kBatch * per_object;
    }
};

struct Paged {
    PinnedClient pinned;
    MarudProcess marud;
    Worker worker;
    const size_t batches;
    EngineMemory plain;
    std::vector<maru_reservation> runs;
    std::vector<void *> objects;
    std::vector<const void *> readable;
    std::vector<maru_digest> resident;  // kBatch objects that are there

    Paged(const Plan &plan, size_t count)
        : marud({plan.marud, 0, server_cpu(), "64G", ""}),
          worker({marud.socket_path(), "paged", kObject, (count + 2) * kBatch}),
          batches(count),
          plain(count * kBatch * kObject),
          runs(worker.reserve(count * kBatch)) {
        for (const maru_reservation &run : runs) {
            objects.push_back(run.data);
            readable.push_back(run.data);
        }
        worker.copy_in(runs, plain.data());
        worker.fill(0, kBatch, plain.data());
        resident = worker.digests(0, kBatch);
    }
    ~Paged() { worker.abort(runs); }
    double gb_per_s(uint64_t begin) const {
        return static_cast<double>(batches * kBatch * kObject) /
               static_cast<double>(now_ns() - begin);
    }
    double copy_in() {
        const uint64_t begin = now_ns();
        worker.copy_in(runs, plain.data());
        return gb_per_s(begin);
    }
    double copy_out() {
        const uint64_t begin = now_ns();
        for (size_t i = 0; i < readable.size(); ++i)
            maru_copy_out(plain.data() + i * kObject, readable[i], kObject);
        return gb_per_s(begin);
    }
    double gather(const PagedMemory &from) {
        const maru_paged_memory memory = from.description();
        const uint64_t begin = now_ns();
        for (size_t batch = 0; batch < batches; ++batch)
            must(maru_gather(&memory, from.batch(batch), from.per_object, &objects[batch * kBatch],
                             kBatch),
                 "maru_gather");
        return gb_per_s(begin);
    }
    // Chunk by chunk, as they are completed one in a step, in one call each.
    double gather_and_commit(const PagedMemory &from) {
        const maru_paged_memory memory = from.description();
        const auto keys = worker.new_keys(kBatch);
        int result = 0;
        worker.warm();
        const uint64_t begin = now_ns();
        for (size_t i = 0; i < kBatch; ++i)
            must(maru_store_blocks(worker.ns(), worker.pool(), &keys[i], 1, &memory,
                                   from.batch(0) + i * from.per_object, from.per_object, MARU_CPU,
                                   nullptr, &result, nullptr),
                 "maru_store_blocks");
        const double figure = gb_per_s(begin) / static_cast<double>(batches);
        worker.retire(keys);
        return figure;
    }
    double acquire_and_scatter(const PagedMemory &to) {
        const maru_paged_memory memory = to.description();
        worker.warm();
        const uint64_t begin = now_ns();
        for (size_t i = 0; i < kBatch; ++i)
            must_be(maru_load_blocks(worker.ns(), &resident[i], 1, &memory,
                                     to.batch(0) + i * to.per_object, to.per_object, MARU_CPU,
                                     nullptr, nullptr, nullptr),
                    1, "maru_load_blocks");
        return gb_per_s(begin) / static_cast<double>(batches);
    }
    double scatter(const PagedMemory &to) {
        const maru_paged_memory memory = to.description();
        const uint64_t begin = now_ns();
        for (size_t batch = 0; batch < batches; ++batch)
            must(maru_scatter(&memory, to.batch(batch), to.per_object, &readable[batch * kBatch],
                              kBatch, nullptr),
                 "maru_scatter");
        return gb_per_s(begin);
    }
};

void fill_group(Group &group, const Plan &plan) {
    const size_t batches = plan.quick ? 1 : 3;
    need_memory(8 * batches * kBatch * kObject);
    auto paged = std::make_shared<Paged>(plan, batches);
    group.keep(paged);
    const std::string in = "floor: 2 MiB as one copy in", out = "floor: 2 MiB as one copy out";
    group.add({in, "GB/s", "", [=] { return paged->copy_in(); }, {}});
    group.add({out, "GB/s", "", [=] { return paged->copy_out(); }, {}});
    for (size_t run : {16u << 10, 64u << 10, 256u << 10}) {
        auto memory = std::make_shared<PagedMemory>(run, batches * kBatch);
        group.add({"gather, runs of " + size_text(run),
                   "GB/s",
                   in,
                   [=] { return paged->gather(*memory); },
                   {at_least(0.85, in)}});
        group.add({"scatter, runs of " + size_text(run),
                   "GB/s",
                   out,
                   [=] { return paged->scatter(*memory); },
                   {at_least(0.85, out)}});
        if (run != 256u << 10)
            continue;
        group.add({"store of one chunk after the other from blocks",
                   "GB/s",
                   in,
                   [=] { return paged->gather_and_commit(*memory); },
                   {at_least(0.8, in)}});
        group.add({"load of one chunk after the other into blocks",
                   "GB/s",
                   out,
                   [=] { return paged->acquire_and_scatter(*memory); },
                   {at_least(0.8, out)}});
    }
}

}  // namespace

void add_paged(Suite &suite, const Plan &plan) {
    suite.add("gather and scatter, 32 x 2 MiB", [=](Group &group) { fill_group(group, plan); });
}

}  // namespace maru::bench
