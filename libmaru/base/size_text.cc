#include "libmaru/base/size_text.h"

#include <cerrno>
#include <cstdio>
#include <iterator>

#include "libmaru/base/number_text.h"

namespace maru {

namespace {

constexpr Unit kUnits[] = {
    {"b", 1},
    {"k", 1ull << 10},
    {"kb", 1ull << 10},
    {"kib", 1ull << 10},
    {"m", 1ull << 20},
    {"mb", 1ull << 20},
    {"mib", 1ull << 20},
    {"g", 1ull << 30},
    {"gb", 1ull << 30},
    {"gib", 1ull << 30},
    {"t", 1ull << 40},
    {"tb", 1ull << 40},
    {"tib", 1ull << 40},
    {"p", 1ull << 50},
    {"pb", 1ull << 50},
    {"pib", 1ull << 50},
};

}  // namespace

Result<uint64_t> parse_size(std::string_view text, Zero zero) {
    auto bytes = parse_quantity(text, "size", kUnits,
                                "B, K, M, G, T, P, each also with B or iB (all binary)", 1);
    if (bytes && *bytes == 0 && zero == Zero::Refused)
        return Error{EINVAL, "size '" + std::string(text) + "': must be at least 1 byte"};
    return bytes;
}

std::string format_size(uint64_t bytes) {
    static constexpr const char *kNames[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;
    double value = static_cast<double>(bytes);
    // From 1023.95 on, one decimal would round to 1024.0 of this unit.
    while (value >= 1023.95 && unit + 1 < std::size(kNames)) {
        value /= 1024;
        ++unit;
    }
    const bool exact = bytes % (1ull << (10 * unit)) == 0;
    char text[32];
    std::snprintf(text, sizeof text, exact ? "%.0f %s" : "%.1f %s", value, kNames[unit]);
    return text;
}

}  // namespace maru
