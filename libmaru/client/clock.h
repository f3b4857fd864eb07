// Time of the client: CLOCK_MONOTONIC in nanoseconds, and deadlines that cannot overflow.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>

namespace maru::client {

using TimeNs = int64_t;
inline constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();
inline constexpr TimeNs kMillisecond = 1'000'000;

// steady_clock is CLOCK_MONOTONIC here: the same origin as wire::wait_socket().
inline TimeNs now_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
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
