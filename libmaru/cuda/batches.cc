#include "libmaru/cuda/batches.h"

#include <algorithm>
#include <bit>

namespace maru::cuda {

namespace {

uint32_t common_width(const Batch &batch) {
    uint64_t bits = 16 | batch.block_bytes | batch.block_stride | batch.layer_bytes;
    for (uint32_t i = 0; i < batch.layer_count; ++i)
        bits |= batch.layers[i];
    for (uint32_t i = 0; i < batch.row_count; ++i)
        bits |= batch.rows[i];
    return uint32_t{1} << std::countr_zero(bits);
}

}  // namespace

Result<void> for_each_batch(const copy::PagedMemory &memory, size_t blocks_per_object,
                            std::span<const DeviceObject> objects,
                            const std::function<Result<void>(Batch &)> &launch) {
    Batch batch{};
    batch.block_bytes = memory.block_bytes;
    batch.block_stride = memory.block_stride;
    batch.layer_bytes = blocks_per_object * memory.block_bytes;
    const auto flush = [&]() -> Result<void> {
        if (batch.row_count == 0)
            return {};
        batch.width = common_width(batch);
        auto launched = launch(batch);
        batch.row_count = 0;
        return launched;
    };
    for (size_t first = 0; first < memory.layers.size(); first += Batch::kLayers) {
        batch.layer_count =
            static_cast<uint32_t>(std::min<size_t>(Batch::kLayers, memory.layers.size() - first));
        for (uint32_t i = 0; i < batch.layer_count; ++i)
            batch.layers[i] = reinterpret_cast<uintptr_t>(memory.layers[first + i]);
        for (const DeviceObject &object : objects)
            for (size_t i = 0; i < blocks_per_object; ++i) {
                if (object.blocks[i] == copy::kNoBlock)
                    continue;
                if (batch.row_count == Batch::kRows)
                    if (auto done = flush(); !done)
                        return done;
                batch.blocks[batch.row_count] = object.blocks[i];
                batch.rows[batch.row_count++] =
                    object.address + first * batch.layer_bytes + i * batch.block_bytes;
            }
        if (auto done = flush(); !done)
            return done;
    }
    return {};
}

}  // namespace maru::cuda
