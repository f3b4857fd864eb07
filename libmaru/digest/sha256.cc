#include "libmaru/digest/sha256.h"

#include <cpuid.h>

#include <bit>
#include <cstring>

namespace maru::digest {

namespace {

uint32_t load_be32(const uint8_t *p) {
    uint32_t v;
    std::memcpy(&v, p, sizeof v);
    return __builtin_bswap32(v);
}

bool detect_extensions() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return false;
    const bool ssse3 = c & (1u << 9), sse41 = c & (1u << 19);
    if (!ssse3 || !sse41 || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return false;
    return b & (1u << 29);
}

}  // namespace

bool sha256_has_extensions() {
    static const bool has = detect_extensions();
    return has;
}

Sha256Compress sha256_compress() {
    return sha256_has_extensions() ? sha256_compress_extensions : sha256_compress_portable;
}

void sha256_compress_portable(Sha256State &state, const uint8_t *blocks, size_t count) {
    static constexpr uint32_t kRound[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
        0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
        0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
        0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
        0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
        0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
        0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
        0xc67178f2};
    for (; count > 0; --count, blocks += kSha256Block) {
        uint32_t w[64];
        for (int i = 0; i < 16; ++i)
            w[i] = load_be32(blocks + 4 * i);
        for (int i = 16; i < 64; ++i) {
            const uint32_t x = w[i - 15], y = w[i - 2];
            const uint32_t s0 = std::rotr(x, 7) ^ std::rotr(x, 18) ^ (x >> 3);
            const uint32_t s1 = std::rotr(y, 17) ^ std::rotr(y, 19) ^ (y >> 10);
            w[i] = w[i - 16] + s0 + w[i - 7] + s1;
        }
        auto [a, b, c, d, e, f, g, h] = state;
        for (int i = 0; i < 64; ++i) {
            const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
            const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
            const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
            const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
            h = g;
            g = f;
            f = e;
            e = d + t1;
            d = c;
            c = b;
            b = a;
            a = t1 + t2;
        }
        const Sha256State mixed = {a, b, c, d, e, f, g, h};
        for (size_t i = 0; i < mixed.size(); ++i)
            state[i] += mixed[i];
    }
}

void sha256_store(const Sha256State &state, uint8_t out[kSha256Bytes]) {
    for (size_t i = 0; i < state.size(); ++i) {
        const uint32_t v = __builtin_bswap32(state[i]);
        std::memcpy(out + 4 * i, &v, sizeof v);
    }
}

void Sha256::update(const void *data, size_t size) {
    if (size == 0)
        return;
    auto *bytes = static_cast<const uint8_t *>(data);
    size_t used = total_ % kSha256Block;
    total_ += size;
    if (used > 0) {
        const size_t take = size < kSha256Block - used ? size : kSha256Block - used;
        std::memcpy(pending_.data() + used, bytes, take);
        bytes += take;
        size -= take;
        if (used + take < kSha256Block)
            return;
        compress_(state_, pending_.data(), 1);
    }
    compress_(state_, bytes, size / kSha256Block);
    bytes += size / kSha256Block * kSha256Block;
    if (size % kSha256Block > 0)
        std::memcpy(pending_.data(), bytes, size % kSha256Block);
}

std::array<uint8_t, kSha256Bytes> Sha256::finish() {
    const uint64_t bits = __builtin_bswap64(total_ * 8);
    size_t used = total_ % kSha256Block;
    uint8_t tail[2 * kSha256Block] = {};
    std::memcpy(tail, pending_.data(), used);
    tail[used] = 0x80;
    // The length needs 8 bytes after the mark: one more block if they do not fit.
    const size_t blocks = used + 1 + sizeof bits <= kSha256Block ? 1 : 2;
    std::memcpy(tail + blocks * kSha256Block - sizeof bits, &bits, sizeof bits);
    compress_(state_, tail, blocks);
    std::array<uint8_t, kSha256Bytes> out;
    sha256_store(state_, out.data());
    state_ = kSha256Initial;
    total_ = 0;
    return out;
}

}  // namespace maru::digest
