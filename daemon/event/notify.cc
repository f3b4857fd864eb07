#include "daemon/event/notify.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace maru {

Notifier::Notifier(const std::string &address) {
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    if (address.size() < 2 || address.size() >= sizeof name.sun_path ||
        (address[0] != '/' && address[0] != '@'))
        return;
    std::memcpy(name.sun_path, address.data(), address.size());
    if (address[0] == '@')
        name.sun_path[0] = '\0';
    auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size());
    UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    // Connected, so that poll() tells when the receiver's queue has room again.
    if (fd && ::connect(fd.get(), reinterpret_cast<sockaddr *>(&name), length) == 0)
        socket_ = std::move(fd);
}

Notifier Notifier::from_environment() {
    const char *address = ::getenv("NOTIFY_SOCKET");
    std::string copy = address ? address : "";
    ::unsetenv("NOTIFY_SOCKET");
    return copy.empty() ? Notifier() : Notifier(copy);
}

bool Notifier::try_send(std::string_view text, std::span<const int> fds) {
    iovec part = {const_cast<char *>(text.data()), text.size()};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {};
    if (!fds.empty()) {
        size_t count = std::min<size_t>(fds.size(), 8);
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(count * sizeof(int));
        std::memcpy(CMSG_DATA(header), fds.data(), count * sizeof(int));
    }
    for (;;) {
        if (::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
            return true;
        if (errno == EINTR)
            continue;
        if (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS)
            return false;
        ++dropped_;  // the manager is gone, or will not have it: waiting would not help
        return true;
    }
}

void Notifier::send(std::string_view text, std::span<const int> fds) {
    if (!socket_)
        return;
    if (queue_.empty() && try_send(text, fds))
        return;
    if (queue_.size() >= kMaxQueued) {
        queue_.pop_front();
        ++dropped_;
    }
    Message message;
    message.text = text;
    for (int fd : fds)
        message.fds.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
    queue_.push_back(std::move(message));
}

void Notifier::flush() {
    while (!queue_.empty()) {
        std::vector<int> fds;
        for (const UniqueFd &fd : queue_.front().fds)
            if (fd)
                fds.push_back(fd.get());
        if (!try_send(queue_.front().text, fds))
            return;
        queue_.pop_front();
    }
}

}  // namespace maru
