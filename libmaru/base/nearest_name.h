// "unknown key 'capcity_bytes', did you mean 'capacity_bytes'?"
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace maru {

// Letters changed, added, left out or swapped with a neighbour (optimal string alignment), whatever
// their case. Only the first 256 bytes of each count.
size_t edit_distance(std::string_view a, std::string_view b);

// The known name that `word` was probably meant to be: the one with the fewest letters changed,
// added, left out or swapped with a neighbour (at most a third of the word), or that it begins.
// Empty: none is near.
std::string_view nearest_name(std::string_view word, std::span<const std::string_view> known);

// ", did you mean 'NAME'?", or nothing.
std::string suggestion(std::string_view word, std::span<const std::string_view> known);

}  // namespace maru
