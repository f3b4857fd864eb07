#include "libmaru/wire/packet_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "libmaru/base/clock.h"
#include "tests/libmaru/wire/socket_fixture.h"

namespace maru::wire {
namespace {

using namespace test;

class PacketSocket : public ::testing::Test {
  protected:
    SocketPair pair_;
    alignas(8) std::array<std::byte, kMaxFrameBytes> buffer_{};

    static std::span<const std::byte> bytes(std::string_view text) {
        return {reinterpret_cast<const std::byte *>(text.data()), text.size()};
    }
};

TEST_F(PacketSocket, KeepsMessageBoundaries) {
    ASSERT_TRUE(send_packet(pair_.a.get(), bytes("one")).ok());
    ASSERT_TRUE(send_packet(pair_.a.get(), bytes("three")).ok());
    auto first = receive_packet(pair_.b.get(), buffer_);
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(first->bytes.size(), 3u);
    EXPECT_FALSE(first->truncated);
    EXPECT_FALSE(first->fds_lost);
    EXPECT_TRUE(first->fds.empty());
    auto second = receive_packet(pair_.b.get(), buffer_);
    ASSERT_TRUE(second.ok());
    EXPECT_EQ(std::memcmp(second->bytes.data(), "three", 5), 0);
}

TEST_F(PacketSocket, AFrameOfTheMaximumPasses) {
    const std::vector<std::byte> frame(kMaxFrameBytes, std::byte{7});
    ASSERT_TRUE(send_packet(pair_.a.get(), frame).ok());
    auto packet = receive_packet(pair_.b.get(), buffer_);
    ASSERT_TRUE(packet.ok());
    EXPECT_EQ(packet->bytes.size(), kMaxFrameBytes);
    EXPECT_FALSE(packet->truncated);
}

TEST_F(PacketSocket, ALargerOneIsSaidToBeCut) {
    const std::vector<std::byte> frame(kMaxFrameBytes + 8, std::byte{7});
    ASSERT_TRUE(send_packet(pair_.a.get(), frame).ok());
    auto packet = receive_packet(pair_.b.get(), buffer_);
    ASSERT_TRUE(packet.ok());
    EXPECT_TRUE(packet->truncated);
    EXPECT_EQ(packet->bytes.size(), kMaxFrameBytes);
    EXPECT_EQ(receive_packet(pair_.b.get(), buffer_).error().code, EAGAIN);  // the rest is gone
}

TEST_F(PacketSocket, NothingThereIsEagain) {
    const auto packet = receive_packet(pair_.b.get(), buffer_);
    ASSERT_FALSE(packet.ok());
    EXPECT_EQ(packet.error().code, EAGAIN);
}

TEST_F(PacketSocket, AGonePeerIsEpipeBothWaysAndNoSignal) {
    pair_.a.reset();
    EXPECT_EQ(receive_packet(pair_.b.get(), buffer_).error().code, EPIPE);
    EXPECT_EQ(send_packet(pair_.b.get(), bytes("x")).error().code, EPIPE);
}

// Closing with unread packets resets the connection: for the reader it is gone all the same.
TEST_F(PacketSocket, AResetIsEpipe) {
    ASSERT_TRUE(send_packet(pair_.b.get(), bytes("unread")).ok());
    pair_.a.reset();
    EXPECT_EQ(receive_packet(pair_.b.get(), buffer_).error().code, EPIPE);
}

TEST_F(PacketSocket, AFullQueueIsEagainAndTakesMoreLater) {
    const std::vector<std::byte> frame(kMaxFrameBytes);
    int sent = 0;
    while (send_packet(pair_.a.get(), frame).ok())
        ASSERT_LT(++sent, 1000);
    const int code = send_packet(pair_.a.get(), frame).error().code;
    EXPECT_TRUE(code == EAGAIN || code == ENOBUFS) << code;
    for (int i = 0; i < sent; ++i)
        ASSERT_TRUE(receive_packet(pair_.b.get(), buffer_).ok());
    EXPECT_TRUE(send_packet(pair_.a.get(), frame).ok());
}

TEST_F(PacketSocket, DescriptorsArriveInOrderAndCloseOnExec) {
    std::vector<UniqueFd> files;
    std::vector<int> numbers;
    for (int i = 0; i < 3; ++i) {
        files.emplace_back(::memfd_create("maru-test", MFD_CLOEXEC));
        ASSERT_EQ(::ftruncate(files.back().get(), 100 + i), 0);
        numbers.push_back(files.back().get());
    }
    ASSERT_TRUE(send_packet(pair_.a.get(), bytes("x"), numbers).ok());
    auto packet = receive_packet(pair_.b.get(), buffer_);
    ASSERT_TRUE(packet.ok());
    ASSERT_EQ(packet->fds.size(), 3u);
    for (int i = 0; i < 3; ++i) {
        struct stat info;
        ASSERT_EQ(::fstat(packet->fds[i].get(), &info), 0);
        EXPECT_EQ(info.st_size, 100 + i);
        EXPECT_TRUE(::fcntl(packet->fds[i].get(), F_GETFD) & FD_CLOEXEC);
    }
}

TEST_F(PacketSocket, UnexpectedDescriptorsAreOwnedAndClosedWithThePacket) {
    const size_t before = open_descriptors();
    const std::vector<int> numbers(50, pair_.a.get());
    for (int round = 0; round < 20; ++round) {
        ASSERT_TRUE(send_packet(pair_.a.get(), bytes("x"), numbers).ok());
        auto packet = receive_packet(pair_.b.get(), buffer_);
        ASSERT_TRUE(packet.ok());
        EXPECT_EQ(packet->fds.size(), 50u);
        EXPECT_EQ(open_descriptors(), before + 50);
    }
    EXPECT_EQ(open_descriptors(), before);
}

TEST_F(PacketSocket, AsManyDescriptorsAsTheKernelPasses) {
    const std::vector<int> numbers(kMaxDescriptors, pair_.a.get());
    ASSERT_TRUE(send_packet(pair_.a.get(), bytes("x"), numbers).ok());
    auto packet = receive_packet(pair_.b.get(), buffer_);
    ASSERT_TRUE(packet.ok());
    EXPECT_EQ(packet->fds.size(), kMaxDescriptors);
    EXPECT_FALSE(packet->fds_lost);
    const std::vector<int> more(kMaxDescriptors + 1, pair_.a.get());
    const auto refused = send_packet(pair_.a.get(), bytes("x"), more);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, EINVAL);
    EXPECT_NE(refused.error().message.find("253"), std::string::npos);
}

TEST_F(PacketSocket, DescriptorsLostAtTheProcessLimitAreReported) {
    const size_t before = open_descriptors();
    const std::vector<int> numbers(10, pair_.a.get());
    ASSERT_TRUE(send_packet(pair_.a.get(), bytes("x"), numbers).ok());
    rlimit old{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old), 0);
    const int next = ::dup(pair_.a.get());
    ::close(next);
    const rlimit tight{static_cast<rlim_t>(next) + 4, old.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
    {
        auto packet = receive_packet(pair_.b.get(), buffer_);
        ::setrlimit(RLIMIT_NOFILE, &old);
        ASSERT_TRUE(packet.ok());
        EXPECT_TRUE(packet->fds_lost);
        EXPECT_EQ(packet->fds.size(), 4u);
        EXPECT_EQ(packet->bytes.size(), 1u);
    }
    EXPECT_EQ(open_descriptors(), before);
}

// Otherwise a peer could make us close its descriptors in our own thread.
TEST_F(PacketSocket, AnEmptyPacketHandsOutItsDescriptors) {
    const int number = pair_.a.get();
    ASSERT_TRUE(send_packet(pair_.a.get(), {}, {&number, 1}).ok());
    auto packet = receive_packet(pair_.b.get(), buffer_);
    ASSERT_TRUE(packet.ok());
    EXPECT_TRUE(packet->bytes.empty());
    EXPECT_EQ(packet->fds.size(), 1u);
}

TEST_F(PacketSocket, CredentialsComeAlongWhereAskedFor) {
    const int on = 1;
    ASSERT_EQ(::setsockopt(pair_.b.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on), 0);
    const std::vector<int> numbers(kMaxDescriptors, pair_.a.get());
    ASSERT_TRUE(send_packet(pair_.a.get(), bytes("x"), numbers).ok());
    auto packet = receive_packet(pair_.b.get(), buffer_);
    ASSERT_TRUE(packet.ok());
    EXPECT_EQ(packet->sender_pid, ::getpid());
    EXPECT_EQ(packet->fds.size(), kMaxDescriptors);
    EXPECT_FALSE(packet->fds_lost);
}

TEST_F(PacketSocket, WaitingEndsAtTheDeadlineOrWhenSomethingIsThere) {
    EXPECT_EQ(wait_socket(pair_.b.get(), POLLIN, monotonic_ns()).error().code, ETIMEDOUT);
    EXPECT_EQ(wait_socket(pair_.b.get(), POLLIN, 0).error().code, ETIMEDOUT);
    const int64_t soon = monotonic_ns() + 20'000'000;
    EXPECT_EQ(wait_socket(pair_.b.get(), POLLIN, soon).error().code, ETIMEDOUT);
    EXPECT_GE(monotonic_ns(), soon);
    ASSERT_TRUE(send_packet(pair_.a.get(), bytes("x")).ok());
    EXPECT_TRUE(wait_socket(pair_.b.get(), POLLIN, 0).ok());
    EXPECT_TRUE(wait_socket(pair_.b.get(), POLLOUT, INT64_MAX).ok());
    pair_.a.reset();
    EXPECT_TRUE(wait_socket(pair_.b.get(), POLLIN, INT64_MAX).ok());  // the read tells the end
}

TEST_F(PacketSocket, AReadThatWaitsEndsInTimeOrWithAPacketASignalOrTheEnd) {
    constexpr int64_t kShort = 30'000'000, kLong = 60'000'000'000;
    ASSERT_EQ(::fcntl(pair_.b.get(), F_SETFL, O_NONBLOCK), 0);  // as connect_marud() makes it
    ASSERT_TRUE(allow_waiting(pair_.b.get(), kShort));
    const int64_t begin = monotonic_ns();
    EXPECT_EQ(receive_packet(pair_.b.get(), buffer_).error().code, EAGAIN);
    EXPECT_EQ(receive_packet(pair_.b.get(), buffer_, Wait::Bounded).error().code, EAGAIN);
    EXPECT_GE(monotonic_ns() - begin, kShort / 2);
    // From here a test that waited in vain would be noticed.
    ASSERT_TRUE(allow_waiting(pair_.b.get(), kLong));
    std::thread sender([&] {
        ::usleep(20'000);
        ASSERT_TRUE(send_packet(pair_.a.get(), bytes("late")).ok());
    });
    const auto packet = receive_packet(pair_.b.get(), buffer_, Wait::Bounded);
    ASSERT_TRUE(packet.ok());
    EXPECT_EQ(packet->bytes.size(), 4u);
    sender.join();
    struct sigaction quiet {
    }, before{};
    quiet.sa_handler = [](int) {};
    quiet.sa_flags = SA_RESTART;
    ASSERT_EQ(::sigaction(SIGUSR1, &quiet, &before), 0);
    std::atomic<bool> ended = false;
    const pthread_t self = ::pthread_self();
    std::thread signaller([&] {
        while (!ended) {
            ::usleep(10'000);
            ::pthread_kill(self, SIGUSR1);
        }
    });
    EXPECT_EQ(receive_packet(pair_.b.get(), buffer_, Wait::Bounded).error().code, EAGAIN);
    ended = true;
    signaller.join();
    ASSERT_EQ(::sigaction(SIGUSR1, &before, nullptr), 0);
    // As a connection is ended under its reader.
    std::thread ender([&] {
        ::usleep(20'000);
        ::shutdown(pair_.b.get(), SHUT_RDWR);
    });
    EXPECT_EQ(receive_packet(pair_.b.get(), buffer_, Wait::Bounded).error().code, EPIPE);
    ender.join();
    EXPECT_LT(monotonic_ns() - begin, kLong / 2);
    EXPECT_FALSE(allow_waiting(-1, kShort));
}

}  // namespace
}  // namespace maru::wire
