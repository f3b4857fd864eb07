// Text on the wire: UTF-8 without NUL.
#pragma once

#include <string>
#include <string_view>

namespace maru::wire {

// Well-formed UTF-8 (no overlong form, surrogate or value above U+10FFFF) without NUL.
bool valid_text(std::string_view text);

// The text with every byte that makes it invalid replaced by '?'.
std::string repaired_text(std::string_view text);

}  // namespace maru::wire
