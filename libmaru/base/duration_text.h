// Spans of time as people write and read them: "500ms", "30s", "2m", "1.5h", "1d".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "libmaru/base/result.h"
#include "libmaru/base/size_text.h"

namespace maru {

// Nanoseconds. Units ns, us, ms, s, m (or min), h, d; only 0 goes without one. EINVAL: not a span of
// time; ERANGE: beyond 2^63 - 1 ns (292 years).
Result<int64_t> parse_duration(std::string_view text, Zero zero = Zero::Refused);

std::string format_duration(int64_t ns);  // "85us", "250ms", "12s", "5m 3s", "2h 5m", "3d 4h"

}  // namespace maru
