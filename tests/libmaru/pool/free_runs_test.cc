#include "libmaru/pool/free_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace maru::pool {
namespace {

TEST(FreeRuns, TakesFromTheFrontAndSaysWhenNothingFits) {
    FreeRuns runs(1, 100);
    EXPECT_FALSE(runs.take(1));
    runs.put(0, 100);
    EXPECT_EQ(runs.take(40), 0u);
    EXPECT_EQ(runs.take(60), 40u);
    EXPECT_FALSE(runs.take(1));
    EXPECT_EQ(runs.free_pages(), 0u);
}

TEST(FreeRuns, NeighboursMergeInEveryOrder) {
    int order[] = {0, 1, 2, 3};
    do {
        FreeRuns runs(1, 40);
        for (int i : order)
            runs.put(static_cast<uint32_t>(i) * 10, 10);
        EXPECT_EQ(runs.take(40), 0u);
    } while (std::next_permutation(std::begin(order), std::end(order)));
}

TEST(FreeRuns, NeverMergeAcrossTheEndOfASegment) {
    FreeRuns runs(2, 10);
    runs.put(0, 10);
    runs.put(10, 10);
    EXPECT_EQ(runs.free_pages(), 20u);
    EXPECT_FALSE(runs.take(11));
    EXPECT_TRUE(runs.take(10));
    EXPECT_TRUE(runs.take(10));
}

TEST(FreeRuns, AlignsWithinTheSegment) {
    FreeRuns runs(2, 20);  // the second segment starts at 20, which is no multiple of 8
    runs.put(21, 19);
    EXPECT_EQ(runs.take(8, 8), 28u);
    EXPECT_FALSE(runs.take(8, 8));
    EXPECT_EQ(runs.take(7), 21u);  // what the alignment skipped is still free
}

TEST(FreeRuns, FindsTheOneRunThatFitsBehindManyShorterOnesOfItsBin) {
    // 33 and 34 pages share a bin. Put the long one first: the list is searched from its head.
    const uint32_t count = 200;
    FreeRuns runs(1, 35 * (count + 1));
    runs.put(0, 35);
    for (uint32_t i = 1; i <= count; ++i)
        runs.put(35 * i + 1, 33);
    EXPECT_EQ(runs.take(35), 0u);
    EXPECT_FALSE(runs.take(35));
    EXPECT_FALSE(runs.take(34));
    EXPECT_TRUE(runs.take(33));
}

// Against a plain bitmap: what is taken was free, in one segment, aligned, and a refusal is true.
TEST(FreeRuns, AgreesWithABitmapUnderRandomUse) {
    constexpr uint32_t kSegments = 3, kPages = 257;
    for (uint32_t seed = 1; seed <= 20; ++seed) {
        std::mt19937 random(seed);
        FreeRuns runs(kSegments, kPages);
        std::vector<bool> free(kSegments * kPages, true);
        for (uint32_t s = 0; s < kSegments; ++s)
            runs.put(s * kPages, kPages);
        std::vector<std::pair<uint32_t, uint32_t>> taken;
        for (int step = 0; step < 4000; ++step) {
            if (random() % 2 || taken.empty()) {
                const uint32_t count = 1 + random() % (random() % 4 ? 6 : 80);
                const uint32_t align = random() % 3 ? 1 : 1u << (random() % 5);
                auto at = runs.take(count, align);
                if (at) {
                    ASSERT_EQ(*at / kPages, (*at + count - 1) / kPages);
                    ASSERT_EQ(*at % kPages % align, 0u);
                    for (uint32_t p = *at; p < *at + count; ++p) {
                        ASSERT_TRUE(free[p]) << "seed " << seed << " step " << step;
                        free[p] = false;
                    }
                    taken.emplace_back(*at, count);
                } else if (align == 1) {
                    uint32_t longest = 0, length = 0;
                    for (uint32_t p = 0; p < free.size(); ++p) {
                        length = free[p] ? (p % kPages == 0 ? 1 : length + 1) : 0;
                        longest = std::max(longest, length);
                    }
                    ASSERT_LT(longest, count) << "seed " << seed << " step " << step;
                }
            } else {
                std::swap(taken[random() % taken.size()], taken.back());
                auto [at, count] = taken.back();
                taken.pop_back();
                runs.put(at, count);
                std::fill_n(free.begin() + at, count, true);
            }
            ASSERT_EQ(runs.free_pages(),
                      static_cast<uint64_t>(std::count(free.begin(), free.end(), true)));
        }
        for (auto [at, count] : taken)
            runs.put(at, count);
        for (uint32_t s = 0; s < kSegments; ++s)
            EXPECT_TRUE(runs.take(kPages));  // everything merged again
    }
}

}  // namespace
}  // namespace maru::pool
