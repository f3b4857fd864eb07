#include "libmaru/cuda/pinned_ranges.h"

#include <iterator>
#include <mutex>

namespace maru::cuda {

PinnedRanges &PinnedRanges::process() {
    static auto *ranges = new PinnedRanges;  // pools may be unpinned after static objects are gone
    return *ranges;
}

void PinnedRanges::add(const void *data, uint64_t bytes) {
    const std::unique_lock lock(mutex_);
    const auto begin = reinterpret_cast<uintptr_t>(data);
    end_of_[begin] = begin + bytes;
}

void PinnedRanges::remove(const void *data) {
    const std::unique_lock lock(mutex_);
    end_of_.erase(reinterpret_cast<uintptr_t>(data));
}

bool PinnedRanges::covers(const void *data, uint64_t bytes) const {
    const auto begin = reinterpret_cast<uintptr_t>(data);
    const std::shared_lock lock(mutex_);
    auto it = end_of_.upper_bound(begin);
    if (it == end_of_.begin())
        return false;
    uintptr_t reached = std::prev(it)->second;
    for (; reached < begin + bytes && it != end_of_.end() && it->first == reached; ++it)
        reached = it->second;
    return reached >= begin + bytes;
}

}  // namespace maru::cuda
