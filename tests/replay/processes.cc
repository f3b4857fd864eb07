#include "tests/replay/processes.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>

#include "libmaru/base/clock.h"

namespace maru::replay {

ChildProcess &ChildProcess::operator=(ChildProcess &&other) noexcept {
    if (pid_ > 0)
        kill_now();
    pid_ = std::exchange(other.pid_, -1);
    return *this;
}

ChildProcess::~ChildProcess() {
    if (pid_ > 0)
        kill_now();
}

void ChildProcess::kill_now() {
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
}

int ChildProcess::wait(int timeout_ms) {
    UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
    pollfd waiter{pidfd.get(), POLLIN, 0};
    if (::poll(&waiter, 1, timeout_ms) <= 0)
        return -1;
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Result<ChildProcess> spawn(const std::vector<std::string> &argv, int inherited, int output) {
    std::vector<char *> arguments;
    for (const auto &argument : argv)
        arguments.push_back(const_cast<char *>(argument.c_str()));
    arguments.push_back(nullptr);
    pid_t pid = ::fork();
    if (pid < 0)
        return Error{errno, "fork for '" + argv[0] + "'"};
    if (pid == 0) {
        // Nothing outlives the replay, whatever ends it.
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (inherited >= 0)
            ::fcntl(inherited, F_SETFD, 0);
        if (output >= 0)
            ::dup2(output, STDOUT_FILENO);
        ::execv(arguments[0], arguments.data());
        ::_exit(127);
    }
    return ChildProcess(pid);
}

Result<std::string> run_and_read(const std::vector<std::string> &argv) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) < 0)
        return Error{errno, "pipe for '" + argv[0] + "'"};
    UniqueFd ours(ends[0]), theirs(ends[1]);
    auto child = spawn(argv, -1, theirs.get());
    if (!child)
        return child.error();
    theirs.reset();
    std::string output;
    int64_t deadline = monotonic_ns() + 10'000'000'000;
    for (;;) {
        pollfd waiter{ours.get(), POLLIN, 0};
        int left_ms = static_cast<int>((deadline - monotonic_ns()) / 1'000'000);
        if (left_ms <= 0 || ::poll(&waiter, 1, left_ms) == 0)
            return Error{ETIMEDOUT, "'" + argv[0] + "' did not end within 10 s"};
        char buffer[4096];
        ssize_t n = ::read(ours.get(), buffer, sizeof buffer);
        if (n <= 0)
            break;
        output.append(buffer, static_cast<size_t>(n));
    }
    if (int status = child->wait(10'000); status != 0)
        return Error{ECHILD, "'" + argv[0] + "' ended with status " + std::to_string(status)};
    return output;
}

Result<ChildProcess> start_worker(const Options &o, uint32_t index, UniqueFd *ret_fd) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return Error{errno, "socketpair for worker " + std::to_string(index)};
    UniqueFd ours(ends[0]), theirs(ends[1]);
    auto child = spawn({"/proc/self/exe",
                        "--worker-fd",
                        std::to_string(theirs.get()),
                        "--worker-index",
                        std::to_string(index),
                        "--socket",
                        o.socket,
                        "--workers",
                        std::to_string(o.workers),
                        "--pool",
                        std::to_string(o.pool_bytes),
                        "--page",
                        std::to_string(o.pool_page_bytes()),
                        "--layers",
                        std::to_string(o.layers),
                        "--kv-heads",
                        std::to_string(o.kv_heads),
                        "--head-dim",
                        std::to_string(o.head_dim),
                        "--dtype",
                        o.dtype,
                        "--block-tokens",
                        std::to_string(o.block_tokens),
                        "--evict",
                        o.evict ? "lru" : "none"},
                       theirs.get());
    if (child)
        *ret_fd = std::move(ours);
    return child;
}

}  // namespace maru::replay
