// The page map against one number and one flag per page.
#include "daemon/directory/page_map.h"

#include <gtest/gtest.h>

#include <random>

namespace maru::directory {
namespace {

TEST(PageMap, AgreesWithOneFlagAndOneGenerationPerPage) {
    constexpr uint64_t kPages = 300;
    constexpr uint32_t kBytes = 4096;
    std::mt19937_64 random(7);
    for (int round = 0; round < 20; ++round) {
        PageMap map(kPages * kBytes, kPages * kBytes, kBytes);
        map.grant(0);
        std::vector<bool> used(kPages);
        std::vector<uint64_t> generations(kPages);
        std::vector<PageMap::Range> taken;
        uint64_t count = 0;
        for (int step = 0; step < 2000; ++step) {
            const uint64_t first = random() % kPages;
            const uint64_t pages = 1 + random() % (random() % 4 ? 5 : kPages - first);
            const uint64_t generation = 1 + random() % 50 + static_cast<uint64_t>(step) / 40;
            const auto range = map.locate(first * kBytes, pages * kBytes - random() % kBytes);
            ASSERT_EQ(range.has_value(), first + pages <= kPages);
            if (!range)
                continue;
            ASSERT_EQ(range->count, pages);
            bool is_free = true, is_used = true, newer = true;
            for (uint64_t page = first; page < first + pages; ++page) {
                is_free &= !used[page];
                is_used &= used[page];
                newer &= generation > generations[page];
            }
            ASSERT_EQ(map.is_free(*range), is_free);
            ASSERT_EQ(map.is_used(*range), is_used);
            ASSERT_EQ(map.is_newer(*range, generation), newer);
            if (is_free && newer) {
                map.occupy(*range, generation);
                taken.push_back(*range);
                for (uint64_t page = first; page < first + pages; ++page) {
                    used[page] = true;
                    generations[page] = generation;
                }
                count += pages;
            } else if (!taken.empty()) {
                const size_t victim = random() % taken.size();
                map.release(taken[victim]);
                for (uint64_t i = 0; i < taken[victim].count; ++i)
                    used[taken[victim].first + i] = false;
                count -= taken[victim].count;
                taken[victim] = taken.back();
                taken.pop_back();
            }
            ASSERT_EQ(map.used_pages(), count);
        }
    }
}

TEST(PageMap, MapOfLargeObjectsNeedsNoNumberPerPage) {
    constexpr uint64_t kSegmentBytes = 256ull << 20;
    PageMap map(kSegmentBytes, kSegmentBytes, 4096);
    map.grant(0);
    const size_t empty = map.memory_bytes();
    for (uint64_t offset = 0; offset < kSegmentBytes; offset += 2 << 20)
        map.occupy(*map.locate(offset, 2 << 20), 1 + (offset >> 21));
    EXPECT_EQ(map.used_pages(), kSegmentBytes / 4096);
    EXPECT_LE(map.memory_bytes() - empty, kSegmentBytes / 4096 / 2);  // half a byte per page
}

TEST(PageMap, NothingIsKeptForASegmentBeforeItsFirstCommit) {
    PageMap map(uint64_t{1} << 40, 256ull << 20, 4096);
    for (uint32_t segment = 0; segment < map.segment_count(); ++segment)
        map.grant(segment);
    EXPECT_LT(map.memory_bytes(), 256u << 10);
    EXPECT_EQ(map.used_pages(), 0u);
}

}  // namespace
}  // namespace maru::directory
