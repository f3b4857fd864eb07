// kill -9 at every step of store and load: of a worker, and of marud with a worker attached.
//
// The killer strikes at the beginning of a step or a little into it, so that the calls themselves are
// hit at many points. What must hold afterwards: nobody reads a wrong byte, a committed object is a
// hit again, a lease still shows its bytes, and nothing is charged once everybody is gone.
#include <gtest/gtest.h>
#include <maru/maru.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/marud_fixture.h"
#include "tests/integration/status_query.h"
#include "tests/replay/pattern.h"

namespace {

using maru::replay::count_mismatches;
using maru::replay::fill_pattern;
using maru::replay::pattern_seed;

constexpr uint64_t kBytes = 24 * 1024;
constexpr size_t kObjects = 6;
constexpr unsigned kDelaysUs[] = {0, 30, 150, 600};
const char *const kNamespace = "kill-steps/1";

enum Step : int {
    kOpen,
    kNamespaceStep,
    kDescribe,
    kPool,
    kReserve,
    kWrite,
    kCommit,
    kProbe,
    kAcquire,
    kRead,
    kRelease,
    kRetire,
    kClosePool,
    kCloseClient,
    kSteps,
};

// A worker's whole life, step by step. `at` is told before each step; every result is checked as far
// as it can be when marud may be away.
class Life {
  public:
    Life(std::string socket, std::string engine, std::function<void(int)> at)
        : socket_(std::move(socket)), engine_(std::move(engine)), at_(std::move(at)) {
        std::vector<uint32_t> tokens(kObjects);
        for (size_t i = 0; i < kObjects; ++i)
            tokens[i] = static_cast<uint32_t>(i);
        maru_prefix_digests(kNamespace, tokens.data(), kObjects, 1, nullptr, digests_);
    }

    // "" or what went wrong.
    std::string run() {
        if (std::string error = open(); !error.empty())
            return error;
        if (std::string error = store(); !error.empty())
            return error;
        if (std::string error = load(); !error.empty())
            return error;
        return close();
    }

  private:
    std::string failed(const char *what, int64_t code) {
        return std::string(what) + ": " + maru_error_name(static_cast<int>(code)) + ", " +
               maru_last_error();
    }

