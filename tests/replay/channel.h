// What coordinator and workers say to each other over a stream socket.
#pragma once

#include <cstdint>
#include <vector>

#include "libmaru/base/result.h"
#include "maru/key.h"

namespace maru::replay {

struct JobHeader {
    uint64_t id = 0;
    uint32_t blocks = 0;  // as many digests follow
    uint32_t prefix = 0;  // what the scheduler's probe promised
};

struct JobResult {
    uint64_t id = 0;
    uint32_t hit_blocks = 0;
    uint32_t stored_blocks = 0;   // present afterwards, published by us or before us
    uint32_t skipped_blocks = 0;  // not admitted: the pool was full
    uint32_t retired_blocks = 0;
    uint32_t unknown_blocks = 0;  // fate not known yet; the library settles it
    uint32_t errors = 0;          // calls that failed for another reason than a miss or a full pool
    int32_t last_error = 0;
    uint64_t verified_bytes = 0;
    uint64_t mismatches = 0;  // words
    uint64_t load_ns = 0, load_bytes = 0, acquire_ns = 0;
    uint64_t store_ns = 0, store_bytes = 0;
};

struct Job {
    JobHeader header;
    std::vector<maru_digest> digests;
};

// Both block. EPIPE: the other side is gone.
Result<void> write_all(int fd, const void *data, size_t bytes);
Result<void> read_all(int fd, void *data, size_t bytes);

}  // namespace maru::replay
