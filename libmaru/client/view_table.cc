#include "libmaru/client/view_table.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

// Linux 5.14, like MADV_POPULATE_WRITE.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

namespace maru::client {
namespace {

// Some hundred microseconds of one thread that also keeps the heartbeat.
constexpr uint64_t kStepBytes = 2 << 20;

}  // namespace

View *ViewTable::find(wire::Id pool, uint64_t offset, uint64_t length) const {
    auto after = views_.upper_bound({pool, offset});
    if (after == views_.begin())
        return nullptr;
    const auto &[place, view] = *std::prev(after);
    return place.first == pool && !view->gone_ && view->contains(offset, length) ? view.get()
                                                                                 : nullptr;
}

Result<View *> ViewTable::map(const wire::ViewReply &place, UniqueFd fd) {
    auto segment = pool::Segment::map_for_reading(std::move(fd), place.bytes, place.huge);
    if (!segment)
        return segment.error();
    const auto [at, added] = views_.try_emplace({place.pool, place.offset},
                                                std::make_unique<View>(place, std::move(*segment)));
    if (!added)  // of a segment that is gone, and is read to its end still
        return Error{EBUSY, "pool segment: an earlier one of the same place is still read"};
    ++unpopulated_;
    return at->second.get();
}

void ViewTable::leave(View &view) {
    if (--view.users_ == 0 && view.gone_)
        remove(view);
}

void ViewTable::gone(wire::Id pool, uint32_t segment) {
    for (auto at = views_.lower_bound({pool, 0}); at != views_.end() && at->first.first == pool;
         ++at) {
        View &view = *at->second;
        if (view.place_.segment != segment)
            continue;
        view.gone_ = true;
        if (view.users_ == 0)
            remove(view);
        return;
    }
}

void ViewTable::forget_unused() {
    for (auto at = views_.begin(); at != views_.end();) {
        View &view = *at->second;
        ++at;
        if (view.users_ == 0)
            remove(view);
    }
}

void ViewTable::remove(View &view) {
    unpopulated_ -= view.populated_ < view.place_.bytes;
    views_.erase({view.place_.pool, view.place_.offset});
}

bool ViewTable::populate_step(std::unique_lock<std::mutex> &lock) {
    if (unpopulated_ == 0)
        return false;
    auto found = std::find_if(views_.begin(), views_.end(), [](const auto &entry) {
        return entry.second->populated_ < entry.second->place_.bytes;
    });
    View &view = *found->second;
    const uint64_t bytes = std::min(kStepBytes, view.place_.bytes - view.populated_);
    std::byte *at = view.segment_.data() + view.populated_;
    use(view);
    lock.unlock();
    // Advice: refused, the reader faults by itself. A page that nobody has written yet is allocated
    // by this, once, and within what marud counts for the segment.
    const bool refused = ::madvise(at, bytes, MADV_POPULATE_READ) != 0;
    lock.lock();
    view.populated_ = refused ? view.place_.bytes : view.populated_ + bytes;
    unpopulated_ -= view.populated_ == view.place_.bytes;
    leave(view);
    return true;
}

}  // namespace maru::client
