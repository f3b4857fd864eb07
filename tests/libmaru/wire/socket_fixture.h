// A pair of packet sockets, a temporary folder, and the count of this process's descriptors.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "libmaru/base/unique_fd.h"

namespace maru::wire::test {

inline size_t open_descriptors() {
    size_t n = 0;
    DIR *dir = ::opendir("/proc/self/fd");
    while (::readdir(dir))
        ++n;
    ::closedir(dir);
    return n;
}

struct SocketPair {
    UniqueFd a, b;
    SocketPair() {
        int fds[2];
        if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
            std::abort();
        a.reset(fds[0]);
        b.reset(fds[1]);
    }
};

class TemporaryFolder {
  public:
    TemporaryFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "maru-test-XXXXXX").string();
        if (!::mkdtemp(name.data()))
            std::abort();
        path_ = name;
    }
    ~TemporaryFolder() { std::filesystem::remove_all(path_); }
    std::string operator/(const char *name) const { return path_ + "/" + name; }

  private:
    std::string path_;
};

}  // namespace maru::wire::test
