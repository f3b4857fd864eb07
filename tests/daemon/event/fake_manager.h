// A service manager's end of $NOTIFY_SOCKET: collects messages and their descriptors.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "libmaru/base/unique_fd.h"

namespace maru {

class FakeManager {
  public:
    explicit FakeManager(const std::string &path) : path_(path) {
        sockaddr_un name = {};
        name.sun_family = AF_UNIX;
        std::strncpy(name.sun_path, path.c_str(), sizeof name.sun_path - 1);
        fd_.reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<sockaddr *>(&name), sizeof name), 0);
    }

    struct Message {
        std::string text;
        std::vector<UniqueFd> fds;
    };
    // The next message, or nothing within the time.
    std::optional<Message> next(int timeout_ms) {
        pollfd ready = {fd_.get(), POLLIN, 0};
        if (::poll(&ready, 1, timeout_ms) != 1)
            return std::nullopt;
        char text[4096];
        alignas(cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))];
        iovec part = {text, sizeof text};
        msghdr header = {};
        header.msg_iov = &part;
        header.msg_iovlen = 1;
        header.msg_control = control;
        header.msg_controllen = sizeof control;
        ssize_t got = ::recvmsg(fd_.get(), &header, MSG_CMSG_CLOEXEC);
        if (got < 0)
            return std::nullopt;
        Message message;
        message.text.assign(text, static_cast<size_t>(got));
        for (cmsghdr *c = CMSG_FIRSTHDR(&header); c; c = CMSG_NXTHDR(&header, c)) {
            size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            for (size_t i = 0; c->cmsg_type == SCM_RIGHTS && i < count; ++i) {
                int fd;
                std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
                message.fds.emplace_back(fd);
            }
        }
        return message;
    }
    const std::string &path() const { return path_; }

  private:
    std::string path_;
    UniqueFd fd_;
};

}  // namespace maru
