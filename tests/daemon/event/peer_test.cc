#include "daemon/event/peer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "daemon/event/process_watch.h"
#include "libmaru/wire/packet_socket.h"

namespace maru {
namespace {

struct Pair {
    UniqueFd ours, theirs;
    Pair() {
        int fds[2];
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
        ours.reset(fds[0]);
        theirs.reset(fds[1]);
    }
};

// A process that waits to be told to end.
class Child {
  public:
    Child() {
        int fds[2];
        EXPECT_EQ(::pipe2(fds, O_CLOEXEC), 0);
        UniqueFd read_end(fds[0]);
        hold_.reset(fds[1]);
        pid_ = ::fork();
        if (pid_ == 0) {
            ::close(hold_.release());
            char byte;
            [[maybe_unused]] ssize_t got = ::read(read_end.get(), &byte, 1);
            ::_exit(0);
        }
    }
    ~Child() { end(); }
    void end() {
        if (pid_ <= 0)
            return;
        ::kill(pid_, SIGKILL);
        int status;
        ::waitpid(pid_, &status, 0);
        pid_ = 0;
    }
    uint32_t pid() const { return static_cast<uint32_t>(pid_); }

  private:
    UniqueFd hold_;
    pid_t pid_ = 0;
};

TEST(Peer, CredentialsAreTheKernels) {
    Pair pair;
    auto peer = peer_credentials(pair.ours.get());
    ASSERT_TRUE(peer) << describe(peer.error());
    EXPECT_EQ(peer->uid, ::getuid());
    EXPECT_EQ(peer->gid, ::getgid());
    EXPECT_EQ(peer->pid, static_cast<uint32_t>(::getpid()));
    int groups = ::getgroups(0, nullptr);
    EXPECT_EQ(peer->groups.size(), static_cast<size_t>(groups));
    EXPECT_FALSE(peer_credentials(-1));
}

TEST(Peer, PidfdNamesTheConnectingProcess) {
    Pair pair;
    auto pidfd = peer_pidfd(pair.ours.get());
    if (!pidfd && pidfd.error().code == ENOPROTOOPT)
        GTEST_SKIP() << "SO_PEERPIDFD needs Linux 6.5";
    ASSERT_TRUE(pidfd) << describe(pidfd.error());
    EXPECT_FALSE(process_ended(pidfd->get()));
}

TEST(Peer, ProcessFactsAreOfTheLivingProcessOrNothing) {
    auto self = open_pidfd(static_cast<uint32_t>(::getpid()));
    ASSERT_TRUE(self);
    ProcessFacts facts = read_process(static_cast<uint32_t>(::getpid()), self->get());
    EXPECT_NE(facts.start_time, 0u);
    EXPECT_NE(facts.command, "-");
    Child child;
    auto pidfd = open_pidfd(child.pid());
    ASSERT_TRUE(pidfd);
    EXPECT_GE(read_process(child.pid(), pidfd->get()).start_time, facts.start_time);
    uint32_t pid = child.pid();
    child.end();
    EXPECT_TRUE(process_ended(pidfd->get()));
    // The number may be another's by now: it says nothing.
    ProcessFacts gone = read_process(pid, pidfd->get());
    EXPECT_EQ(gone.start_time, 0u);
    EXPECT_EQ(gone.command, "-");
    EXPECT_EQ(read_process(static_cast<uint32_t>(::getpid()), pidfd->get()).start_time, 0u);
    EXPECT_EQ(read_process(0, self->get()).start_time, 0u);
    EXPECT_FALSE(open_pidfd(0));
}

TEST(Peer, StartTimeIsFoundBehindAnyCommandName) {
    std::string tail = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 98765 20";
    EXPECT_EQ(parse_start_time("1 (x)" + tail), 98765u);
    EXPECT_EQ(parse_start_time("1 (a) b) (c 99 ) 7)" + tail), 98765u);
    EXPECT_FALSE(parse_start_time(""));
    EXPECT_FALSE(parse_start_time("1 (x"));
    EXPECT_FALSE(parse_start_time("1 (x) S 1 2 3"));
    EXPECT_FALSE(parse_start_time("1 (x) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 x"));
}

TEST(Peer, AdminIsRootOrOurUserOrTheGroup) {
    AdminRule rule{1000, 50};
    EXPECT_TRUE(is_admin({0, 0, 1, {}}, rule));
    EXPECT_TRUE(is_admin({1000, 7, 1, {}}, rule));
    EXPECT_TRUE(is_admin({1001, 50, 1, {}}, rule));
    EXPECT_TRUE(is_admin({1001, 7, 1, {3, 50}}, rule));
    EXPECT_FALSE(is_admin({1001, 7, 1, {3}}, rule));
    rule.group.reset();
    EXPECT_FALSE(is_admin({1001, 50, 1, {50}}, rule));
}

TEST(Peer, AGroupThatDoesNotExistIsNamed) {
    auto root = find_group("root");
    ASSERT_TRUE(root);
    EXPECT_EQ(*root, 0u);
    auto none = find_group("");
    ASSERT_TRUE(none);
    EXPECT_FALSE(*none);
    auto missing = find_group("no-such-group-of-maru");
    ASSERT_FALSE(missing);
    EXPECT_NE(missing.error().message.find("no-such-group-of-maru"), std::string::npos);
}

class Watched : public testing::Test {
  protected:
    Watched() : watch_(make_loop(), [this](ProcessId64 id) { exits_.push_back(id); }) {}
    sd_event *make_loop() {
        sd_event *loop = nullptr;
        EXPECT_GE(sd_event_new(&loop), 0);
        loop_.reset(loop);
        return loop;
    }
    ProcessWatch::Process &add(uint32_t pid) {
        auto pidfd = open_pidfd(pid);
        EXPECT_TRUE(pidfd);
        uint64_t start = read_process(pid, pidfd->get()).start_time;
        return watch_.add(std::move(*pidfd), pid, start);
    }
    EventLoop loop_;
    std::vector<ProcessId64> exits_;
    ProcessWatch watch_;
};

TEST_F(Watched, TheSameProcessHasOneNumberAndAnotherAnother) {
    Child a, b;
    ProcessId64 first = add(a.pid()).id;
    EXPECT_EQ(add(a.pid()).id, first);
    EXPECT_NE(add(b.pid()).id, first);
    EXPECT_NE(watch_.add_ended(), first);
    EXPECT_EQ(watch_.size(), 2u);
}

TEST_F(Watched, AnExitIsToldOnceAndTheNumberNeverComesBack) {
    Child child;
    ProcessId64 id = add(child.pid()).id;
    EXPECT_EQ(sd_event_run(loop_.get(), 0), 0) << "alive: nothing to tell";
    child.end();
    EXPECT_GT(sd_event_run(loop_.get(), 10'000'000), 0);
    EXPECT_EQ(sd_event_run(loop_.get(), 0), 0);
    EXPECT_EQ(exits_, std::vector<ProcessId64>{id});
    EXPECT_TRUE(watch_.find(id)->ended);
    watch_.sweep([](ProcessId64) { return false; });
    EXPECT_EQ(watch_.find(id), nullptr);
    Child other;
    EXPECT_GT(add(other.pid()).id, id);
}

TEST_F(Watched, SweepKeepsWhatIsConnectedOrNeededAndNamesWhatWasStored) {
    Child a, b, c;
    auto &connected = add(a.pid());
    connected.connections = 1;
    auto &needed = add(b.pid());
    auto &stored = add(c.pid());
    stored.stored = true;
    uint32_t pid = stored.pid;
    uint64_t start = stored.start_time;
    ProcessId64 keep = needed.id;
    auto forgotten = watch_.sweep([&](ProcessId64 id) { return id == keep; });
    ASSERT_EQ(forgotten.size(), 1u);
    EXPECT_EQ(forgotten[0], std::make_pair(pid, start));
    EXPECT_EQ(watch_.size(), 2u);
    EXPECT_NE(watch_.find(keep), nullptr);
}

}  // namespace
}  // namespace maru
