// Descriptors, watches and socket buffers that are used up: those who are there go on, the newcomer
// is turned away or waits, the loop does not spin, and all recovers by itself.

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <cerrno>
#include <filesystem>

#include "tests/integration/exhaustion/support.h"
#include "tests/integration/known_failures/actor.h"

namespace maru::test {
namespace {

using testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;
// In so much time an idle marud uses a few milliseconds, and a spinning one nearly all of it, if it
// gets a processor at all.
constexpr int kWatchMs = 1500;
constexpr int64_t kIdleCpuMs = 400;

class Descriptors : public testing::Test {
  protected:
    Descriptors() : marud(shimmed(shim)) { marud.start(); }

    // No new client is served; `worker` is, all the time; and marud hardly runs.
    void expect_only_the_old_one_is_served(Worker &worker) {
        const int64_t before = cpu_ms(marud.pid());
        const auto begin = now();
        uint32_t number = 1000;
        while (since_ms(begin) < kWatchMs) {
            expect_works(worker, ++number);
            WireClient late(marud.socket());
            EXPECT_FALSE(late.call(wire::HelloRequest{}, {}, 50));
            pause_ms(20);
        }
        EXPECT_LT(cpu_ms(marud.pid()) - before, kIdleCpuMs);
    }
    void expect_new_ones_are_served() {
        EXPECT_TRUE(eventually([&] { return WireClient(marud.socket()).hello(); })) << marud.log();
    }
    WorkerOptions small_pool() {
        WorkerOptions options = without_pool(marud);
        options.pool_bytes = 16 * kMiB;
        return options;
    }
    void set_descriptor_limit(rlim_t limit) {
        rlimit value = {limit, 0};
        rlimit now_set = {};
        ASSERT_EQ(::prlimit(marud.pid(), RLIMIT_NOFILE, nullptr, &now_set), 0);
        value.rlim_max = now_set.rlim_max;
        ASSERT_EQ(::prlimit(marud.pid(), RLIMIT_NOFILE, &value, nullptr), 0);
    }
    // The number that the next descriptor would get.
    rlim_t lowest_free_descriptor() {
        const std::string directory = "/proc/" + std::to_string(marud.pid()) + "/fd/";
        rlim_t number = 0;
        for (std::error_code gone;
             !std::filesystem::read_symlink(directory + std::to_string(number), gone).empty();)
            ++number;
        return number;
    }

    // A number that is given back later, by a connection that is being closed still, is one too many.
    void use_up_descriptors() {
        rlim_t limit = RLIM_INFINITY;
        for (int quiet = 0; quiet < 5; ++quiet) {
            const rlim_t free = lowest_free_descriptor();
            if (free < limit) {
                set_descriptor_limit(limit = free);
                quiet = 0;
            }
            pause_ms(100);
        }
    }

