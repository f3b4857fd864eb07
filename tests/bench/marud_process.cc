#include "tests/bench/marud_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace maru::bench {

namespace {

constexpr int kReadyMs = 30000;

[[noreturn]] void die(const std::string &what) {
    std::fprintf(stderr, "bench: %s\n", what.c_str());
    std::exit(1);
}

}  // namespace

MarudProcess::MarudProcess(const std::string &program) {
    std::string name = (std::filesystem::temp_directory_path() / "maru-bench-XXXXXX").string();
    if (!::mkdtemp(name.data()))
        die("no temporary folder");
    folder_ = name;
    const std::string config = folder_ + "/marud.toml", notify = folder_ + "/notify";
    std::ofstream(config) << "[daemon]\nsocket = \"" << socket_path() << "\"\nruntime_directory = \""
                          << folder_ << "\"\n[cpu]\nhost_bytes = \"4G\"\n";

    const int ready = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof address.sun_path, "%s", notify.c_str());
    if (ready < 0 || ::bind(ready, reinterpret_cast<sockaddr *>(&address), sizeof address) != 0)
        die("no notify socket");

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
    for (;;) {
        pollfd waiting = {ready, POLLIN, 0};
        char text[4096] = {};
        if (::poll(&waiting, 1, kReadyMs) != 1 || ::recv(ready, text, sizeof text - 1, 0) <= 0) {
            std::ifstream log(folder_ + "/log");
            die("marud did not become ready: " + std::string(std::istreambuf_iterator<char>(log), {}));
        }
        if (std::strstr(text, "READY=1"))
            break;
    }
    ::close(ready);
}

MarudProcess::~MarudProcess() {
    ::kill(child_, SIGTERM);
    ::waitpid(child_, nullptr, 0);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
}

}  // namespace maru::bench
