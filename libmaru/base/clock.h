// The clocks, in nanoseconds. Only shells read them; pure code is given the time.
#pragma once

#include <cstdint>

namespace maru {

int64_t monotonic_ns();   // stands still in suspend: deadlines of a waiting caller
int64_t boottime_ns();    // runs on in suspend: ages and session time-outs
int64_t thread_cpu_ns();  // processor time of the calling thread; a system call

}  // namespace maru
