// The same questions asked of a real marud, through the public C ABI only.
#pragma once

#include <string>

#include "tests/bench/report.h"

namespace maru::bench {

// Opens clients and pools at `socket_path` for as long as the cases live. Throws std::runtime_error with
// the library's message when something is refused; so do the cases.
void add_maru_cases(Suite &suite, const std::string &socket_path, bool quick);

}  // namespace maru::bench