    std::string open() {
        at_(kOpen);
        maru_client_options options{};
        options.size = sizeof options;
        options.socket_path = socket_.c_str();
        options.engine = engine_.c_str();
        options.timeout_ms = 10000;
        options.connect_ms = 10000;
        // marud may be killed before the first connection: opening fails then and is tried again.
        int code = -ENOTCONN;
        for (int tries = 0; code < 0 && tries < 200; ++tries) {
            code = maru_client_open(&options, &client_);
            if (code < 0)
                ::usleep(20'000);
        }
        if (code < 0)
            return failed("open client", code);
        at_(kNamespaceStep);
        if ((code = maru_namespace_open(client_, kNamespace, &ns_)) < 0)
            return failed("open namespace", code);
        at_(kDescribe);
        maru_schema schema{};
        schema.size = sizeof schema;
        schema.object_bytes = kBytes;
        schema.format = "pattern";
        if ((code = maru_client_describe(client_, ns_, &schema)) < 0)
            return failed("describe", code);
        at_(kPool);
        maru_pool_options pool{};
        pool.size = sizeof pool;
        pool.capacity_bytes = 1 << 20;
        pool.page_bytes = 8192;
        pool.wait_populated = 1;
        pool.populate_margin_mib = 1;
        if ((code = maru_pool_open(client_, &pool, &pool_)) < 0)
            return failed("open pool", code);
        return {};
    }

    std::string store() {
        at_(kReserve);
        maru_reservation runs[kObjects];
        if (int code = maru_reserve(pool_, kBytes, kObjects, runs); code < 0)
            return failed("reserve", code);
        at_(kWrite);
        maru_key keys[kObjects] = {};
        for (size_t i = 0; i < kObjects; ++i) {
            keys[i].digest = digests_[i];
            fill_pattern(runs[i].data, kBytes, pattern_seed(digests_[i], runs[i].generation));
        }
        at_(kCommit);
        int results[kObjects];
        maru_commit(ns_, pool_, keys, runs, kObjects, results);
        for (size_t i = 0; i < kObjects; ++i)
            if (results[i] != 0 && results[i] != -EINPROGRESS)
                return failed("commit", results[i]);
        return {};
    }

    std::string load() {
        at_(kProbe);
        int64_t prefix = 0;
        // A commit whose answer was lost is settled in the background; soon all are hits.
        for (int tries = 0; tries < 500; ++tries) {
            prefix = maru_probe(ns_, digests_, kObjects, nullptr, 0, nullptr);
            if (prefix == static_cast<int64_t>(kObjects))
                break;
            ::usleep(10'000);
        }
        if (prefix != static_cast<int64_t>(kObjects))
            return failed("committed objects are no hits", prefix);
        at_(kAcquire);
        maru_lease *leases[kObjects] = {};
        int64_t got = maru_acquire(ns_, digests_, kObjects, nullptr, 0, leases);
        if (got != static_cast<int64_t>(kObjects))
            return failed("acquire", got);
        at_(kRead);
        for (size_t i = 0; i < kObjects; ++i) {
            uint64_t seed = pattern_seed(digests_[i], maru_lease_generation(leases[i]));
            if (count_mismatches(maru_lease_data(leases[i]), kBytes, seed) != 0)
                return "wrong bytes in object " + std::to_string(i);
        }
        at_(kRelease);
        if (int code = maru_lease_release(leases, kObjects); code < 0)
            return failed("release", code);
        at_(kRetire);
        maru_key key{};
        key.digest = digests_[kObjects - 1];
        if (int64_t retired = maru_retire(ns_, &key, 1, nullptr); retired != 1)
            return failed("retire", retired);
        return {};
    }

    std::string close() {
        at_(kClosePool);
        int code = 0;
        for (int tries = 0; tries < 500; ++tries) {
            code = maru_pool_close(pool_, MARU_CLOSE_FORCED);
            if (code == 0)
                break;
            ::usleep(10'000);
        }
        if (code < 0)
            return failed("close pool", code);
        at_(kCloseClient);
        if ((code = maru_client_close(client_)) < 0)
            return failed("close client", code);
        return {};
    }

    std::string socket_, engine_;
    std::function<void(int)> at_;
    maru_digest digests_[kObjects];
    maru_client *client_ = nullptr;
    maru_namespace *ns_ = nullptr;
    maru_pool *pool_ = nullptr;
};

// A second life of this program, for the worker that is killed.
int worker_main(char **argv) {
    int fatal = std::atoi(argv[4]);
    unsigned delay_us = static_cast<unsigned>(std::atoi(argv[5]));
    Life life(argv[2], argv[3], [fatal, delay_us](int step) {
        if (step != fatal)
            return;
        if (delay_us == 0)
            ::kill(::getpid(), SIGKILL);
        std::thread([delay_us] {
            ::usleep(delay_us);
            ::kill(::getpid(), SIGKILL);
        }).detach();
    });
    std::string error = life.run();
    if (!error.empty())
        std::fprintf(stderr, "%s\n", error.c_str());
    return error.empty() ? 0 : 1;
}

pid_t spawn_worker(const std::string &socket, const std::string &engine, int step, unsigned delay) {
    std::string step_text = std::to_string(step), delay_text = std::to_string(delay);
    const char *argv[] = {"kill_steps_test", "--worker",         socket.c_str(), engine.c_str(),
                          step_text.c_str(), delay_text.c_str(), nullptr};
    pid_t pid = ::fork();
    if (pid == 0) {
        ::execv("/proc/self/exe", const_cast<char **>(argv));
        ::_exit(127);
    }
    return pid;
}

TEST(KillSteps, WorkerKilledAtAnyStepLeavesNothingBehind) {
    maru::test::Marud marud;
    marud.start();
    for (int step = 0; step < kSteps; ++step) {
        for (unsigned delay : kDelaysUs) {
            SCOPED_TRACE("step " + std::to_string(step) + ", " + std::to_string(delay) +
                         " us into it");
            pid_t pid = spawn_worker(marud.socket(), "engine", step, delay);
            int status = 0;
            ASSERT_EQ(::waitpid(pid, &status, 0), pid);
            ASSERT_TRUE((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) ||
                        (delay > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0))
                << status;
            // The successor of the same engine meets neither hits nor obstacles of the dead one.
            Life successor(marud.socket(), "engine", [](int) {});
            ASSERT_EQ(successor.run(), "");
            ASSERT_EQ(maru::test::wait_uncharged(marud.socket(), 5000), "");
        }
    }
    EXPECT_EQ(marud.stop(), 0);
}

void kill_marud_at_every_step(bool fdstore) {
    for (int step = 0; step < kSteps; ++step) {
        for (unsigned delay : kDelaysUs) {
            SCOPED_TRACE("step " + std::to_string(step) + ", " + std::to_string(delay) +
                         " us into it");
            maru::test::MarudOptions options;
            options.fdstore = fdstore;
            maru::test::Marud marud(options);
            marud.start();
            std::thread killer;
            Life life(marud.socket(), "engine", [&](int at) {
                if (at != step)
                    return;
                if (delay == 0)
                    return marud.restart();
                killer = std::thread([&marud, delay] {
                    ::usleep(delay);
                    marud.restart();
                });
            });
            const auto began = std::chrono::steady_clock::now();
            std::string error = life.run();
            const auto took = std::chrono::steady_clock::now() - began;
            if (killer.joinable())
                killer.join();
            ASSERT_EQ(error, "") << marud.log();
            // marud was back at once: no call may have waited for its deadline of ten seconds.
            ASSERT_LT(took, std::chrono::seconds(8));
            ASSERT_EQ(maru::test::wait_uncharged(marud.socket(), 5000), "") << marud.log();
        }
    }
}

TEST(KillSteps, MarudKilledAtAnyStepLosesNothing) { kill_marud_at_every_step(false); }

TEST(KillSteps, MarudKilledAtAnyStepWithDescriptorStoreLosesNothing) {
    kill_marud_at_every_step(true);
}

}  // namespace

int main(int argc, char **argv) {
    if (argc == 6 && std::strcmp(argv[1], "--worker") == 0)
        return worker_main(argv);
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
