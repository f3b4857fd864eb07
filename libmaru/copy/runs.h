// The runs of neighbouring blocks in one layer of one object: each is one copy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "libmaru/copy/paged.h"

namespace maru::copy {

// Calls run(engine's address, offset in the layer's part of the object, bytes) for each.
template <typename Run>
void for_each_run(const PagedMemory &memory, char *layer, const uint32_t *blocks, size_t count,
                  const Run &run) {
    const bool dense = memory.block_stride == memory.block_bytes;
    for (size_t i = 0; i < count;) {
        if (blocks[i] == kNoBlock) {
            ++i;
            continue;
        }
        size_t end = i + 1;
        while (dense && end < count && blocks[end] != kNoBlock &&
               blocks[end] == blocks[end - 1] + 1)
            ++end;
        run(layer + blocks[i] * memory.block_stride, i * memory.block_bytes,
            (end - i) * memory.block_bytes);
        i = end;
    }
}

}  // namespace maru::copy
