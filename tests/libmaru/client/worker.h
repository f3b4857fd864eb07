// A small worker on the public C interface, for tests: one client, one namespace, one pool.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "maru/maru.h"

namespace maru::client {

inline maru_digest digest(uint32_t number) {
    maru_digest out{};
    std::memcpy(out.bytes, &number, sizeof number);
    out.bytes[31] = 1;
    return out;
}
inline maru_key key(uint32_t number) { return {digest(number), 0, 0}; }

struct Worker {
    static constexpr uint64_t kObject = 4096;
    explicit Worker(const std::string &path, uint32_t timeout_ms = 3000,
                    uint64_t pool_bytes = 1 << 20, const char *text = "ns") {
        maru_client_options options{};
        options.size = sizeof options;
        options.socket_path = path.c_str();
        options.engine = "engine";
        options.timeout_ms = timeout_ms;
        options.connect_ms = 3000;
        EXPECT_EQ(maru_client_open(&options, &client), 0) << maru_last_error();
        if (!client)
            return;
        EXPECT_EQ(maru_namespace_open(client, text, &ns), 0) << maru_last_error();
        maru_schema schema{sizeof schema, kObject, "f"};
        EXPECT_EQ(maru_client_describe(client, ns, &schema), 0) << maru_last_error();
        if (pool_bytes == 0)
            return;
        maru_pool_options pool_options{};
        pool_options.size = sizeof pool_options;
        pool_options.capacity_bytes = pool_bytes;
        pool_options.page_bytes = 4096;
        pool_options.populate_margin_mib = 1;
        EXPECT_EQ(maru_pool_open(client, &pool_options, &pool), 0) << maru_last_error();
        if (pool) {
            EXPECT_EQ(maru_pool_wait_populated(pool, 10'000), 0) << maru_last_error();
        }
    }
    ~Worker() {
        if (client) {
            EXPECT_EQ(maru_client_close(client), 0) << maru_last_error();
        }
    }
    // 0, -EEXIST, or another result.
    int store(uint32_t number) {
        std::vector<uint8_t> bytes(kObject, static_cast<uint8_t>(number));
        const void *buffer = bytes.data();
        maru_key k = key(number);
        int result = 1;
        maru_store(ns, pool, &k, &buffer, kObject, 1, &result);
        return result;
    }
    // 0 when it was there with the right bytes; else the result, or 1 for wrong bytes.
    int load(uint32_t number) {
        std::vector<uint8_t> bytes(kObject, 0xee);
        void *buffer = bytes.data();
        maru_digest d = digest(number);
        int result = 1;
        const int64_t n = maru_load(ns, &d, 1, nullptr, 0, &buffer, kObject, &result);
        if (n < 0)
            return static_cast<int>(n);
        if (result != 0)
            return result;
        return bytes == std::vector<uint8_t>(kObject, static_cast<uint8_t>(number)) ? 0 : 1;
    }
    int64_t probe(uint32_t number) {
        maru_digest d = digest(number);
        return maru_probe(ns, &d, 1, nullptr, 0, nullptr);
    }
    struct maru_pool_info info() {
        struct maru_pool_info out {};
        out.size = sizeof out;
        EXPECT_EQ(maru_pool_info(pool, &out), 0);
        return out;
    }
    struct maru_client_info client_info() {
        struct maru_client_info out {};
        out.size = sizeof out;
        EXPECT_EQ(maru_client_info(client, &out), 0);
        return out;
    }

    maru_client *client = nullptr;
    maru_namespace *ns = nullptr;
    maru_pool *pool = nullptr;
};

// Waits, looking often, for what another thread or process brings about.
template <typename Condition>
bool eventually(Condition condition, int milliseconds = 5000) {
    for (int i = 0; i < milliseconds; ++i) {
        if (condition())
            return true;
        timespec pause{0, 1'000'000};
        ::nanosleep(&pause, nullptr);
    }
    return condition();
}

}  // namespace maru::client
