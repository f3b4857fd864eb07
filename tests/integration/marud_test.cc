// marud as its users meet it: a process, its socket, its signals and its service manager.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <thread>

#include "libmaru/base/clock.h"
#include "tests/integration/marud_fixture.h"
#include "tests/integration/wire_client.h"

namespace maru::test {
namespace {

using testing::HasSubstr;
using wire::Status;

constexpr int64_t kSecond = 1'000'000'000;

TEST(Marud, IsReadyWhenAHelloIsAnsweredAndNotBefore) {
    Marud marud;
    marud.start();
    WireClient client(marud.socket());
    ASSERT_TRUE(client.hello());
    EXPECT_NE(client.epoch(), 0u);
    EXPECT_EQ(client.status(wire::StatusRequest{}), Status::Ok);
    EXPECT_EQ(marud.stop(), 0);
    int ready = 0;
    for (const std::string &message : marud.notifications())
        ready += message.find("READY=1") != std::string::npos;
    EXPECT_EQ(ready, 0) << "once, and that one was waited for";
}

TEST(Marud, StartsAgainAfterAKillWithAnotherEpoch) {
    Marud marud;
    marud.start();
    WireClient before(marud.socket());
    ASSERT_TRUE(before.hello());
    marud.kill();
    EXPECT_TRUE(std::filesystem::exists(marud.socket())) << "a kill leaves the socket behind";
    int64_t begin = monotonic_ns();
    marud.start();
    EXPECT_LT(monotonic_ns() - begin, 2 * kSecond);
    WireClient after(marud.socket());
    ASSERT_TRUE(after.hello());
    EXPECT_NE(after.epoch(), before.epoch());
}

TEST(Marud, ANumberInTheLockFileIsNotBelieved) {
    Marud marud;
    std::ofstream(marud.directory() + "/marud.lock") << ::getpid() << "\n";
    marud.start();
}

TEST(Marud, SigtermTellsSessionsEndsCleanlyAndTakesItsSocketAway) {
    Marud marud;
    marud.start();
    WireClient client(marud.socket());
    ASSERT_TRUE(client.hello());
    wire::OpenSessionRequest open;
    open.token[0] = 1;
    open.engine = "e";
    ASSERT_EQ(client.status(open), Status::Ok) << client.message();
    int64_t begin = monotonic_ns();
    EXPECT_EQ(marud.stop(), 0);
    EXPECT_LT(monotonic_ns() - begin, 2 * kSecond);
    EXPECT_TRUE(client.wait_event(wire::EventKind::Shutdown, 1000));
    EXPECT_TRUE(client.wait_end(1000));
    EXPECT_FALSE(std::filesystem::exists(marud.socket()));
    EXPECT_TRUE(marud.wait_notification("STOPPING=1", 1000));
}

TEST(Marud, ReloadTakesGoodSettingsAndKeepsTheOldOnesForBadOnes) {
    MarudOptions options;
    options.config = "[sessions]\nin_flight = 5\n";
    Marud marud(options);
    marud.start();
    auto limit = [&]() -> uint32_t {
        WireClient client(marud.socket());
        const auto *reply = client.ask<wire::HelloReply>(wire::HelloRequest{});
        return reply ? reply->limits.in_flight : 0;
    };
    EXPECT_EQ(limit(), 5u);
    marud.set_config("[sessions]\nin_flight = 7\n[daemon]\nsocket = \"/tmp/x\"\n");
    marud.signal(SIGHUP);
    ASSERT_TRUE(marud.wait_notification("RELOADING=1", 5000));
    ASSERT_TRUE(marud.wait_notification("READY=1", 5000));
    EXPECT_EQ(limit(), 7u);
    EXPECT_THAT(marud.log(), HasSubstr("daemon.socket has changed"));
    marud.set_config("[sessions]\nin_flght = 9\n");
    marud.signal(SIGHUP);
    ASSERT_TRUE(marud.wait_notification("READY=1", 5000));
    EXPECT_EQ(limit(), 7u);
    EXPECT_THAT(marud.log(), HasSubstr("marud.toml:2: unknown key 'in_flght'"));
    // The same by request of an administrator, which this test is.
    marud.set_config("[sessions]\nin_flight = 9\n");
    WireClient admin(marud.socket());
    ASSERT_TRUE(admin.hello());
    ASSERT_EQ(admin.status(wire::ReloadRequest{}), Status::Ok) << admin.message();
    ASSERT_TRUE(marud.wait_notification("READY=1", 5000));
    EXPECT_EQ(limit(), 9u);
}

TEST(Marud, ABadConfigurationEndsItWithStatusTwo) {
    MarudOptions options;
    options.config = "[cpu]\ncpu_poolsize = \"1G\"\n";
    Marud marud(options);
    marud.spawn();
    EXPECT_EQ(marud.wait_exit(10'000), 2);
    EXPECT_THAT(marud.log(), HasSubstr("marud.toml:2: unknown key 'cpu_poolsize' in [cpu]"));
    MarudOptions check;
    check.arguments = {"--check-config"};
    check.config = "[cpu]\nhost_bytes = \"1G\"\n";
    Marud good(check);
    good.spawn();
    EXPECT_EQ(good.wait_exit(10'000), 0);
}

TEST(Marud, WatchdogPingsStopWithTheLoopAndResumeWithIt) {
    MarudOptions options;
    options.watchdog_ms = 600;
    Marud marud(options);
    marud.start();
    EXPECT_TRUE(marud.wait_notification("WATCHDOG=1", 2000));
    EXPECT_TRUE(marud.wait_notification("WATCHDOG=1", 2000));
    marud.signal(SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // what was on its way
    marud.notifications();
    EXPECT_FALSE(marud.wait_notification("WATCHDOG=1", 700));
    marud.signal(SIGCONT);
    EXPECT_TRUE(marud.wait_notification("WATCHDOG=1", 2000));
}

TEST(Marud, SessionsGetTheirFullTimeAfterMarudItselfStoodStill) {
    MarudOptions options;
    options.config = "[sessions]\ntimeout = \"1s\"\nheartbeat = \"200ms\"\n";
    Marud marud(options);
    marud.start();
    WireClient client(marud.socket());
    ASSERT_TRUE(client.hello());
    wire::OpenSessionRequest open;
    open.token[0] = 1;
    open.engine = "e";
    ASSERT_EQ(client.status(open), Status::Ok);
    marud.signal(SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    marud.signal(SIGCONT);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    // Asked by another: a request of the session itself would bring it back.
    WireClient other(marud.socket());
    ASSERT_TRUE(other.hello());
    const auto *status = other.ask<wire::StatusReply>(wire::StatusRequest{});
    ASSERT_TRUE(status);
    EXPECT_EQ(status->attached, 1u);
    EXPECT_THAT(marud.log(), HasSubstr("marud did not run for"));
    // And no more than that: it has said nothing since.
    std::this_thread::sleep_for(std::chrono::milliseconds(1000));
    status = other.ask<wire::StatusReply>(wire::StatusRequest{});
    ASSERT_TRUE(status);
    EXPECT_EQ(status->attached, 0u);
}

TEST(Marud, AThousandConnectionsLeaveNoDescriptorBehind) {
    Marud marud;
    marud.start();
    WireClient steady(marud.socket());
    ASSERT_TRUE(steady.hello());
    size_t before = marud.open_fds();
    for (int round = 0; round < 10; ++round) {
        std::vector<std::unique_ptr<WireClient>> clients;
        for (int i = 0; i < 100; ++i) {
            clients.push_back(std::make_unique<WireClient>(marud.socket()));
            if (i % 2) {
                ASSERT_TRUE(clients.back()->hello());
            }
        }
    }
    int64_t deadline = monotonic_ns() + 10 * kSecond;
    while (marud.open_fds() > before && monotonic_ns() < deadline)
        ASSERT_TRUE(steady.call(wire::StatusRequest{}));
    EXPECT_LE(marud.open_fds(), before);
}

TEST(Marud, DescriptorsWhereNoneAreExpectedAreClosedAndTheRequestRefused) {
    Marud marud;
    marud.start();
    WireClient client(marud.socket());
    ASSERT_TRUE(client.hello());
    size_t before = marud.open_fds();
    std::vector<UniqueFd> files;
    std::vector<int> fds;
    for (int i = 0; i < 50; ++i) {
        files.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        fds.push_back(files.back().get());
    }
    bool refused_by_kernel = false;
    for (int i = 0; i < 1000; ++i) {
        uint64_t id = client.post(wire::StatusRequest{}, fds);
        if (id == 0) {  // SO_PASSRIGHTS: they did not even leave
            refused_by_kernel = true;
            continue;
        }
        const wire::Reply *reply = client.wait_reply(id);
        if (!reply) {  // refused with the connection
            WireClient again(marud.socket());
            ASSERT_TRUE(again.hello());
            break;
        }
        const auto *only = std::get_if<wire::StatusOnly>(&reply->body);
        ASSERT_TRUE(only);
        EXPECT_EQ(only->status, Status::Protocol);
    }
    WireClient other(marud.socket());
    ASSERT_TRUE(other.hello());
    int64_t deadline = monotonic_ns() + 10 * kSecond;
    while (marud.open_fds() > before + 1 && monotonic_ns() < deadline)
        ASSERT_TRUE(other.call(wire::StatusRequest{}));
    EXPECT_LE(marud.open_fds(), before + 1);
    if (refused_by_kernel) {
        EXPECT_EQ(client.status(wire::StatusRequest{}), Status::Ok);
    }
}

TEST(Marud, WhatIsNoMessageEndsThatConnectionOnly) {
    Marud marud;
    marud.start();
    WireClient good(marud.socket());
    ASSERT_TRUE(good.hello());
    uint64_t random = 88172645463325252;
    for (int i = 0; i < 300; ++i) {
        WireClient bad(marud.socket());
        std::vector<std::byte> frame(static_cast<size_t>(1 + i * 7 % 400));
        for (std::byte &b : frame) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            b = static_cast<std::byte>(random);
        }
        ASSERT_TRUE(wire::send_packet(bad.fd(), frame));
        if (i % 50 == 0) {
            EXPECT_TRUE(bad.wait_end(1000)) << "frame " << i;
        }
        ASSERT_EQ(good.status(wire::StatusRequest{}), Status::Ok);
    }
    WireClient large(marud.socket());
    std::vector<std::byte> frame(wire::kMaxFrameBytes + 8);
    ASSERT_TRUE(wire::send_packet(large.fd(), frame));
    EXPECT_TRUE(large.wait_end(1000));
}

// The longest of some round trips while others misbehave.
int64_t slowest_ms(WireClient &client, int calls) {
    int64_t slowest = 0;
    for (int i = 0; i < calls; ++i) {
        int64_t begin = monotonic_ns();
        EXPECT_TRUE(client.call(wire::StatusRequest{}));
        slowest = std::max(slowest, monotonic_ns() - begin);
    }
    return slowest / 1'000'000;
}

TEST(Marud, FloodingClientsDoNotDelayAnother) {
    Marud marud;
    marud.start();
    WireClient quiet(marud.socket());
    ASSERT_TRUE(quiet.hello());
    std::atomic<bool> stop = false;
    std::vector<std::thread> floods;
    for (int i = 0; i < 2; ++i)
        floods.emplace_back([&] {
            WireClient flood(marud.socket());
            flood.hello();
            while (!stop) {
                for (int k = 0; k < 64; ++k)
                    flood.post(wire::StatusRequest{});
                alignas(8) static thread_local std::byte sink[wire::kMaxFrameBytes];
                while (wire::receive_packet(flood.fd(), sink)) {
                }
            }
        });
    int64_t slowest = slowest_ms(quiet, 200);
    stop = true;
    for (std::thread &flood : floods)
        flood.join();
    EXPECT_LT(slowest, 500);
}

TEST(Marud, ClientsThatNeverReadDoNotDelayAnotherAndDoNotFillMemory) {
    Marud marud;
    marud.start();
    WireClient quiet(marud.socket());
    ASSERT_TRUE(quiet.hello());
    std::vector<std::unique_ptr<WireClient>> deaf;
    uint64_t taken = 0;
    for (int i = 0; i < 20; ++i) {
        deaf.push_back(std::make_unique<WireClient>(marud.socket()));
        for (int idle = 0; idle < 3;) {
            if (deaf.back()->post(wire::HelloRequest{})) {
                ++taken;
                idle = 0;
            } else {
                ++idle;
                ASSERT_TRUE(quiet.call(wire::StatusRequest{}));
            }
        }
    }
    EXPECT_GT(taken, 1000u);
    EXPECT_LT(slowest_ms(quiet, 200), 500);
    std::ifstream statm("/proc/" + std::to_string(marud.pid()) + "/statm");
    size_t size = 0, resident = 0;
    statm >> size >> resident;
    EXPECT_LT(resident * 4096, 200u << 20);
}

TEST(Marud, ConnectionsOfAUserAreLimited) {
    MarudOptions options;
    options.config = "[limits]\nconnections_per_uid = 3\n";
    Marud marud(options);
    marud.start();
    WireClient a(marud.socket()), b(marud.socket()), c(marud.socket());
    ASSERT_TRUE(a.hello() && b.hello() && c.hello());
    WireClient d(marud.socket());
    EXPECT_FALSE(d.hello());
    EXPECT_TRUE(d.wait_event(wire::EventKind::Refused, 1000));
    EXPECT_THAT(marud.log(), HasSubstr("limits.connections_per_uid"));
    c.close();
    int64_t deadline = monotonic_ns() + 5 * kSecond;
    bool again = false;
    while (!again && monotonic_ns() < deadline)
        again = WireClient(marud.socket()).hello();
    EXPECT_TRUE(again);
}

}  // namespace
}  // namespace maru::test
