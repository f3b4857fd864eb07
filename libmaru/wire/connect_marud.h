// Finds marud: connects to the first of the usual places where somebody listens.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "libmaru/base/result.h"
#include "libmaru/base/unique_fd.h"

namespace maru::wire {

// `paths` as from socket_paths(). A place that is absent, closed to us or left over is passed over;
// the error names each one tried, and why it did not do. Its code is that of the last.
Result<UniqueFd> connect_marud(std::span<const std::string> paths, int64_t deadline_ns);

}  // namespace maru::wire
