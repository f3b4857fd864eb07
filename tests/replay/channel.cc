#include "tests/replay/channel.h"

#include <sys/socket.h>

#include <cerrno>

namespace maru::replay {

Result<void> write_all(int fd, const void *data, size_t bytes) {
    const auto *at = static_cast<const char *>(data);
    while (bytes > 0) {
        ssize_t n = ::send(fd, at, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return Error{EPIPE, "write to the other process"};
        at += n;
        bytes -= static_cast<size_t>(n);
    }
    return {};
}

Result<void> read_all(int fd, void *data, size_t bytes) {
    auto *at = static_cast<char *>(data);
    while (bytes > 0) {
        ssize_t n = ::recv(fd, at, bytes, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return Error{EPIPE, "read from the other process"};
        at += n;
        bytes -= static_cast<size_t>(n);
    }
    return {};
}

}  // namespace maru::replay
