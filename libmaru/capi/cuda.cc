#include "maru/cuda.h"

#include <cerrno>

#include "libmaru/capi/guard.h"
#include "libmaru/capi/handles.h"
#include "libmaru/capi/paged_arguments.h"
#include "libmaru/cuda/device.h"
#include "libmaru/cuda/paged.h"
#include "libmaru/cuda/pinning.h"

namespace maru::capi {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kMostChunkBytes = uint64_t{256} << 30;

int number_error(const char *name, uint64_t is, const std::string &must) {
    return fail(EINVAL, std::string(name) + ": is " + std::to_string(is) + ", must be " + must);
}

int check_device(int device) {
    if (device >= 0)
        return 0;
    return fail(EINVAL, "device: is " + std::to_string(device) + ", must be at least 0");
}

int64_t register_memory(maru_pool *pool, uint64_t offset, uint64_t length, uint64_t chunk_bytes,
                        int device) {
    if (int bad = check(pool, "pool"))
        return bad;
    if (int bad = check_device(device))
        return bad;
    client::Pool &inner = *inside(pool);
    const uint64_t capacity = inner.allocator().capacity_bytes();
    const std::string within =
        "a multiple of 4096 within the pool (" + std::to_string(capacity) + " bytes)";
    if (offset % kPageBytes != 0 || offset > capacity)
        return number_error("offset", offset, within);
    if (length % kPageBytes != 0 || length > capacity - offset)
        return number_error("length", length, within);
    if (chunk_bytes % kPageBytes != 0 || chunk_bytes > kMostChunkBytes)
        return number_error("chunk_bytes", chunk_bytes,
                            "a multiple of 4096, at most " + std::to_string(kMostChunkBytes));
    auto driver = cuda::Driver::system();
    if (!driver)
        return fail(driver.error());
    return report(inner.register_cuda(**driver, offset, length ? length : capacity - offset,
                                      chunk_bytes ? chunk_bytes : cuda::kMaxPieceBytes, device));
}

int outcome(const Result<void> &result) { return result ? 0 : fail(result.error()); }

}  // namespace
}  // namespace maru::capi

using namespace maru;
using namespace maru::capi;

extern "C" {

int64_t maru_cuda_register(maru_pool *pool, uint64_t offset, uint64_t length, uint64_t chunk_bytes,
                           int device) {
    return abi_guard(
        [&]() -> int64_t { return register_memory(pool, offset, length, chunk_bytes, device); });
}

int maru_cuda_gather(const struct maru_paged_memory *memory, const uint32_t *blocks,
                     size_t blocks_per_object, void *const *objects, size_t count, int device,
                     void *stream) {
    return abi_guard([&]() -> int {
        copy::PagedMemory paged;
        copy::Transfer transfer;
        if (int bad = read_paged(memory, blocks, blocks_per_object, objects, count, false, paged,
                                 transfer))
            return bad;
        if (int bad = check_device(device))
            return bad;
        auto gpu = cuda::Device::system(device);
        if (!gpu)
            return fail(gpu.error());
        return outcome(cuda::gather(**gpu, paged, transfer, static_cast<CUstream>(stream)));
    });
}

int maru_cuda_scatter(const struct maru_paged_memory *memory, const uint32_t *blocks,
                      size_t blocks_per_object, const void *const *objects, size_t count,
                      int device, void *stream, int *ret_results) {
    return abi_guard([&]() -> int {
        copy::PagedMemory paged;
        copy::Transfer transfer;
        if (int bad = read_paged(memory, blocks, blocks_per_object, objects, count, true, paged,
                                 transfer))
            return bad;
        if (int bad = check_device(device))
            return bad;
        auto gpu = cuda::Device::system(device);
        if (!gpu)
            return fail(gpu.error());
        return outcome(
            cuda::scatter(**gpu, paged, transfer, ret_results, static_cast<CUstream>(stream)));
    });
}

int maru_cuda_wait(int device, void *stream) {
    return abi_guard([&]() -> int {
        if (int bad = check_device(device))
            return bad;
        auto gpu = cuda::Device::system(device);
        if (!gpu)
            return fail(gpu.error());
        return outcome(cuda::wait(**gpu, static_cast<CUstream>(stream)));
    });
}

}  // extern "C"
