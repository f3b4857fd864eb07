#include "tests/bench/marud_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "libmaru/base/unique_fd.h"
#include "tests/bench/suite.h"

namespace maru::bench {

namespace {

constexpr int kReadyMs = 30000;

std::string text_of(const std::string &path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
}

sockaddr_un address_of(const std::string &path) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof address.sun_path, "%s", path.c_str());
    return address;
}

// A line "NAME VALUE" of an exposition; 0 without it.
double sample(const std::string &exposition, const std::string &name) {
    const size_t at = exposition.find("\n" + name + " ");
    return at == std::string::npos
               ? 0
               : std::strtod(exposition.c_str() + at + name.size() + 2, nullptr);
}

// A line "NAME:  N kB" of a file in /proc, as bytes.
uint64_t kib_line(const std::string &path, const std::string &name) {
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);)
        if (line.compare(0, name.size(), name) == 0)
            return std::strtoull(line.c_str() + name.size(), nullptr, 10) * 1024;
    return 0;
}

}  // namespace

MarudProcess::MarudProcess(MarudSetup setup) : setup_(std::move(setup)) {
    std::string name = (std::filesystem::temp_directory_path() / "maru-bench-XXXXXX").string();
    if (!::mkdtemp(name.data()))
        throw std::runtime_error("no temporary folder at " + name);
    folder_ = name;
    std::ofstream(folder_ + "/marud.toml")
        << "[daemon]\nsocket = \"" << socket_path() << "\"\nruntime_directory = \"" << folder_
        << "\"\nspin_us = " << setup_.spin_us << "\n[cpu]\nhost_bytes = \"" << setup_.host_bytes
        << "\"\n"
        << setup_.more;
    try {
        start();
    } catch (...) {
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
        throw;
    }
}

void MarudProcess::start() {
    const std::string config = folder_ + "/marud.toml", notify = folder_ + "/notify";
    ::unlink(notify.c_str());
    UniqueFd ready(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const sockaddr_un address = address_of(notify);
    if (!ready ||
        ::bind(ready.get(), reinterpret_cast<const sockaddr *>(&address), sizeof address) != 0)
        throw std::runtime_error("no notify socket at " + notify);

    child_ = ::fork();
    if (child_ == 0) {
        pin(0, setup_.cpu);
        ::setenv("NOTIFY_SOCKET", notify.c_str(), 1);
        const int log =
            ::open((folder_ + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        ::dup2(log, STDOUT_FILENO);
        ::dup2(log, STDERR_FILENO);
        ::execl(setup_.program.c_str(), "marud", "--user", "--config", config.c_str(),
                static_cast<char *>(nullptr));
        ::_exit(127);
    }
    UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, child_, 0)));
    for (;;) {
        pollfd waiting[] = {{ready.get(), POLLIN, 0}, {process.get(), POLLIN, 0}};
        char text[4096] = {};
        if (::poll(waiting, 2, kReadyMs) <= 0 || !(waiting[0].revents & POLLIN) ||
            ::recv(ready.get(), text, sizeof text - 1, 0) <= 0) {
            end(SIGKILL);
            throw std::runtime_error("'" + setup_.program +
                                     "' did not become ready: " + text_of(folder_ + "/log"));
        }
        if (std::strstr(text, "READY=1"))
            return;
    }
}

MarudProcess::~MarudProcess() {
    end(SIGTERM);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
}

void MarudProcess::kill() { end(SIGKILL); }

void MarudProcess::end(int signal) {
    if (child_ > 0) {
        ::kill(child_, signal);
        ::waitpid(child_, nullptr, 0);
    }
    child_ = -1;
}

uint64_t MarudProcess::resident_bytes() const { return bench::resident_bytes(child_); }

uint64_t MarudProcess::cpu_ns() const {
    clockid_t clock;
    timespec t = {};
    if (::clock_getcpuclockid(child_, &clock) != 0 || ::clock_gettime(clock, &t) != 0)
        throw NotMeasurable("no processor clock of another process");
    return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

MarudProcess::Turns MarudProcess::turns() const {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_un address = address_of(folder_ + "/metrics.sock");
    const std::string request =
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    if (!socket ||
        ::connect(socket.get(), reinterpret_cast<const sockaddr *>(&address), sizeof address) !=
            0 ||
        ::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0)
        throw std::runtime_error("no metrics at " + folder_ + "/metrics.sock");
    std::string text;
    char piece[65536];
    for (ssize_t got; (got = ::recv(socket.get(), piece, sizeof piece, 0)) > 0;)
        text.append(piece, static_cast<size_t>(got));
    Turns found;
    found.all = sample(text, "maru_loop_turn_seconds_count");
    found.slow = found.all - sample(text, "maru_loop_turn_seconds_bucket{le=\"0.005\"}");
    if (found.all == 0)
        throw std::runtime_error("marud's metrics have no maru_loop_turn_seconds");
    return found;
}

uint64_t resident_bytes(pid_t process) {
    return kib_line("/proc/" + std::to_string(process) + "/status", "VmRSS:");
}

uint64_t available_bytes() { return kib_line("/proc/meminfo", "MemAvailable:"); }

}  // namespace maru::bench
