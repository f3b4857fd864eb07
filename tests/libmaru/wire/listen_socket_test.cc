#include <gtest/gtest.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <future>
#include <thread>

#include "libmaru/base/clock.h"
#include "libmaru/wire/connect_marud.h"
#include "libmaru/wire/packet_socket.h"
#include "tests/libmaru/wire/socket_fixture.h"

namespace maru::wire {
namespace {

using namespace test;

int64_t in_ms(int64_t ms) { return monotonic_ns() + ms * 1'000'000; }

class ListenSocket : public ::testing::Test {
  protected:
    TemporaryFolder folder_;
    const std::string path_ = folder_ / "marud.sock";

    bool reachable() { return connect_seqpacket(path_, in_ms(1000)).ok(); }
};

TEST_F(ListenSocket, IsReachableWithTheModeAskedFor) {
    const mode_t old = ::umask(0077);
    auto listener = listen_seqpacket(path_, 0666);
    ::umask(old);
    ASSERT_TRUE(listener.ok()) << describe(listener.error());
    struct stat info;
    ASSERT_EQ(::stat(path_.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0666u);
    auto client = connect_seqpacket(path_, in_ms(1000));
    ASSERT_TRUE(client.ok());
    UniqueFd server(::accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_TRUE(server);
    EXPECT_TRUE(send_packet(client->get(), std::as_bytes(std::span("hi"))).ok());
}

TEST_F(ListenSocket, ALivingListenerIsNeverRobbed) {
    auto living = listen_seqpacket(path_, 0600);
    ASSERT_TRUE(living.ok());
    const auto second = listen_seqpacket(path_, 0600);
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, EADDRINUSE);
    EXPECT_NE(second.error().message.find(path_), std::string::npos);
    EXPECT_TRUE(reachable());
}

TEST_F(ListenSocket, AListenerWithAFullBacklogIsAlive) {
    auto living = listen_seqpacket(path_, 0600);
    ASSERT_TRUE(living.ok());
    ASSERT_EQ(::listen(living->get(), 0), 0);
    std::vector<UniqueFd> waiting;
    for (;;) {
        auto client = connect_seqpacket(path_, in_ms(0));
        if (!client) {
            EXPECT_EQ(client.error().code, ETIMEDOUT);
            break;
        }
        waiting.push_back(std::move(*client));
        ASSERT_LT(waiting.size(), 100u);
    }
    EXPECT_EQ(listen_seqpacket(path_, 0600).error().code, EADDRINUSE);
}

TEST_F(ListenSocket, AFullBacklogIsWaitedForUntilTheDeadline) {
    auto listener = listen_seqpacket(path_, 0600);
    ASSERT_TRUE(listener.ok());
    ASSERT_EQ(::listen(listener->get(), 0), 0);
    std::vector<UniqueFd> waiting;
    while (auto client = connect_seqpacket(path_, in_ms(0)))
        waiting.push_back(std::move(*client));
    Result<UniqueFd> late = Error{EIO, "not run"};
    std::thread connector([&] { late = connect_seqpacket(path_, in_ms(10'000)); });
    std::vector<UniqueFd> accepted;
    while (accepted.size() <= waiting.size()) {
        pollfd entry{listener->get(), POLLIN, 0};
        ASSERT_EQ(::poll(&entry, 1, 10'000), 1);
        accepted.emplace_back(::accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
    }
    connector.join();
    EXPECT_TRUE(late.ok());
}

TEST_F(ListenSocket, ALeftOverSocketIsReplaced) {
    listen_seqpacket(path_, 0600)->reset();  // as after a kill: the file stays
    ASSERT_EQ(connect_seqpacket(path_, in_ms(0)).error().code, ECONNREFUSED);
    auto listener = listen_seqpacket(path_, 0600);
    ASSERT_TRUE(listener.ok()) << describe(listener.error());
    EXPECT_TRUE(reachable());
}

TEST_F(ListenSocket, WhatIsNoSocketStaysUntouched) {
    std::ofstream(path_) << "precious";
    auto listener = listen_seqpacket(path_, 0600);
    ASSERT_FALSE(listener.ok());
    EXPECT_EQ(listener.error().code, EEXIST);
    std::string content;
    std::ifstream(path_) >> content;
    EXPECT_EQ(content, "precious");
    // A symbolic link is none either, wherever it leads.
    const std::string link = folder_ / "link.sock";
    ASSERT_EQ(::symlink((folder_ / "nowhere").c_str(), link.c_str()), 0);
    EXPECT_EQ(listen_seqpacket(link, 0600).error().code, EEXIST);
}

TEST_F(ListenSocket, ASocketOfAnotherKindIsSomebodyElses) {
    UniqueFd stream(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path_.c_str());
    ASSERT_EQ(::bind(stream.get(), reinterpret_cast<sockaddr *>(&address), sizeof address), 0);
    ASSERT_EQ(::listen(stream.get(), 1), 0);
    EXPECT_EQ(listen_seqpacket(path_, 0600).error().code, EADDRINUSE);
}

// Each round: a left-over socket, and starters in other processes that race for the path.
TEST_F(ListenSocket, OfRacingStartersExactlyOneOwnsThePath) {
    constexpr int kStarters = 6;
    for (int round = 0; round < 20; ++round) {
        listen_seqpacket(path_, 0600)->reset();
        int go[2], done[2], stop[2];
        ASSERT_EQ(::pipe2(go, O_CLOEXEC), 0);
        ASSERT_EQ(::pipe2(done, O_CLOEXEC), 0);
        ASSERT_EQ(::pipe2(stop, O_CLOEXEC), 0);
        pid_t children[kStarters];
        for (pid_t &child : children) {
            child = ::fork();
            ASSERT_GE(child, 0);
            if (child == 0) {
                char byte;
                ::close(go[1]);
                ::close(stop[1]);
                static_cast<void>(::read(go[0], &byte, 1));  // ends when the parent closes go[1]
                const auto listener = listen_seqpacket(path_, 0600);
                byte = listener ? 'y' : listener.error().code == EADDRINUSE ? 'n' : '?';
                static_cast<void>(::write(done[1], &byte, 1));
                static_cast<void>(::read(stop[0], &byte, 1));  // the winner lives on
                ::_exit(0);
            }
        }
        ::close(go[1]);
        int owners = 0, losers = 0;
        for (int i = 0; i < kStarters; ++i) {
            char byte = 0;
            ASSERT_EQ(::read(done[0], &byte, 1), 1);
            owners += byte == 'y';
            losers += byte == 'n';
        }
        EXPECT_EQ(owners, 1);
        EXPECT_EQ(losers, kStarters - 1);
        EXPECT_TRUE(reachable());
        ::close(stop[1]);
        for (pid_t child : children)
            ASSERT_EQ(::waitpid(child, nullptr, 0), child);
        for (int fd : {go[0], done[0], done[1], stop[0]})
            ::close(fd);
    }
}

// The race above is rarely lost without a lock; this is what makes it impossible.
TEST_F(ListenSocket, AStarterWaitsForTheOneBeforeIt) {
    listen_seqpacket(path_, 0600)->reset();
    UniqueFd lock(::open((path_ + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
    auto starter = std::async(std::launch::async, [&] { return listen_seqpacket(path_, 0600); });
    ASSERT_EQ(starter.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
    ASSERT_EQ(connect_seqpacket(path_, in_ms(0)).error().code, ECONNREFUSED);  // not touched yet
    lock.reset();
    EXPECT_TRUE(starter.get().ok());
}

TEST_F(ListenSocket, PathsAreCheckedBeforeTheKernelCutsThem) {
    const std::string longest = folder_ / std::string(200, 'x').c_str();
    const auto listener = listen_seqpacket(longest, 0600);
    ASSERT_FALSE(listener.ok());
    EXPECT_EQ(listener.error().code, ENAMETOOLONG);
    EXPECT_NE(listener.error().message.find("at most 107"), std::string::npos);
    EXPECT_EQ(connect_seqpacket(longest, 0).error().code, ENAMETOOLONG);
    EXPECT_EQ(connect_seqpacket("", 0).error().code, EINVAL);
    EXPECT_EQ(connect_seqpacket(folder_ / "absent", 0).error().code, ENOENT);
}

TEST_F(ListenSocket, ConnectMarudPassesOverPlacesWhereNobodyListens) {
    const std::string stale = folder_ / "stale.sock";
    listen_seqpacket(stale, 0600)->reset();
    auto listener = listen_seqpacket(path_, 0600);
    ASSERT_TRUE(listener.ok());
    const std::string paths[] = {folder_ / "absent/marud.sock", stale, path_};
    EXPECT_TRUE(connect_marud(paths, in_ms(1000)).ok());
    const auto nowhere = connect_marud(std::span(paths).first(2), in_ms(1000));
    ASSERT_FALSE(nowhere.ok());
    EXPECT_EQ(nowhere.error().code, ECONNREFUSED);
    for (const auto &path : std::span(paths).first(2))
        EXPECT_NE(nowhere.error().message.find(path), std::string::npos);
}

}  // namespace
}  // namespace maru::wire
