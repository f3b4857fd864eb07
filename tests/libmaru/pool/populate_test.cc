#include "libmaru/pool/populate.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <future>
#include <map>
#include <vector>

#include "libmaru/pool/segment.h"

namespace maru::pool {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kMiB = 1024 * 1024, kBasePage = 4096;
constexpr int kPopulateWrite = 23, kCollapse = 25;

// A machine that is told how much memory it has and what madvise answers. It touches nothing: the
// addresses may be made up.
class FakeMemory : public MemoryEnvironment {
  public:
    Headroom headroom(int node) override {
        last_node = node;
        return {free_bytes, "cgroup '/engine'"};
    }
    int advise(void *, size_t bytes, int advice) override {
        if (advice == kPopulateWrite && bytes == kBasePage) {
            ++touches;
            return touch_errno;
        }
        ++calls[advice];
        if (advice == kPopulateWrite) {
            if (populate_fails_at == 0 || --populate_fails_at > 0) {
                free_bytes -= std::min<uint64_t>(bytes, free_bytes);
                populated += bytes;
                return 0;
            }
            return populate_errno;
        }
        collapses_when_populated += populated > 0;
        return collapse_errno;
    }
    Backing backing(std::span<const MemoryRange>) override { return {}; }

    uint64_t free_bytes = uint64_t{1} << 40;
    int populate_fails_at = 0;  // which call fails; 0: none
    int populate_errno = ENOMEM;
    int collapse_errno = 0;
    int touches = 0;  // of single pages, which are not in calls
    int touch_errno = 0;
    int collapses_when_populated = 0;
    uint64_t populated = 0;
    int last_node = -2;
    std::map<int, int> calls;
};

PopulateRange made_up(uint64_t bytes) {
    return {reinterpret_cast<std::byte *>(uintptr_t{1} << 40), bytes, 1, false};
}

struct Outcome {
    Result<void> result;
    std::vector<uint64_t> steps;
};
Outcome populate(FakeMemory &memory, const PopulateRange &range, PopulateOptions options = {}) {
    std::vector<uint64_t> steps;
    Collapser collapser;
    std::atomic<bool> stop{false};
    auto result = populate_range(range, options, memory, collapser, stop,
                                 [&](uint64_t usable) { steps.push_back(usable); });
    return {std::move(result), std::move(steps)};
}

TEST(Populate, AdmitsInStepsOf16MiB) {
    FakeMemory memory;
    auto [result, steps] = populate(memory, made_up(40 * kMiB));
    EXPECT_TRUE(result);
    EXPECT_EQ(steps, (std::vector<uint64_t>{16 * kMiB, 32 * kMiB, 40 * kMiB}));
    EXPECT_EQ(memory.last_node, 1);
    EXPECT_EQ(memory.calls[kCollapse], 20);
}

// Small pages that are populated and then collapsed are zeroed, and copied.
TEST(Populate, HugePagesAreMadeOfWhatIsNotPopulatedYet) {
    FakeMemory memory;
    EXPECT_TRUE(populate(memory, made_up(16 * kMiB)).result);
    EXPECT_EQ(memory.touches, 8);
    EXPECT_EQ(memory.calls[kCollapse], 8);
    EXPECT_EQ(memory.collapses_when_populated, 0);
    FakeMemory plain;
    EXPECT_TRUE(populate(plain, made_up(16 * kMiB), {.collapse = false}).result);
    EXPECT_EQ(plain.touches + plain.calls[kCollapse], 0);
    EXPECT_EQ(plain.populated, 16 * kMiB);
    FakeMemory small;
    small.touch_errno = ENOMEM;
    small.populate_fails_at = 1;
    EXPECT_EQ(populate(small, made_up(16 * kMiB)).result.error().code, ENOMEM);
    EXPECT_EQ(small.calls[kCollapse], 0);
}

// A29: shortage is an error before anything is touched, and what was admitted before stays.
TEST(Populate, StopsBeforeTheMarginIsTouchedAndSaysWhereItIsShort) {
    FakeMemory memory;
    memory.free_bytes = (256 + 16 + 16 + 15) * kMiB;
    auto [result, steps] = populate(memory, made_up(64 * kMiB));
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ENOMEM);
    EXPECT_NE(result.error().message.find("cgroup '/engine'"), std::string::npos);
    EXPECT_NE(result.error().message.find("256 MiB"), std::string::npos);
    EXPECT_EQ(steps.size(), 2u);
    EXPECT_EQ(memory.populated, 32 * kMiB);
    EXPECT_GE(memory.free_bytes, 256 * kMiB);
}

