// The text exposition format 0.0.4, read back: for maructl, and for whoever checks what marud says.
//
// Strict: every sample belongs to a family that was described before it, and nothing else stands
// between. What is read points into the text.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libmaru/base/result.h"

namespace maru::metrics {

struct ReadSample {
    std::string_view line;  // as it stands there
    std::string_view name;
    std::vector<std::pair<std::string_view, std::string>> labels;  // values without their escapes
    std::string_view value;                                        // a decimal number
};

struct ReadFamily {
    std::string_view name, type;
    std::string help;       // without its escapes
    std::string_view head;  // the lines of HELP and TYPE
    std::vector<ReadSample> samples;
};

// The error names the line. `text` outlives the result.
Result<std::vector<ReadFamily>> read_exposition(std::string_view text);

}  // namespace maru::metrics