    CallShim shim;
    Marud marud;
};

TEST_F(Descriptors, AFullTableTurnsNewcomersAwayAndRecoversByItself) {
    rlimit before = {};
    ASSERT_EQ(::prlimit(marud.pid(), RLIMIT_NOFILE, nullptr, &before), 0);
    Unchanged unchanged(marud);
    {
        Worker worker(small_pool());
        EXPECT_TRUE(eventually([&] { return query_status(marud.socket()).attached == 1; }));
        use_up_descriptors();
        expect_only_the_old_one_is_served(worker);
        // A segment is a descriptor, too.
        maru_pool_options options = pool_of(4 * kMiB);
        maru_pool *pool = nullptr;
        EXPECT_EQ(maru_pool_open(worker.client, &options, &pool), -EMFILE) << maru_last_error();
        EXPECT_THAT(marud.log(), HasSubstr("Too many open files"));
        set_descriptor_limit(before.rlim_cur);
        expect_new_ones_are_served();
        EXPECT_EQ(maru_pool_open(worker.client, &options, &pool), 0) << maru_last_error();
        EXPECT_EQ(maru_pool_close(pool, MARU_CLOSE_DRAINED), 0) << maru_last_error();
    }
    unchanged.expect();
}

TEST_F(Descriptors, AnAcceptThatFailsAgainAndAgainLeavesTheLoopIdle) {
    Unchanged unchanged(marud);
    for (int error : {ENFILE, ENOMEM, ENOBUFS}) {
        SCOPED_TRACE(error);
        Worker worker(small_pool());
        shim.fail(SHIM_ACCEPT, error);
        expect_only_the_old_one_is_served(worker);
        EXPECT_GT(shim.failed(SHIM_ACCEPT), 2u) << "it is tried again";
        shim.pass_all();
        expect_new_ones_are_served();
    }
    unchanged.expect();
}

TEST_F(Descriptors, AClientThatCannotBeWatchedIsTurnedAway) {
    Unchanged unchanged(marud);
    {
        Worker worker(small_pool());
        shim.fail(SHIM_EPOLL_ADD, ENOSPC);  // fs.epoll.max_user_watches
        expect_only_the_old_one_is_served(worker);
        shim.pass_all();
        expect_new_ones_are_served();
    }
    unchanged.expect();
}

void pool_owner(Stage &stage) {
    WorkerOptions options;
    options.socket = stage.arguments.at(0);
    Worker worker(options);
    stage.answer(worker.pool ? "ready" : maru_last_error());
    std::string command;
    while (stage.next(&command)) {
    }
}
const ActorRole kPoolOwner("pool-owner", pool_owner);

TEST_F(Descriptors, TheExitOfAProcessIsHeardOfAlthoughItCouldNotBeWatchedAtFirst) {
    Unchanged unchanged(marud);
    // The first is the client's socket, the second its pidfd.
    shim.fail(SHIM_EPOLL_ADD, ENOSPC, 1, 1);
    Actor worker("pool-owner", {marud.socket()});
    ASSERT_EQ(worker.answer(), "ready");
    ASSERT_EQ(shim.failed(SHIM_EPOLL_ADD), 1u);
    worker.kill();
    unchanged.expect();
}

TEST_F(Descriptors, AReceiveWithoutMemoryIsTriedAgainAndDoesNotSpin) {
    WireClient client(marud.socket());
    ASSERT_TRUE(client.hello());
    for (int error : {ENOMEM, ENOBUFS}) {
        shim.fail(SHIM_RECVMSG, error);
        const int64_t before = cpu_ms(marud.pid());
        const uint64_t id = client.post(wire::StatusRequest{});
        EXPECT_FALSE(client.wait_reply(id, kWatchMs));
        EXPECT_LT(cpu_ms(marud.pid()) - before, kIdleCpuMs);
        EXPECT_GT(shim.failed(SHIM_RECVMSG), 2u);
        shim.pass_all();
        EXPECT_TRUE(client.wait_reply(id));
    }
}

TEST_F(Descriptors, ASendWithoutMemoryIsTriedAgainAndDoesNotSpin) {
    WireClient client(marud.socket());
    ASSERT_TRUE(client.hello());
    for (int error : {ENOMEM, ENOBUFS}) {
        shim.fail(SHIM_SENDMSG, error);
        const int64_t before = cpu_ms(marud.pid());
        const uint64_t id = client.post(wire::StatusRequest{});
        EXPECT_FALSE(client.wait_reply(id, kWatchMs));
        EXPECT_LT(cpu_ms(marud.pid()) - before, kIdleCpuMs);
        shim.pass_all();
        EXPECT_TRUE(client.wait_reply(id));
    }
}

// Too many descriptors of this user are under way between processes.
TEST_F(Descriptors, ADescriptorThatCannotPassIsAnErrorAndTheConnectionGoesOn) {
    Unchanged unchanged(marud);
    {
        Worker worker(without_pool(marud));
        shim.fail(SHIM_SENDMSG_FDS, ETOOMANYREFS);
        maru_pool_options options = pool_of(4 * kMiB);
        maru_pool *pool = nullptr;
        EXPECT_EQ(maru_pool_open(worker.client, &options, &pool), -EMFILE) << maru_last_error();
        EXPECT_THAT(maru_last_error(), HasSubstr("descriptor cannot be passed"));
        EXPECT_EQ(wait_uncharged(marud.socket(), 5000), "");
        shim.pass_all();
        ASSERT_EQ(maru_pool_open(worker.client, &options, &worker.pool), 0) << maru_last_error();
        expect_works(worker, 1);
        EXPECT_EQ(worker.client_info().reconnects, 0u);
    }
    unchanged.expect();
}

// Not to be able to look is not to see that somebody is dead: its memory is in use.
TEST_F(Descriptors, AMarudThatCannotSeeWhoLivesDoesNotStart) {
    Worker worker(small_pool());
    expect_works(worker, 1);
    for (shim_call call : {SHIM_PIDFD_OPEN, SHIM_OPEN_READ}) {
        marud.kill();
        shim.fail(call, EMFILE, -1, 0, call == SHIM_OPEN_READ ? "/stat" : "");
        marud.spawn();
        EXPECT_EQ(marud.wait_exit(10'000), 1);
        shim.pass_all();
        marud.start();
        EXPECT_EQ(query_status(marud.socket()).host_reserved_bytes, 16 * kMiB);
        EXPECT_TRUE(eventually([&] { return worker.probe(1) == 1; })) << marud.log();
    }
    EXPECT_THAT(marud.log(), HasSubstr("pidfd_open"));
    EXPECT_THAT(marud.log(), HasSubstr("cannot read when process"));
}

}  // namespace
}  // namespace maru::test
