// One packet with its descriptors over a SOCK_SEQPACKET Unix socket. Never blocks unless asked.
//
// The kernel keeps message boundaries and delivers descriptors with their message. Every received
// descriptor is owned (CLOEXEC) from the moment recvmsg returns.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <vector>

#include "libmaru/base/result.h"
#include "libmaru/base/unique_fd.h"
#include "libmaru/wire/limits.h"

namespace maru::wire {

struct Packet {
    std::span<std::byte> bytes;  // inside the caller's buffer, 8-byte aligned
    std::vector<UniqueFd> fds;   // in the order they were sent
    bool truncated = false;      // larger than the buffer
    bool fds_lost = false;       // MSG_CTRUNC: the kernel could not install all of them
    pid_t sender_pid = 0;        // SCM_CREDENTIALS, when SO_PASSCRED is set
};

// Error codes: EAGAIN nothing there now; EPIPE the peer is gone (a zero-length read). An empty packet
// that brought descriptors is returned, so that the caller may close them where that may block.
// Wait::Bounded: sleeps for the time of allow_waiting() at most, or until a signal (EAGAIN).
enum class Wait { Never, Bounded };
Result<Packet> receive_packet(int socket, std::span<std::byte> buffer, Wait wait = Wait::Never);
// False: this socket cannot; poll it.
bool allow_waiting(int socket, int64_t longest_ns);
// Error codes: EAGAIN/ENOBUFS retry later; EPIPE/ECONNRESET the peer is gone; EMSGSIZE; ETOOMANYREFS
// too many descriptors of this user are in flight; EINVAL more than kMaxDescriptors.
Result<void> send_packet(int socket, std::span<const std::byte> bytes,
                         std::span<const int> fds = {});
// The same: 0 or the code, for who sends many and says nothing of what fails.
int try_send_packet(int socket, std::span<const std::byte> bytes, std::span<const int> fds = {});
// Waits for POLLIN or POLLOUT until `deadline` (CLOCK_MONOTONIC ns). ETIMEDOUT.
Result<void> wait_socket(int socket, short events, int64_t deadline_ns);

// The socket is non-blocking. A full backlog is retried until the deadline (ETIMEDOUT).
Result<UniqueFd> connect_seqpacket(const std::string &path, int64_t deadline_ns);
// Binds and listens; for a path in use by a living listener: EADDRINUSE naming the path. A left-over
// socket nobody listens on is replaced; anything that is not a socket is refused untouched (EEXIST).
// Starters take turns by PATH.lock, which stays behind: exactly one of those that race gets the path.
Result<UniqueFd> listen_seqpacket(const std::string &path, unsigned mode);
// The same for a stream socket, which other programs than ours connect to.
Result<UniqueFd> listen_stream(const std::string &path, unsigned mode);
Result<UniqueFd> connect_stream(const std::string &path, int64_t deadline_ns);

}  // namespace maru::wire
