#include "tests/bench/marud_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "libmaru/base/unique_fd.h"

namespace maru::bench {

namespace {

constexpr int kReadyMs = 30000;

std::string text_of(const std::string &path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

MarudProcess::MarudProcess(const std::string &program) {
    std::string name = (std::filesystem::temp_directory_path() / "maru-bench-XXXXXX").string();
    if (!::mkdtemp(name.data()))
        throw std::runtime_error("no temporary folder at " + name);
    folder_ = name;
    const std::string config = folder_ + "/marud.toml", notify = folder_ + "/notify";
    std::ofstream(config) << "[daemon]\nsocket = \"" << socket_path()
                          << "\"\nruntime_directory = \"" << folder_
                          << "\"\n[cpu]\nhost_bytes = \"4G\"\n";

    UniqueFd ready(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof address.sun_path, "%s", notify.c_str());
    if (!ready ||
        ::bind(ready.get(), reinterpret_cast<sockaddr *>(&address), sizeof address) != 0) {
        end();
        throw std::runtime_error("no notify socket at " + notify);
    }

    child_ = ::fork();
    if (child_ == 0) {
        ::setenv("NOTIFY_SOCKET", notify.c_str(), 1);
        const int log = ::open((folder_ + "/log").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        ::dup2(log, STDOUT_FILENO);
        ::dup2(log, STDERR_FILENO);
        ::execl(program.c_str(), "marud", "--user", "--config", config.c_str(),
                static_cast<char *>(nullptr));
        ::_exit(127);
    }
    UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, child_, 0)));
    for (;;) {
        pollfd waiting[] = {{ready.get(), POLLIN, 0}, {process.get(), POLLIN, 0}};
        char text[4096] = {};
        if (::poll(waiting, 2, kReadyMs) <= 0 || !(waiting[0].revents & POLLIN) ||
            ::recv(ready.get(), text, sizeof text - 1, 0) <= 0) {
            const std::string log = text_of(folder_ + "/log");
            end();
            throw std::runtime_error("'" + program + "' did not become ready: " + log);
        }
        if (std::strstr(text, "READY=1"))
            return;
    }
}

MarudProcess::~MarudProcess() { end(); }

void MarudProcess::end() {
    if (child_ > 0) {
        ::kill(child_, SIGTERM);
        ::waitpid(child_, nullptr, 0);
    }
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
}

}  // namespace maru::bench
