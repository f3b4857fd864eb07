#include "libmaru/wire/text.h"

#include <cstdint>
#include <cstring>

namespace maru::wire {

namespace {

// Length of the well-formed sequence at the start of `text`, 0 if there is none.
size_t sequence_length(std::string_view text) {
    auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
    auto continues = [&](size_t from, size_t to) {
        for (size_t i = from; i < to; ++i)
            if ((byte(i) & 0xc0) != 0x80)
                return false;
        return true;
    };
    const uint8_t lead = byte(0);
    if (lead == 0)
        return 0;
    if (lead < 0x80)
        return 1;
    if (lead < 0xc2)
        return 0;  // a continuation byte, or an overlong form
    if (lead < 0xe0)
        return text.size() >= 2 && continues(1, 2) ? 2 : 0;
    if (lead < 0xf0) {
        if (text.size() < 3 || !continues(1, 3))
            return 0;
        if (lead == 0xe0 && byte(1) < 0xa0)
            return 0;  // overlong
        if (lead == 0xed && byte(1) >= 0xa0)
            return 0;  // surrogate
        return 3;
    }
    if (lead > 0xf4 || text.size() < 4 || !continues(1, 4))
        return 0;
    if (lead == 0xf0 && byte(1) < 0x90)
        return 0;  // overlong
    if (lead == 0xf4 && byte(1) >= 0x90)
        return 0;  // above U+10FFFF
    return 4;
}

// Skips eight ASCII bytes at a time: a namespace text has up to 16 KiB of them.
size_t plain_prefix(std::string_view text) {
    size_t at = 0;
    for (; at + 8 <= text.size(); at += 8) {
        uint64_t word;
        std::memcpy(&word, text.data() + at, 8);
        const bool has_zero = ((word - 0x0101010101010101u) & ~word & 0x8080808080808080u) != 0;
        if ((word & 0x8080808080808080u) != 0 || has_zero)
            break;
    }
    return at;
}

}  // namespace

bool valid_text(std::string_view text) {
    while (!text.empty()) {
        text.remove_prefix(plain_prefix(text));
        if (text.empty())
            return true;
        const size_t length = sequence_length(text);
        if (length == 0)
            return false;
        text.remove_prefix(length);
    }
    return true;
}

std::string repaired_text(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const size_t length = sequence_length(text);
        if (length == 0)
            out += '?';
        else
            out += text.substr(0, length);
        text.remove_prefix(length == 0 ? 1 : length);
    }
    return out;
}

}  // namespace maru::wire
