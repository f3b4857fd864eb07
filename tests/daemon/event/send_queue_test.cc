#include "daemon/event/send_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "libmaru/wire/limits.h"
#include "libmaru/wire/packet_socket.h"

namespace maru {
namespace {

class Queued : public testing::Test {
  protected:
    Queued() {
        int fds[2];
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
        ours_.reset(fds[0]);
        theirs_.reset(fds[1]);
    }
    SendOutcome send(size_t bytes, uint8_t mark, std::vector<UniqueFd> fds = {}) {
        std::vector<std::byte> frame(bytes, std::byte{mark});
        return queue_.send(ours_.get(), frame, std::move(fds), mark, spent_);
    }
    // The mark of the next packet, -1: none.
    int receive() {
        auto packet = wire::receive_packet(theirs_.get(), buffer_);
        if (!packet)
            return -1;
        received_fds_ = packet->fds.size();
        return static_cast<int>(packet->bytes[0]);
    }
    UniqueFd ours_, theirs_;
    SendQueue queue_;
    std::vector<UniqueFd> spent_;
    alignas(8) std::byte buffer_[wire::kMaxFrameBytes];
    size_t received_fds_ = 0;
};

TEST_F(Queued, WhatTheSocketTakesIsNotKept) {
    EXPECT_EQ(send(64, 1), SendOutcome::Sent);
    EXPECT_TRUE(queue_.empty());
    EXPECT_EQ(receive(), 1);
}

TEST_F(Queued, WhatItDoesNotTakeComesLaterInOrder) {
    int sent = 0;
    while (send(32 * 1024, static_cast<uint8_t>(sent)) == SendOutcome::Sent)
        ++sent;
    ++sent;  // the one that was queued
    // Small enough for the socket, but its turn has not come.
    EXPECT_EQ(send(1, static_cast<uint8_t>(sent++)), SendOutcome::Full);
    EXPECT_EQ(queue_.bytes(), 32u * 1024 + 1);
    int next = 0;
    while (next < sent) {
        int mark = receive();
        if (mark < 0) {
            queue_.flush(ours_.get(), spent_);
            mark = receive();
        }
        ASSERT_EQ(mark, next++);
    }
    EXPECT_TRUE(queue_.empty());
    EXPECT_EQ(queue_.bytes(), 0u);
}

TEST_F(Queued, DescriptorsTravelWithTheirPacketAndAreHandedBackToBeClosed) {
    std::vector<UniqueFd> fds;
    fds.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    EXPECT_EQ(send(8, 1, std::move(fds)), SendOutcome::Sent);
    EXPECT_EQ(spent_.size(), 1u);
    EXPECT_EQ(receive(), 1);
    EXPECT_EQ(received_fds_, 1u);
}

TEST_F(Queued, OverflowIsTold) {
    send(32 * 1024, 0);
    while (!queue_.overflown())
        send(64 * 1024, 1);
    EXPECT_GT(queue_.bytes(), wire::kMaxSendQueueBytes);
    EXPECT_LE(queue_.bytes(), wire::kMaxSendQueueBytes + 64 * 1024);
    queue_.clear(spent_);
    EXPECT_FALSE(queue_.overflown());
    EXPECT_TRUE(queue_.empty());
}

TEST_F(Queued, APeerThatRefusesDescriptorsGetsAReplyWithoutThem) {
    int off = 0;
    if (::setsockopt(theirs_.get(), SOL_SOCKET, 83 /* SO_PASSRIGHTS */, &off, sizeof off) < 0)
        GTEST_SKIP() << "SO_PASSRIGHTS needs Linux 6.16";
    std::vector<UniqueFd> fds;
    fds.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    EXPECT_EQ(send(8, 5, std::move(fds)), SendOutcome::TooManyFds);
    EXPECT_EQ(queue_.front_reply_id(), 5u);
    std::byte other[16] = {std::byte{6}};
    queue_.replace_front(other, spent_);
    EXPECT_EQ(spent_.size(), 1u);
    EXPECT_EQ(queue_.bytes(), 16u);
    EXPECT_EQ(queue_.flush(ours_.get(), spent_), SendOutcome::Sent);
    EXPECT_EQ(receive(), 6);
    EXPECT_EQ(received_fds_, 0u);
}

TEST_F(Queued, AGonePeerIsTold) {
    theirs_.reset();
    EXPECT_EQ(send(8, 1), SendOutcome::Gone);
    EXPECT_TRUE(queue_.empty());
}

}  // namespace
}  // namespace maru
