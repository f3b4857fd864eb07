// SHA-256 with the SHA extensions of x86-64, in a file of its own so that only it uses them.
//
// The instructions keep the state as {f e b a} and {h g d c}; each sha256rnds2 does two rounds with
// the two low words of (message + constants).
#include <immintrin.h>

#include "libmaru/digest/sha256.h"

namespace maru::digest {

namespace {

alignas(16) constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

}  // namespace

__attribute__((target("sha,sse4.1,ssse3"))) void sha256_compress_extensions(Sha256State &state,
                                                                            const uint8_t *blocks,
                                                                            size_t count) {
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    auto *words = reinterpret_cast<__m128i *>(state.data());
    const __m128i badc = _mm_shuffle_epi32(_mm_loadu_si128(words), 0xb1);      // {c d a b}
    const __m128i hgfe = _mm_shuffle_epi32(_mm_loadu_si128(words + 1), 0x1b);  // {e f g h}
    __m128i abef = _mm_alignr_epi8(badc, hgfe, 8);
    __m128i cdgh = _mm_blend_epi16(hgfe, badc, 0xf0);

    for (; count > 0; --count, blocks += kSha256Block) {
        const __m128i abef_before = abef, cdgh_before = cdgh;
        __m128i w[4];
        for (int i = 0; i < 4; ++i)
            w[i] = _mm_shuffle_epi8(
                _mm_loadu_si128(reinterpret_cast<const __m128i *>(blocks + 16 * i)), swap);
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
            const __m128i now = w[i & 3];
            __m128i sum = _mm_add_epi32(
                now, _mm_load_si128(reinterpret_cast<const __m128i *>(&kRound[4 * i])));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
            if (i < 12) {  // words 16 ahead replace those just used
                const __m128i next1 = w[(i + 1) & 3], next2 = w[(i + 2) & 3],
                              next3 = w[(i + 3) & 3];
                __m128i ahead = _mm_sha256msg1_epu32(now, next1);
                ahead = _mm_add_epi32(ahead, _mm_alignr_epi8(next3, next2, 4));
                w[i & 3] = _mm_sha256msg2_epu32(ahead, next3);
            }
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }

    const __m128i feba = _mm_shuffle_epi32(abef, 0x1b);
    const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128(words, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128(words + 1, _mm_alignr_epi8(dchg, feba, 8));
}

}  // namespace maru::digest
