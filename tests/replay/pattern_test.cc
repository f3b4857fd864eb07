#include "tests/replay/pattern.h"

#include <gtest/gtest.h>

#include <vector>

namespace maru::replay {
namespace {

TEST(Pattern, SeesOneWrongByteAnywhere) {
    std::vector<unsigned char> bytes(1003);
    fill_pattern(bytes.data(), bytes.size(), 42);
    EXPECT_EQ(count_mismatches(bytes.data(), bytes.size(), 42), 0u);
    for (size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] ^= 1;
        EXPECT_EQ(count_mismatches(bytes.data(), bytes.size(), 42), 1u) << i;
        bytes[i] ^= 1;
    }
}

TEST(Pattern, TellsGenerationsAndOffsetsApart) {
    maru_digest digest{};
    std::vector<unsigned char> bytes(4096);
    fill_pattern(bytes.data(), bytes.size(), pattern_seed(digest, 7));
    EXPECT_EQ(count_mismatches(bytes.data(), bytes.size(), pattern_seed(digest, 8)), 512u);
    EXPECT_EQ(count_mismatches(bytes.data() + 8, bytes.size() - 8, pattern_seed(digest, 7)), 511u);
    digest.bytes[31] = 1;
    EXPECT_EQ(count_mismatches(bytes.data(), bytes.size(), pattern_seed(digest, 7)), 512u);
}

}  // namespace
}  // namespace maru::replay
