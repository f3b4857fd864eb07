#include "libmaru/base/clock.h"

#include <time.h>

namespace maru {

namespace {

int64_t read_clock(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

int64_t monotonic_ns() { return read_clock(CLOCK_MONOTONIC); }
int64_t boottime_ns() { return read_clock(CLOCK_BOOTTIME); }
int64_t thread_cpu_ns() { return read_clock(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace maru
