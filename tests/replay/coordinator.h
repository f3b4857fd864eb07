// The coordinator: scheduler of all engines, router of requests, and the one who kills.
//
// For each request it probes every engine for the longest readable prefix, as a router in front of
// several engines does, and gives the request to that worker. It touches no KV.
#pragma once

#include "libmaru/base/result.h"
#include "tests/replay/options.h"
#include "tests/replay/report.h"
#include "tests/replay/trace.h"

namespace maru::replay {

Result<Report> replay_trace(Options options, const std::vector<TraceRequest> &trace);

}  // namespace maru::replay
