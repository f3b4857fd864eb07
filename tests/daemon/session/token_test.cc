#include "daemon/session/token.h"

#include <gtest/gtest.h>

namespace maru {
namespace {

TEST(Token, HashIsSha256OfTheSixteenBytes) {
    wire::Token token{};
    for (uint8_t i = 0; i < 16; ++i)
        token[i] = i;
    TokenHash hash = hash_token(token);
    // printf of bytes 0 to 15 | sha256sum
    const uint8_t start[] = {0xbe, 0x45, 0xcb, 0x26, 0x05, 0xbf, 0x36, 0xbe};
    EXPECT_TRUE(std::equal(std::begin(start), std::end(start), hash.begin()));
}

TEST(Token, EveryBitCounts) {
    TokenHash a = hash_token({1}), b = a;
    EXPECT_TRUE(same_token(a, b));
    for (size_t byte = 0; byte < b.size(); ++byte) {
        b[byte] ^= 0x10;
        EXPECT_FALSE(same_token(a, b)) << byte;
        b[byte] ^= 0x10;
    }
}

TEST(Token, ZeroIsNotDrawn) {
    EXPECT_FALSE(token_is_drawn({}));
    wire::Token token{};
    token[15] = 1;
    EXPECT_TRUE(token_is_drawn(token));
}

}  // namespace
}  // namespace maru
