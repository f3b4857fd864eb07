// A soak: workers that are killed at random, schedulers and hostile clients on one marud, for a time.
//
//   maru-soak [--seconds N] [--workers N] [--schedulers N] [--hostile N] [--seed N]
//
// Passes when no actor read a wrong byte or was refused what it may do, marud's memory and
// descriptors stayed flat, no watchdog ping was missed, marud is the same process as at the start,
// and nothing is charged to anybody once all are gone. A seed repeats the actors' choices, not the
// moments at which the kernel lets them run.
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "libmaru/base/clock.h"
#include "libmaru/base/unique_fd.h"
#include "tests/integration/marud_fixture.h"
#include "tests/integration/status_query.h"
#include "tests/soak/actors.h"
#include "tests/soak/watch.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MARU_SANITIZED 1
#else
#define MARU_SANITIZED 0
#endif

extern char **environ;

namespace {

using namespace maru;
using namespace maru::soak;

constexpr unsigned kWatchdogMs = 10'000;

struct Options {
    unsigned seconds = 20, workers = 8, schedulers = 4, hostile = 2;
    uint64_t seed = 1;
    Actor actor;  // of a child; role "" in the parent
};

class Child {
  public:
    Child(const Options &options, std::string role, unsigned index)
        : options_(options), role_(std::move(role)), index_(index) {}

    void start(const std::string &socket) {
        int in[2];
        if (::pipe2(in, O_CLOEXEC) < 0)
            throw std::runtime_error("pipe: " + std::string(std::strerror(errno)));
        std::string index = std::to_string(index_);
        std::string seed = std::to_string(options_.seed * 1000 + index_ + 100 * lives_++);
        std::vector<std::string> words = {"maru-soak", "--role", role_,          "--socket", socket,
                                          "--index",   index,    "--actor-seed", seed};
        std::vector<char *> argv;
        for (std::string &word : words)
            argv.push_back(word.data());
        argv.push_back(nullptr);
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
        int error = ::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
        posix_spawn_file_actions_destroy(&actions);
        ::close(in[0]);
        input_ = UniqueFd(in[1]);
        if (error)
            throw std::runtime_error("spawn: " + std::string(std::strerror(error)));
    }

    // -1: runs; else the exit status, 128 + n for a signal.
    int poll(int flags = WNOHANG) {
        int status = 0;
        if (pid_ <= 0 || ::waitpid(pid_, &status, flags) != pid_)
            return -1;
        pid_ = 0;
        return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }

    void kill() {
        if (pid_ > 0)
            ::kill(pid_, SIGKILL);
    }
    int end() {
        input_.reset();
        return poll(0);
    }
    std::string name() const { return role_ + " " + std::to_string(index_); }
    bool is_worker() const { return role_ == "worker"; }

