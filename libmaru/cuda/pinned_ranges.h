// PinnedRanges: which host memory of this process a GPU may read and write by itself.
//
// Only what Pinning registered is in it. Memory that is not is never given to a kernel: a kernel that
// touches one byte of it ends every CUDA context of the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <shared_mutex>

namespace maru::cuda {

class PinnedRanges {
  public:
    static PinnedRanges &process();

    void add(const void *data, uint64_t bytes);
    void remove(const void *data);  // one that was added
    // Every byte is registered, perhaps in several pieces.
    bool covers(const void *data, uint64_t bytes) const;

  private:
    mutable std::shared_mutex mutex_;
    std::map<uintptr_t, uintptr_t> end_of_;  // by begin; they never overlap
};

}  // namespace maru::cuda
