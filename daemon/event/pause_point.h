// Named places of the daemon at which a test can make it slow or hold it.
//
// The marud that is installed has the empty function of pause_point_none.cc. Only `marud-paused`,
// which is built for tests and never installed, has the one of pause_point.cc.
#pragma once

namespace maru {

// Where they are. A name is used at one place only.
inline constexpr char kPauseAtRecord[] = "record";  // start-up, before the progress of a record
inline constexpr char kPauseInLoop[] = "loop";      // each turn of the loop
inline constexpr char kPauseInReaper[] = "reaper";  // a thread of the reaper, before its job

void pause_point(const char *name);

}  // namespace maru
