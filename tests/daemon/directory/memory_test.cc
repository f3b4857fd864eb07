// What a million replicas cost, and how long a probe takes among them.
//
// The throughput is printed, not asserted: run with --gtest_also_run_disabled_tests.
#include <time.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <random>

#include "daemon/directory/block.h"
#include "tests/daemon/directory/fixture.h"

namespace maru {
namespace {

// Of this thread, so that what else runs on the machine counts less.
double cpu_ns() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// The median of what `fn(round)` takes, per key of a batch.
template <typename Fn>
double median_ns(int rounds, size_t keys, Fn fn) {
    std::vector<double> times;
    for (int round = 0; round < rounds; ++round) {
        const double start = cpu_ns();
        fn(static_cast<size_t>(round));
        times.push_back((cpu_ns() - start) / static_cast<double>(keys));
    }
    std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
    return times[static_cast<size_t>(rounds / 2)];
}

struct Filled {
    Directory directory{{.epoch = kEpoch, .hash_seed = 99}};
    NamespaceIndex ns = 0;
    double slowest_ns = 0;

    explicit Filled(uint64_t count) {
        EXPECT_EQ(directory.register_namespace(1000, "model", &ns), wire::Status::Ok);
        const PoolIndex pool = directory.add_pool({.owner = kAnn,
                                                   .capacity_bytes = count * kPage,
                                                   .segment_bytes = 65536 * kPage,
                                                   .page_bytes = kPage});
        for (uint64_t i = 0; i * 65536 < count; ++i)
            directory.grant_segment(pool, static_cast<uint32_t>(i));
        for (uint64_t i = 0; i < count; ++i) {
            const wire::CommitItem item{key_of(i), 0, i * kPage, kPage, i + 1};
            const double start = cpu_ns();
            if (directory.commit(ns, pool, item).status != wire::Status::Ok)
                ADD_FAILURE() << "commit " << i;
            slowest_ns = std::max(slowest_ns, cpu_ns() - start);
        }
    }
};

TEST(DirectoryMemory, ReplicaCostsAtMost160BytesAtAMillion) {
    const Filled filled(1000000);
    const double each = static_cast<double>(filled.directory.memory_bytes()) / 1e6;
    std::printf("%.1f bytes per replica of one page\n", each);
    EXPECT_LE(each, 160);
}

// The floor of a probe: one prefetched line of 64 bytes per key out of a table of that size.
class RawTable {
  public:
    explicit RawTable(uint64_t lines) : mask_(std::bit_ceil(lines) - 1) {
        for (uint64_t line = 0; line <= mask_; line += kPerBlock) {
            blocks_.push_back(source_.take(true));
            std::memset(blocks_.back().get(), static_cast<int>(line >> 15), directory::kBlockBytes);
        }
    }
    uint64_t sum(std::span<const wire::Digest> keys) const {
        uint64_t sum = 0;
        for (size_t i = 0; i + 32 <= keys.size(); i += 32) {
            const std::byte *at[32];
            for (size_t j = 0; j < 32; ++j) {
                uint64_t word = 0;
                std::memcpy(&word, keys[i + j].bytes.data(), 8);
                word = (word ^ word >> 29) & mask_;
                at[j] = blocks_[word / kPerBlock].get() + word % kPerBlock * 64;
                __builtin_prefetch(at[j]);
            }
            for (const std::byte *line : at)
                sum += std::to_integer<uint64_t>(*line);
        }
        return sum;
    }

  private:
    static constexpr uint64_t kPerBlock = directory::kBlockBytes / 64;
    uint64_t mask_;
    directory::Blocks source_;
    std::vector<directory::Block> blocks_;
};

TEST(DirectoryMemory, DISABLED_ProbeThroughput) {
    constexpr int kRounds = 200;
    constexpr size_t kBatch = 2048;
    for (const uint64_t count : {100000u, 1000000u, 10000000u}) {
        const double begin = cpu_ns();
        const Filled filled(count);
        std::printf("%9lu objects: commit %.0f ns, slowest %.2f ms\n",
                    static_cast<unsigned long>(count),
                    (cpu_ns() - begin) / static_cast<double>(count), filled.slowest_ns / 1e6);
        const RawTable raw(count);
        std::mt19937_64 random(5);
        for (const bool hits : {true, false}) {
            std::vector<std::vector<wire::Digest>> batches(kRounds);
            for (auto &batch : batches)
                for (size_t i = 0; i < kBatch; ++i)
                    batch.push_back(digest_of(random() % count + (hits ? 0 : count)));
            std::vector<uint8_t> bitmap(kBatch / 8);
            uint64_t found = 0, sum = 0;
            const double probe = median_ns(kRounds, kBatch, [&](size_t round) {
                found +=
                    filled.directory.probe(kAnn, filled.ns, batches[round], kOne, false, bitmap);
            });
            EXPECT_EQ(found, hits ? kRounds * kBatch : 0u);
            const double floor =
                median_ns(kRounds, kBatch, [&](size_t round) { sum += raw.sum(batches[round]); });
            std::printf(
                "          %s: probe %.1f ns/key, raw prefetched line %.1f ns, %.1fx (%lu)\n",
                hits ? "hits  " : "misses", probe, floor, probe / floor,
                static_cast<unsigned long>(sum % 10));
        }
    }
}

}  // namespace
}  // namespace maru
