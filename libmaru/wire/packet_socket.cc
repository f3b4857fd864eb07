#include "libmaru/wire/packet_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "libmaru/base/clock.h"

namespace maru::wire {

namespace {

// Room for every descriptor the kernel may deliver: without room it would drop them in our thread,
// and dropping the last reference to a file can block.
constexpr size_t kControlBytes =
    CMSG_SPACE(kMaxDescriptors * sizeof(int)) + CMSG_SPACE(sizeof(ucred));

void take_control(msghdr &header, Packet *packet) {
    for (cmsghdr *c = CMSG_FIRSTHDR(&header); c; c = CMSG_NXTHDR(&header, c)) {
        if (c->cmsg_level != SOL_SOCKET)
            continue;
        const size_t bytes = c->cmsg_len - CMSG_LEN(0);
        if (c->cmsg_type == SCM_RIGHTS) {
            const size_t n = bytes / sizeof(int);
            packet->fds.reserve(packet->fds.size() + n);
            for (size_t i = 0; i < n; ++i) {
                int fd;
                std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
                packet->fds.emplace_back(fd);
            }
        } else if (c->cmsg_type == SCM_CREDENTIALS && bytes >= sizeof(ucred)) {
            ucred credentials;
            std::memcpy(&credentials, CMSG_DATA(c), sizeof credentials);
            packet->sender_pid = credentials.pid;
        }
    }
}

// What was received, and what came with it. It is made where it is returned: to move it costs more.
Result<Packet> packet_of(msghdr &header, std::span<std::byte> bytes) {
    Result<Packet> received{Packet()};
    Packet &packet = *received;
    if (header.msg_controllen > 0)
        take_control(header, &packet);
    packet.bytes = bytes;
    packet.truncated = header.msg_flags & MSG_TRUNC;
    packet.fds_lost = header.msg_flags & MSG_CTRUNC;
    // The end of the stream. An empty packet that brings descriptors is handed out all the same:
    // the caller closes them where closing may block.
    if (bytes.empty() && packet.fds.empty() && !packet.fds_lost)
        received = Error{EPIPE, "receive packet: the peer is gone"};
    return received;
}

ssize_t send_with(int socket, std::span<const std::byte> bytes, std::span<const int> fds) {
    alignas(cmsghdr) char control[CMSG_SPACE(kMaxDescriptors * sizeof(int))];
    iovec part{const_cast<std::byte *>(bytes.data()), bytes.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    const size_t space = CMSG_SPACE(fds.size_bytes());
    std::memset(control, 0, space);
    header.msg_control = control;
    header.msg_controllen = space;
    cmsghdr *c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
    return ::sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

bool allow_waiting(int socket, int64_t longest_ns) {
    const timeval longest{longest_ns / 1'000'000'000, longest_ns % 1'000'000'000 / 1000};
    const int flags = ::fcntl(socket, F_GETFL);
    return flags >= 0 &&
           ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof longest) == 0 &&
           ::fcntl(socket, F_SETFL, flags & ~O_NONBLOCK) == 0;
}

Result<Packet> receive_packet(int socket, std::span<std::byte> buffer, Wait wait) {
    assert(reinterpret_cast<uintptr_t>(buffer.data()) % 8 == 0);
    alignas(cmsghdr) char control[kControlBytes];
    iovec part{buffer.data(), buffer.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    const auto receive = [&] {
        ssize_t got;
        do {
            got = ::recvmsg(socket, &header,
                            MSG_CMSG_CLOEXEC | (wait == Wait::Never ? MSG_DONTWAIT : 0));
        } while (got < 0 && errno == EINTR && wait == Wait::Never);
        return got;
    };
    ssize_t n = receive();
    // A peer that closed with packets unread resets the connection, and the kernel says so before it
    // hands out what the peer had sent: often the reason for the close.
    if (n < 0 && errno == ECONNRESET)
        n = receive();
    if (n < 0) {
        const int code = errno == EWOULDBLOCK || errno == EINTR     ? EAGAIN
                         : errno == ECONNRESET || errno == ENOTCONN ? EPIPE
                                                                    : errno;
        return Error{code, "receive packet"};
    }
    return packet_of(header, buffer.first(static_cast<size_t>(n)));
}

int try_send_packet(int socket, std::span<const std::byte> bytes, std::span<const int> fds) {
    if (fds.size() > kMaxDescriptors)
        return EINVAL;
    ssize_t n;
    do {
        // Nearly always without descriptors, and then the kernel has no header to read.
        n = fds.empty() ? ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT)
                        : send_with(socket, bytes, fds);
    } while (n < 0 && errno == EINTR);
    if (n >= 0)
        return 0;
    return errno == EWOULDBLOCK ? EAGAIN
           : errno == ENOMEM    ? ENOBUFS  // no kernel memory now: the same remedy
           : errno == ENOTCONN  ? EPIPE
                                : errno;
}

Result<void> send_packet(int socket, std::span<const std::byte> bytes, std::span<const int> fds) {
    const int code = try_send_packet(socket, bytes, fds);
    if (code == 0)
        return {};
    if (fds.size() > kMaxDescriptors)
        return Error{code, "send packet: " + std::to_string(fds.size()) + " descriptors, at most " +
                               std::to_string(kMaxDescriptors)};
    return Error{code, "send packet of " + std::to_string(bytes.size()) + " bytes"};
}

Result<void> wait_socket(int socket, short events, int64_t deadline_ns) {
    for (;;) {
        const int64_t left = std::max<int64_t>(deadline_ns - monotonic_ns(), 0);
        const timespec timeout{left / 1'000'000'000, left % 1'000'000'000};
        pollfd entry{socket, events, 0};
        const int n = ::ppoll(&entry, 1, &timeout, nullptr);
        if (n > 0) {
            if (entry.revents & POLLNVAL)
                return Error{EBADF, "wait for socket"};
            return {};  // also for POLLHUP and POLLERR: the next call on the socket says why
        }
        if (n == 0)
            return Error{ETIMEDOUT, "wait for socket"};
        if (errno != EINTR)
            return Error{errno, "wait for socket"};
    }
}

}  // namespace maru::wire
