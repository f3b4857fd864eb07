#include "libmaru/pool/page_allocator.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <map>
#include <random>
#include <set>
#include <thread>

namespace maru::pool {
namespace {

using S = AllocationState;
using E = AllocationEvent;

constexpr uint64_t kKiB = 1024, kMiB = 1024 * kKiB;

std::unique_ptr<PageAllocator> make(uint64_t capacity, uint64_t segment, uint64_t page,
                                    bool admit = true, uint64_t first_generation = 1) {
    auto made = PageAllocator::create({.capacity_bytes = capacity,
                                       .segment_bytes = segment,
                                       .page_bytes = page,
                                       .first_generation = first_generation});
    EXPECT_TRUE(made) << (made ? "" : made.error().message);
    auto allocator = std::move(*made);
    for (uint32_t s = 0; admit && s < allocator->segment_count(); ++s)
        EXPECT_TRUE(allocator->admit(s, std::min(segment, capacity - s * segment)));
    return allocator;
}

PageRun reserve_one(PageAllocator &allocator, uint64_t length) {
    PageRun run;
    EXPECT_EQ(allocator.reserve(length, {&run, 1}), ReserveStatus::Ok);
    return run;
}

TEST(PageAllocator, RefusesSizesThatDoNotFitTogether) {
    using Config = PageAllocator::Config;
    const Config good{
        .capacity_bytes = 4 * kMiB, .segment_bytes = 2 * kMiB, .page_bytes = 64 * kKiB};
    EXPECT_TRUE(PageAllocator::create(good));
    auto expect_refused = [&](auto change) {
        Config bad = good;
        change(bad);
        auto made = PageAllocator::create(bad);
        ASSERT_FALSE(made);
        EXPECT_EQ(made.error().code, EINVAL);
    };
    expect_refused([](Config &c) { c.page_bytes = 0; });
    expect_refused([](Config &c) { c.page_bytes = 2048; });
    expect_refused([](Config &c) { c.page_bytes = 96 * kKiB; });
    expect_refused([](Config &c) { c.segment_bytes = 0; });
    expect_refused([](Config &c) { c.segment_bytes += 4096; });
    expect_refused([](Config &c) { c.segment_bytes = 4096 * kMiB; });
    expect_refused([](Config &c) { c.capacity_bytes = 0; });
    expect_refused([](Config &c) { c.capacity_bytes += 1; });
    expect_refused([](Config &c) { c.capacity_bytes = uint64_t{1} << 60; });
    expect_refused([](Config &c) { c.first_generation = 0; });
}

TEST(PageAllocator, HandsOutOnlyWhatWasAdmitted) {
    auto pool = make(64 * kMiB, 32 * kMiB, kMiB, false);
    PageRun run;
    EXPECT_EQ(pool->reserve(kMiB, {&run, 1}), ReserveStatus::Full);
    ASSERT_TRUE(pool->admit(1, 16 * kMiB + 5));  // the partial page stays out
    EXPECT_EQ(pool->admitted_bytes(1), 16 * kMiB);
    EXPECT_EQ(pool->admitted_bytes(0), 0u);
    EXPECT_EQ(pool->admitted_bytes(2), 0u);  // there is no such segment
    std::set<uint64_t> offsets;
    for (int i = 0; i < 16; ++i)
        offsets.insert(reserve_one(*pool, kMiB).offset);
    EXPECT_EQ(*offsets.begin(), 32 * kMiB);
    EXPECT_EQ(*offsets.rbegin(), 47 * kMiB);
    EXPECT_EQ(offsets.size(), 16u);
    EXPECT_EQ(pool->reserve(kMiB, {&run, 1}), ReserveStatus::Full);
    ASSERT_TRUE(pool->admit(1, 8 * kMiB));  // shrinking changes nothing
    EXPECT_EQ(pool->usage().populated_bytes, 16 * kMiB);
    ASSERT_TRUE(pool->admit(1, 32 * kMiB));
    EXPECT_EQ(reserve_one(*pool, 16 * kMiB).offset, 48 * kMiB);
}

TEST(PageAllocator, AdmissionOutsideOfThePoolIsRefused) {
    auto pool = make(48 * kMiB, 32 * kMiB, kMiB, false);
    EXPECT_EQ(pool->segment_count(), 2u);
    EXPECT_EQ(pool->admit(2, kMiB).error().code, EINVAL);
    EXPECT_EQ(pool->admit(0, 33 * kMiB).error().code, EINVAL);
    EXPECT_EQ(pool->admit(1, 17 * kMiB).error().code, EINVAL);  // the last segment is shorter
    EXPECT_TRUE(pool->admit(1, 16 * kMiB));
}

TEST(PageAllocator, BatchIsAllOrNone) {
    auto pool = make(12 * kMiB, 4 * kMiB, kMiB);
    std::vector<PageRun> runs(4);
    // Three segments of 4 MiB hold three runs of 3 MiB, though 12 MiB are free.
    EXPECT_EQ(pool->reserve(3 * kMiB, runs), ReserveStatus::Full);
    EXPECT_EQ(pool->usage().allocated_bytes, 0u);
    EXPECT_EQ(pool->count(S::Reserved), 0u);
    const uint64_t next = pool->next_generation();
    EXPECT_EQ(next, 4u);  // generations of the refused batch do not come back
    EXPECT_EQ(pool->reserve(3 * kMiB, {runs.data(), 3}), ReserveStatus::Ok);
    EXPECT_EQ(runs[0].generation, next);
    EXPECT_NE(runs[0].offset / (4 * kMiB), runs[1].offset / (4 * kMiB));
    EXPECT_EQ(pool->reserve(kMiB, {}), ReserveStatus::Ok);
}

TEST(PageAllocator, RefusalsSayWhy) {
    auto pool = make(8 * kMiB, 4 * kMiB, kMiB);
    PageRun run;
    EXPECT_EQ(pool->reserve(0, {&run, 1}), ReserveStatus::Invalid);
    EXPECT_EQ(pool->reserve(4 * kMiB + 1, {&run, 1}), ReserveStatus::TooLong);
    pool->set_closed(true);
    EXPECT_EQ(pool->reserve(1, {&run, 1}), ReserveStatus::Closed);
    pool->set_closed(false);
    EXPECT_EQ(pool->reserve(1, {&run, 1}), ReserveStatus::Ok);
    EXPECT_EQ(run.length, 1u);
}

TEST(PageAllocator, MultiplesOf2MiBAreAlignedWhileThatIsPossible) {
    auto pool = make(16 * kMiB, 16 * kMiB, 64 * kKiB);
    const PageRun small = reserve_one(*pool, 64 * kKiB);
    EXPECT_EQ(small.offset, 0u);
    std::vector<PageRun> big(7);
    ASSERT_EQ(pool->reserve(2 * kMiB, big), ReserveStatus::Ok);
    for (const PageRun &run : big)
        EXPECT_EQ(run.offset % (2 * kMiB), 0u);
    // What the alignment skipped serves others, and so do 2.25 MiB runs without holes.
    EXPECT_EQ(reserve_one(*pool, 64 * kKiB).offset, 64 * kKiB);
    auto dense = make(18 * kMiB, 18 * kMiB, 64 * kKiB);
    std::vector<PageRun> odd(8);
    EXPECT_EQ(dense->reserve(2 * kMiB + 256 * kKiB, odd), ReserveStatus::Ok);
    // Where no aligned run is left, an unaligned one is better than none.
    auto shifted = make(4 * kMiB, 4 * kMiB, 64 * kKiB);
    reserve_one(*shifted, kMiB);
    EXPECT_EQ(reserve_one(*shifted, 2 * kMiB).offset, 2 * kMiB);
    auto odd_start = make(3 * kMiB, 3 * kMiB, 64 * kKiB);
    reserve_one(*odd_start, kMiB);
    EXPECT_EQ(reserve_one(*odd_start, 2 * kMiB).offset, kMiB);
}

TEST(PageAllocator, UsageHasTheRfcsMeanings) {
    auto made = PageAllocator::create({.capacity_bytes = 8 * kMiB,
                                       .segment_bytes = 4 * kMiB,
                                       .page_bytes = kMiB,
                                       .first_generation = 7,
                                       .reserved_bytes = 10 * kMiB});
    auto &pool = *made;
    ASSERT_TRUE(pool->admit(0, 4 * kMiB));
    std::vector<PageRun> runs(4);
    ASSERT_EQ(pool->reserve(kMiB - 10, runs), ReserveStatus::Ok);
    for (const PageRun &run : runs)
        ASSERT_EQ(pool->apply(E::Send, run), RunStatus::Ok);
    ASSERT_EQ(pool->apply(E::Committed, runs[0]), RunStatus::Ok);
    ASSERT_EQ(pool->apply(E::Committed, runs[1]), RunStatus::Ok);
    ASSERT_EQ(pool->apply(E::Lost, runs[2]), RunStatus::Ok);
    ASSERT_EQ(pool->apply(E::Retire, runs[1]), RunStatus::Ok);
    const wire::Usage usage = pool->usage();
    EXPECT_EQ(usage.capacity_bytes, 8 * kMiB);
    EXPECT_EQ(usage.reserved_bytes, 10 * kMiB);
    EXPECT_EQ(usage.populated_bytes, 4 * kMiB);
    EXPECT_EQ(usage.allocated_bytes, 4 * kMiB);
    EXPECT_EQ(usage.ready_bytes, kMiB - 10);
    EXPECT_EQ(usage.ready_allocated_bytes, kMiB);
    EXPECT_EQ(usage.quarantined_bytes, kMiB);
    EXPECT_EQ(usage.retiring_bytes, kMiB);
    EXPECT_EQ(usage.replicas, 1u);
    EXPECT_EQ(pool->list(S::Ready), std::vector<PageRun>{runs[0]});
    EXPECT_EQ(pool->list(S::Quarantined), std::vector<PageRun>{runs[2]});
    EXPECT_EQ(pool->count(S::Committing), 1u);
    EXPECT_EQ(pool->state(runs[1]), S::Retiring);
}

TEST(PageAllocator, ForeignStaleAndFreedDescriptorsAreRefusedAndChangeNothing) {
    auto pool = make(8 * kMiB, 4 * kMiB, kMiB, true, 100);
    const PageRun run = reserve_one(*pool, 2 * kMiB);
    EXPECT_EQ(run.generation, 100u);
    auto refused = [&](uint64_t offset, uint64_t length, uint64_t generation) {
        return pool->apply(E::Abort, PageRun{offset, length, generation});
    };
    EXPECT_EQ(refused(run.offset + 1, run.length, run.generation), RunStatus::NotFound);
    EXPECT_EQ(refused(run.offset + kMiB, run.length, run.generation), RunStatus::NotFound);
    EXPECT_EQ(refused(8 * kMiB, run.length, run.generation), RunStatus::NotFound);
    EXPECT_EQ(refused(UINT64_MAX, run.length, run.generation), RunStatus::NotFound);
    EXPECT_EQ(refused(run.offset, kMiB, run.generation), RunStatus::NotFound);
    EXPECT_EQ(refused(run.offset, run.length, run.generation + 1), RunStatus::StaleGeneration);
    EXPECT_EQ(pool->apply(E::Committed, run), RunStatus::WrongState);
    EXPECT_EQ(pool->usage().allocated_bytes, 2 * kMiB);

    EXPECT_EQ(pool->apply(E::Abort, run), RunStatus::Ok);
    EXPECT_EQ(pool->apply(E::Abort, run), RunStatus::NotFound);  // double free
    const PageRun next = reserve_one(*pool, 2 * kMiB);
    EXPECT_EQ(next.offset, run.offset);
    EXPECT_EQ(pool->apply(E::Abort, run), RunStatus::StaleGeneration);
    EXPECT_EQ(pool->state(run), S::Free);
    EXPECT_EQ(pool->state(next), S::Reserved);
    EXPECT_EQ(pool->usage().allocated_bytes, 2 * kMiB);
}

TEST(PageAllocator, QuarantineIsHeldUntilItsFateIsKnown) {
    auto pool = make(kMiB, kMiB, kMiB);
    const PageRun run = reserve_one(*pool, kMiB);
    ASSERT_EQ(pool->apply(E::Send, run), RunStatus::Ok);
    ASSERT_EQ(pool->apply(E::Lost, run), RunStatus::Ok);
    EXPECT_EQ(pool->apply(E::Abort, run), RunStatus::WrongState);
    EXPECT_EQ(pool->apply(E::Reclaim, run), RunStatus::WrongState);
    PageRun other;
    EXPECT_EQ(pool->reserve(1, {&other, 1}), ReserveStatus::Full);
    EXPECT_EQ(pool->apply(E::Refused, run), RunStatus::Ok);
    EXPECT_EQ(pool->reserve(1, {&other, 1}), ReserveStatus::Ok);
    EXPECT_GT(other.generation, run.generation);
}

TEST(PageAllocator, ApplyAllChangesAllOrNothing) {
    auto pool = make(8 * kMiB, 8 * kMiB, kMiB);
    std::vector<PageRun> runs(4);
    ASSERT_EQ(pool->reserve(kMiB, runs), ReserveStatus::Ok);
    std::vector<PageRun> twice = {runs[0], runs[1], runs[0]};
    EXPECT_EQ(pool->apply_all(E::Send, twice), RunStatus::WrongState);
    std::vector<PageRun> foreign = runs;
    foreign[3].generation += 7;
    EXPECT_EQ(pool->apply_all(E::Send, foreign), RunStatus::StaleGeneration);
    EXPECT_EQ(pool->count(S::Reserved), 4u);
    EXPECT_EQ(pool->apply_all(E::Send, runs), RunStatus::Ok);
    EXPECT_EQ(pool->count(S::Committing), 4u);

    std::vector<RunStatus> statuses(3);
    EXPECT_EQ(pool->apply(E::Refused, twice, statuses), 2u);
    EXPECT_EQ(statuses, (std::vector{RunStatus::Ok, RunStatus::Ok, RunStatus::NotFound}));
}

// A model that remembers every page: no two live runs share one, none leaves its segment, and the
// books equal the sum over the live runs after every step.
TEST(PageAllocator, RandomLivesNeverOverlapAndTheBooksAgree) {
    constexpr E kEvents[] = {E::Abort, E::Send,   E::Committed, E::Refused,
                             E::Lost,  E::Retire, E::Reclaim};
    for (uint32_t seed = 1; seed <= 8; ++seed) {
        std::mt19937 random(seed);
        constexpr uint64_t kPage = 4 * kKiB, kSegment = 256 * kKiB, kCapacity = 900 * kKiB;
        auto pool = make(kCapacity, kSegment, kPage, false);
        std::map<uint64_t, std::pair<PageRun, S>> live;  // by offset
        uint64_t last_generation = 0, admitted = 0;
        for (int step = 0; step < 5000; ++step) {
            if (step % 50 == 0 && admitted < kCapacity) {
                admitted = std::min(kCapacity, admitted + 48 * kKiB);
                const uint32_t s = static_cast<uint32_t>((admitted - 1) / kSegment);
                for (uint32_t i = 0; i <= s; ++i)
                    ASSERT_TRUE(pool->admit(i, std::min(kSegment, admitted - i * kSegment)));
            }
            if (random() % 3 == 0) {
                std::vector<PageRun> runs(1 + random() % 4);
                const uint64_t length = 1 + random() % (random() % 8 ? 3 * kPage : 30 * kPage);
                if (pool->reserve(length, runs) != ReserveStatus::Ok)
                    continue;
                for (const PageRun &run : runs) {
                    ASSERT_GT(run.generation, last_generation);
                    last_generation = run.generation;
                    const uint64_t end = run.offset + run.length;
                    ASSERT_LE(end, admitted);
                    ASSERT_EQ(run.offset / kSegment, (end - 1) / kSegment);
                    auto after = live.lower_bound(run.offset);
                    if (after != live.end()) {
                        ASSERT_LE((end + kPage - 1) / kPage * kPage, after->first);
                    }
                    if (after != live.begin()) {
                        const PageRun &before = std::prev(after)->second.first;
                        ASSERT_LE((before.offset + before.length + kPage - 1) / kPage * kPage,
                                  run.offset);
                    }
                    live[run.offset] = {run, S::Reserved};
                }
            } else if (!live.empty()) {
                auto it = std::next(live.begin(), static_cast<long>(random() % live.size()));
                const E event = kEvents[random() % std::size(kEvents)];
                const auto to = next_state(it->second.second, event);
                ASSERT_EQ(pool->apply(event, it->second.first),
                          to ? RunStatus::Ok : RunStatus::WrongState);
                if (to == S::Free)
                    live.erase(it);
                else if (to)
                    it->second.second = *to;
            }
            uint64_t allocated = 0, ready = 0, quarantined = 0;
            for (const auto &[offset, entry] : live) {
                const uint64_t pages = (entry.first.length + kPage - 1) / kPage * kPage;
                allocated += pages;
                ready += entry.second == S::Ready ? entry.first.length : 0;
                quarantined += entry.second == S::Quarantined ? pages : 0;
            }
            const wire::Usage usage = pool->usage();
            ASSERT_EQ(usage.allocated_bytes, allocated) << "seed " << seed << " step " << step;
            ASSERT_EQ(usage.ready_bytes, ready);
            ASSERT_EQ(usage.quarantined_bytes, quarantined);
        }
    }
}

TEST(PageAllocator, ThreadsNeverShareAPage) {
    auto pool = make(16 * kMiB, 4 * kMiB, 4 * kKiB);
    std::vector<uint8_t> owner(16 * kMiB / (4 * kKiB));  // written by whoever holds the page
    auto work = [&](uint8_t id) {
        std::mt19937 random(id);
        for (int i = 0; i < 3000; ++i) {
            PageRun runs[4];
            if (pool->reserve(4 * kKiB * (1 + random() % 8), runs) != ReserveStatus::Ok)
                continue;
            for (const PageRun &run : runs)
                std::fill_n(owner.begin() + static_cast<long>(run.offset / (4 * kKiB)),
                            run.length / (4 * kKiB), id);
            for (const PageRun &run : runs)
                for (uint64_t p = 0; p < run.length / (4 * kKiB); ++p)
                    ASSERT_EQ(owner[run.offset / (4 * kKiB) + p], id);
            ASSERT_EQ(pool->apply(E::Abort, runs), 4u);
        }
    };
    std::thread a(work, 1), b(work, 2);
    work(3);
    a.join();
    b.join();
    EXPECT_EQ(pool->usage().allocated_bytes, 0u);
    EXPECT_EQ(reserve_one(*pool, 4 * kMiB).offset % (4 * kMiB), 0u);  // all merged again
}

}  // namespace
}  // namespace maru::pool
