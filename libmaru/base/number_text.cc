#include "libmaru/base/number_text.h"

#include <algorithm>
#include <cerrno>

namespace maru {

namespace {

__extension__ using Wide = unsigned __int128;

// Locale-free: <cctype> would ask the locale of the host program.
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_blank(char c) { return c == ' ' || c == '\t'; }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string_view trim(std::string_view text) {
    while (!text.empty() && is_blank(text.front()))
        text.remove_prefix(1);
    while (!text.empty() && is_blank(text.back()))
        text.remove_suffix(1);
    return text;
}

std::string_view take_digits(std::string_view &text) {
    size_t n = 0;
    while (n < text.size() && is_digit(text[n]))
        ++n;
    const std::string_view digits = text.substr(0, n);
    text.remove_prefix(n);
    return digits;
}

std::string lowered(std::string_view text) {
    std::string out(text);
    for (char &c : out)
        c = lower(c);
    return out;
}

// What is wrong with the part behind the number, in words that fit the common mistakes.
std::string unit_mistake(std::string_view number, std::string_view unit, std::string_view known) {
    if (unit.front() == '%')
        return "a share in per cent is not taken here";
    const std::string low = lowered(unit);
    if (number == "0" && low.front() == 'x')
        return "hexadecimal is not taken here, write a decimal number";
    if (low.front() == 'e' && unit.size() > 1 &&
        (is_digit(unit[1]) || unit[1] == '+' || unit[1] == '-'))
        return "an exponent is not taken here, write the number out";
    return "unknown unit '" + std::string(unit) + "', known are " + std::string(known);
}

}  // namespace

Result<uint64_t> parse_quantity(std::string_view text, std::string_view kind,
                                std::span<const Unit> units, std::string_view known,
                                uint64_t empty_unit) {
    auto wrong = [&](int code, const std::string &what) {
        return Error{code, std::string(kind) + " '" + std::string(text) + "': " + what};
    };
    std::string_view rest = trim(text);
    if (rest.empty())
        return wrong(EINVAL, "empty, expected a number");
    if (rest.front() == '-')
        return wrong(EINVAL, "must not be negative");
    const std::string_view whole = take_digits(rest);
    std::string_view fraction;
    if (!rest.empty() && rest.front() == '.') {
        rest.remove_prefix(1);
        fraction = take_digits(rest);
        if (fraction.empty())
            return wrong(EINVAL, "expected digits behind the point");
    }
    if (whole.empty())
        return wrong(EINVAL, "must begin with a digit");

    const std::string_view unit = trim(rest);
    uint64_t scale = 0;
    if (unit.empty()) {
        scale = empty_unit;
    } else {
        const std::string low = lowered(unit);
        for (const Unit &candidate : units)
            if (candidate.name == low)
                scale = candidate.scale;
        if (scale == 0)
            return wrong(EINVAL, unit_mistake(whole, unit, known));
    }

    Wide value = 0;
    for (char c : whole) {
        value = value * 10 + static_cast<unsigned>(c - '0');
        if (value > UINT64_MAX)
            return wrong(ERANGE, "too large, at most 2^64 - 1");
    }
    if (scale == 0) {
        if (value == 0 && fraction.empty())
            return uint64_t{0};
        return wrong(EINVAL, "needs a unit, known are " + std::string(known));
    }
    if (scale == 1 && !fraction.empty())
        return wrong(EINVAL, "a fraction needs a larger unit");
    value *= scale;
    // Digit by digit from the end, so that no power of ten can overflow. Beyond 20 digits nothing
    // reaches a whole unit any more.
    Wide part = 0;
    for (size_t i = std::min<size_t>(fraction.size(), 20); i-- > 0;)
        part = (part + static_cast<Wide>(fraction[i] - '0') * scale * 1'000'000) / 10;
    value += part / 1'000'000;
    if (value > UINT64_MAX)
        return wrong(ERANGE, "too large, at most 2^64 - 1");
    return static_cast<uint64_t>(value);
}

}  // namespace maru
