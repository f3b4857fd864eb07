// What happens to clients in a forked child: their descriptors are closed, every call is refused.
//
// The child has no I/O thread and may have inherited a locked mutex, so nothing of a parent's client
// is ever touched there but its fork mark, which is constant. Descriptors are closed by the atfork
// handler because O_CLOEXEC acts at exec only. Closing in the child shuts nothing down in the parent:
// both have a reference to the same open file.
#pragma once

#include <cstdint>

#include "libmaru/base/unique_fd.h"

namespace maru::client {

class ForkGuard {
  public:
    // Installs the handlers, once. Called before the first descriptor is tracked.
    static void install();

    // How often this process's line has forked since; a client of another mark is the parent's.
    static uint64_t mark();

    // Between fork and exec a child must not keep these: tracked from here until untrack().
    static void track(int fd);
    static void untrack(int fd);
};

// A descriptor that a forked child does not keep.
class TrackedFd {
  public:
    TrackedFd() = default;
    explicit TrackedFd(UniqueFd fd) : fd_(std::move(fd)) {
        if (fd_)
            ForkGuard::track(fd_.get());
    }
    TrackedFd(const TrackedFd &) = delete;
    TrackedFd &operator=(const TrackedFd &) = delete;
    ~TrackedFd() {
        if (fd_)
            ForkGuard::untrack(fd_.get());
    }
    int get() const { return fd_.get(); }

  private:
    UniqueFd fd_;
};

}  // namespace maru::client
