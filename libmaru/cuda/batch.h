// Batch: what one launch of a copy kernel does, passed by value as the kernel's only parameter.
//
// So a launch needs no device memory, no upload and no lifetime: the driver copies its parameters. For
// each (layer, row), one block of `block_bytes` bytes:
//
//   engine side: layers[layer] + blocks[row] * block_stride
//   object side: rows[row] + layer * layer_bytes
//
// Read by nvcc, too: no standard headers but <cstdint>.
#pragma once

#include <cstdint>

namespace maru::cuda {

struct Batch {
    static constexpr uint32_t kLayers = 128;
    static constexpr uint32_t kRows = 224;
    // A block of many pieces is shared by as many thread blocks.
    static constexpr uint32_t kPieceBytes = 32 * 1024;

    uint64_t layers[kLayers];  // block 0 of each
    uint64_t rows[kRows];      // a block in its object, in the batch's first layer
    uint32_t blocks[kRows];
    uint64_t block_bytes;
    uint64_t block_stride;
    uint64_t layer_bytes;  // in an object, from one layer to the next
    uint32_t layer_count;
    uint32_t row_count;
    uint32_t width;  // 16, 8, 4, 2 or 1: divides every address, distance and size above
};

// The oldest limit on what a kernel is passed.
static_assert(sizeof(Batch) <= 4096);

inline constexpr uint32_t kThreadsPerBlock = 512;
// Enough to fill a link to the host; more would only keep the engine's own kernels from their turn.
inline constexpr uint32_t kMaxGrid = 64;

}  // namespace maru::cuda
