// The small text files of /proc and /sys, and the numbers in them.
//
// They say nothing of their size and may change between two reads: whatever cannot be read, or is not
// what was expected, is nullopt and never a number.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace maru {

std::optional<std::string> read_text_file(const std::string &path);

// "  123 kB" is 123; "max" is none.
std::optional<uint64_t> leading_number(std::string_view text);
std::optional<uint64_t> read_number_file(const std::string &path);

// The number after `name` where a line has that word, as in "MemAvailable:   123 kB".
std::optional<uint64_t> number_after(std::string_view text, std::string_view name);

}  // namespace maru
