// The hot messages - probe, acquire, commit, release and their replies - without Cap'n Proto.
//
// Cap'n Proto lays each of them out in one way only, as long as nobody reorders the calls that build
// it: the same words at the same places, and blobs at their end. So they can be written and read word
// by word, for a tenth of what the library takes. What is written is what Cap'n Proto would write, to
// the byte. What is read is a frame whose every pointer, size and unused bit is just so; anything
// else, and anything that is not allowed, is left to Cap'n Proto, which alone says what is wrong. So a
// frame means the same whoever reads it, and nothing is accepted here that it would refuse.
#pragma once

#include <cstddef>
#include <span>

#include "libmaru/wire/messages.h"

namespace maru::wire::flat {

// False: not one of these, or not exactly so; what `ret` holds then is of no use.
bool read(std::span<const std::byte> frame, Request *ret);
bool read(std::span<const std::byte> frame, ServerMessage *ret);

// The whole frame, segment table included. Its size; 0: not one of these, or more than there is room.
size_t write(const Request &in, std::span<std::byte> to);
size_t write(const Reply &in, std::span<std::byte> to);

}  // namespace maru::wire::flat
