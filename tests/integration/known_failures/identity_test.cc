// Which prompt, which model: keys that differ in anything that matters never meet.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "tests/integration/known_failures/worker.h"

namespace maru::test {
namespace {

std::string hex(const maru_digest &digest) {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string out;
    for (const uint8_t byte : digest.bytes) {
        out += kDigits[byte >> 4];
        out += kDigits[byte & 15];
    }
    return out;
}

TEST(KnownFailures, A61_NamespacesThatDifferInAnythingShareNothing) {
    const std::vector<std::pair<const char *, const char *>> base = {
        {"app", "chat"},   {"weights", "llama-3-8b"}, {"revision", "a1b2c3"}, {"dtype", "bf16"},
        {"quant", "none"}, {"chunk", "256"},          {"block", "16"},        {"layers", "32"},
        {"kv_heads", "8"}, {"head_size", "128"},      {"layout", "nhd"},      {"tp", "1"},
        {"pp", "1"},       {"format", "1"},
    };
    auto text_of = [&](size_t changed, const char *value) {
        std::string out;
        for (size_t i = 0; i < base.size(); ++i)
            out += std::string(base[i].first) + "=" + (i == changed ? value : base[i].second) + ";";
        return out;
    };
    const std::string text = text_of(base.size(), "");
    const std::vector<uint32_t> tokens(512, 7);
    auto digests_of = [&](const std::string &ns, uint32_t chunk) {
        std::vector<maru_digest> out(tokens.size() / chunk);
        maru_prefix_digests(ns.c_str(), tokens.data(), tokens.size(), chunk, nullptr, out.data());
        return out;
    };

    Marud marud;
    marud.start();
    Worker worker({.socket = marud.socket(), .text = text});
    const auto own = digests_of(text, 256);
    maru_reservation run;
    ASSERT_EQ(worker.fill(1, &run), 0);
    const maru_key key{own[0], 0, 0};
    int result = 1;
    ASSERT_EQ(maru_commit(worker.ns, worker.pool, &key, &run, 1, &result), 0);
    EXPECT_EQ(maru_probe(worker.ns, own.data(), 1, nullptr, 0, nullptr), 1);

    std::set<std::string> seen = {hex(own[0])};
    for (size_t i = 0; i < base.size(); ++i) {
        const std::string other = text_of(i, "another");
        SCOPED_TRACE(other);
        const auto digests = digests_of(other, 256);
        EXPECT_TRUE(seen.insert(hex(digests[0])).second) << "at the key function";
        maru_namespace *ns = nullptr;
        ASSERT_EQ(maru_namespace_open(worker.client, other.c_str(), &ns), 0);
        EXPECT_NE(ns, worker.ns);
        // With its own keys, and with those of the base: a namespace is more than a part of the key.
        EXPECT_EQ(maru_probe(ns, digests.data(), 1, nullptr, 0, nullptr), 0);
        EXPECT_EQ(maru_probe(ns, own.data(), 1, nullptr, 0, nullptr), 0);
        maru_lease *lease = nullptr;
        EXPECT_EQ(maru_acquire(ns, own.data(), 1, nullptr, 0, &lease), 0);
        EXPECT_EQ(lease, nullptr);
    }
    // Another chunk size of the same tokens; another shard, another part.
    for (const uint32_t chunk : {16u, 128u, 512u}) {
        const auto digests = digests_of(text, chunk);
        EXPECT_TRUE(seen.insert(hex(digests[0])).second) << chunk;
        EXPECT_EQ(maru_probe(worker.ns, digests.data(), 1, nullptr, 0, nullptr), 0) << chunk;
    }
    for (const bool shard : {true, false}) {
        maru_manifest manifest{};
        manifest.size = sizeof manifest;
        manifest.first_shard = shard;
        manifest.first_part = !shard;
        EXPECT_EQ(maru_probe(worker.ns, own.data(), 1, &manifest, 0, nullptr), 0);
    }
    // The store's format is part of it as well: whoever describes another one reads nothing.
    Worker same({.socket = marud.socket(), .engine = "other", .pool_bytes = 0, .text = "scratch"});
    maru_namespace *ns = nullptr;
    ASSERT_EQ(maru_namespace_open(same.client, text.c_str(), &ns), 0);
    const maru_schema schema{sizeof schema, kPage, "pattern"};
    EXPECT_EQ(maru_client_describe(same.client, ns, &schema), 0);
    Worker wide({.socket = marud.socket(),
                 .engine = "wide",
                 .pool_bytes = 0,
                 .object_bytes = 2 * kPage,
                 .text = "scratch-2"});
    const maru_schema larger{sizeof larger, 2 * kPage, "pattern"};
    ASSERT_EQ(maru_namespace_open(wide.client, text.c_str(), &ns), 0);
    EXPECT_EQ(maru_client_describe(wide.client, ns, &larger), -EMEDIUMTYPE);
}

TEST(KnownFailures, A63_AKeyDependsOnEveryTokenUpToTheEndOfItsChunk) {
    constexpr uint32_t kChunk = 8;
    constexpr size_t kTokens = 33;
    const std::string text = "known-failures/prefix";
    auto digests_of = [&](const std::vector<uint32_t> &tokens) {
        std::vector<maru_digest> out(tokens.size() / kChunk);
        maru_prefix_digests(text.c_str(), tokens.data(), tokens.size(), kChunk, nullptr,
                            out.data());
        return out;
    };
    std::vector<uint32_t> x(kTokens), y(kTokens);
    for (size_t i = 0; i < kTokens; ++i) {
        x[i] = static_cast<uint32_t>(100 + i);
        y[i] = i < 12 ? x[i] : static_cast<uint32_t>(900 + i);
    }
    const auto keys_x = digests_of(x), keys_y = digests_of(y);
    ASSERT_EQ(keys_x.size(), 4u);
    for (size_t chunk = 0; chunk < 4; ++chunk) {
        for (size_t token = 0; token < kTokens; ++token) {
            auto changed = x;
            changed[token] ^= 1;
            const auto keys = digests_of(changed);
            EXPECT_EQ(hex(keys[chunk]) != hex(keys_x[chunk]), token < (chunk + 1) * kChunk)
                << "key " << chunk << ", token " << token;
        }
    }
    Marud marud;
    marud.start();
    Worker worker({.socket = marud.socket(), .text = text});
    for (size_t chunk = 0; chunk < 4; ++chunk) {
        maru_reservation run;
        ASSERT_EQ(worker.fill(static_cast<uint32_t>(chunk), &run), 0);
        const maru_key key{keys_x[chunk], 0, 0};
        int result = 1;
        ASSERT_EQ(maru_commit(worker.ns, worker.pool, &key, &run, 1, &result), 0);
    }
    EXPECT_EQ(maru_probe(worker.ns, keys_x.data(), 4, nullptr, 0, nullptr), 4);
    uint8_t bitmap = 0;
    EXPECT_EQ(maru_probe(worker.ns, keys_y.data(), 4, nullptr, 0, &bitmap), 1)
        << "8 of the 12 common tokens: whole chunks only";
    EXPECT_EQ(bitmap, 1) << "and nothing behind them";
    maru_lease *leases[4] = {};
    EXPECT_EQ(maru_acquire(worker.ns, keys_y.data(), 4, nullptr, 0, leases), 1);
    EXPECT_TRUE(leases[0] && !leases[1] && !leases[2] && !leases[3]);
    EXPECT_EQ(maru_lease_release(leases, 4), 0);
}

TEST(KnownFailures, A81_AMissingRequiredSettingIsRefusedByName) {
    Marud marud;
    marud.start();
    maru_client_options options{};
    options.size = sizeof options;
    options.socket_path = marud.socket().c_str();
    maru_client *client = nullptr;
    for (const char *engine : {static_cast<const char *>(nullptr), ""}) {
        options.engine = engine;
        EXPECT_EQ(maru_client_open(&options, &client), -EINVAL);
        EXPECT_EQ(client, nullptr);
        EXPECT_THAT(maru_last_error(), testing::HasSubstr("engine"));
    }
    Worker worker({.socket = marud.socket(), .pool_bytes = 0});
    maru_namespace *ns = nullptr;
    for (const char *text : {static_cast<const char *>(nullptr), ""}) {
        EXPECT_EQ(maru_namespace_open(worker.client, text, &ns), -EINVAL);
        EXPECT_EQ(ns, nullptr);
        EXPECT_THAT(maru_last_error(),
                    testing::AnyOf(testing::HasSubstr("text"), testing::HasSubstr("namespace")));
    }
    maru_pool_options pool_options{};
    pool_options.size = sizeof pool_options;
    maru_pool *pool = nullptr;
    EXPECT_EQ(maru_pool_open(worker.client, &pool_options, &pool), -EINVAL);
    EXPECT_EQ(pool, nullptr);
    EXPECT_THAT(maru_last_error(), testing::HasSubstr("capacity_bytes"));
    for (const auto &[bytes, format, word] :
         {std::tuple{uint64_t{0}, "f", "object_bytes"},
          {kPage, "", "format"},
          {kPage, static_cast<const char *>(nullptr), "format"}}) {
        const maru_schema schema{sizeof schema, bytes, format};
        EXPECT_EQ(maru_client_describe(worker.client, worker.ns, &schema), -EINVAL);
        EXPECT_THAT(maru_last_error(), testing::HasSubstr(word));
    }
    EXPECT_EQ(query_status(marud.socket()).sessions, 1u) << "nothing went on without it";
}

}  // namespace
}  // namespace maru::test
