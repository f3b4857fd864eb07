#include "tests/bench/maru_cases.h"

#include <maru/maru.h>
#include <time.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "tests/bench/floors.h"

namespace maru::bench {

namespace {

constexpr uint64_t kSmallObject = 4096;
constexpr size_t kBatch = 32;

// Every call's result goes through here: a benchmark of failures would be a fast one.
int64_t must(int64_t result, const char *call) {
    if (result < 0)
        throw std::runtime_error(std::string(call) + ": " + maru_last_error());
    return result;
}
void must_be(int64_t result, size_t expected, const char *call) {
    if (must(result, call) != static_cast<int64_t>(expected))
        throw std::runtime_error(std::string(call) + " gave " + std::to_string(result) + " of " +
                                 std::to_string(expected));
}

// One session with one pool of objects of one size.
class Worker {
  public:
    Worker(const std::string &socket_path, uint64_t object_bytes, size_t objects,
           const std::string &name = "bench")
        : object_bytes_(object_bytes), text_(name + "|" + std::to_string(object_bytes)) {
        const std::string engine = name + "-" + std::to_string(object_bytes);
        maru_client_options options = {};
        options.size = sizeof options;
        options.socket_path = socket_path.c_str();
        options.engine = engine.c_str();
        options.name = "maru-bench";
        options.timeout_ms = 60000;
        must(maru_client_open(&options, &client_), "maru_client_open");
        must(maru_namespace_open(client_, text_.c_str(), &ns_), "maru_namespace_open");
        maru_schema schema = {};
        schema.size = sizeof schema;
        schema.object_bytes = object_bytes;
        schema.format = "bench";
        must(maru_client_describe(client_, ns_, &schema), "maru_client_describe");
        maru_pool_options pool = {};
        pool.size = sizeof pool;
        pool.capacity_bytes = object_bytes * objects;
        pool.page_bytes = std::min<uint64_t>(object_bytes, 64 * 1024);
        pool.wait_populated = 1;
        must(maru_pool_open(client_, &pool, &pool_), "maru_pool_open");
    }

    // Keys that no earlier call of this worker got.
    std::vector<maru_key> new_keys(size_t count) {
        std::vector<uint32_t> tokens(count);
        for (uint32_t &token : tokens)
            token = next_token_++;
        std::vector<maru_digest> digests(count);
        must_be(
            maru_prefix_digests(text_.c_str(), tokens.data(), count, 1, nullptr, digests.data()),
            count, "maru_prefix_digests");
        std::vector<maru_key> keys(count);
        for (size_t i = 0; i < count; ++i)
            keys[i].digest = digests[i];
        return keys;
    }
    static std::vector<maru_digest> digests_of(const std::vector<maru_key> &keys) {
        std::vector<maru_digest> digests;
        for (const maru_key &key : keys)
            digests.push_back(key.digest);
        return digests;
    }

    std::vector<maru_reservation> reserve(size_t count) {
        std::vector<maru_reservation> runs(count);
        must(maru_reserve(pool_, object_bytes_, count, runs.data()), "maru_reserve");
        return runs;
    }
    void commit(const std::vector<maru_key> &keys, const std::vector<maru_reservation> &runs) {
        std::vector<int> results(keys.size());
        must(maru_commit(ns_, pool_, keys.data(), runs.data(), keys.size(), results.data()),
             "maru_commit");
    }
    void store(const std::vector<maru_key> &keys, const uint8_t *source) {
        const auto runs = reserve(keys.size());
        for (size_t i = 0; i < keys.size(); ++i)
            maru_copy_in(runs[i].data, source + i * object_bytes_, object_bytes_);
        commit(keys, runs);
    }
    // Not timed: gives the pages back and waits until they are there again.
    void retire(const std::vector<maru_key> &keys) {
        std::vector<int> results(keys.size());
        must_be(maru_retire(ns_, keys.data(), keys.size(), results.data()), keys.size(),
                "maru_retire");
        for (int tries = 0; tries < 10000; ++tries) {
            struct maru_pool_info info = {};
            info.size = sizeof info;
            must(maru_pool_info(pool_, &info), "maru_pool_info");
            if (info.retiring_bytes == 0)
                return;
            const timespec moment = {0, 1000000};
            ::nanosleep(&moment, nullptr);
        }
        throw std::runtime_error("retired pages did not come back within 10 s");
    }

    maru_namespace *ns() { return ns_; }
    uint64_t object_bytes() const { return object_bytes_; }

