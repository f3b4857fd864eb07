// What the kernel knows of this process. Reads /proc, so not on the loop thread: with many
// descriptors the listing takes milliseconds.
#pragma once

#include "daemon/metrics/tally.h"

namespace maru::metrics {

// What cannot be read stays as it is in `last`. `start_ns` is never touched.
ProcessFacts read_process_facts(const ProcessFacts &last);

}  // namespace maru::metrics
