// The floors: what this machine can do at all, without marud.
#pragma once

#include "tests/bench/report.h"

namespace maru::bench {

// Names that other cases refer to.
inline constexpr char kPingPong[] = "floor: socket ping-pong";
std::string lookup_floor(size_t keys);  // "floor: table lookup, N keys"
std::string rpc_floor(size_t keys);     // "floor: ping-pong + lookup, N keys"
std::string copy_floor(size_t bytes);   // "floor: best copy, SIZE"
inline constexpr char kHashFloor[] = "floor: sha256";

std::string size_text(size_t bytes);

// quick: small memories and few repetitions, to see that it runs.
void add_floors(Suite &suite, bool quick);

}  // namespace maru::bench
