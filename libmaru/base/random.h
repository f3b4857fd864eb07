// Random bits from the kernel: session tokens, server epochs, nonces.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace maru {

void fill_random(std::span<uint8_t> bytes);
std::array<uint8_t, 16> random_token();
uint32_t random_epoch();  // never 0
uint64_t random_nonce();  // never 0

}  // namespace maru
