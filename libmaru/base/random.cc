#include "libmaru/base/random.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace maru {

void fill_random(std::span<uint8_t> bytes) {
    while (!bytes.empty()) {
        const ssize_t n = ::getrandom(bytes.data(), bytes.size(), 0);
        if (n < 0) {
            if (errno == EINTR)
                continue;
            // Every kernel Maru runs on has it. A guessable token would be worse than an end.
            std::perror("maru: getrandom");
            std::abort();
        }
        bytes = bytes.subspan(static_cast<size_t>(n));
    }
}

namespace {

template <typename T>
T random_non_zero() {
    T value = 0;
    while (value == 0)
        fill_random({reinterpret_cast<uint8_t *>(&value), sizeof value});
    return value;
}

}  // namespace

std::array<uint8_t, 16> random_token() {
    std::array<uint8_t, 16> token;
    fill_random(token);
    return token;
}

uint32_t random_epoch() { return random_non_zero<uint32_t>(); }
uint64_t random_nonce() { return random_non_zero<uint64_t>(); }

}  // namespace maru
