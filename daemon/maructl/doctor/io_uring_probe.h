// A ring is set up, asked what it can do, and closed again. Features decide, never a version.
#pragma once

#include <string>
#include <vector>

namespace maru::maructl {

struct IoUringProbe {
    int error = 0;                     // of io_uring_setup: 0, or the errno
    std::vector<std::string> missing;  // operations and features that an SSD tier needs
    bool defer_taskrun = false;        // SINGLE_ISSUER | DEFER_TASKRUN: cheaper, not needed
};

IoUringProbe probe_io_uring();

}  // namespace maru::maructl
