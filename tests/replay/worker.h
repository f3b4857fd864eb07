// One worker process: loads what is cached, verifies it, stores what is missing.
#pragma once

#include "tests/replay/options.h"

namespace maru::replay {

// Serves jobs from `options.worker_fd` until its end. The process's exit status.
int run_worker(const Options &options);

}  // namespace maru::replay