TEST(Populate, LessThanAStepFreeDoesNotWrapAround) {
    FakeMemory memory;
    memory.free_bytes = kMiB;
    auto [result, steps] = populate(memory, made_up(16 * kMiB), {.margin_bytes = 0});
    EXPECT_EQ(result.error().code, ENOMEM);
    EXPECT_EQ(memory.calls[kPopulateWrite], 0);
}

TEST(Populate, KernelRefusalEndsItWithItsCode) {
    for (int code : {ENOMEM, EFAULT, EHWPOISON, EINVAL}) {
        FakeMemory memory;
        memory.populate_fails_at = 2;
        memory.populate_errno = code;
        auto [result, steps] = populate(memory, made_up(64 * kMiB));
        ASSERT_FALSE(result);
        EXPECT_EQ(result.error().code, code);
        EXPECT_EQ(steps, std::vector<uint64_t>{16 * kMiB});
    }
}

TEST(Populate, InterruptedStepIsRetriedButNotForEver) {
    class Interrupted : public FakeMemory {
      public:
        int advise(void *memory, size_t bytes, int advice) override {
            if (advice == kPopulateWrite && interruptions-- > 0) {
                ++tries;
                return EINTR;
            }
            return FakeMemory::advise(memory, bytes, advice);
        }
        int interruptions = 3, tries = 0;
    } memory;
    EXPECT_TRUE(populate(memory, made_up(16 * kMiB)).result);
    memory.interruptions = 1000;
    memory.tries = 0;
    EXPECT_EQ(populate(memory, made_up(16 * kMiB)).result.error().code, EINTR);
    EXPECT_LT(memory.tries, 100);
}

TEST(Populate, RefusedCollapseIsNoFailureAndIsGivenUpSoon) {
    for (int code : {EINVAL, EAGAIN, ENOSYS}) {
        FakeMemory memory;
        memory.collapse_errno = code;
        auto [result, steps] = populate(memory, made_up(64 * kMiB));
        EXPECT_TRUE(result);
        EXPECT_EQ(steps.back(), 64 * kMiB);
        EXPECT_EQ(memory.calls[kCollapse], 4);
    }
}

TEST(Populate, HugePagesAreNeitherWeighedNorCollapsed) {
    FakeMemory memory;
    memory.free_bytes = 0;
    PopulateRange range = made_up(32 * kMiB);
    range.huge = true;
    EXPECT_TRUE(populate(memory, range).result);
    EXPECT_EQ(memory.calls[kCollapse], 0);
    EXPECT_EQ(memory.calls[kPopulateWrite], 2);
}

TEST(Populator, PopulatesSegmentsInOrderAndTellsTheEnd) {
    FakeMemory memory;
    std::vector<std::pair<uint32_t, uint64_t>> ready;
    Populator populator(3, {},
                        {.open = [](uint32_t) { return made_up(20 * kMiB); },
                         .ready = [&](uint32_t s, uint64_t n) { ready.emplace_back(s, n); }},
                        memory);
    ASSERT_TRUE(populator.start());
    ASSERT_TRUE(populator.wait(60s));
    const auto progress = populator.progress();
    EXPECT_FALSE(progress.running);
    EXPECT_EQ(progress.result.code, 0);
    EXPECT_EQ(progress.populated_bytes, 60 * kMiB);
    EXPECT_EQ(ready, (std::vector<std::pair<uint32_t, uint64_t>>{{0, 16 * kMiB},
                                                                 {0, 20 * kMiB},
                                                                 {1, 16 * kMiB},
                                                                 {1, 20 * kMiB},
                                                                 {2, 16 * kMiB},
                                                                 {2, 20 * kMiB}}));
}

