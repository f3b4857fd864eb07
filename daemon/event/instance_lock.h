// InstanceLock: at most one marud per runtime directory.
//
// Ownership is the flock alone, which the kernel drops with the process. The pid written into the
// file is for people; it is never read back, because numbers are given to other programs again.
#pragma once

#include <string>

#include "libmaru/base/result.h"
#include "libmaru/base/unique_fd.h"

namespace maru {

class InstanceLock {
  public:
    // Waits up to `wait_ms` for a predecessor that is just ending. EBUSY names the holder.
    static Result<InstanceLock> take(const std::string &directory, int wait_ms);

  private:
    explicit InstanceLock(UniqueFd fd) : fd_(std::move(fd)) {}
    UniqueFd fd_;  // the file stays when we go: removing it would let two starts hold two files
};

}  // namespace maru
