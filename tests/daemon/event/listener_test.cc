#include "daemon/event/listener.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "libmaru/base/clock.h"
#include "libmaru/wire/packet_socket.h"
#include "tests/daemon/event/temp_dir.h"

namespace maru {
namespace {

class Listening : public testing::Test {
  protected:
    Listening() {
        sd_event *loop = nullptr;
        EXPECT_GE(sd_event_new(&loop), 0);
        loop_.reset(loop);
    }
    Listener::Callbacks callbacks() {
        return {[this](UniqueFd fd) { accepted_.push_back(std::move(fd)); },
                [this](UniqueFd fd) { refused_.push_back(std::move(fd)); },
                [this](const Error &error) { errors_.push_back(error.code); }};
    }
    UniqueFd bind() {
        auto fd = wire::listen_seqpacket(path_, 0600);
        EXPECT_TRUE(fd) << describe(fd.error());
        return std::move(*fd);
    }
    UniqueFd connect() {
        auto fd = wire::connect_seqpacket(path_, monotonic_ns() + 5'000'000'000);
        EXPECT_TRUE(fd) << describe(fd.error());
        return std::move(*fd);
    }
    TempDir dir_;
    std::string path_ = dir_ / "s";
    EventLoop loop_;
    std::vector<UniqueFd> accepted_, refused_;
    std::vector<int> errors_;
};

TEST_F(Listening, AcceptsABoundedNumberPerTurn) {
    Listener listener(loop_.get(), bind(), path_, callbacks());
    ASSERT_TRUE(listener.start());
    std::vector<UniqueFd> clients;
    for (int i = 0; i < Listener::kAcceptsPerTurn + 3; ++i)
        clients.push_back(connect());
    EXPECT_GT(sd_event_run(loop_.get(), 1'000'000), 0);
    EXPECT_EQ(accepted_.size(), static_cast<size_t>(Listener::kAcceptsPerTurn));
    EXPECT_GT(sd_event_run(loop_.get(), 1'000'000), 0);
    EXPECT_EQ(accepted_.size(), clients.size());
    for (const UniqueFd &fd : accepted_) {
        EXPECT_TRUE(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC);
        EXPECT_TRUE(::fcntl(fd.get(), F_GETFL) & O_NONBLOCK);
    }
}

TEST_F(Listening, RemovesItsOwnSocketAndOnlyThat) {
    struct stat info = {};
    {
        Listener listener(loop_.get(), bind(), path_, callbacks());
        ASSERT_TRUE(listener.start());
    }
    EXPECT_EQ(::lstat(path_.c_str(), &info), -1) << "self-bound: removed";
    UniqueFd passed = bind();
    ASSERT_EQ(::lstat(path_.c_str(), &info), 0);
    ino_t inode = info.st_ino;
    {
        Listener listener(loop_.get(), UniqueFd(::dup(passed.get())), "", callbacks());
        ASSERT_TRUE(listener.start());
    }
    ASSERT_EQ(::lstat(path_.c_str(), &info), 0) << "systemd's: left alone";
    EXPECT_EQ(info.st_ino, inode);
    {
        Listener listener(loop_.get(), UniqueFd(::dup(passed.get())), path_, callbacks());
        ::unlink(path_.c_str());
        ASSERT_EQ(::close(::open(path_.c_str(), O_CREAT | O_WRONLY, 0600)), 0);
    }
    EXPECT_EQ(::lstat(path_.c_str(), &info), 0) << "no longer ours: left alone";
}

TEST_F(Listening, WithoutDescriptorsClientsAreTurnedAwayAndTheLoopRests) {
    Listener listener(loop_.get(), bind(), path_, callbacks());
    ASSERT_TRUE(listener.start());
    UniqueFd client = connect();
    // Nothing is left below the limit but the reserve.
    rlimit before = {}, tight = {};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    int lowest = ::dup(0);
    ASSERT_GE(lowest, 0);
    ::close(lowest);
    tight = before;
    tight.rlim_cur = static_cast<rlim_t>(lowest);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
    int turns = 0;
    int64_t until = monotonic_ns() + 20'000'000;  // less than a rest
    while (monotonic_ns() < until)
        turns += sd_event_run(loop_.get(), 1000) > 0;
    ::setrlimit(RLIMIT_NOFILE, &before);
    EXPECT_LE(turns, 2) << "the backlog made the loop spin";
    ASSERT_FALSE(errors_.empty());
    EXPECT_EQ(errors_[0], EMFILE);
    EXPECT_TRUE(accepted_.empty());
    EXPECT_EQ(refused_.size(), 1u);
    refused_.clear();
    UniqueFd second = connect();
    while (accepted_.empty())
        ASSERT_GT(sd_event_run(loop_.get(), 5'000'000), 0) << "it rests for ever";
}

TEST_F(Listening, AcceptedSocketsRefuseDescriptorsUntilTheyAreOpened) {
    Listener listener(loop_.get(), bind(), path_, callbacks());
    ASSERT_TRUE(listener.start());
    UniqueFd client = connect();
    ASSERT_GT(sd_event_run(loop_.get(), 1'000'000), 0);
    ASSERT_EQ(accepted_.size(), 1u);
    if (!set_pass_rights(accepted_[0].get(), false))
        GTEST_SKIP() << "SO_PASSRIGHTS needs Linux 6.16";
    std::byte byte[8] = {};
    int fd = client.get();
    auto refused = wire::send_packet(client.get(), byte, {&fd, 1});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, EPERM);
    ASSERT_TRUE(set_pass_rights(accepted_[0].get(), true));
    EXPECT_TRUE(wire::send_packet(client.get(), byte, {&fd, 1}));
}

}  // namespace
}  // namespace maru
