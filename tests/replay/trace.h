// Request traces: JSON lines {"timestamp": ms, "input_length": tokens, "output_length": tokens,
// "hash_ids": [one id per prefix block]}, as published with Mooncake.
//
// Equal leading hash_ids of two requests are equal token prefixes. The reader is strict: whatever
// is not such a line is an error that names the line and what was expected. Unknown members are
// skipped.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <string_view>
#include <vector>

#include "libmaru/base/result.h"

namespace maru::replay {

struct TraceRequest {
    uint64_t timestamp_ms = 0;
    uint32_t input_tokens = 0;
    uint32_t output_tokens = 0;
    std::vector<uint32_t> blocks;  // hash_ids, in prefix order
};

// Bounds on what a line may claim, so that a damaged file cannot take the machine's memory.
inline constexpr size_t kMaxLineBytes = 4 << 20;
inline constexpr size_t kMaxBlocks = 1 << 18;

Result<TraceRequest> parse_trace_line(std::string_view line);
// Errors name `name` and the line number. Empty lines are skipped; timestamps may not go back.
Result<std::vector<TraceRequest>> read_trace(std::istream &in, const std::string &name);
Result<std::vector<TraceRequest>> read_trace_file(const std::string &path);

// A small trace of the same form: conversations that share a system prompt and grow turn by turn.
std::vector<TraceRequest> generate_trace(uint32_t requests, uint64_t seed);
void write_trace(std::ostream &out, const std::vector<TraceRequest> &trace);

struct IdealHits {
    uint64_t blocks = 0, hit_blocks = 0;
    uint64_t requests = 0, hit_requests = 0;  // with at least one block hit
};
// What one endless cache shared by all would hit.
IdealHits ideal_hits(const std::vector<TraceRequest> &trace);

}  // namespace maru::replay
