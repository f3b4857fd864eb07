#include "tests/integration/known_failures/worker.h"

#include <cerrno>
#include <cstring>

#include "tests/replay/pattern.h"

namespace maru::test {

maru_digest digest_of(uint32_t number) {
    maru_digest digest{};
    std::memcpy(digest.bytes, &number, sizeof number);
    digest.bytes[31] = 0x5a;
    return digest;
}

Worker::Worker(WorkerOptions given) : options(std::move(given)) {
    maru_client_options client_options{};
    client_options.size = sizeof client_options;
    client_options.socket_path = options.socket.c_str();
    client_options.engine = options.engine.c_str();
    client_options.timeout_ms = options.timeout_ms;
    client_options.connect_ms = 20'000;
    EXPECT_EQ(maru_client_open(&client_options, &client), 0) << maru_last_error();
    if (!client)
        return;
    EXPECT_EQ(maru_namespace_open(client, options.text.c_str(), &ns), 0) << maru_last_error();
    maru_schema schema{sizeof schema, options.object_bytes, "pattern"};
    EXPECT_EQ(maru_client_describe(client, ns, &schema), 0) << maru_last_error();
    if (options.pool_bytes == 0)
        return;
    maru_pool_options pool_options{};
    pool_options.size = sizeof pool_options;
    pool_options.capacity_bytes = options.pool_bytes;
    pool_options.page_bytes = options.page_bytes;
    pool_options.wait_populated = 1;
    pool_options.populate_margin_mib = 1;
    EXPECT_EQ(maru_pool_open(client, &pool_options, &pool), 0) << maru_last_error();
}

Worker::~Worker() {
    if (client) {
        EXPECT_EQ(close(), 0) << maru_last_error();
    }
}

int Worker::fill(uint32_t number, maru_reservation *ret_run) {
    const int code = maru_reserve(pool, options.object_bytes, 1, ret_run);
    if (code == 0)
        replay::fill_pattern(ret_run->data, ret_run->length,
                             replay::pattern_seed(digest_of(number), ret_run->generation));
    return code;
}

int Worker::commit(uint32_t number, const maru_reservation &run) {
    const maru_key key = key_of(number);
    int result = 1;
    const int code = maru_commit(ns, pool, &key, &run, 1, &result);
    return result == 1 ? code : result;
}

int Worker::store(uint32_t number) {
    maru_reservation run;
    const int code = fill(number, &run);
    return code < 0 ? code : commit(number, run);
}

int Worker::store_until_full(uint32_t first) {
    for (int stored = 0;; ++stored) {
        const int result = store(first + static_cast<uint32_t>(stored));
        if (result == 0)
            continue;
        EXPECT_EQ(result, -ENOSPC) << maru_last_error();
        return stored;
    }
}

int64_t Worker::probe(uint32_t number) {
    const maru_digest digest = digest_of(number);
    return maru_probe(ns, &digest, 1, nullptr, 0, nullptr);
}

std::vector<maru_lease *> Worker::acquire_all(uint32_t first, uint32_t count) {
    std::vector<maru_digest> digests;
    for (uint32_t i = 0; i < count; ++i)
        digests.push_back(digest_of(first + i));
    std::vector<maru_lease *> leases(count);
    const int64_t got = maru_acquire(ns, digests.data(), count, nullptr, 0, leases.data());
    EXPECT_GE(got, 0) << maru_last_error();
    return leases;
}

maru_lease *Worker::acquire(uint32_t number) { return acquire_all(number, 1)[0]; }

int Worker::release(maru_lease *lease) { return maru_lease_release(&lease, 1); }

int Worker::retire(uint32_t number) {
    const maru_key key = key_of(number);
    int result = 1;
    const int64_t code = maru_retire(ns, &key, 1, &result);
    return result == 1 ? static_cast<int>(code) : result;
}

bool Worker::shows(const maru_lease *lease, uint32_t number) const {
    if (!lease || maru_lease_length(lease) != options.object_bytes)
        return false;
    const uint64_t seed = replay::pattern_seed(digest_of(number), maru_lease_generation(lease));
    return replay::count_mismatches(maru_lease_data(lease), options.object_bytes, seed) == 0;
}

struct maru_pool_info Worker::pool_info() {
    struct maru_pool_info info {};
    info.size = sizeof info;
    EXPECT_EQ(maru_pool_info(pool, &info), 0);
    return info;
}

struct maru_client_info Worker::client_info() {
    struct maru_client_info info {};
    info.size = sizeof info;
    EXPECT_EQ(maru_client_info(client, &info), 0);
    return info;
}

int Worker::close_pool(uint32_t mode) {
    const int code = maru_pool_close(pool, mode);
    if (code == 0)
        pool = nullptr;
    return code;
}

int Worker::close() {
    const int code = maru_client_close(client);
    if (code == 0)
        client = nullptr;
    return code;
}

bool eventually(const std::function<bool()> &holds, int timeout_ms) {
    for (const auto begin = now(); since_ms(begin) < timeout_ms; pause_ms(5))
        if (holds())
            return true;
    return holds();
}

}  // namespace maru::test
