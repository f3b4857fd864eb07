#include "libmaru/client/pool_pins.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

namespace maru::client {

Result<void> PoolPins::add(const cuda::Driver &driver, std::byte *data, uint64_t begin,
                           uint64_t end, uint64_t piece_bytes, int device) {
    const std::lock_guard lock(mutex_);
    if (closed_)
        return Error{EBUSY, "register pool memory: the pool is being closed"};
    uint64_t at = begin;
    while (at < end) {
        auto next = ranges_.upper_bound(at);
        if (next != ranges_.begin() && std::prev(next)->second.end > at) {
            at = std::prev(next)->second.end;
            continue;
        }
        const uint64_t stop = next == ranges_.end() ? end : std::min(end, next->first);
        auto pinned =
            cuda::Pinning::pin(driver, data + (at - begin), stop - at, device, piece_bytes);
        if (!pinned)
            return pinned.error();
        bytes_ += pinned->pinned_bytes();
        ranges_.emplace(at, Range{stop, std::move(*pinned)});
        at = stop;
    }
    return {};
}

uint64_t PoolPins::covered(uint64_t begin, uint64_t end) const {
    const std::lock_guard lock(mutex_);
    uint64_t bytes = 0;
    for (const auto &[first, range] : ranges_)
        if (first < end && range.end > begin)
            bytes += std::min(end, range.end) - std::max(begin, first);
    return bytes;
}

void PoolPins::clear() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    ranges_.clear();
    bytes_ = 0;
}

}  // namespace maru::client
