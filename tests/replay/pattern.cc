#include "tests/replay/pattern.h"

namespace maru::replay {

void fill_pattern(void *target, uint64_t length, uint64_t seed) {
    auto *out = static_cast<unsigned char *>(target);
    uint64_t word = seed, whole = length / 8 * 8;
    for (uint64_t at = 0; at < whole; at += 8, word += kPatternStep)
        std::memcpy(out + at, &word, 8);
    std::memcpy(out + whole, &word, length - whole);
}

uint64_t count_mismatches(const void *bytes, uint64_t length, uint64_t seed) {
    const auto *in = static_cast<const unsigned char *>(bytes);
    uint64_t word = seed, whole = length / 8 * 8, wrong = 0;
    for (uint64_t at = 0; at < whole; at += 8, word += kPatternStep) {
        uint64_t got;
        std::memcpy(&got, in + at, 8);
        wrong += got != word;
    }
    return wrong + (std::memcmp(in + whole, &word, length - whole) != 0);
}

}  // namespace maru::replay
