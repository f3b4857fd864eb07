// The figures of a replay, for people and as JSON.
#pragma once

#include <string>
#include <vector>

#include "tests/replay/options.h"
#include "tests/replay/trace.h"

namespace maru::replay {

struct Percentiles {
    double p50 = 0, p95 = 0, p99 = 0;
};
// Microseconds from nanoseconds; zeros when nothing was measured.
Percentiles percentiles(std::vector<uint64_t> nanoseconds);

struct Report {
    uint64_t requests = 0, hit_requests = 0;
    uint64_t blocks = 0, hit_blocks = 0;
    uint64_t stored_blocks = 0, skipped_blocks = 0, retired_blocks = 0, unknown_blocks = 0;
    uint64_t bytes_verified = 0, mismatches = 0;
    uint64_t load_ns = 0, load_bytes = 0, store_ns = 0, store_bytes = 0;
    uint64_t errors = 0, worker_kills = 0, marud_kills = 0, repeated_requests = 0;
    int last_error = 0;
    double seconds = 0;
    IdealHits ideal;
    std::vector<uint64_t> probe_ns, acquire_ns, store_latency_ns, load_latency_ns;
};

std::string report_text(const Report &report, const Options &options);
std::string report_json(const Report &report, const Options &options);

}  // namespace maru::replay
