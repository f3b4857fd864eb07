// Sha256: FIPS 180-4, streaming.
//
// Our own, because libmaru is loaded into engines that bring their own libcrypto: linking another
// copy, or the host's with another ABI, breaks them. The bytes are the same on every path; only the
// speed differs (SHA extensions where cpuid has them).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace maru::digest {

inline constexpr size_t kSha256Bytes = 32;
inline constexpr size_t kSha256Block = 64;

using Sha256State = std::array<uint32_t, 8>;
inline constexpr Sha256State kSha256Initial = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                               0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

// Mixes `count` blocks of 64 bytes, at any alignment, into the state.
using Sha256Compress = void (*)(Sha256State &state, const uint8_t *blocks, size_t count);

void sha256_compress_portable(Sha256State &state, const uint8_t *blocks, size_t count);
bool sha256_has_extensions();
// Only where sha256_has_extensions(); anywhere else it is an illegal instruction.
void sha256_compress_extensions(Sha256State &state, const uint8_t *blocks, size_t count);

// The fastest of this machine; chosen once.
Sha256Compress sha256_compress();

// The state as the 32 bytes of the digest.
void sha256_store(const Sha256State &state, uint8_t out[kSha256Bytes]);

class Sha256 {
  public:
    explicit Sha256(Sha256Compress compress = sha256_compress()) : compress_(compress) {}

    void update(const void *data, size_t size);
    // Ends the message. The object then starts a new one.
    std::array<uint8_t, kSha256Bytes> finish();

  private:
    Sha256Compress compress_;
    Sha256State state_ = kSha256Initial;
    uint64_t total_ = 0;
    std::array<uint8_t, kSha256Block> pending_{};  // total_ % 64 bytes of it are used
};

}  // namespace maru::digest
