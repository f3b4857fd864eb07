// The one source of chance of a run: the same seed gives the same run on every machine.
#pragma once

#include <cstdint>

namespace maru::sim {

class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed) {}
    uint64_t next() {  // splitmix64
        uint64_t z = (state_ += 0x9e3779b97f4a7c15);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
    }
    // 0 .. n-1; n is small here, so the bias of the multiplication does not matter.
    uint32_t below(uint32_t n) {
        return static_cast<uint32_t>((static_cast<uint64_t>(static_cast<uint32_t>(next())) * n) >>
                                     32);
    }
    uint32_t between(uint32_t low, uint32_t high) { return low + below(high - low + 1); }
    bool one_in(uint32_t n) { return n != 0 && below(n) == 0; }
    bool coin() { return next() & 1; }

  private:
    uint64_t state_;
};

inline uint64_t mix(uint64_t a, uint64_t b) { return Random(a * 0x2545f4914f6cdd1d + b).next(); }

}  // namespace maru::sim
