#include "libmaru/client/view_table.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>

// Linux 5.14, like MADV_POPULATE_WRITE.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

namespace maru::client {
namespace {

// Some hundred microseconds of one thread that also keeps the heartbeat.
constexpr uint64_t kStepBytes = 2 << 20;
constexpr size_t kMaxExtents = 1024;  // what lies behind them is faulted in by readers

}  // namespace

View *ViewTable::find(wire::Id pool, uint64_t offset, uint64_t length) const {
    auto after = views_.upper_bound({pool, offset});
    if (after == views_.begin())
        return nullptr;
    const auto &[place, view] = *std::prev(after);
    return place.first == pool && view->contains(offset, length) ? view.get() : nullptr;
}

Result<View *> ViewTable::map(const wire::ViewReply &place, UniqueFd fd) {
    UniqueFd source;  // without one, readers fault
    if (!place.huge)  // hugetlb pages are there already
        source.reset(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
    auto segment = pool::Segment::map_for_reading(std::move(fd), place.bytes, place.huge);
    if (!segment)
        return segment.error();
    auto view = std::make_unique<View>(place, std::move(*segment));
    if (source) {
        view->source_ = std::make_unique<TrackedFd>(std::move(source));
        view->populated_ = false;
    }
    if (auto earlier = views_.find({place.pool, place.offset}); earlier != views_.end())
        retire(*earlier->second);
    View &added = *view;
    views_.emplace(Place{place.pool, place.offset}, std::move(view));
    unpopulated_ += !added.populated_;
    return &added;
}

void ViewTable::leave(View &view) {
    if (--view.users_ > 0 || !view.gone_)
        return;
    auto [at, end] = retired_.equal_range({view.place_.pool, view.place_.offset});
    while (at != end && at->second.get() != &view)
        ++at;
    retired_.erase(at);
}

void ViewTable::retire(View &view) {
    if (view.gone_)
        return;
    populated(view);
    view.source_.reset();
    view.gone_ = true;
    auto node = views_.extract({view.place_.pool, view.place_.offset});
    if (view.users_ > 0)
        retired_.insert(std::move(node));  // allocates nothing
}

void ViewTable::gone(wire::Id pool, uint32_t segment) {
    for (auto at = views_.lower_bound({pool, 0}); at != views_.end() && at->first.first == pool;
         ++at)
        if (at->second->place_.segment == segment)
            return retire(*at->second);
}

void ViewTable::forget_unused() {
    for (auto at = views_.begin(); at != views_.end();) {
        View &view = *at->second;
        ++at;
        if (view.users_ == 0)
            retire(view);
    }
}

void ViewTable::populated(View &view) {
    if (!std::exchange(view.populated_, true))
        --unpopulated_;
}

// Pages that nobody has written are not there, and to fault one in would make it, for good and at
// the reader's expense.
std::vector<View::Extent> ViewTable::existing(int fd, uint64_t bytes) {
    std::vector<View::Extent> found;
    try {
        for (uint64_t at = 0; at < bytes && found.size() < kMaxExtents;) {
            const off_t begin = ::lseek(fd, static_cast<off_t>(at), SEEK_DATA);
            if (begin < 0)
                break;  // ENXIO: only a hole is left
            const off_t end = ::lseek(fd, begin, SEEK_HOLE);
            if (end <= begin)
                break;
            at = std::min(static_cast<uint64_t>(end), bytes);
            found.push_back({static_cast<uint64_t>(begin), at});
        }
    } catch (const std::bad_alloc &) {  // advice is all that this is for
    }
    std::reverse(found.begin(), found.end());
    return found;
}

bool ViewTable::populate_step(std::unique_lock<std::mutex> &lock) {
    if (unpopulated_ == 0)
        return false;
    auto found = std::find_if(views_.begin(), views_.end(),
                              [](const auto &entry) { return !entry.second->populated_; });
    View &view = *found->second;
    use(view);
    if (auto source = std::move(view.source_)) {
        lock.unlock();
        auto extents = existing(source->get(), view.place_.bytes);
        source.reset();
        lock.lock();
        view.extents_ = std::move(extents);
    } else {
        View::Extent &next = view.extents_.back();
        const uint64_t bytes = std::min(kStepBytes, next.end - next.begin);
        std::byte *at = view.segment_.data() + next.begin;
        lock.unlock();
        // Refused, the reader faults by itself.
        const bool refused = ::madvise(at, bytes, MADV_POPULATE_READ) != 0;
        lock.lock();
        next.begin += bytes;
        if (refused)
            view.extents_.clear();
        else if (next.begin == next.end)
            view.extents_.pop_back();
    }
    if (view.extents_.empty())
        populated(view);
    leave(view);
    return true;
}

}  // namespace maru::client
