// PoolPins: which parts of a pool are registered with CUDA.
//
// Only memory that stands behind the pool is registered, piece by piece as it grows; none is registered
// twice. It has a lock of its own: registering gigabytes takes seconds, for which nobody else may wait.
// Everything is unregistered before the pool's memory is unmapped, and nothing is registered after that.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "libmaru/base/result.h"
#include "libmaru/cuda/pinning.h"

namespace maru::client {

class PoolPins {
  public:
    // Registers what is missing of [begin, end), offsets in the pool, whose memory begins at `data`, for
    // the GPU `device`, in pieces of at most `piece_bytes`. After an error, what was registered before
    // stays. EBUSY after clear().
    Result<void> add(const cuda::Driver &driver, std::byte *data, uint64_t begin, uint64_t end,
                     uint64_t piece_bytes, int device);
    // Bytes of [begin, end) that are registered.
    uint64_t covered(uint64_t begin, uint64_t end) const;
    // All of it, on any thread.
    uint64_t bytes() const { return bytes_; }
    // Unregisters everything, for good.
    void clear();

  private:
    struct Range {
        uint64_t end;
        cuda::Pinning pinning;
    };
    mutable std::mutex mutex_;
    std::map<uint64_t, Range> ranges_;  // by begin
    std::atomic<uint64_t> bytes_{0};
    bool closed_ = false;
};

}  // namespace maru::client
