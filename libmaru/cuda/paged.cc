#include "libmaru/cuda/paged.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "libmaru/copy/runs.h"
#include "libmaru/cuda/batches.h"
#include "libmaru/cuda/driver_error.h"
#include "libmaru/cuda/pinned_ranges.h"

namespace maru::cuda {

namespace {

enum class Direction { Gather, Scatter };

const char *name(Direction direction) {
    return direction == Direction::Gather ? "gather from the GPU" : "scatter to the GPU";
}

Result<void> checked(const Device &device, CUresult failed, const std::string &what) {
    if (failed == CUDA_SUCCESS)
        return {};
    return driver_error(device.table(), failed, what);
}

// Where the GPU sees `bytes` bytes of host memory; nothing when it must not touch them.
std::optional<uint64_t> device_address(const Device &device, void *data, uint64_t bytes) {
    if (!PinnedRanges::process().covers(data, bytes))
        return std::nullopt;
    // In several pieces it is of use only if the pieces are neighbours there, too.
    CUdeviceptr first = 0, last = 0;
    if (device.table().device_pointer(&first, data, 0) != CUDA_SUCCESS ||
        device.table().device_pointer(&last, static_cast<char *>(data) + bytes - 1, 0) !=
            CUDA_SUCCESS ||
        last - first != bytes - 1)
        return std::nullopt;
    return first;
}

Result<void> launch(const Device &device, Direction direction, Batch &batch, CUstream stream) {
    const uint64_t pieces = (batch.block_bytes - 1) / Batch::kPieceBytes + 1;
    const uint64_t grid =
        std::min<uint64_t>(kMaxGrid, pieces * batch.row_count * batch.layer_count);
    void *parameters[] = {&batch};
    return checked(
        device,
        device.table().launch(direction == Direction::Gather ? device.gather() : device.scatter(),
                              static_cast<unsigned>(grid), 1, 1, kThreadsPerBlock, 1, 1, 0, stream,
                              parameters, nullptr),
        std::string(name(direction)) + ": cuLaunchKernel");
}

// The driver's own copies, run by run: for memory that no kernel may touch.
Result<void> copy_runs(const Device &device, Direction direction, const copy::PagedMemory &memory,
                       const copy::Transfer &transfer, size_t object, CUstream stream) {
    const uint64_t layer_bytes = transfer.blocks_per_object * memory.block_bytes;
    CUresult failed = CUDA_SUCCESS;
    for (size_t layer = 0; layer < memory.layers.size(); ++layer)
        copy::for_each_run(
            memory, static_cast<char *>(memory.layers[layer]),
            transfer.blocks + object * transfer.blocks_per_object, transfer.blocks_per_object,
            [&](char *engine, uint64_t offset, uint64_t bytes) {
                if (failed != CUDA_SUCCESS)
                    return;
                char *host =
                    static_cast<char *>(transfer.objects[object]) + layer * layer_bytes + offset;
                const auto there = reinterpret_cast<uintptr_t>(engine);
                failed = direction == Direction::Gather
                             ? device.table().copy_to_host(host, there, bytes, stream)
                             : device.table().copy_to_device(there, host, bytes, stream);
            });
    return checked(device, failed, std::string(name(direction)) + ": cuMemcpyAsync");
}

// The objects for which wanted(i).
template <typename Wanted>
Result<void> move(const Device &device, Direction direction, const copy::PagedMemory &memory,
                  const copy::Transfer &transfer, CUstream stream, const Wanted &wanted) {
    const Device::Current current(device);
    if (current.failed() != CUDA_SUCCESS)
        return checked(device, current.failed(), "cuCtxPushCurrent");
    const uint64_t bytes = memory.object_bytes(transfer.blocks_per_object);
    std::vector<DeviceObject> direct;
    for (size_t i = 0; i < transfer.count; ++i) {
        if (!wanted(i))
            continue;
        if (const auto address = device_address(device, transfer.objects[i], bytes))
            direct.push_back({transfer.blocks + i * transfer.blocks_per_object, *address});
        else if (auto copied = copy_runs(device, direction, memory, transfer, i, stream); !copied)
            return copied;
    }
    return for_each_batch(memory, transfer.blocks_per_object, direct,
                          [&](Batch &batch) { return launch(device, direction, batch, stream); });
}

}  // namespace

Result<void> gather(const Device &device, const copy::PagedMemory &memory,
                    const copy::Transfer &transfer, CUstream stream) {
    auto moved =
        move(device, Direction::Gather, memory, transfer, stream, [](size_t) { return true; });
    if (!moved || !transfer.checksum || transfer.count == 0)
        return moved;
    if (auto waited = wait(device, stream); !waited)
        return waited;
    const uint64_t bytes = memory.object_bytes(transfer.blocks_per_object);
    for (size_t i = 0; i < transfer.count; ++i) {
        auto *object = static_cast<uint8_t *>(transfer.objects[i]);
        copy::checksum(object, bytes, object + bytes);
    }
    return {};
}

Result<void> scatter(const Device &device, const copy::PagedMemory &memory,
                     const copy::Transfer &transfer, int *results, CUstream stream) {
    const uint64_t bytes = memory.object_bytes(transfer.blocks_per_object);
    std::vector<bool> good(transfer.count, true);
    if (transfer.checksum)
        for (size_t i = 0; i < transfer.count; ++i) {
            const auto *object = static_cast<const uint8_t *>(transfer.objects[i]);
            uint8_t found[copy::kChecksumBytes];
            copy::checksum(object, bytes, found);
            good[i] = std::memcmp(found, object + bytes, sizeof found) == 0;
        }
    if (results)
        for (size_t i = 0; i < transfer.count; ++i)
            results[i] = good[i] ? 0 : -EBADMSG;
    auto moved = move(device, Direction::Scatter, memory, transfer, stream,
                      [&](size_t i) { return good[i]; });
    if (moved && std::find(good.begin(), good.end(), false) != good.end())
        return Error{EBADMSG, "objects: the checksum of at least one is wrong"};
    return moved;
}

Result<void> wait(const Device &device, CUstream stream) {
    const Device::Current current(device);
    if (current.failed() != CUDA_SUCCESS)
        return checked(device, current.failed(), "cuCtxPushCurrent");
    return checked(device, device.table().synchronize(stream),
                   "wait for the stream: cuStreamSynchronize");
}

}  // namespace maru::cuda
