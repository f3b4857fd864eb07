#include "libmaru/digest/prefix_digest.h"

#include <cassert>
#include <cstring>

namespace maru::digest {

namespace {

constexpr std::string_view kDomain{"maru-prefix-v1\0", 15};  // the NUL is part of it

// What precedes the tokens of a chunk in its message: parent digest and chunk_tokens.
constexpr size_t kHeadBytes = sizeof(wire::Digest) + sizeof(uint32_t);

// value of a hexadecimal digit, or -1
int nibble(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    const char lower = static_cast<char>(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

}  // namespace

wire::Digest prefix_root(std::string_view namespace_text) {
    Sha256 hash;
    hash.update(kDomain.data(), kDomain.size());
    const uint64_t length = namespace_text.size();  // little-endian by records.h's assertion
    hash.update(&length, sizeof length);
    hash.update(namespace_text.data(), namespace_text.size());
    return wire::Digest{hash.finish()};
}

size_t prefix_digests(const wire::Digest &parent, std::span<const uint32_t> tokens,
                      uint32_t chunk_tokens, wire::Digest *out, Sha256Compress compress) {
    assert(chunk_tokens >= 1);
    const size_t count = tokens.size() / chunk_tokens;
    const size_t token_bytes = size_t{chunk_tokens} * sizeof(uint32_t);
    const size_t message_bytes = kHeadBytes + token_bytes;
    const uint64_t bits = __builtin_bswap64(uint64_t{message_bytes} * 8);

    // Block 0 is head + first tokens; whole blocks follow straight from the token array; the last one
    // or two carry the rest, the mark and the length. All chunks have the same shape, so the padding
    // is written once: in tail[] only the token bytes change.
    const size_t in_first =
        token_bytes < kSha256Block - kHeadBytes ? token_bytes : kSha256Block - kHeadBytes;
    const size_t direct_blocks = (token_bytes - in_first) / kSha256Block;
    const size_t rest = (token_bytes - in_first) % kSha256Block;
    const bool first_is_full = kHeadBytes + in_first == kSha256Block;

    uint8_t first[2 * kSha256Block] = {};
    uint8_t tail[2 * kSha256Block] = {};
    size_t first_blocks = 1, tail_blocks = 0;
    std::memcpy(first, parent.bytes.data(), sizeof parent.bytes);
    std::memcpy(first + sizeof parent.bytes, &chunk_tokens, sizeof chunk_tokens);
    if (first_is_full) {
        tail_blocks = rest + 1 + sizeof bits <= kSha256Block ? 1 : 2;
        tail[rest] = 0x80;
        std::memcpy(tail + tail_blocks * kSha256Block - sizeof bits, &bits, sizeof bits);
    } else {
        first_blocks = message_bytes + 1 + sizeof bits <= kSha256Block ? 1 : 2;
        first[message_bytes] = 0x80;
        std::memcpy(first + first_blocks * kSha256Block - sizeof bits, &bits, sizeof bits);
    }

    auto *bytes = reinterpret_cast<const uint8_t *>(tokens.data());
    for (size_t i = 0; i < count; ++i, bytes += token_bytes) {
        Sha256State state = kSha256Initial;
        std::memcpy(first + kHeadBytes, bytes, in_first);
        compress(state, first, first_blocks);
        if (direct_blocks > 0)
            compress(state, bytes + in_first, direct_blocks);
        if (tail_blocks > 0) {
            std::memcpy(tail, bytes + token_bytes - rest, rest);
            compress(state, tail, tail_blocks);
        }
        sha256_store(state, out[i].bytes.data());
        std::memcpy(first, out[i].bytes.data(), sizeof out[i].bytes);
    }
    return count;
}

void format_digest(const wire::Digest &digest, char *out) {
    static constexpr char kDigits[] = "0123456789abcdef";
    for (uint8_t byte : digest.bytes) {
        *out++ = kDigits[byte >> 4];
        *out++ = kDigits[byte & 15];
    }
}

std::string format_digest(const wire::Digest &digest) {
    std::string text(kDigestTextBytes, '\0');
    format_digest(digest, text.data());
    return text;
}

std::optional<wire::Digest> parse_digest(std::string_view text) {
    if (text.size() != kDigestTextBytes)
        return std::nullopt;
    wire::Digest digest;
    for (size_t i = 0; i < digest.bytes.size(); ++i) {
        const int high = nibble(text[2 * i]), low = nibble(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return std::nullopt;
        digest.bytes[i] = static_cast<uint8_t>(high << 4 | low);
    }
    return digest;
}

}  // namespace maru::digest
