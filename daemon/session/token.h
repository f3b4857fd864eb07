// Session tokens: 128 random bits that only their client knows.
//
// marud keeps the hash, never the token: neither a record on disk nor a core file lets anybody take
// a session over. Hashes are compared in constant time, so that a guess learns nothing from the
// clock.
#pragma once

#include <array>
#include <cstdint>

#include "libmaru/wire/messages.h"

namespace maru {

using TokenHash = std::array<uint8_t, 32>;

TokenHash hash_token(const wire::Token &token);
bool same_token(const TokenHash &a, const TokenHash &b);
// All zero bytes are a client that forgot to draw one, and would let two of them meet.
bool token_is_drawn(const wire::Token &token);

}  // namespace maru
