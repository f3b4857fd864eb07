// A number with a unit, as size_text and duration_text share it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "libmaru/base/result.h"

namespace maru {

struct Unit {
    std::string_view name;  // lower case
    uint64_t scale;         // how many of the smallest unit; 1: takes no fraction
};

// Number times unit, cut to whole. `kind` ("size") and `known` (the units, for people) are for the
// error. `empty_unit`: the scale without a unit, 0 when one is required except for 0 itself.
Result<uint64_t> parse_quantity(std::string_view text, std::string_view kind,
                                std::span<const Unit> units, std::string_view known,
                                uint64_t empty_unit);

}  // namespace maru
