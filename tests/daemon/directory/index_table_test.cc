// The hash table and the hash: nothing is lost or invented while it grows and shrinks.
#include "daemon/directory/index_table.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <unordered_map>

#include "daemon/directory/hash.h"
#include "tests/daemon/directory/fixture.h"

namespace maru::directory {
namespace {

uint32_t find(const IndexTable &table, uint32_t hash, uint32_t index) {
    return table.find(hash, [&](uint32_t candidate) { return candidate == index; });
}

TEST(IndexTable, EveryEntryIsFoundWhileTheTableGrows) {
    std::mt19937 random(1);
    Blocks blocks;
    IndexTable table(blocks);
    std::vector<uint32_t> hashes;
    uint32_t chunks = table.chunk_count();
    while (table.chunk_count() < 20) {
        hashes.push_back(static_cast<uint32_t>(random()));
        ASSERT_TRUE(table.insert(hashes.back(), static_cast<uint32_t>(hashes.size() - 1)));
        if (table.chunk_count() == chunks)
            continue;
        chunks = table.chunk_count();  // a chunk has just been split
        for (uint32_t i = 0; i < hashes.size(); ++i)
            ASSERT_EQ(find(table, hashes[i], i), i);
    }
    EXPECT_EQ(table.size(), hashes.size());
    EXPECT_EQ(table.candidate(hashes[0] ^ 0x5555), kNone);
}

TEST(IndexTable, RandomChurnLeavesExactlyWhatWasKept) {
    std::mt19937 random(2);
    Blocks blocks;
    IndexTable table(blocks);
    std::unordered_map<uint32_t, uint32_t> kept;  // index -> hash
    for (int step = 0; step < 300000; ++step) {
        const auto index = static_cast<uint32_t>(random() % 20000);
        const auto found = kept.find(index);
        if (found != kept.end()) {
            table.erase(found->second, index);
            kept.erase(found);
        } else {
            // Few bits: runs collide, wrap around the end of a chunk and share whole hashes.
            const auto hash = static_cast<uint32_t>(random() % 3000 * 0x00100801u);
            ASSERT_TRUE(table.insert(hash, index));
            kept.emplace(index, hash);
        }
    }
    EXPECT_EQ(table.size(), kept.size());
    for (const auto &[index, hash] : kept)
        ASSERT_EQ(find(table, hash, index), index);
    std::set<uint32_t> found;
    for (uint32_t low = 0; low < 3000; ++low)
        table.find(low * 0x00100801u, [&](uint32_t index) {
            EXPECT_TRUE(kept.count(index));
            found.insert(index);
            return false;
        });
    EXPECT_EQ(found.size(), kept.size());
}

TEST(IndexTable, ChurnNeitherGrowsNorSlowsIt) {
    std::mt19937 random(3);
    Blocks blocks;
    IndexTable table(blocks);
    std::vector<uint32_t> hashes(2000);
    for (uint32_t i = 0; i < hashes.size(); ++i)
        table.insert(hashes[i] = static_cast<uint32_t>(random()), i);
    for (int round = 0; round < 200; ++round) {
        for (uint32_t i = 0; i < hashes.size(); ++i) {
            table.erase(hashes[i], i);
            table.insert(hashes[i] = static_cast<uint32_t>(random()), i);
        }
    }
    EXPECT_EQ(table.chunk_count(), 1u);
    // Tombstones would have filled the chunk long ago: 400,000 deletions in 4,096 slots.
    EXPECT_EQ(table.candidate(static_cast<uint32_t>(random())), kNone);
}

TEST(IndexTable, ThousandsOfEqualHashesAreRefusedNotLost) {
    Blocks blocks;
    IndexTable table(blocks);
    uint32_t accepted = 0;
    while (accepted < 10000 && table.insert(0x12345678, accepted))
        ++accepted;
    EXPECT_EQ(accepted, IndexTable::kChunkSlots - 1);
    for (uint32_t i = 0; i < accepted; i += 97)
        EXPECT_EQ(find(table, 0x12345678, i), i);
    EXPECT_TRUE(table.insert(0x87654321, 1));
    for (uint32_t i = 0; i < accepted; ++i)
        table.erase(0x12345678, i);
    EXPECT_EQ(table.size(), 1u);
}

TEST(KeyHash, EveryPartOfTheKeyAndTheSeedCount) {
    const KeyHash hash(1), other(2);
    const wire::Digest digest = digest_of(1);
    const uint32_t base = hash(1, digest, 0, 0);
    EXPECT_EQ(base, KeyHash(1)(1, digest, 0, 0));
    EXPECT_NE(base, other(1, digest, 0, 0));
    EXPECT_NE(base, hash(2, digest, 0, 0));
    EXPECT_NE(base, hash(1, digest, 1, 0));
    EXPECT_NE(base, hash(1, digest, 0, 1));
    EXPECT_NE(hash(1, digest, 1, 0), hash(1, digest, 0, 1));
    for (size_t byte = 0; byte < 32; ++byte) {
        wire::Digest changed = digest;
        changed.bytes[byte] ^= 1;
        EXPECT_NE(base, hash(1, changed, 0, 0)) << byte;
    }
}

TEST(KeyHash, KeysThatDifferInFewBitsSpreadEvenly) {
    // Counters in one word, as a hostile or lazy client would send: no chunk may fill before
    // others.
    for (const size_t at : {0u, 3u, 8u, 15u, 24u, 28u}) {
        const KeyHash hash(at);
        std::vector<uint32_t> by_upper(64), by_lower(64);
        for (uint32_t i = 0; i < 64 * 1000; ++i) {
            wire::Digest digest{};
            std::memcpy(&digest.bytes[at], &i, 4);
            const uint32_t value = hash(1, digest, 0, 0);
            ++by_upper[value >> 26];
            ++by_lower[value & 63];
        }
        for (size_t i = 0; i < 64; ++i) {
            EXPECT_NEAR(by_upper[i], 1000, 400) << at;
            EXPECT_NEAR(by_lower[i], 1000, 400) << at;
        }
    }
}

}  // namespace
}  // namespace maru::directory
