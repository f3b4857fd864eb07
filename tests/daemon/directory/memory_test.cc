// What a million replicas cost, and how long a probe takes among them.
//
// The throughput is printed, not asserted: run with --gtest_also_run_disabled_tests.
#include <chrono>
#include <cstdio>
#include <random>

#include "tests/daemon/directory/fixture.h"

namespace maru {
namespace {

using Clock = std::chrono::steady_clock;

double ns_since(Clock::time_point start) {
    return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

struct Filled {
    Directory directory{{.epoch = kEpoch, .hash_seed = 99}};
    NamespaceIndex ns = 0;
    double slowest_ns = 0;

    explicit Filled(uint64_t count) {
        EXPECT_EQ(directory.register_namespace("model", &ns), wire::Status::Ok);
        const PoolIndex pool = directory.add_pool({.owner = kAnn,
                                                   .capacity_bytes = count * kPage,
                                                   .segment_bytes = 65536 * kPage,
                                                   .page_bytes = kPage});
        for (uint64_t i = 0; i * 65536 < count; ++i)
            directory.grant_segment(pool, static_cast<uint32_t>(i));
        for (uint64_t i = 0; i < count; ++i) {
            const wire::CommitItem item{key_of(i), 0, i * kPage, kPage, i + 1};
            const Clock::time_point start = Clock::now();
            if (directory.commit(ns, pool, item).status != wire::Status::Ok)
                ADD_FAILURE() << "commit " << i;
            slowest_ns = std::max(slowest_ns, ns_since(start));
        }
    }
};

TEST(DirectoryMemory, ReplicaCostsAtMost160BytesAtAMillion) {
    const Filled filled(1000000);
    const double each = static_cast<double>(filled.directory.memory_bytes()) / 1e6;
    std::printf("%.1f bytes per replica of one page\n", each);
    EXPECT_LE(each, 160);
}

TEST(DirectoryMemory, DISABLED_ProbeThroughput) {
    for (const uint64_t count : {100000u, 1000000u, 10000000u}) {
        const Clock::time_point begin = Clock::now();
        const Filled filled(count);
        std::printf("%9lu objects: commit %.0f ns, slowest %.2f ms\n",
                    static_cast<unsigned long>(count), ns_since(begin) / static_cast<double>(count),
                    filled.slowest_ns / 1e6);
        // The floor: one prefetched line of 64 bytes per key out of a table of that size.
        std::vector<wire::Digest> lines(std::bit_ceil(count) * 2);
        for (uint64_t i = 0; i < lines.size(); ++i)
            lines[i].bytes[0] = static_cast<uint8_t>(i);
        std::mt19937_64 random(5);
        for (const bool hits : {true, false}) {
            constexpr int kRounds = 200;
            std::vector<std::vector<wire::Digest>> batches(kRounds);
            for (auto &batch : batches)
                for (int i = 0; i < 2048; ++i)
                    batch.push_back(digest_of(random() % count + (hits ? 0 : count)));
            std::vector<uint8_t> bitmap(256);
            uint64_t found = 0;
            Clock::time_point start = Clock::now();
            for (const auto &batch : batches)
                found += filled.directory.probe(kAnn, filled.ns, batch, kOne, false, bitmap);
            const double probe = ns_since(start) / kRounds / 2048;
            EXPECT_EQ(found, hits ? kRounds * 2048u : 0u);
            start = Clock::now();
            uint64_t sum = 0;
            for (const auto &batch : batches) {
                for (size_t i = 0; i < batch.size(); i += 32) {
                    uint64_t at[32];
                    for (size_t j = 0; j < 32; ++j) {
                        std::memcpy(&at[j], batch[i + j].bytes.data(), 8);
                        at[j] = (at[j] ^ at[j] >> 29) & (lines.size() / 2 - 1);
                        __builtin_prefetch(&lines[at[j] * 2]);
                    }
                    for (const uint64_t where : at)
                        sum += lines[where * 2].bytes[0];
                }
            }
            const double floor = ns_since(start) / kRounds / 2048;
            std::printf("          %s: probe %.1f ns/key, raw prefetched line %.1f ns (%lu)\n",
                        hits ? "hits  " : "misses", probe, floor,
                        static_cast<unsigned long>(sum % 10));
        }
    }
}

}  // namespace
}  // namespace maru
