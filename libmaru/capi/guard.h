// The C boundary: nothing escapes it, and every failure leaves a message for its thread.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "libmaru/base/result.h"
#include "libmaru/client/session.h"

namespace maru::capi {

// Records the calling thread's message. Never throws: short of memory it is cut to a fixed text.
int fail(int code, std::string_view message) noexcept;
inline int fail(const Error &error) noexcept { return fail(error.code, error.message); }

// What a client function returned, its message recorded when it is a failure.
inline int64_t report(const client::Outcome &outcome) noexcept {
    if (outcome.value < 0)
        fail(static_cast<int>(-outcome.value), outcome.message);
    return outcome.value;
}

inline int null_argument(const char *name) noexcept { return fail(EINVAL, std::string_view(name)); }

template <typename Body>
auto abi_guard(Body &&body) noexcept -> decltype(body()) {
    try {
        return body();
    } catch (const std::bad_alloc &) {
        return fail(ENOMEM, "no memory");
    } catch (const std::exception &error) {
        return fail(EIO, error.what());
    } catch (...) {
        return fail(EIO, "unexpected failure inside the library");
    }
}

// Reads an option struct of an older or newer caller: missing fields are zero, unknown ones must be.
// 0, or a negative errno with its message.
template <typename T>
int read_options(const T *from, const char *what, size_t least, T &to) {
    if (!from)
        return fail(EINVAL, std::string(what) + ": must not be NULL");
    const size_t size = from->size;
    if (size < least)
        return fail(EINVAL, std::string(what) + "->size: is " + std::to_string(size) +
                                ", must be sizeof(*" + what + ") as the caller was compiled");
    to = T{};
    std::memcpy(static_cast<void *>(&to), from, size < sizeof(T) ? size : sizeof(T));
    const auto *bytes = reinterpret_cast<const unsigned char *>(from);
    for (size_t i = sizeof(T); i < size; ++i)
        if (bytes[i] != 0)
            return fail(E2BIG, std::string(what) + "->size: a field at byte " + std::to_string(i) +
                                   " is set that this version of the library does not know");
    return 0;
}

// Fills a result struct of the size that the caller knows.
template <typename T>
int write_info(const T &from, T *to, const char *what, size_t least) {
    const size_t size = to->size;
    if (size < least)
        return fail(EINVAL, std::string(what) + "->size: is " + std::to_string(size) +
                                ", must be sizeof(*" + what + ")");
    auto *bytes = reinterpret_cast<unsigned char *>(to);
    std::memcpy(bytes + sizeof(size_t),
                reinterpret_cast<const unsigned char *>(&from) + sizeof(size_t),
                (size < sizeof(T) ? size : sizeof(T)) - sizeof(size_t));
    for (size_t i = sizeof(T); i < size; ++i)
        bytes[i] = 0;
    return 0;
}

}  // namespace maru::capi