  private:
    const uint64_t object_bytes_;
    const std::string text_;
    uint32_t next_token_ = 0;
    maru_client *client_ = nullptr;
    maru_namespace *ns_ = nullptr;
    maru_pool *pool_ = nullptr;
};

double us_since(uint64_t begin) { return static_cast<double>(now_ns() - begin) / 1e3; }

void add_metadata_cases(Suite &suite, const std::string &socket_path, bool quick) {
    constexpr size_t kObjects = 4096, kCommits = 256;
    auto worker = std::make_shared<Worker>(socket_path, kSmallObject, kObjects + 4 * kCommits);
    const auto keys = worker->new_keys(kObjects);
    const std::vector<uint8_t> bytes(kBatch * kSmallObject, 3);
    for (size_t i = 0; i < kObjects; i += kBatch)
        worker->store(
            {keys.begin() + static_cast<long>(i), keys.begin() + static_cast<long>(i + kBatch)},
            bytes.data());
    auto digests = std::make_shared<const std::vector<maru_digest>>(Worker::digests_of(keys));

    for (size_t count : {1u, 32u, 256u, 4096u})
        suite.add({"probe, " + std::to_string(count) + " keys", "us", rpc_floor(count), [=] {
                       std::vector<double> times;
                       for (int i = 0; i < (quick ? 3 : 200); ++i) {
                           const uint64_t begin = now_ns();
                           const int64_t hits = maru_probe(worker->ns(), digests->data(), count,
                                                           nullptr, 0, nullptr);
                           times.push_back(us_since(begin));
                           must_be(hits, count, "maru_probe");
                       }
                       return median(times);
                   }});
    for (size_t count : {1024u, 4096u})
        suite.add(
            {"acquire + release, " + std::to_string(count) + " keys", "us", rpc_floor(count), [=] {
                 std::vector<double> times;
                 std::vector<maru_lease *> leases(count);
                 for (int i = 0; i < (quick ? 2 : 50); ++i) {
                     const uint64_t begin = now_ns();
                     const int64_t got = maru_acquire(worker->ns(), digests->data(), count, nullptr,
                                                      0, leases.data());
                     const int released = maru_lease_release(leases.data(), count);
                     times.push_back(us_since(begin));
                     must_be(got, count, "maru_acquire");
                     must(released, "maru_lease_release");
                 }
                 return median(times);
             }});
    suite.add({"commit, batch of 256", "us", rpc_floor(kCommits), [=] {
                   std::vector<double> times;
                   for (int i = 0; i < (quick ? 2 : 30); ++i) {
                       const auto batch = worker->new_keys(kCommits);
                       const auto runs = worker->reserve(kCommits);
                       const uint64_t begin = now_ns();
                       worker->commit(batch, runs);
                       times.push_back(us_since(begin));
                       worker->retire(batch);
                   }
                   return median(times);
               }});
    suite.add({"prefix digests, 100k tokens", "GB/s", kHashFloor, [=] {
                   static const std::vector<uint32_t> tokens(100000, 42);
                   std::vector<maru_digest> out(tokens.size() / 256);
                   std::vector<double> figures;
                   for (int i = 0; i < (quick ? 2 : 20); ++i) {
                       const uint64_t begin = now_ns();
                       must_be(maru_prefix_digests("bench", tokens.data(), tokens.size(), 256,
                                                   nullptr, out.data()),
                               out.size(), "maru_prefix_digests");
                       figures.push_back(static_cast<double>(tokens.size() * sizeof(uint32_t)) /
                                         static_cast<double>(now_ns() - begin));
                   }
                   return median(figures);
               }});
}

void add_data_cases(Suite &suite, const std::string &socket_path, size_t object_bytes, bool quick) {
    // Resident sets for the loads, rotated so that each load meets memory not used lately.
    const size_t total =
        quick ? kBatch * object_bytes : std::max<size_t>(128 << 20, kBatch * object_bytes);
    const size_t sets = total / (kBatch * object_bytes);
    auto worker = std::make_shared<Worker>(socket_path, object_bytes, (sets + 2) * kBatch);
    auto source = std::make_shared<std::vector<uint8_t>>(total, 5);
    auto resident = std::make_shared<std::vector<std::vector<maru_digest>>>();
    for (size_t set = 0; set < sets; ++set) {
        const auto keys = worker->new_keys(kBatch);
        worker->store(keys, source->data() + set * kBatch * object_bytes);
        resident->push_back(Worker::digests_of(keys));
    }
    auto turn = std::make_shared<size_t>(0);
    const size_t bytes_per_batch = kBatch * object_bytes;
    const size_t batches = quick ? 1 : std::max<size_t>(2, (64 << 20) / bytes_per_batch);

    suite.add({"store, 32 x " + size_text(object_bytes), "GB/s", copy_floor(object_bytes), [=] {
                   std::vector<double> figures;
                   for (size_t i = 0; i < batches; ++i) {
                       const auto keys = worker->new_keys(kBatch);
                       const uint8_t *from = source->data() + (*turn)++ % sets * bytes_per_batch;
                       const uint64_t begin = now_ns();
                       worker->store(keys, from);
                       figures.push_back(static_cast<double>(bytes_per_batch) /
                                         static_cast<double>(now_ns() - begin));
                       worker->retire(keys);
                   }
                   return median(figures);
               }});
    suite.add({"load, 32 x " + size_text(object_bytes), "GB/s", copy_floor(object_bytes), [=] {
                   static std::vector<uint8_t> target;
                   target.resize(std::max(target.size(), bytes_per_batch));
                   void *buffers[kBatch];
                   for (size_t i = 0; i < kBatch; ++i)
                       buffers[i] = target.data() + i * object_bytes;
                   std::vector<double> figures;
                   for (size_t i = 0; i < batches; ++i) {
                       const auto &digests = (*resident)[(*turn)++ % sets];
                       const uint64_t begin = now_ns();
                       const int64_t loaded = maru_load(worker->ns(), digests.data(), kBatch,
                                                        nullptr, 0, buffers, object_bytes, nullptr);
                       figures.push_back(static_cast<double>(bytes_per_batch) /
                                         static_cast<double>(now_ns() - begin));
                       must_be(loaded, kBatch, "maru_load");
                   }
                   return median(figures);
               }});
}

// An engine's paged memory: eight layers, of which an object has four neighbouring blocks each.
struct PagedEngine {
    static constexpr size_t kLayers = 8, kPerObject = 4;

