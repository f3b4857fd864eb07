#include "tests/integration/known_failures/actor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <map>
#include <stdexcept>

#include "libmaru/base/clock.h"

namespace maru::test {

namespace {

std::map<std::string, ActorMain> &roles() {
    static std::map<std::string, ActorMain> known;
    return known;
}

}  // namespace

bool Stage::next(std::string *ret_command) {
    return static_cast<bool>(std::getline(std::cin, *ret_command));
}

void Stage::answer(const std::string &text) { std::cout << text << std::endl; }

ActorRole::ActorRole(const char *name, ActorMain run) { roles()[name] = run; }

int run_actor(int argc, char **argv) {
    if (argc < 3 || std::strcmp(argv[1], "--actor") != 0)
        return -1;
    auto role = roles().find(argv[2]);
    if (role == roles().end())
        return 2;
    Stage stage;
    stage.arguments.assign(argv + 3, argv + argc);
    try {
        role->second(stage);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "actor %s: %s\n", argv[2], error.what());
        return 1;
    }
    return 0;
}

Actor::Actor(const std::string &role, const std::vector<std::string> &arguments) {
    int down[2], up[2];
    if (::pipe2(down, O_CLOEXEC) < 0)
        throw std::runtime_error("cannot make a pipe");
    UniqueFd down_read(down[0]);
    to_.reset(down[1]);
    if (::pipe2(up, O_CLOEXEC) < 0)
        throw std::runtime_error("cannot make a pipe");
    from_.reset(up[0]);
    UniqueFd up_write(up[1]);
    std::vector<std::string> words = {"known-failures-test", "--actor", role};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char *> argv;
    for (std::string &word : words)
        argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
        ::dup2(down_read.get(), 0);
        ::dup2(up_write.get(), 1);
        ::execv("/proc/self/exe", argv.data());
        ::_exit(127);
    }
    if (pid_ < 0)
        throw std::runtime_error("cannot fork");
    pidfd_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
}

Actor::~Actor() { kill(); }

void Actor::tell(const std::string &command) {
    const std::string line = command + "\n";
    if (::write(to_.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
        throw std::runtime_error("the actor does not take '" + command + "'");
}

std::string Actor::answer(int timeout_ms) {
    const int64_t deadline = monotonic_ns() + int64_t{timeout_ms} * 1'000'000;
    for (;;) {
        if (const size_t end = received_.find('\n'); end != std::string::npos) {
            std::string line = received_.substr(0, end);
            received_.erase(0, end + 1);
            return line;
        }
        const int64_t left = (deadline - monotonic_ns()) / 1'000'000;
        pollfd ready = {from_.get(), POLLIN, 0};
        char text[512];
        ssize_t got = 0;
        if (left <= 0 || ::poll(&ready, 1, static_cast<int>(left)) != 1 ||
            (got = ::read(from_.get(), text, sizeof text)) <= 0)
            throw std::runtime_error(got == 0 && left > 0 ? "the actor ended, or does not answer"
                                                          : "the actor does not answer in time");
        received_.append(text, static_cast<size_t>(got));
    }
}

std::string Actor::ask(const std::string &command, int timeout_ms) {
    tell(command);
    return answer(timeout_ms);
}

void Actor::signal(int number) { ::kill(pid_, number); }

void Actor::kill() {
    if (pid_ <= 0)
        return;
    ::kill(pid_, SIGKILL);
    int status;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
}

int Actor::finish(int timeout_ms) {
    to_.reset();
    pollfd ended = {pidfd_.get(), POLLIN, 0};
    if (::poll(&ended, 1, timeout_ms) != 1)
        throw std::runtime_error("the actor does not end");
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace maru::test
