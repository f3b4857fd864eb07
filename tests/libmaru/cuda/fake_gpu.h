// FakeGpu: a GPU of the tests, behind the functions of the driver that are used.
//
// A stream does nothing before it is waited for: who commits or reads too early sees old bytes. Registered
// host memory has other addresses on the GPU, and a kernel that touches anything else is the error it is
// on a real one. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "libmaru/cuda/driver_types.h"
#include "tests/libmaru/cuda/reference.h"

namespace maru::cuda {

class FakeGpu {
  public:
    // Where the GPU sees registered memory.
    static constexpr uint64_t kShift = uint64_t{1} << 46;

    CUresult add(void *data, size_t bytes) {
        const std::lock_guard lock(mutex_);
        const auto begin = reinterpret_cast<uintptr_t>(data);
        for (auto [first, size] : registered_)
            if (begin < first + size && first < begin + bytes)
                return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
        registered_[begin] = bytes;
        return CUDA_SUCCESS;
    }
    CUresult remove(void *data) {
        const std::lock_guard lock(mutex_);
        return registered_.erase(reinterpret_cast<uintptr_t>(data)) == 1 ? CUDA_SUCCESS
                                                                         : CUDA_ERROR_INVALID_VALUE;
    }
    CUresult address(CUdeviceptr *device, void *data) {
        const std::lock_guard lock(mutex_);
        if (!host(reinterpret_cast<uintptr_t>(data) + kShift, 1))
            return CUDA_ERROR_INVALID_VALUE;
        *device = reinterpret_cast<uintptr_t>(data) + kShift;
        return CUDA_SUCCESS;
    }
    CUresult launch(reference::Direction direction, const Batch &batch, CUstream stream) {
        const std::lock_guard lock(mutex_);
        if (lost_)
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        ++launches_[stream];
        waiting_[stream].push_back([this, direction, batch] {
            return reference::well_formed(batch) &&
                   reference::run(batch, direction, [this](uint64_t address, uint64_t bytes) {
                       return host(address, bytes);
                   });
        });
        return CUDA_SUCCESS;
    }
    // Of memory that is not registered: taken at once, as the driver stages it.
    CUresult to_device(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
        const std::lock_guard lock(mutex_);
        ++copies_;
        const auto *begin = static_cast<const std::byte *>(from);
        std::vector<std::byte> staged(begin, begin + bytes);
        waiting_[stream].push_back([to, staged = std::move(staged)] {
            std::memcpy(reinterpret_cast<void *>(to), staged.data(), staged.size());
            return true;
        });
        return CUDA_SUCCESS;
    }
    // Returns when it is there, and with it all that was before it.
    CUresult to_host(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
        const std::lock_guard lock(mutex_);
        ++copies_;
        if (const CUresult failed = finish(stream); failed != CUDA_SUCCESS)
            return failed;
        std::memcpy(to, reinterpret_cast<const void *>(from), bytes);
        return CUDA_SUCCESS;
    }
    CUresult synchronize(CUstream stream) {
        const std::lock_guard lock(mutex_);
        return finish(stream);
    }

    size_t launches(CUstream stream) {
        const std::lock_guard lock(mutex_);
        return launches_[stream];
    }
    size_t copies() {
        const std::lock_guard lock(mutex_);
        return copies_;
    }
    uint64_t registered_bytes() {
        const std::lock_guard lock(mutex_);
        uint64_t sum = 0;
        for (auto [first, size] : registered_)
            sum += size;
        return sum;
    }

  private:
    void *host(uint64_t address, uint64_t bytes) {
        const uint64_t begin = address - kShift;
        auto it = registered_.upper_bound(begin);
        if (it == registered_.begin())
            return nullptr;
        uint64_t reached = std::prev(it)->first + std::prev(it)->second;
        for (; reached < begin + bytes && it != registered_.end() && it->first == reached; ++it)
            reached += it->second;
        return reached >= begin + bytes ? reinterpret_cast<void *>(begin) : nullptr;
    }
    CUresult finish(CUstream stream) {
        for (auto &work : waiting_[stream])
            lost_ = lost_ || !work();
        waiting_[stream].clear();
        return lost_ ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
    }

    std::mutex mutex_;
    std::map<uint64_t, uint64_t> registered_;  // bytes, by the CPU's address
    std::map<CUstream, std::vector<std::function<bool()>>> waiting_;
    std::map<CUstream, size_t> launches_;
    size_t copies_ = 0;
    bool lost_ = false;
};

// The two kernels of a module of the fake.
inline CUfunction fake_function(const char *name) {
    if (std::strcmp(name, "maru_cuda_gather") == 0)
        return reinterpret_cast<CUfunction>(uintptr_t{1});
    if (std::strcmp(name, "maru_cuda_scatter") == 0)
        return reinterpret_cast<CUfunction>(uintptr_t{2});
    return nullptr;
}
inline CUresult fake_launch(FakeGpu &gpu, CUfunction function, unsigned grid, unsigned threads,
                            CUstream stream, void **parameters) {
    if (grid < 1 || grid > kMaxGrid || threads != kThreadsPerBlock)
        return CUDA_ERROR_INVALID_VALUE;
    return gpu.launch(function == fake_function("maru_cuda_gather") ? reference::Direction::Gather
                                                                    : reference::Direction::Scatter,
                      *static_cast<const Batch *>(parameters[0]), stream);
}

}  // namespace maru::cuda
