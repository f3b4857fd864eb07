// A run as a table for people, as JSON for programs, and as the README's table.
#pragma once

#include <string>

#include "tests/bench/suite.h"

namespace maru::bench {

// The last line is "N of M targets met, K not measurable here (why)".
std::string table(const Suite &suite, const std::string &notes);
// One entry for each target of a case, or for a case without one: name, group, value, unit, floor,
// against, ratio, target, sense, met, reason.
std::string json(const Suite &suite, const std::string &notes);
// Markdown: what has a target.
std::string readme(const Suite &suite);

}  // namespace maru::bench
