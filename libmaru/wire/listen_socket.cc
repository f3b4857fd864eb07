// Listening and connecting: who owns a socket path.
//
// A path belongs to whoever listens on it. Starters take turns under a lock file beside it, so that
// between "nobody listens there" and "I do" no other starter can look. The lock is needed only while
// starting: afterwards the listener itself is the proof.
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "libmaru/base/clock.h"
#include "libmaru/wire/packet_socket.h"

namespace maru::wire {

namespace {

// A starter holds the lock for a few system calls; one that was stopped in between holds it longer.
constexpr int64_t kLockWaitNs = 5'000'000'000;

void pause_ns(int64_t ns) {
    const timespec time{ns / 1'000'000'000, ns % 1'000'000'000};
    ::ppoll(nullptr, 0, &time, nullptr);
}

std::string quoted(const std::string &path) { return "'" + path + "'"; }

Result<sockaddr_un> socket_address(const std::string &path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const size_t limit = sizeof address.sun_path - 1;
    if (path.empty())
        return Error{EINVAL, "socket path '': must not be empty"};
    if (path.find('\0') != std::string::npos)
        return Error{EINVAL, "socket path " + quoted(path.substr(0, path.find('\0'))) +
                                 ": must not contain NUL"};
    if (path.size() > limit)
        return Error{ENAMETOOLONG, "socket path " + quoted(path) + ": " +
                                       std::to_string(path.size()) + " bytes, at most " +
                                       std::to_string(limit)};
    std::memcpy(address.sun_path, path.data(), path.size());
    return address;
}

Result<UniqueFd> new_socket(int type) {
    UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd)
        return Error{errno, "create socket"};
    return fd;
}

// 0, or the errno of one connect.
int connect_once(int fd, const sockaddr_un &address) {
    for (;;) {
        if (::connect(fd, reinterpret_cast<const sockaddr *>(&address), sizeof address) == 0)
            return 0;
        if (errno != EINTR)
            return errno;
    }
}

Result<UniqueFd> lock_path(const std::string &path) {
    const std::string lock = path + ".lock";
    UniqueFd fd(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd)
        return Error{errno, "open lock file " + quoted(lock)};
    const int64_t deadline = monotonic_ns() + kLockWaitNs;
    while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return Error{errno, "lock " + quoted(lock)};
        if (monotonic_ns() >= deadline)
            return Error{EADDRINUSE, "lock " + quoted(lock) +
                                         ": another process has been starting there for 5 s"};
        pause_ns(2'000'000);
    }
    return fd;
}

// Under the lock: removes a socket that nobody listens on. Touches nothing else.
Result<void> clear_path(const std::string &path, const sockaddr_un &address, int type) {
    struct stat found;
    if (::lstat(path.c_str(), &found) != 0) {
        if (errno == ENOENT)
            return {};
        return Error{errno, "look at " + quoted(path)};
    }
    if (!S_ISSOCK(found.st_mode))
        return Error{EEXIST,
                     "listen on " + quoted(path) + ": there is a file that is not a socket"};
    auto probe = new_socket(type);
    if (!probe)
        return probe.error();
    switch (const int code = connect_once(probe->get(), address)) {
        case ECONNREFUSED:
            if (::unlink(path.c_str()) != 0 && errno != ENOENT)
                return Error{errno, "remove left-over socket " + quoted(path)};
            return {};
        case ENOENT:
            return {};
        case 0:
        case EAGAIN:      // listens, with a full backlog
        case EPROTOTYPE:  // somebody's socket of another type
            return Error{EADDRINUSE, "listen on " + quoted(path)};
        default:
            return Error{code, "find out who listens on " + quoted(path)};
    }
}

Result<UniqueFd> connect_to(const std::string &path, int type, int64_t deadline_ns) {
    const auto address = socket_address(path);
    if (!address)
        return address.error();
    auto fd = new_socket(type);
    if (!fd)
        return fd;
    // A full backlog has no event to wait for: try again, less and less often.
    for (int64_t pause = 500'000;; pause = std::min<int64_t>(pause * 2, 20'000'000)) {
        const int code = connect_once(fd->get(), *address);
        if (code == 0)
            return fd;
        if (code != EAGAIN)
            return Error{code, "connect to " + quoted(path)};
        const int64_t left = deadline_ns - monotonic_ns();
        if (left <= 0)
            return Error{ETIMEDOUT, "connect to " + quoted(path) + ": its queue stays full"};
        pause_ns(std::min(pause, left));
    }
}

Result<UniqueFd> listen_at(const std::string &path, int type, unsigned mode) {
    const auto address = socket_address(path);
    if (!address)
        return address.error();
    auto lock = lock_path(path);
    if (!lock)
        return lock.error();
    if (auto cleared = clear_path(path, *address, type); !cleared)
        return cleared.error();
    auto fd = new_socket(type);
    if (!fd)
        return fd;
    // The file takes its mode from the socket at bind, less the umask: so it is never wider than asked.
    if (::fchmod(fd->get(), mode) != 0)
        return Error{errno, "set mode of " + quoted(path)};
    if (::bind(fd->get(), reinterpret_cast<const sockaddr *>(&*address), sizeof *address) != 0)
        return Error{errno, "bind " + quoted(path)};
    if (::chmod(path.c_str(), mode) != 0 || ::listen(fd->get(), SOMAXCONN) != 0) {
        const int code = errno;
        ::unlink(path.c_str());
        return Error{code, "listen on " + quoted(path)};
    }
    return fd;
}

}  // namespace

Result<UniqueFd> connect_seqpacket(const std::string &path, int64_t deadline_ns) {
    return connect_to(path, SOCK_SEQPACKET, deadline_ns);
}

Result<UniqueFd> connect_stream(const std::string &path, int64_t deadline_ns) {
    return connect_to(path, SOCK_STREAM, deadline_ns);
}

Result<UniqueFd> listen_seqpacket(const std::string &path, unsigned mode) {
    return listen_at(path, SOCK_SEQPACKET, mode);
}

Result<UniqueFd> listen_stream(const std::string &path, unsigned mode) {
    return listen_at(path, SOCK_STREAM, mode);
}

}  // namespace maru::wire
