#include "daemon/session/token.h"

#include "libmaru/digest/sha256.h"

namespace maru {

TokenHash hash_token(const wire::Token &token) {
    digest::Sha256 hash;
    hash.update(token.data(), token.size());
    return hash.finish();
}

bool same_token(const TokenHash &a, const TokenHash &b) {
    uint8_t difference = 0;
    for (size_t i = 0; i < a.size(); ++i)
        difference = static_cast<uint8_t>(difference | (a[i] ^ b[i]));
    return difference == 0;
}

bool token_is_drawn(const wire::Token &token) {
    for (uint8_t byte : token)
        if (byte)
            return true;
    return false;
}

}  // namespace maru
