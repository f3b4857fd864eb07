// Sizes as people write them: the one parser of daemon, command line and connectors.
//
// A number with an optional fraction, optional blanks, an optional unit in either case. Every unit is
// binary: "8G", "8g", "8GB" and "8GiB" are all 8 * 2^30 bytes. A part of a byte is cut off.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "libmaru/base/result.h"

namespace maru {

enum class Zero { Refused, Allowed };

// EINVAL: not a size; ERANGE: 2^64 bytes or more. The message has the text and what is wrong.
Result<uint64_t> parse_size(std::string_view text, Zero zero = Zero::Refused);

std::string format_size(uint64_t bytes);  // "0 B", "4 KiB", "1.5 GiB"

}  // namespace maru
