// What the replayer's command line says, checked.
#pragma once

#include <cstdint>
#include <string>

#include "libmaru/base/result.h"

namespace maru::replay {

struct Options {
    std::string trace;      // empty: a generated one
    uint32_t requests = 0;  // 0: all of the trace; generated: 600
    uint32_t workers = 4;
    uint32_t in_flight = 2;            // requests per worker
    uint64_t pool_bytes = 1ull << 30;  // of all workers together
    uint64_t page_bytes = 0;  // 0: the largest power of two that divides a block, 4 KiB to 2 MiB
    // The model whose KV is stored; its defaults give 16 KiB per block of 512 tokens.
    uint32_t layers = 2, kv_heads = 1, head_dim = 4, dtype_bytes = 2, block_tokens = 512;
    std::string dtype = "bfloat16";
    bool evict = true;  // retire least recently used objects when full; else skip admission
    bool kill = false;
    uint32_t kills = 0;  // 0: one per 300 requests, at least 6
    uint64_t seed = 1;
    std::string marud;      // the program, started and restarted by the replayer
    std::string socket;     // or a running one
    std::string maructl;    // asked at the end whether anything is still charged; empty: not asked
    std::string json;       // "-": standard output
    std::string worker_fd;  // internal: this process is a worker
    uint32_t worker_index = 0;
    bool help = false;

    uint64_t block_bytes() const {
        return 2ull * layers * kv_heads * head_dim * dtype_bytes * block_tokens;
    }
    uint64_t pool_page_bytes() const;
    std::string namespace_text() const;
    std::string engine(uint32_t worker) const { return "replay-" + std::to_string(worker); }
};

Result<Options> parse_options(int argc, char **argv);
const char *options_help();

}  // namespace maru::replay
