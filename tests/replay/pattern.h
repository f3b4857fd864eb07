// Byte truth: what the bytes of a block must be follows from its digest and its generation.
//
// Any mix-up of objects, generations or offsets is seen at once, since every word differs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "maru/key.h"

namespace maru::replay {

// `generation` is the allocation's: bytes of an earlier tenant of the same pages never verify.
inline uint64_t pattern_seed(const maru_digest &digest, uint64_t generation) {
    uint64_t words[4];
    std::memcpy(words, digest.bytes, sizeof words);
    return (words[0] ^ words[1] * 3 ^ words[2] * 5 ^ words[3] * 7) +
           generation * 0xD6E8FEB86659FD93;
}

inline constexpr uint64_t kPatternStep = 0x9E3779B97F4A7C15;  // odd: no two offsets agree

// Writes `length` bytes; a tail shorter than a word is cut from the next word.
void fill_pattern(void *target, uint64_t length, uint64_t seed);
// The number of words that differ.
uint64_t count_mismatches(const void *bytes, uint64_t length, uint64_t seed);

}  // namespace maru::replay
