// The copy kernels on the CPU: what one batch means, said as plainly as can be.
//
// "Device memory" is this process's memory. An address on the object side is translated first, as a real
// GPU's view of host memory need not be the CPU's.
#pragma once

#include <cstddef>
#include <cstring>
#include <functional>

#include "libmaru/cuda/batch.h"

namespace maru::cuda::reference {

enum class Direction { Gather, Scatter };

// host(address, bytes): the CPU's pointer for what the GPU sees at `address`; nullptr: it may not touch it.
// False: a real kernel would have ended its context, and nothing more was moved.
inline bool run(const Batch &batch, Direction direction,
                const std::function<void *(uint64_t address, uint64_t bytes)> &host) {
    for (uint32_t layer = 0; layer < batch.layer_count; ++layer)
        for (uint32_t row = 0; row < batch.row_count; ++row) {
            auto *engine = reinterpret_cast<std::byte *>(batch.layers[layer]) +
                           batch.blocks[row] * batch.block_stride;
            void *object = host(batch.rows[row] + layer * batch.layer_bytes, batch.block_bytes);
            if (!object)
                return false;
            if (direction == Direction::Gather)
                std::memcpy(object, engine, batch.block_bytes);
            else
                std::memcpy(engine, object, batch.block_bytes);
        }
    return true;
}

// What a real kernel needs beyond the addresses: each access of `width` bytes is aligned.
inline bool well_formed(const Batch &batch) {
    if (batch.layer_count < 1 || batch.layer_count > Batch::kLayers || batch.row_count < 1 ||
        batch.row_count > Batch::kRows || batch.width < 1 || batch.width > 16)
        return false;
    uint64_t bits = batch.block_bytes | batch.block_stride | batch.layer_bytes;
    for (uint32_t i = 0; i < batch.layer_count; ++i)
        bits |= batch.layers[i];
    for (uint32_t i = 0; i < batch.row_count; ++i)
        bits |= batch.rows[i];
    return bits % batch.width == 0 && (batch.width & (batch.width - 1)) == 0;
}

}  // namespace maru::cuda::reference
