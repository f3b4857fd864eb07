// marud and its service manager: a slow start, a stuck loop, sockets that are not marud's to remove.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "libmaru/wire/packet_socket.h"
#include "tests/integration/exhaustion/support.h"
#include "tests/integration/known_failures/actor.h"

namespace maru::test {
namespace {

using testing::HasSubstr;

// Places at which marud-paused waits; see daemon/event/pause_point.h.
class PausePoints {
  public:
    PausePoints() {
        char path[] = "/tmp/marud-pause-XXXXXX";
        EXPECT_NE(::mkdtemp(path), nullptr);
        path_ = path;
    }
    ~PausePoints() { std::filesystem::remove_all(path_); }
    void slow(const std::string &name, int ms) { write(name, std::to_string(ms)); }
    void hold(const std::string &name) { write(name, ""); }
    void let_go(const std::string &name) { std::filesystem::remove(path_ + "/" + name); }
    MarudOptions options() const {
        MarudOptions options;
        options.binary = MARUD_PAUSED_PATH;
        options.environment["MARU_PAUSE_POINTS"] = path_;
        return options;
    }

  private:
    void write(const std::string &name, const std::string &text) {
        // Whole at once: an empty file means something else.
        const std::string next = path_ + "/." + name;
        std::ofstream(next) << text;
        std::filesystem::rename(next, path_ + "/" + name);
    }
    std::string path_;
};

// Sessions of this process, recorded by marud.
void leave_records(Marud &marud, int count) {
    marud.start();
    for (int i = 0; i < count; ++i) {
        WireClient client(marud.socket());
        ASSERT_TRUE(client.hello());
        wire::OpenSessionRequest open;
        open.token[0] = static_cast<uint8_t>(i + 1);
        const std::string engine = "engine-" + std::to_string(i);
        open.engine = engine;
        ASSERT_EQ(client.status(open), wire::Status::Ok) << client.message();
    }
    marud.kill();
}

bool keeps_alive(const std::string &message) {
    return message.find("EXTEND_TIMEOUT_USEC=") != std::string::npos ||
           message.find("WATCHDOG=1") != std::string::npos;
}

TEST(Startup, A51_ASlowReplayKeepsTheManagerInformedUntilItServes) {
    PausePoints points;
    Marud marud(points.options());
    ASSERT_NO_FATAL_FAILURE(leave_records(marud, 10));
    points.slow("record", 500);  // at reading each and at charging each: 10 s in all
    marud.notifications();
    marud.spawn();
    const auto begin = now();
    auto last = begin;
    int64_t longest = 0;
    int kept_alive = 0, ready = 0;
    while (ready == 0 && since_ms(begin) < 60'000) {
        for (const std::string &message : marud.notifications()) {
            ready += message.find("READY=1") != std::string::npos;
            if (!keeps_alive(message))
                continue;
            longest = std::max(longest, since_ms(last));
            last = now();
            ++kept_alive;
        }
        pause_ms(5);
    }
    EXPECT_GE(since_ms(begin), 9000) << "the replay was not slow";
    EXPECT_EQ(ready, 1);
    EXPECT_GE(kept_alive, 5);
    EXPECT_LT(longest, 2000 + 1000) << "a second more for a loaded machine";
    WireClient client(marud.socket());
    EXPECT_TRUE(client.hello()) << "READY only when somebody would be answered";
    pause_ms(300);
    for (const std::string &message : marud.notifications())
        EXPECT_THAT(message, testing::Not(HasSubstr("READY=1"))) << "once";
}

TEST(Startup, A51_AStuckReplayStopsKeepingItselfAlive) {
    PausePoints points;
    Marud marud(points.options());
    ASSERT_NO_FATAL_FAILURE(leave_records(marud, 3));
    points.hold("record");
    marud.spawn();
    pause_ms(1000);
    marud.notifications();
    pause_ms(3000);
    for (const std::string &message : marud.notifications())
        EXPECT_FALSE(keeps_alive(message)) << message;
    EXPECT_TRUE(marud.running());
    points.let_go("record");
    marud.wait_ready();
    EXPECT_EQ(query_status(marud.socket()).sessions, 3u);
}

TEST(Startup, A52_AStuckLoopStopsThePingsAndAStuckHelperDoesNot) {
    PausePoints points;
    MarudOptions options = points.options();
    options.watchdog_ms = 2000;
    Marud marud(options);
    marud.start();
    ASSERT_TRUE(marud.wait_notification("WATCHDOG=1", 5000));
    points.hold("loop");
    pause_ms(2000);  // what was sent before the loop came to its next turn
    marud.notifications();
    EXPECT_FALSE(marud.wait_notification("WATCHDOG=1", 3000));
    points.let_go("loop");
    EXPECT_TRUE(marud.wait_notification("WATCHDOG=1", 5000));
    // A thread of the reaper may be held by a client's descriptor for ever: the loop still serves.
    points.hold("reaper");
    WireClient(marud.socket()).close();
    WireClient client(marud.socket());
    ASSERT_TRUE(client.hello());
    EXPECT_TRUE(marud.wait_notification("WATCHDOG=1", 5000));
    EXPECT_TRUE(marud.wait_notification("WATCHDOG=1", 5000));
    EXPECT_EQ(client.status(wire::StatusRequest{}), wire::Status::Ok);
    points.let_go("reaper");
}

// The predecessor's charge is there until the proof of its exit: not an error, a moment to wait.
TEST(Startup, AnEngineThatIsStartedAgainAtOnceWaitsForItsPool) {
    PausePoints points;
    MarudOptions options = points.options();
    options.config = "[cpu]\nuid_bytes = \"64M\"\n";
    Marud marud(options);
    marud.start();
    WorkerOptions large = without_pool(marud);
    large.pool_bytes = 64 << 20;
    large.page_bytes = large.object_bytes = 64 * 1024;
    {
        Actor worker("touching-worker", {marud.socket()});
        ASSERT_EQ(worker.answer(), "ready");
        points.slow("reaper", 700);  // the proof is one of its jobs
        worker.kill();
    }
    const auto begin = now();
    Worker successor(large);
    ASSERT_NE(successor.pool, nullptr) << maru_last_error();
    EXPECT_GE(since_ms(begin), 400) << "the predecessor's charge was gone before it was asked";
    points.let_go("reaper");
    // A living one is not waited for.
    WorkerOptions other = without_pool(marud, "another");
    other.object_bytes = large.object_bytes;  // they share a namespace
    Worker another(other);
    maru_pool_options pool_options = pool_of(64 << 20);
    maru_pool *pool = nullptr;
    const auto asked = now();
    EXPECT_EQ(maru_pool_open(another.client, &pool_options, &pool), -EDQUOT);
    EXPECT_LT(since_ms(asked), 3000);
}

TEST(Startup, A53_TheManagersSocketIsServedAndNeverRemoved) {
    MarudOptions options;
    options.socket_activation = true;
    Marud marud(options);
    struct stat before = {}, after = {};
    ASSERT_EQ(::lstat(marud.socket().c_str(), &before), 0);
    for (int life = 0; life < 2; ++life) {
        WireClient early(marud.socket());  // waits in the backlog for the start
        marud.start();
        EXPECT_TRUE(early.hello());
        EXPECT_EQ(marud.stop(), 0);
        ASSERT_EQ(::lstat(marud.socket().c_str(), &after), 0);
        EXPECT_EQ(before.st_ino, after.st_ino);
    }
    // Meant for another process: the descriptor is left alone, and so is the path it listens on.
    marud.options().environment["LISTEN_PID"] = "1";
    marud.spawn();
    EXPECT_EQ(marud.wait_exit(10'000), 1);
    EXPECT_THAT(marud.log(), HasSubstr(marud.socket()));
    ASSERT_EQ(::lstat(marud.socket().c_str(), &after), 0);
    EXPECT_EQ(before.st_ino, after.st_ino);
}

std::string contents(const std::string &path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
}

TEST(Startup, A54_ASocketLeftByAKillIsReplaced) {
    Marud marud;
    marud.start();
    marud.kill();
    ASSERT_TRUE(std::filesystem::exists(marud.socket())) << "a kill leaves the socket behind";
    const auto begin = now();
    marud.start();
    EXPECT_LT(since_ms(begin), 2000);
    EXPECT_TRUE(WireClient(marud.socket()).hello());
}

TEST(Startup, A54_ASocketThatIsServedIsNotTakenOver) {
    Marud first;
    first.start();
    struct stat before = {}, after = {};
    ASSERT_EQ(::lstat(first.socket().c_str(), &before), 0);
    // Records of its own, so that no lock stands between the two.
    MarudOptions options;
    options.directory = first.directory();
    options.config = "[daemon]\nruntime_directory = \"" + first.directory() + "/second\"\n";
    Marud second(options);
    second.spawn();
    EXPECT_EQ(second.wait_exit(10'000), 1);
    EXPECT_THAT(second.log(), HasSubstr("in use"));
    ASSERT_EQ(::lstat(first.socket().c_str(), &after), 0);
    EXPECT_EQ(before.st_ino, after.st_ino);
    EXPECT_TRUE(WireClient(first.socket()).hello());
    // And with the same records: the message names who has them.
    MarudOptions same;
    same.directory = first.directory();
    Marud third(same);
    third.spawn();
    EXPECT_EQ(third.wait_exit(10'000), 1);
    EXPECT_THAT(first.log(), HasSubstr("in use by process " + std::to_string(first.pid())));
    EXPECT_TRUE(WireClient(first.socket()).hello());
}

TEST(Startup, A54_AFileThatIsNoSocketIsLeftAlone) {
    Marud marud;
    std::ofstream(marud.socket()) << "precious";
    marud.spawn();
    EXPECT_EQ(marud.wait_exit(10'000), 1);
    EXPECT_EQ(contents(marud.socket()), "precious");
    EXPECT_THAT(marud.log(), HasSubstr(marud.socket()));
}

TEST(Startup, A54_OfTwoStartsAfterAKillExactlyOneServes) {
    Marud one;
    for (int round = 0; round < 3; ++round) {
        one.start();
        one.kill();
        MarudOptions options;
        options.directory = one.directory();
        Marud other(options);
        one.spawn();
        other.spawn();
        const bool one_ready = one.wait_notification("READY=1", 3000);
        const bool other_ready = other.wait_notification("READY=1", one_ready ? 1500 : 10'000);
        EXPECT_NE(one_ready, other_ready);
        EXPECT_EQ((one_ready ? other : one).wait_exit(10'000), 1);
        EXPECT_TRUE(WireClient(one.socket()).hello());
        (one_ready ? one : other).kill();
    }
}

}  // namespace
}  // namespace maru::test
