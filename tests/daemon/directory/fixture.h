// A directory with two workers and a scheduler-free view of it: what most tests start from.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "daemon/directory/directory.h"

namespace maru {

inline constexpr uint32_t kEpoch = 77;
inline constexpr uint64_t kPage = 4096;
inline constexpr uint64_t kSegment = 64 * kPage;
inline constexpr HolderIndex kAnn = 1, kBob = 2, kCid = 3;
inline constexpr uint32_t kHostDomain = 42;  // of all three: they read each other's shared pools
inline constexpr uint32_t kPlenty = 1 << 20;
inline constexpr wire::Manifest kOne{};

inline wire::Digest digest_of(uint64_t number) {
    wire::Digest digest;
    for (size_t i = 0; i < 4; ++i) {
        number = number * 6364136223846793005u + 1442695040888963407u;
        std::memcpy(&digest.bytes[i * 8], &number, 8);
    }
    return digest;
}
inline wire::Key key_of(uint64_t number, uint32_t shard = 0, uint32_t part = 0) {
    return wire::Key{digest_of(number), shard, part};
}

class DirectoryTest : public testing::Test {
  protected:
    DirectoryTest() {
        EXPECT_EQ(directory.register_namespace(1000, "model", &ns), wire::Status::Ok);
        for (HolderIndex holder : {kAnn, kBob, kCid})
            directory.set_host_domain(holder, kHostDomain);
    }
    ~DirectoryTest() override { EXPECT_EQ(directory.check_invariants(), ""); }

    static Directory::Config config() {
        Directory::Config config;
        config.epoch = kEpoch;
        config.hash_seed = 0x1234;
        return config;
    }

    PoolIndex add_pool(HolderIndex owner, uint32_t domain = 0,
                       wire::Scope scope = wire::Scope::Worker, uint32_t segments = 4) {
        PoolSpec spec;
        spec.id = wire::make_id(kEpoch, 1000 + next_pool++);
        spec.owner = owner;
        spec.domain = domain ? domain : owner;
        spec.scope = scope;
        spec.capacity_bytes = segments * kSegment;
        spec.segment_bytes = kSegment;
        spec.page_bytes = kPage;
        const PoolIndex pool = directory.add_pool(spec);
        for (uint32_t segment = 0; segment < segments; ++segment)
            directory.grant_segment(pool, segment);
        return pool;
    }
    // One page at `page`, with a generation of its own.
    wire::CommitItem item(const wire::Key &key, uint64_t page, uint64_t length = kPage) {
        return wire::CommitItem{key, 0, page * kPage, length, ++generation};
    }
    wire::ReplicaName put(PoolIndex pool, const wire::Key &key, uint64_t page,
                          uint64_t length = kPage) {
        const wire::CommitItem what = item(key, page, length);
        const wire::CommitResult result = directory.commit(ns, pool, what);
        EXPECT_EQ(result.status, wire::Status::Ok);
        return {result.replica, what.generation};
    }
    bool hit(HolderIndex reader, uint64_t number) {
        const wire::Digest key = digest_of(number);
        uint8_t bits = 0xff;
        const uint32_t prefix = directory.probe(reader, ns, {&key, 1}, kOne, false, {&bits, 1});
        EXPECT_EQ(bits, prefix);
        return prefix == 1;
    }
    wire::AcquireResult acquire(HolderIndex reader, uint64_t number) {
        const wire::Digest key = digest_of(number);
        wire::AcquireResult result;
        const uint32_t taken =
            directory.acquire(reader, ns, {&key, 1}, kOne, false, kPlenty, 5, {&result, 1});
        EXPECT_EQ(taken, result.status == wire::Status::Ok ? 1u : 0u);
        return result;
    }
    static wire::ReplicaName name(const wire::AcquireResult &result) {
        return {result.replica, result.generation};
    }

    Directory directory{config()};
    NamespaceIndex ns = 0;
    uint64_t generation = 0;
    uint32_t next_pool = 0;
};

}  // namespace maru
