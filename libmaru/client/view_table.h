// ViewTable: segments of others that this process maps to read, one mapping for all leases in it.
//
// A view is made when the first lease in its segment is taken and then kept, so that later hits
// cost no call. It goes when marud says that nothing of the segment is lent any more, or does not
// know a lease in it, and no lease here is left in it; a lease's address stays valid as long as the
// lease. Nothing new is found in a view that goes: another file may stand in its place by then. The
// descriptor is closed before anything is populated, and a forked child inherits neither it nor the
// mapping. Guarded by the session's lock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "libmaru/client/fork_guard.h"
#include "libmaru/pool/segment.h"
#include "libmaru/wire/messages.h"

namespace maru::client {

class View {
  public:
    View(const wire::ViewReply &place, pool::Segment segment)
        : place_(place), segment_(std::move(segment)) {}
    const std::byte *at(uint64_t offset) const {
        return segment_.data() + (offset - place_.offset);
    }
    bool contains(uint64_t offset, uint64_t length) const {
        return offset >= place_.offset && offset - place_.offset < place_.bytes &&
               length <= place_.bytes - (offset - place_.offset);
    }

  private:
    friend class ViewTable;
    struct Extent {
        uint64_t begin, end;
    };
    const wire::ViewReply place_;
    pool::Segment segment_;
    uint32_t users_ = 0;  // entries of HeldTable with leases, and whoever works on it
    bool gone_ = false;
    bool populated_ = true;              // there is nothing to fault in, any more
    std::unique_ptr<TrackedFd> source_;  // until the extents are known
    std::vector<Extent> extents_;        // of the file, not faulted in yet; the first one last
};

class ViewTable {
  public:
    // nullptr: not mapped yet.
    View *find(wire::Id pool, uint64_t offset, uint64_t length) const;
    // In the place of an earlier one. EPROTO: the descriptor is not one to read safely through.
    // Throws bad_alloc.
    Result<View *> map(const wire::ViewReply &place, UniqueFd fd);
    void use(View &view) { ++view.users_; }
    void leave(View &view);
    // Not found any more; unmapped when the last user leaves.
    void retire(View &view);
    void gone(wire::Id pool, uint32_t segment);
    // What was said over a connection that is lost was not heard: all that nobody uses goes.
    void forget_unused();
    size_t size() const { return views_.size() + retired_.size(); }

    // Faults the next pieces in, so that readers need not; the lock is released meanwhile. False:
    // there are none.
    bool populate_step(std::unique_lock<std::mutex> &lock);

  private:
    using Place = std::pair<wire::Id, uint64_t>;  // pool and offset
    static std::vector<View::Extent> existing(int fd, uint64_t bytes);
    void populated(View &view);
    std::map<Place, std::unique_ptr<View>> views_;
    std::multimap<Place, std::unique_ptr<View>> retired_;  // in use still
    uint32_t unpopulated_ = 0;                             // of views_
};

}  // namespace maru::client
