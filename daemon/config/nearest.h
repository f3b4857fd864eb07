// The known name nearest to a mistyped one, by edit distance with transpositions.
#pragma once

#include <cstddef>
#include <string_view>

namespace maru {

size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace maru
