// Histogram: how often something took how long, in fixed buckets.
//
// Plain numbers: observing is a search through a dozen bounds and two additions, without
// allocation, lock or clock. Bounds and values are nanoseconds; what is shown is seconds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace maru::metrics {

// What a registry needs to show one.
struct HistogramView {
    std::span<const uint64_t> bounds;  // ascending, each the largest value of its bucket
    const uint64_t *counts = nullptr;  // one for each bound and one for what is above the last
    const uint64_t *sum = nullptr;
};

template <const auto &kBounds>
class Histogram {
  public:
    static constexpr size_t kBuckets = kBounds.size() + 1;

    void observe(int64_t value) {
        const uint64_t ns = value > 0 ? static_cast<uint64_t>(value) : 0;
        size_t bucket = 0;
        while (bucket < kBounds.size() && ns > kBounds[bucket])
            ++bucket;
        ++counts_[bucket];
        sum_ += ns;
    }
    HistogramView view() const { return {kBounds, counts_.data(), &sum_}; }
    uint64_t count() const {
        uint64_t all = 0;
        for (uint64_t one : counts_)
            all += one;
        return all;
    }
    uint64_t sum() const { return sum_; }

  private:
    std::array<uint64_t, kBuckets> counts_{};
    uint64_t sum_ = 0;
};

inline constexpr uint64_t kUs = 1'000, kMs = 1'000'000, kS = 1'000'000'000;

// One request, from the received packet to the end of its handling: a few microseconds when all is
// well, and 5 ms is what nothing may take.
inline constexpr std::array<uint64_t, 13> kRequestBounds = {
    1 * kUs,   2 * kUs, 5 * kUs, 10 * kUs, 20 * kUs, 50 * kUs, 100 * kUs,
    200 * kUs, 1 * kMs, 2 * kMs, 5 * kMs,  20 * kMs, 100 * kMs};
// One turn of the loop outside of its poll.
inline constexpr std::array<uint64_t, 13> kTurnBounds = {
    5 * kUs, 10 * kUs, 20 * kUs, 50 * kUs, 100 * kUs, 500 * kUs, 1 * kMs,
    2 * kMs, 5 * kMs,  10 * kMs, 50 * kMs, 200 * kMs, 1 * kS};
// From the end of a pool's use to the proof: ms when its process dies in order, days when not.
inline constexpr std::array<uint64_t, 10> kProofBounds = {1 * kMs,   10 * kMs,  50 * kMs, 200 * kMs,
                                                          1 * kS,    5 * kS,    30 * kS,  300 * kS,
                                                          3600 * kS, 86400 * kS};

}  // namespace maru::metrics
