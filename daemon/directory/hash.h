// Hashes of keys, with secrets drawn at start.
//
// A digest should be SHA-256, but the client chooses its bits: whoever knew the hash could send a
// million keys that fall on one place. NH (of UMAC) over secret words is proven to collide with
// probability 2^-64 for any two keys chosen without knowing them, and costs three multiplications.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "libmaru/wire/records.h"

namespace maru::directory {

__extension__ typedef unsigned __int128 uint128;

// One by one: copied together they would go through memory.
inline uint64_t word(const wire::Digest &digest, size_t place) {
    uint64_t value;
    std::memcpy(&value, digest.bytes.data() + place * sizeof value, sizeof value);
    return value;
}

class KeyHash {
  public:
    explicit KeyHash(uint64_t seed) {
        for (uint64_t &word : secret_)
            word = next(seed);
        low_ = next(seed) | 1;
        high_ = next(seed) | 1;
    }

    uint32_t operator()(uint32_t ns, const wire::Digest &digest, uint32_t shard,
                        uint32_t part) const {
        return (*this)(rest(ns, shard, part), digest);
    }
    // The same in two parts, for many digests with one namespace, shard and part.
    uint128 rest(uint32_t ns, uint32_t shard, uint32_t part) const {
        return product((static_cast<uint64_t>(shard) << 32 | part) + secret_[4], ns + secret_[5]);
    }
    uint32_t operator()(uint128 rest, const wire::Digest &digest) const {
        return fold(rest + product(word(digest, 0) + secret_[0], word(digest, 1) + secret_[1]) +
                    product(word(digest, 2) + secret_[2], word(digest, 3) + secret_[3]));
    }
    uint32_t operator()(uint32_t first, uint32_t second) const {
        return fold(product(first + secret_[0], second + secret_[1]));
    }

  private:
    static uint128 product(uint64_t a, uint64_t b) { return static_cast<uint128>(a) * b; }
    // Multiplying by odd secrets spreads every bit upwards; the upper half is the hash.
    uint32_t fold(uint128 sum) const {
        return static_cast<uint32_t>(
            (static_cast<uint64_t>(sum) * low_ + static_cast<uint64_t>(sum >> 64) * high_) >> 32);
    }
    static uint64_t next(uint64_t &state) {  // splitmix64
        uint64_t z = state += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }

    std::array<uint64_t, 6> secret_{};
    uint64_t low_ = 1, high_ = 1;
};

}  // namespace maru::directory
