#include "libmaru/digest/prefix_digest.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "include/maru/key.h"

namespace maru::digest {
namespace {

std::vector<uint32_t> spread_tokens(size_t count) {
    std::vector<uint32_t> tokens(count);
    for (size_t i = 0; i < count; ++i)
        tokens[i] = static_cast<uint32_t>(i * 2654435761u);
    return tokens;
}

std::vector<wire::Digest> chain(std::string_view text, const std::vector<uint32_t> &tokens,
                                uint32_t chunk_tokens,
                                Sha256Compress compress = sha256_compress()) {
    std::vector<wire::Digest> out(tokens.size() / chunk_tokens);
    EXPECT_EQ(prefix_digests(prefix_root(text), tokens, chunk_tokens, out.data(), compress),
              out.size());
    return out;
}

TEST(PrefixDigest, MatchesThePublishedTestVector) {
    const auto digests = chain("maru-test", {0, 1, 2, 3, 4, 5, 6, 7}, 4);
    ASSERT_EQ(digests.size(), 2u);
    EXPECT_EQ(format_digest(digests[0]), MARU_TEST_VECTOR_0);
    EXPECT_EQ(format_digest(digests[1]), MARU_TEST_VECTOR_1);
}

// From Python's hashlib: the last digest of 2000 tokens (i * 2654435761) & 0xffffffff under the text
// "llama|bf16". The sizes go around every way in which a chunk can end in its block.
TEST(PrefixDigest, MatchesHashlibForEveryShapeOfChunk) {
    static constexpr struct {
        uint32_t chunk_tokens;
        const char *last;
    } kGolden[] = {
        {1, "1a9f511bc837c5099cbd6db2b7d281ce884dcd198800ca1d253ce31841b49b89"},
        {3, "3124bd9bbc093267aba5b4832c02073d21ec8b231797174e9234e97f61663a08"},
        {4, "2c837d4aa63c968e65c624d3f646ac376664f412b9ee58018cd287931039bc14"},
        {5, "050148110b2bfaa6f88244e037da86ea304312dad5099b905e84b30f66c0243c"},
        {6, "1943e87e888b04a3af427fdcaeaaded82d63494139c967fc662355a9ab01bc44"},
        {7, "896f16e5655f537d9d528748f10facd6b310944e366eb9c699a62a59ceb33a2f"},
        {8, "2ce307ea2e8a1d9afdf2f32cfeec914a8108d5b2bb859e0f492f31e14bfed2c2"},
        {16, "568d7524fe1a02d02c734383e831bbc041b881d4e9f9efe248a0bbecd7413b2b"},
        {21, "50aa8a46fb1628ec91dc657bb21c2652add3d0a1e8afeb695cff9e2f2865e0ce"},
        {22, "4e3a345435cee665829355307ed76585ae953078f5feed4740b276018f4542a7"},
        {23, "8bff8ba0b4175049b7b615c00aec4b5525207ac31fac666ebbc28eba9b6d828e"},
        {64, "cb60e6b8f939abf9deb48a269d36c7e118338caab86b2a9ef739b47067b4c415"},
        {256, "66c01b02ec70dd407f6372fd08d97d3693a2ac7750622aa7f5b7f8b07c33b90f"},
        {512, "daa85fb437a999190bf455bfbae8487de741c56cdf939ac888f40c94a14199ba"},
        {999, "05686071b586233acd40471439a671614834f43bebe0faf85b9433dc1d260132"},
        {2000, "f3f71eede1261f17697bd0dda7c62b8a7853ba281884ce60574de6a46890dee9"},
    };
    const auto tokens = spread_tokens(2000);
    for (const auto &golden : kGolden) {
        EXPECT_EQ(format_digest(chain("llama|bf16", tokens, golden.chunk_tokens).back()),
                  golden.last)
            << golden.chunk_tokens;
        EXPECT_EQ(
            format_digest(
                chain("llama|bf16", tokens, golden.chunk_tokens, sha256_compress_portable).back()),
            golden.last)
            << golden.chunk_tokens;
    }
}

TEST(PrefixDigest, EqualsTheStreamedDefinition) {
    for (uint32_t chunk_tokens = 1; chunk_tokens <= 70; ++chunk_tokens) {
        const auto tokens = spread_tokens(3 * chunk_tokens);
        wire::Digest parent = prefix_root("n");
        const auto digests = chain("n", tokens, chunk_tokens);
        for (size_t i = 0; i < digests.size(); ++i) {
            Sha256 sha;
            sha.update(parent.bytes.data(), parent.bytes.size());
            sha.update(&chunk_tokens, sizeof chunk_tokens);
            sha.update(tokens.data() + i * chunk_tokens, chunk_tokens * sizeof(uint32_t));
            parent = wire::Digest{sha.finish()};
            ASSERT_EQ(digests[i], parent) << chunk_tokens << " tokens, chunk " << i;
        }
    }
}

TEST(PrefixDigest, ContinuesFromAParent) {
    const auto tokens = spread_tokens(64);
    const auto whole = chain("n", tokens, 8);
    std::vector<wire::Digest> rest(5);
    const std::span<const uint32_t> tail = std::span(tokens).subspan(24);
    EXPECT_EQ(prefix_digests(whole[2], tail, 8, rest.data()), 5u);
    for (size_t i = 0; i < rest.size(); ++i)
        EXPECT_EQ(rest[i], whole[3 + i]);
}

// A63: the digest of chunk i depends on every token up to the chunk's end, and on none after it.
TEST(PrefixDigest, DependsOnAllTokensUpToTheChunksEndAndNoLater) {
    const auto tokens = spread_tokens(33);
    const auto before = chain("n", tokens, 8);
    ASSERT_EQ(before.size(), 4u);
    for (size_t changed = 0; changed < tokens.size(); ++changed) {
        auto other = tokens;
        other[changed] ^= 1;
        const auto after = chain("n", other, 8);
        for (size_t i = 0; i < before.size(); ++i)
            EXPECT_EQ(before[i] == after[i], changed >= 8 * (i + 1)) << changed << ' ' << i;
    }
}

// A61: texts that differ in one field never share a digest; neither do chunk sizes.
TEST(PrefixDigest, DependsOnNamespaceAndChunkSize) {
    const auto tokens = spread_tokens(16);
    EXPECT_NE(chain("model|bf16", tokens, 8)[0], chain("model|fp8", tokens, 8)[0]);
    EXPECT_NE(chain("n", tokens, 8)[0], chain("n", tokens, 16)[0]);
    EXPECT_NE(prefix_root(""), prefix_root(std::string_view("\0", 1)));
}

TEST(PrefixDigest, PartialChunkGetsNoDigest) {
    wire::Digest untouched;
    EXPECT_EQ(prefix_digests(prefix_root("n"), spread_tokens(7), 8, &untouched), 0u);
    EXPECT_EQ(untouched, wire::Digest{});
    EXPECT_EQ(prefix_digests(prefix_root("n"), {}, 8, nullptr), 0u);
}

TEST(DigestText, RoundTripsAndRefusesEverythingElse) {
    const auto digest = chain("n", spread_tokens(8), 8)[0];
    const std::string text = format_digest(digest);
    EXPECT_EQ(text.size(), kDigestTextBytes);
    EXPECT_EQ(parse_digest(text), digest);
    std::string upper = text;
    for (char &c : upper)
        c = static_cast<char>(toupper(c));
    EXPECT_EQ(parse_digest(upper), digest);
    EXPECT_FALSE(parse_digest(""));
    EXPECT_FALSE(parse_digest(text.substr(1)));
    EXPECT_FALSE(parse_digest(text + "0"));
    for (char bad : {'g', 'G', '/', ':', '@', '`', ' ', '\0', '-'}) {
        std::string wrong = text;
        wrong[63] = bad;
        EXPECT_FALSE(parse_digest(wrong)) << static_cast<int>(bad);
    }
}

}  // namespace
}  // namespace maru::digest
