#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>

#include "tests/bench/floors/floors.h"
#include "tests/bench/pin.h"
#include "tests/bench/suite.h"

namespace maru::bench {

namespace {

constexpr size_t kMessage = 64;

// Spinning ends look for kSpinUs before they sleep, as marud does, so an unused floor costs nothing.
ssize_t receive(int socket, char *packet, Wait wait) {
    if (wait == Wait::Block)
        return ::recv(socket, packet, kMessage, 0);
    const uint64_t until = now_ns() + kSpinUs * uint64_t{1000};
    for (;;) {
        for (int i = 0; i < 64; ++i) {
            const ssize_t got = ::recv(socket, packet, kMessage, MSG_DONTWAIT);
            if (got >= 0 || errno != EAGAIN)
                return got;
            __builtin_ia32_pause();
        }
        if (now_ns() > until)
            return ::recv(socket, packet, kMessage, 0);
    }
}

}  // namespace

PingPong::PingPong(Wait wait) : wait_(wait) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        throw std::runtime_error("socketpair");
    child_ = ::fork();
    if (child_ < 0)
        throw std::runtime_error("fork");
    if (child_ == 0) {
        pin(0, server_cpu());
        ::close(ends[0]);
        char packet[kMessage];
        for (ssize_t got; (got = receive(ends[1], packet, wait)) > 0;)
            if (::send(ends[1], packet, static_cast<size_t>(got), MSG_NOSIGNAL) != got)
                break;
        ::_exit(0);
    }
    ::close(ends[1]);
    socket_ = ends[0];
}

PingPong::~PingPong() {
    ::close(socket_);
    ::waitpid(child_, nullptr, 0);
}

double PingPong::round_us(int turns) {
    std::vector<double> times;
    char packet[kMessage] = {};
    for (int i = 0; i < turns + 10; ++i) {
        const uint64_t begin = now_ns();
        if (::send(socket_, packet, sizeof packet, MSG_NOSIGNAL) != sizeof packet ||
            receive(socket_, packet, wait_) != sizeof packet)
            throw std::runtime_error("ping-pong: the other end is gone");
        if (i >= 10)  // the first wake an idle processor
            times.push_back(us_since(begin));
    }
    return median(times);
}

}  // namespace maru::bench
