// Clocks that jump, processes that stand still, a journal that nobody reads.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/integration/exhaustion/support.h"
#include "tests/integration/known_failures/actor.h"

namespace maru::test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr char kShortSessions[] = "[sessions]\ntimeout = \"1s\"\nheartbeat = \"200ms\"\n";

// One session of another process: attached until it says nothing for a second.
void beating_worker(Stage &stage) {
    WorkerOptions options;
    options.socket = stage.arguments.at(0);
    Worker worker(options);
    stage.answer(worker.pool && worker.store(1) == 0 ? "ready" : maru_last_error());
    std::string command;
    while (stage.next(&command)) {
        maru_lease *lease = worker.acquire(1);
        stage.answer(lease && worker.shows(lease, 1) ? "hit" : "lost");
        if (lease)
            worker.release(lease);
    }
}
const ActorRole kBeatingWorker("beating-worker", beating_worker);

uint32_t attached(const Marud &marud) { return query_status(marud.socket()).attached; }

TEST(Clocks, AWallClockThatJumpsEndsNoSessionAndDelaysNone) {
    CallShim shim;
    Marud marud(shimmed(shim, kShortSessions));
    marud.start();
    Unchanged unchanged(marud);
    {
        Actor worker("beating-worker", {marud.socket()});
        ASSERT_EQ(worker.answer(), "ready");
        for (int hours : {24, -24, 0}) {
            SCOPED_TRACE(hours);
            shim.set_clock_offset(std::chrono::hours(hours));
            CallShim::own().set_clock_offset(std::chrono::hours(hours));
            const auto begin = now();
            while (since_ms(begin) < 1500) {
                EXPECT_EQ(attached(marud), 1u);
                pause_ms(50);
            }
            EXPECT_EQ(worker.ask("load"), "hit");
            EXPECT_LT(query_status(marud.socket()).uptime_ms, 600'000u) << "no wall time in it";
        }
        // Time-outs go on by the clock that nobody sets.
        shim.set_clock_offset(std::chrono::hours(-24));
        worker.signal(SIGSTOP);
        EXPECT_TRUE(eventually([&] { return attached(marud) == 0; }));
        worker.signal(SIGCONT);
        EXPECT_TRUE(eventually([&] { return attached(marud) == 1; }));
        EXPECT_EQ(worker.finish(), 0);
    }
    CallShim::own().pass_all();
    unchanged.expect();
    EXPECT_THAT(marud.log(), Not(HasSubstr("did not run")));
}

TEST(Clocks, AMarudThatStoodStillLongerThanATimeoutExpiresNobody) {
    MarudOptions options;
    options.config = kShortSessions;
    Marud marud(options);
    marud.start();
    Unchanged unchanged(marud);
    {
        Actor worker("beating-worker", {marud.socket()});
        ASSERT_EQ(worker.answer(), "ready");
        for (int round = 0; round < 2; ++round) {
            marud.signal(SIGSTOP);
            pause_ms(2500);
            marud.signal(SIGCONT);
            const auto begin = now();
            while (since_ms(begin) < 1200)
                EXPECT_EQ(attached(marud), 1u);
            EXPECT_EQ(worker.ask("load"), "hit");
        }
        EXPECT_EQ(worker.finish(), 0);
    }
    EXPECT_THAT(marud.log(), HasSubstr("marud did not run for"));
    unchanged.expect();
}

TEST(Clocks, AClientThatStoodStillIsHiddenAndComesBackWithAllItHad) {
    MarudOptions options;
    options.config = kShortSessions;
    Marud marud(options);
    marud.start();
    Unchanged unchanged(marud);
    {
        Actor worker("beating-worker", {marud.socket()});
        ASSERT_EQ(worker.answer(), "ready");
        const uint64_t charged = query_status(marud.socket()).host_reserved_bytes;
        worker.signal(SIGSTOP);
        EXPECT_TRUE(eventually([&] { return attached(marud) == 0; }));
        EXPECT_EQ(query_status(marud.socket()).sessions, 1u);
        EXPECT_EQ(query_status(marud.socket()).host_reserved_bytes, charged) << "no clock frees it";
        worker.signal(SIGCONT);
        EXPECT_TRUE(eventually([&] { return attached(marud) == 1; }));
        EXPECT_EQ(worker.ask("load"), "hit");
        EXPECT_EQ(worker.finish(), 0);
    }
    unchanged.expect();
}

// journald's own socket, in the eyes of marud.
class DeafJournal {
  public:
    DeafJournal() {
        std::filesystem::create_directories("/run/systemd/journal");
        EXPECT_EQ(::mount("tmpfs", "/run/systemd/journal", "tmpfs", 0, "size=64k,mode=0755"), 0);
        sockaddr_un name = {};
        name.sun_family = AF_UNIX;
        std::strcpy(name.sun_path, "/run/systemd/journal/socket");
        socket_.reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<sockaddr *>(&name), sizeof name), 0);
    }
    ~DeafJournal() { ::umount2("/run/systemd/journal", MNT_DETACH); }
    std::string read_all() {
        std::string all;
        char text[8192];
        for (ssize_t got; (got = ::recv(socket_.get(), text, sizeof text, 0)) >= 0;)
            all.append(text, static_cast<size_t>(got)) += '\n';
        return all;
    }

  private:
    UniqueFd socket_;
};

TEST(Journal, OneThatNobodyReadsDelaysNobodyAndHearsHowMuchItMissed) {
    if (!own_mounts())
        GTEST_SKIP() << "no mount namespace of its own (needs CAP_SYS_ADMIN)";
    DeafJournal journal;
    Marud marud;
    // As systemd tells a service that its stderr goes to the journal.
    const std::string log = marud.directory() + "/marud.log";
    std::ofstream(log).close();
    struct stat info = {};
    ASSERT_EQ(::stat(log.c_str(), &info), 0);
    marud.options().environment["JOURNAL_STREAM"] =
        std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino);
    marud.start();
    Unchanged unchanged(marud);
    {
        WireClient quiet(marud.socket());
        ASSERT_TRUE(quiet.hello());
        // Each opens and closes a session: two lines, and the socket takes a few hundred at most.
        for (int i = 0; i < 1000; ++i) {
            ASSERT_EQ(quiet.status(wire::OpenSessionRequest{
                          wire::Token{1, static_cast<uint8_t>(i), static_cast<uint8_t>(i >> 8)},
                          wire::Role::Worker, "engine"}),
                      wire::Status::Ok)
                << quiet.message();
            ASSERT_EQ(quiet.status(wire::CloseSessionRequest{}), wire::Status::Ok);
        }
        const std::string first = journal.read_all();
        EXPECT_THAT(first, HasSubstr("MESSAGE=worker of engine 'engine' opened a session"));
        // Read again, it is told how many lines it has not got.
        ASSERT_EQ(quiet.status(wire::OpenSessionRequest{wire::Token{9}, wire::Role::Worker, "e"}),
                  wire::Status::Ok);
        EXPECT_THAT(journal.read_all(), HasSubstr("lines before this one were lost"));
        ASSERT_EQ(quiet.status(wire::CloseSessionRequest{}), wire::Status::Ok);
    }
    unchanged.expect();
}

}  // namespace
}  // namespace maru::test
