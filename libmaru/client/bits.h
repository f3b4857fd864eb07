// Bitmaps as marud answers with them: bit i is bit i % 8 of byte i / 8.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>

namespace maru::client {

// How many of the first `count` bits are set before the first that is not.
inline uint32_t leading_ones(std::span<const uint8_t> bits, uint32_t count) {
    uint32_t ones = 0;
    while (ones / 8 + 8 <= bits.size()) {
        uint64_t word;
        std::memcpy(&word, bits.data() + ones / 8, sizeof word);
        const auto run = static_cast<uint32_t>(std::countr_one(word));
        ones += run;
        if (run < 64)
            return std::min(ones, count);
    }
    while (ones < count && (bits[ones / 8] >> (ones % 8) & 1))
        ++ones;
    return std::min(ones, count);
}

// Sets in `to`, from bit `at` on, those of the first `count` bits that are set in `from`.
inline void set_bits(std::span<uint8_t> to, uint32_t at, std::span<const uint8_t> from,
                     uint32_t count) {
    if (at % 8 == 0) {
        uint8_t *out = to.data() + at / 8;
        for (uint32_t i = 0; i < count / 8; ++i)
            out[i] |= from[i];
        if (count % 8 != 0)
            out[count / 8] |= from[count / 8] & static_cast<uint8_t>((1u << count % 8) - 1);
        return;
    }
    for (uint32_t i = 0; i < count; ++i)
        if (from[i / 8] >> (i % 8) & 1)
            to[(at + i) / 8] |= static_cast<uint8_t>(1u << ((at + i) % 8));
}

// Clears those from bit `first` on.
inline void clear_bits_from(std::span<uint8_t> bits, uint32_t first) {
    if (first / 8 >= bits.size())
        return;
    bits[first / 8] &= static_cast<uint8_t>((1u << first % 8) - 1);
    std::fill(bits.begin() + first / 8 + 1, bits.end(), uint8_t{0});
}

}  // namespace maru::client
