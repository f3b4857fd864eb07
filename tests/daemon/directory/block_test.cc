#include "daemon/directory/block.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

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

// Whether this process has a thread that makes blocks; it names itself when it starts.
bool has_thread() {
    for (int tries = 0; tries < 10000; ++tries) {
        for (const auto &task : std::filesystem::directory_iterator("/proc/self/task")) {
            std::string name;
            std::getline(std::ifstream(task.path() / "comm"), name);
            if (name == "marud-blocks")
                return true;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
}

struct Record {
    uint64_t words[7];
    uint32_t next, other;
};
using Records = Slab<Record, &Record::next>;

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
    // One is announced now, whatever was taken before; and nobody takes it.
    blocks.announce();
    ASSERT_TRUE(made(blocks, 1));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // for more than one, if they come
    EXPECT_EQ(blocks.memory_bytes(), kBlockBytes);
}

// The tables say in time what they will need: once the thread has made it, a block costs no call.
TEST(Blocks, TablesAnnounceWhatTheyTake) {
    Blocks blocks;
    ASSERT_TRUE(blocks.start_thread());
    Records slab(blocks);
    constexpr uint32_t kPerBlock = Records::kPerBlock;
    for (uint32_t before = 0; before < 2 * kPerBlock; before += kPerBlock) {
        while (slab.end() <= before + announced_at(kPerBlock))
            slab.allocate();
        ASSERT_TRUE(made(blocks, 1));
        while (slab.end() < before + kPerBlock)
            slab.allocate();
        EXPECT_EQ(blocks.memory_bytes(), kBlockBytes);
        slab.allocate();
        EXPECT_EQ(blocks.memory_bytes(), 0u);
    }

    IndexTable table(blocks);
    constexpr uint32_t kChunks = kBlockBytes / (IndexTable::kChunkSlots * 8);
    uint32_t hash = 0;
    const auto grow = [&](uint32_t chunks) {
        for (; table.chunk_count() < chunks; hash += 0x9e3779b1)
            ASSERT_TRUE(table.insert(hash, 1));
    };
    for (uint32_t before = 0; before < 2 * kChunks; before += kChunks) {
        grow(before + announced_at(kChunks) + 1);
        ASSERT_TRUE(made(blocks, 1));
        grow(before + kChunks);
        EXPECT_EQ(blocks.memory_bytes(), kBlockBytes);
        grow(before + kChunks + 1);
        EXPECT_EQ(blocks.memory_bytes(), 0u);
    }
}

TEST(Blocks, ATableThatIsSmallLeavesHugePagesToOthers) {
    Blocks blocks;
    ASSERT_TRUE(blocks.start_thread());
    blocks.announce();
    ASSERT_TRUE(made(blocks, 1));
    Records slab(blocks);
    slab.allocate();
    const IndexTable table(blocks);
    EXPECT_EQ(blocks.memory_bytes(), kBlockBytes);
}

// Memory that comes out of a heap still has in it what another table, or a request, had there.
TEST(Blocks, ATableIsEmptyWhateverWasInItsMemory) {
    (void)::mallopt(M_MMAP_MAX, 0);  // a mapping of its own would be all zeros
    (void)::mallopt(M_TRIM_THRESHOLD, 64 << 20);
    Blocks blocks;
    {
        const Block first = blocks.take(false), second = blocks.take(false);
        std::memset(first.get(), 0xff, kBlockBytes);
        std::memset(second.get(), 0xff, kBlockBytes);
    }
    const IndexTable table(blocks);
    EXPECT_EQ(table.candidate(UINT32_MAX), kNone);
    (void)::mallopt(M_MMAP_MAX, 65536);
}

TEST(Blocks, ADirectoryGrowsThroughThem) {
    Directory directory({.epoch = kEpoch, .hash_seed = 5, .make_blocks_ahead = true});
    EXPECT_TRUE(has_thread());
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
