// Time of the client: CLOCK_MONOTONIC in nanoseconds, and deadlines that cannot overflow.
#pragma once

#include <time.h>

#include <chrono>
#include <cstdint>
#include <limits>

namespace maru::client {

using TimeNs = int64_t;
inline constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();
inline constexpr TimeNs kMillisecond = 1'000'000;

// What steady_clock is here, too, and wire::wait_socket() goes by.
inline TimeNs now_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return TimeNs{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}
inline TimeNs after_ms(uint64_t milliseconds) {
    return now_ns() + static_cast<TimeNs>(milliseconds) * kMillisecond;
}
inline std::chrono::steady_clock::time_point time_point(TimeNs time) {
    // Far from the end of the clock: some waits add to it.
    constexpr TimeNs kLatest = kNever / 2;
    return std::chrono::steady_clock::time_point(
        std::chrono::nanoseconds(time < kLatest ? time : kLatest));
}

}  // namespace maru::client