TEST(Populator, ShortageLeavesThePoolSmallerAndKeepsTheReason) {
    FakeMemory memory;
    memory.free_bytes = 300 * kMiB;
    Populator populator(
        8, {},
        {.open = [](uint32_t) { return made_up(16 * kMiB); }, .ready = [](uint32_t, uint64_t) {}},
        memory);
    ASSERT_TRUE(populator.start());
    ASSERT_TRUE(populator.wait(60s));
    EXPECT_EQ(populator.progress().result.code, ENOMEM);
    EXPECT_EQ(populator.progress().populated_bytes, 32 * kMiB);
}

TEST(Populator, ErrorOfOpenEndsIt) {
    FakeMemory memory;
    Populator populator(8, {},
                        {.open = [](uint32_t s) -> Result<PopulateRange> {
                             if (s == 1)
                                 return Error{ENOTCONN, "grant segment 1"};
                             return made_up(16 * kMiB);
                         },
                         .ready = [](uint32_t, uint64_t) {}},
                        memory);
    ASSERT_TRUE(populator.start());
    ASSERT_TRUE(populator.wait(60s));
    EXPECT_EQ(populator.progress().result.code, ENOTCONN);
    EXPECT_EQ(populator.progress().result.message, "grant segment 1");
    EXPECT_EQ(populator.progress().populated_bytes, 16 * kMiB);
}

TEST(Populator, StopEndsItWithinOneStep) {
    FakeMemory memory;
    std::promise<void> first_step, asked;
    int steps = 0;
    Populator populator(1000, {},
                        {.open = [](uint32_t) { return made_up(1024 * kMiB); },
                         .ready =
                             [&](uint32_t, uint64_t) {
                                 if (++steps == 1) {
                                     first_step.set_value();
                                     asked.get_future().wait();
                                 }
                             }},
                        memory);
    ASSERT_TRUE(populator.start());
    first_step.get_future().wait();
    EXPECT_FALSE(populator.wait(0ms));
    // stop() asks, then waits: the hook goes on only once the asking has been seen to start.
    auto stopped = std::async(std::launch::async, [&] { populator.stop(); });
    while (!populator.stopping())
        std::this_thread::yield();
    asked.set_value();
    stopped.get();
    EXPECT_EQ(steps, 1);
    EXPECT_EQ(populator.progress().result.code, ECANCELED);
    populator.stop();  // again
}

TEST(Populator, DestroyedWithoutStartOrWhileRunning) {
    FakeMemory memory;
    Populator::Hooks hooks{.open = [](uint32_t) { return made_up(1024 * kMiB); },
                           .ready = [](uint32_t, uint64_t) {}};
    { Populator never(1000, {}, hooks, memory); }
    Populator running(100000, {}, hooks, memory);
    ASSERT_TRUE(running.start());
}

// The real thing, small: a sealed memfd ends up resident before it is said to be ready.
TEST(Populator, RealMemoryIsResidentWhenReady) {
    constexpr uint64_t kBytes = 20 * kMiB;
    UniqueFd fd(::memfd_create("maru-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(::ftruncate(fd.get(), kBytes), 0);
    ASSERT_EQ(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    auto segment = Segment::map(std::move(fd), kBytes, false);
    ASSERT_TRUE(segment);
    auto memory = system_memory();
    if (memory->headroom(-1).bytes < 64 * kMiB)
        GTEST_SKIP() << "less than 64 MiB free: " << memory->headroom(-1).where;
    const MemoryRange range{segment->data(), kBytes};
    std::vector<uint64_t> resident;
    Populator populator(1, {.margin_bytes = kMiB},
                        {.open =
                             [&](uint32_t) {
                                 return PopulateRange{segment->data(), kBytes};
                             },
                         .ready =
                             [&](uint32_t, uint64_t usable) {
                                 resident.push_back(memory->backing({&range, 1}).resident_bytes);
                                 EXPECT_GE(resident.back(), usable);
                             }},
                        *memory);
    ASSERT_TRUE(populator.start());
    ASSERT_TRUE(populator.wait(60s));
    EXPECT_EQ(populator.progress().result.code, 0) << populator.progress().result.message;
    ASSERT_EQ(resident.size(), 2u);
    const Backing backing = memory->backing({&range, 1});
    EXPECT_EQ(backing.resident_bytes, kBytes);
    RecordProperty("backing_page_bytes", static_cast<int>(backing.page_bytes));
}

}  // namespace
}  // namespace maru::pool
