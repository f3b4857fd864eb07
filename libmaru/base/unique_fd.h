// UniqueFd: owns one descriptor and closes it exactly once.
#pragma once

#include <unistd.h>

#include <utility>

namespace maru {

class UniqueFd {
  public:
    UniqueFd() = default;
    explicit UniqueFd(int fd) : fd_(fd) {}
    UniqueFd(UniqueFd &&other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    UniqueFd &operator=(UniqueFd &&other) noexcept {
        reset(std::exchange(other.fd_, -1));
        return *this;
    }
    ~UniqueFd() { reset(); }

    explicit operator bool() const { return fd_ >= 0; }
    int get() const { return fd_; }
    int release() { return std::exchange(fd_, -1); }
    void reset(int fd = -1) {
        // Linux releases the number even when close fails: never retried.
        if (int old = std::exchange(fd_, fd); old >= 0)
            ::close(old);
    }

  private:
    int fd_ = -1;
};

}  // namespace maru