  private:
    const Options &options_;
    std::string role_;
    unsigned index_;
    unsigned lives_ = 0;
    pid_t pid_ = 0;
    UniqueFd input_;
};

Options parse(int argc, char **argv) {
    static const option table[] = {{"seconds", required_argument, nullptr, 's'},
                                   {"workers", required_argument, nullptr, 'w'},
                                   {"schedulers", required_argument, nullptr, 'c'},
                                   {"hostile", required_argument, nullptr, 'h'},
                                   {"seed", required_argument, nullptr, 'r'},
                                   {"role", required_argument, nullptr, 'R'},
                                   {"socket", required_argument, nullptr, 'S'},
                                   {"index", required_argument, nullptr, 'I'},
                                   {"actor-seed", required_argument, nullptr, 'A'},
                                   {nullptr, 0, nullptr, 0}};
    Options options;
    for (int c; (c = ::getopt_long(argc, argv, "", table, nullptr)) != -1;) {
        auto number = [] { return static_cast<unsigned>(std::strtoul(optarg, nullptr, 10)); };
        switch (c) {
            case 's':
                options.seconds = number();
                break;
            case 'w':
                options.workers = number();
                break;
            case 'c':
                options.schedulers = number();
                break;
            case 'h':
                options.hostile = number();
                break;
            case 'r':
                options.seed = number();
                break;
            case 'R':
                options.actor.role = optarg;
                break;
            case 'S':
                options.actor.socket = optarg;
                break;
            case 'I':
                options.actor.index = number();
                break;
            case 'A':
                options.actor.seed = std::strtoull(optarg, nullptr, 10);
                break;
            default:
                std::exit(2);
        }
    }
    return options;
}

std::string run_soak(const Options &options, test::Marud &marud) {
    std::vector<Child> children;
    for (unsigned i = 0; i < options.workers; ++i)
        children.emplace_back(options, "worker", i);
    for (unsigned i = 0; i < options.schedulers; ++i)
        children.emplace_back(options, "scheduler", i);
    for (unsigned i = 0; i < options.hostile; ++i)
        children.emplace_back(options, "hostile", i);

    pid_t pid = marud.pid();
    size_t fds = marud.open_fds();
    for (Child &child : children)
        child.start(marud.socket());

    int64_t start = monotonic_ns(), end = start + int64_t{options.seconds} * 1'000'000'000;
    Watch watch(marud, start);
    std::mt19937_64 random(options.seed);
    unsigned kills = 0;
    std::string error;
    for (int64_t now = start; error.empty() && now < end; now = monotonic_ns()) {
        ::usleep(500'000);
        if (!marud.running()) {
            error = "marud has ended; its log:\n" + marud.log();
            break;
        }
        watch.sample(monotonic_ns());
        // Every other sample somebody dies in the middle of things and comes again.
        Child &victim = children[random() % children.size()];
        if (random() % 2) {
            victim.kill();
            victim.poll(0);
            victim.start(marud.socket());
            ++kills;
        }
        for (Child &child : children)
            if (int status = child.poll(); status != -1)
                error = child.name() + " ended by itself with status " + std::to_string(status);
    }
    for (Child &child : children)
        if (int status = child.end(); status > 0 && error.empty())
            error = child.name() + " ended with status " + std::to_string(status);

    std::printf("%u s, %u workers, %u schedulers, %u hostile clients, %u kills\n%s\n",
                options.seconds, options.workers, options.schedulers, options.hostile, kills,
                watch.summary().c_str());
    if (!error.empty())
        return error;
    if (marud.pid() != pid || !marud.running())
        return "marud is not the process it was";
    if (std::string charged = test::wait_uncharged(marud.socket(), 20'000); !charged.empty())
        return "still charged with everybody gone: " + charged;
    for (int tries = 0; marud.open_fds() > fds && tries < 100; ++tries)
        ::usleep(100'000);
    if (marud.open_fds() > fds)
        return "marud has " + std::to_string(marud.open_fds()) + " descriptors open, had " +
               std::to_string(fds);
    return watch.verdict(kWatchdogMs, !MARU_SANITIZED);
}

}  // namespace

int main(int argc, char **argv) {
    Options options = parse(argc, argv);
    if (options.actor.role == "worker")
        return run_worker(options.actor);
    if (options.actor.role == "scheduler")
        return run_scheduler(options.actor);
    if (options.actor.role == "hostile")
        return run_hostile(options.actor);
    try {
        test::MarudOptions marud_options;
        marud_options.watchdog_ms = kWatchdogMs;
        marud_options.config = "[cpu]\nhost_bytes = \"4GiB\"\n[sessions]\ntimeout = \"10s\"\n";
        test::Marud marud(marud_options);
        marud.start();
        std::string error = run_soak(options, marud);
        if (!error.empty()) {
            std::fprintf(stderr, "soak: %s (seed %llu)\n", error.c_str(),
                         static_cast<unsigned long long>(options.seed));
            return 1;
        }
        std::puts("soak: passed");
        return 0;
    } catch (const std::exception &e) {
        std::fprintf(stderr, "soak: %s\n", e.what());
        return 1;
    }
}
