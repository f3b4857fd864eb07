#include "daemon/directory/block.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>

#include "daemon/directory/index_table.h"
#include "daemon/directory/slab.h"
#include "tests/daemon/directory/fixture.h"

namespace maru::directory {
namespace {

// Until so many blocks are made and not taken; false after ten seconds.
bool made(const Blocks &blocks, size_t count) {
    for (int tries = 0; tries < 10000; ++tries) {
        if (blocks.memory_bytes() == count * kBlockBytes)
            return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
}

TEST(Blocks, WithoutAThreadEachIsMadeWhenItIsTaken) {
    Blocks blocks;
    blocks.announce();
    EXPECT_EQ(blocks.memory_bytes(), 0u);
    const Block block = blocks.take(true);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block.get()) % kBlockBytes, 0u);
    std::memset(block.get(), 1, kBlockBytes);
}

TEST(Blocks, TheThreadMakesWhatIsAnnouncedAndNoMore) {
    Blocks blocks;
    ASSERT_TRUE(blocks.start_thread());
    EXPECT_EQ(blocks.memory_bytes(), 0u);
    blocks.announce();
    blocks.announce();
    ASSERT_TRUE(made(blocks, 2));
    const Block first = blocks.take(true);
    EXPECT_EQ(blocks.memory_bytes(), kBlockBytes);
    const Block small = blocks.take(false);  // is not given a huge page that others wait for
    EXPECT_EQ(blocks.memory_bytes(), kBlockBytes);
    const Block second = blocks.take(true);
    const Block third = blocks.take(true);  // not announced: made now
    EXPECT_EQ(blocks.memory_bytes(), 0u);
    for (const Block *block : {&first, &small, &second, &third}) {
        EXPECT_EQ(reinterpret_cast<uintptr_t>(block->get()) % kBlockBytes, 0u);
        std::memset(block->get(), 1, kBlockBytes);
    }
    blocks.announce();  // and nobody takes it
}

// The tables say in time what they will need: once the thread has made it, a block costs no call.
TEST(Blocks, TablesAnnounceWhatTheyTake) {
    Blocks blocks;
    ASSERT_TRUE(blocks.start_thread());
    struct Record {
        uint64_t words[7];
        uint32_t next, other;
    };
    Slab<Record, &Record::next> slab(blocks);
    constexpr uint32_t kPerBlock = decltype(slab)::kPerBlock;
    for (uint32_t i = 0; i <= announced_at(kPerBlock); ++i)
        slab.allocate();
    ASSERT_TRUE(made(blocks, 1));
    while (slab.end() < kPerBlock)
        slab.allocate();
    EXPECT_EQ(blocks.memory_bytes(), kBlockBytes);
    slab.allocate();
    EXPECT_EQ(blocks.memory_bytes(), 0u);

    IndexTable table(blocks);
    uint32_t hash = 0;
    const uint32_t enough = announced_at(kBlockBytes / (IndexTable::kChunkSlots * 8)) + 1;
    for (; table.chunk_count() < enough; hash += 0x9e3779b1)
        ASSERT_TRUE(table.insert(hash, 1));
    ASSERT_TRUE(made(blocks, 1));
}

TEST(Blocks, ADirectoryGrowsThroughThem) {
    Directory directory({.epoch = kEpoch, .hash_seed = 5, .make_blocks_ahead = true});
    NamespaceIndex ns = 0;
    ASSERT_EQ(directory.register_namespace(1000, "model", &ns), wire::Status::Ok);
    constexpr uint64_t kCount = 100000;
    const PoolIndex pool = directory.add_pool({.owner = kAnn,
                                               .capacity_bytes = kCount * kPage,
                                               .segment_bytes = kCount * kPage,
                                               .page_bytes = kPage});
    directory.grant_segment(pool, 0);
    for (uint64_t i = 0; i < kCount; ++i)
        ASSERT_EQ(directory.commit(ns, pool, {key_of(i), 0, i * kPage, kPage, i + 1}).status,
                  wire::Status::Ok);
    EXPECT_EQ(directory.check_invariants(), "");
    EXPECT_EQ(directory.totals().objects, kCount);
}

}  // namespace
}  // namespace maru::directory
