// The two clocks, in nanoseconds. Only shells read them; pure code is given the time.
#pragma once

#include <cstdint>

namespace maru {

int64_t monotonic_ns();  // stands still in suspend: deadlines of a waiting caller
int64_t boottime_ns();   // runs on in suspend: ages and session time-outs

}  // namespace maru
