#include "tests/bench/client_worker.h"

#include <time.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>

namespace maru::bench {

namespace {

void pause_ms(long ms) {
    const timespec moment = {0, ms * 1000000};
    ::nanosleep(&moment, nullptr);
}

}  // namespace

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

Worker::Worker(WorkerSetup setup)
    : setup_(std::move(setup)), text_(setup_.text.empty() ? setup_.engine : setup_.text) {
    maru_client_options options = {};
    options.size = sizeof options;
    options.socket_path = setup_.socket_path.c_str();
    options.engine = setup_.engine.c_str();
    options.name = "maru-bench";
    options.role = setup_.role;
    options.timeout_ms = 60000;
    options.spin_us = setup_.spin_us;
    must(maru_client_open(&options, &client_), "maru_client_open");
    try {
        must(maru_namespace_open(client_, text_.c_str(), &ns_), "maru_namespace_open");
        if (setup_.objects > 0)
            open_pool();
    } catch (...) {
        maru_client_close(client_);
        throw;
    }
}

void Worker::open_pool() {
    maru_schema schema = {};
    schema.size = sizeof schema;
    schema.object_bytes = setup_.object_bytes;
    schema.format = "bench";
    must(maru_client_describe(client_, ns_, &schema), "maru_client_describe");
    maru_pool_options options = {};
    options.size = sizeof options;
    options.capacity_bytes = setup_.object_bytes * setup_.objects;
    options.page_bytes = static_cast<uint32_t>(std::min<uint64_t>(setup_.object_bytes, 64 * 1024));
    options.wait_populated = setup_.populated;
    options.scope = setup_.scope;
    must(maru_pool_open(client_, &options, &pool_), "maru_pool_open");
}

Worker::~Worker() {
    if (pool_)
        maru_pool_close(pool_, MARU_CLOSE_FORCED);
    maru_client_close(client_);
}

std::vector<maru_digest> Worker::digests(uint32_t first, size_t count) const {
    std::vector<uint32_t> tokens(count);
    for (size_t i = 0; i < count; ++i)
        tokens[i] = first + static_cast<uint32_t>(i);
    // A root per first key: else a batch's keys would depend on those before it.
    const std::string root = text_ + "#" + std::to_string(first);
    std::vector<maru_digest> made(count);
    must_be(maru_prefix_digests(root.c_str(), tokens.data(), count, 1, nullptr, made.data()), count,
            "maru_prefix_digests");
    return made;
}

std::vector<maru_key> Worker::keys(uint32_t first, size_t count) const {
    std::vector<maru_key> made(count);
    const auto from = digests(first, count);
    for (size_t i = 0; i < count; ++i)
        made[i].digest = from[i];
    return made;
}

std::vector<maru_key> Worker::new_keys(size_t count) {
    const uint32_t first = next_key_;
    next_key_ += static_cast<uint32_t>(count);
    return keys(first, count);
}

std::vector<maru_reservation> Worker::reserve(size_t count) {
    std::vector<maru_reservation> runs(count);
    int result = maru_reserve(pool_, setup_.object_bytes, count, runs.data());
    // A pool of scope host is granted its memory as it fills.
    for (int tries = 0; result == -ENOSPC && setup_.scope == MARU_SCOPE_HOST && tries < 10000;
         ++tries) {
        pause_ms(1);
        result = maru_reserve(pool_, setup_.object_bytes, count, runs.data());
    }
    must(result, "maru_reserve");
    return runs;
}

void Worker::abort(const std::vector<maru_reservation> &runs) {
    must(maru_abort(pool_, runs.data(), runs.size()), "maru_abort");
}

void Worker::commit(const maru_key *keys, const maru_reservation *runs, size_t count) {
    std::vector<int> results(count);
    must(maru_commit(ns_, pool_, keys, runs, count, results.data()), "maru_commit");
}

void Worker::copy_in(const std::vector<maru_reservation> &runs, const uint8_t *source) {
    for (size_t i = 0; i < runs.size(); ++i)
        maru_copy_in(runs[i].data, source + i * setup_.object_bytes, setup_.object_bytes);
}

void Worker::store(const std::vector<maru_key> &keys, const uint8_t *source) {
    const auto runs = reserve(keys.size());
    copy_in(runs, source);
    commit(keys.data(), runs.data(), keys.size());
}

void Worker::fill(uint32_t first, size_t count, const uint8_t *source) {
    for (size_t done = 0; done < count; done += kBatch) {
        const size_t now = std::min(kBatch, count - done);
        store(keys(first + static_cast<uint32_t>(done), now), source);
    }
}

void Worker::retire(const std::vector<maru_key> &keys) {
    must_be(maru_retire(ns_, keys.data(), keys.size(), nullptr), keys.size(), "maru_retire");
    for (int tries = 0; tries < 10000; ++tries) {
        struct maru_pool_info info = {};
        info.size = sizeof info;
        must(maru_pool_info(pool_, &info), "maru_pool_info");
        if (info.retiring_bytes == 0)
            return;
        pause_ms(1);
    }
    throw std::runtime_error("retired pages did not come back within 10 s");
}

void Worker::warm() {
    const auto any = digests(0, 1);
    for (int i = 0; i < 30; ++i)
        must(maru_probe(ns_, any.data(), 1, nullptr, 0, nullptr), "maru_probe");
}

Pipeline::Pipeline(Worker &worker) {
    must(maru_queue_open(worker.client(), &queue_), "maru_queue_open");
}

Pipeline::~Pipeline() { maru_queue_close(queue_); }

int64_t Pipeline::reap() {
    maru_completion done = {};
    must_be(maru_queue_reap(queue_, &done, 1, 60000), 1, "maru_queue_reap");
    return done.result;
}

}  // namespace maru::bench
