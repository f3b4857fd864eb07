// The launches of a gather or a scatter: pure, and the same for both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "libmaru/base/result.h"
#include "libmaru/copy/paged.h"
#include "libmaru/cuda/batch.h"

namespace maru::cuda {

// An object whose memory the GPU can use.
struct DeviceObject {
    const uint32_t *blocks;  // blocks_per_object ids; copy::kNoBlock is left out
    uint64_t address;        // as the GPU sees it
};

// Calls launch() with batches that together move each block of each object once, in all layers. Stops at
// its first error, which is returned. Nothing to move: no launch.
Result<void> for_each_batch(const copy::PagedMemory &memory, size_t blocks_per_object,
                            std::span<const DeviceObject> objects,
                            const std::function<Result<void>(Batch &)> &launch);

}  // namespace maru::cuda