    PagedEngine(size_t object_bytes, size_t objects)
        : block_bytes(object_bytes / (kLayers * kPerObject)),
          block_count(objects * kPerObject),
          bytes(object_bytes * objects, 5) {
        for (size_t layer = 0; layer < kLayers; ++layer)
            layers[layer] = bytes.data() + layer * block_count * block_bytes;
        for (size_t block = 0; block < block_count; ++block)
            blocks.push_back(static_cast<uint32_t>(block));
    }
    maru_paged_memory memory() const {
        maru_paged_memory made = {};
        made.size = sizeof made;
        made.layers = layers;
        made.layer_count = kLayers;
        made.block_bytes = block_bytes;
        made.block_count = block_count;
        return made;
    }
    const uint32_t *batch(size_t number) const {
        return blocks.data() + number * kBatch * kPerObject;
    }

    size_t block_bytes, block_count;
    std::vector<uint8_t> bytes;
    void *layers[kLayers];
    std::vector<uint32_t> blocks;
};

// What a connector does per step: whole blocks between an engine's memory and the pool.
void add_paged_cases(Suite &suite, const std::string &socket_path, bool quick) {
    constexpr size_t kObject = 2 << 20;
    const size_t sets = quick ? 1 : 4;
    const size_t batch_bytes = kBatch * kObject;
    auto worker = std::make_shared<Worker>(socket_path, kObject, (sets + 2) * kBatch, "paged");
    auto engine = std::make_shared<PagedEngine>(kObject, sets * kBatch);
    auto resident = std::make_shared<std::vector<std::vector<maru_digest>>>();
    const auto gather = [=](size_t set, const std::vector<maru_key> &keys) {
        const auto runs = worker->reserve(kBatch);
        void *objects[kBatch];
        for (size_t i = 0; i < kBatch; ++i)
            objects[i] = runs[i].data;
        const maru_paged_memory memory = engine->memory();
        const uint64_t begin = now_ns();
        must(maru_gather(&memory, engine->batch(set), PagedEngine::kPerObject, objects, kBatch),
             "maru_gather");
        worker->commit(keys, runs);
        return static_cast<double>(batch_bytes) / static_cast<double>(now_ns() - begin);
    };
    for (size_t set = 0; set < sets; ++set) {
        const auto keys = worker->new_keys(kBatch);
        gather(set, keys);
        resident->push_back(Worker::digests_of(keys));
    }
    const size_t rounds = quick ? 1 : 3 * sets;
    suite.add({"gather + commit, 32 x 2 MiB", "GB/s", copy_floor(kObject), [=] {
                   std::vector<double> figures;
                   for (size_t i = 0; i < rounds; ++i) {
                       const auto keys = worker->new_keys(kBatch);
                       figures.push_back(gather(i % sets, keys));
                       worker->retire(keys);
                   }
                   return median(figures);
               }});
    suite.add({"acquire + scatter, 32 x 2 MiB", "GB/s", copy_floor(kObject), [=] {
                   std::vector<double> figures;
                   for (size_t i = 0; i < rounds; ++i) {
                       const auto &digests = (*resident)[i % sets];
                       maru_lease *leases[kBatch];
                       const void *objects[kBatch];
                       const maru_paged_memory memory = engine->memory();
                       const uint64_t begin = now_ns();
                       must_be(
                           maru_acquire(worker->ns(), digests.data(), kBatch, nullptr, 0, leases),
                           kBatch, "maru_acquire");
                       for (size_t object = 0; object < kBatch; ++object)
                           objects[object] = maru_lease_data(leases[object]);
                       must(maru_scatter(&memory, engine->batch(i % sets), PagedEngine::kPerObject,
                                         objects, kBatch, nullptr),
                            "maru_scatter");
                       figures.push_back(static_cast<double>(batch_bytes) /
                                         static_cast<double>(now_ns() - begin));
                       must(maru_lease_release(leases, kBatch), "maru_lease_release");
                   }
                   return median(figures);
               }});
}

}  // namespace

void add_maru_cases(Suite &suite, const std::string &socket_path, bool quick) {
    add_metadata_cases(suite, socket_path, quick);
    for (size_t object_bytes : {64u << 10, 1u << 20, 2u << 20})
        add_data_cases(suite, socket_path, object_bytes, quick);
    add_paged_cases(suite, socket_path, quick);
}

}  // namespace maru::bench
