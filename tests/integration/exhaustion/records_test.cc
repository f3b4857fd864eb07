// A runtime directory that is full or read-only: what the next life of marud would not know does not
// begin, what has begun goes on, and all is well again by itself when there is room.

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "tests/integration/exhaustion/support.h"

namespace maru::test {
namespace {

using testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;

std::string config_for(const std::string &directory) {
    return "[daemon]\nruntime_directory = \"" + directory + "\"\n";
}

// The message of a refused open; "" if it succeeded, and then the client is closed.
std::string refusal(const Marud &marud, const std::string &engine, int *ret_code) {
    maru_client_options options{};
    options.size = sizeof options;
    const std::string socket = marud.socket();
    options.socket_path = socket.c_str();
    options.engine = engine.c_str();
    options.connect_ms = 3000;
    maru_client *client = nullptr;
    *ret_code = maru_client_open(&options, &client);
    if (*ret_code < 0)
        return maru_last_error();
    EXPECT_EQ(maru_client_close(client), 0) << maru_last_error();
    return {};
}

void expect_only_what_has_begun_goes_on(Marud &marud, Worker &old, const std::string &why) {
    int code = 0;
    EXPECT_THAT(refusal(marud, "another", &code), HasSubstr(why));
    EXPECT_EQ(code, -EIO);
    maru_pool_options options = pool_of(4 * kMiB);
    maru_pool *pool = nullptr;
    EXPECT_EQ(maru_pool_open(old.client, &options, &pool), -EIO);
    EXPECT_THAT(maru_last_error(), HasSubstr(why));
    EXPECT_EQ(query_status(marud.socket()).host_reserved_bytes, 1 * kMiB);
    EXPECT_EQ(query_status(marud.socket()).sessions, 1u);
    expect_works(old, 1);
    EXPECT_THAT(marud.log(), HasSubstr("session record not written"));
}

void expect_everything_begins_again(Marud &marud, Worker &old) {
    int code = 0;
    EXPECT_EQ(refusal(marud, "another", &code), "");
    EXPECT_EQ(code, 0);
    maru_pool_options options = pool_of(4 * kMiB);
    maru_pool *pool = nullptr;
    EXPECT_EQ(maru_pool_open(old.client, &options, &pool), 0) << maru_last_error();
    EXPECT_EQ(maru_pool_close(pool, MARU_CLOSE_DRAINED), 0) << maru_last_error();
    // What could not be written is written meanwhile: a new life of marud knows it.
    EXPECT_TRUE(eventually(
        [&] { return marud.log().find("session record written again") != std::string::npos; }));
    marud.restart();
    EXPECT_TRUE(eventually([&] { return old.probe(1) == 1; })) << marud.log();
    EXPECT_EQ(query_status(marud.socket()).host_reserved_bytes, 1 * kMiB);
}

TEST(Records, AFullTmpfsRefusesWhatIsNewAndKeepsWhatIsThere) {
    if (!own_mounts())
        GTEST_SKIP() << "no mount namespace of its own (needs CAP_SYS_ADMIN)";
    TinyTmpfs state(64);
    MarudOptions options;
    options.config = config_for(state.path());
    Marud marud(options);
    marud.start();
    WorkerOptions worker = without_pool(marud);
    worker.pool_bytes = 1 * kMiB;
    {
        Worker old(worker);
        expect_works(old, 1);
        state.fill();
        expect_only_what_has_begun_goes_on(marud, old, "No space left on device");
        // A start in a full directory serves what is recorded.
        marud.restart();
        EXPECT_TRUE(eventually([&] { return old.probe(1) == 1; })) << marud.log();
        state.free();
        expect_everything_begins_again(marud, old);
    }
    EXPECT_EQ(wait_uncharged(marud.socket(), 10'000), "");
    EXPECT_TRUE(std::filesystem::is_empty(state.path() + "/sessions"));
}

TEST(Records, AReadOnlyDirectoryRefusesWhatIsNewAndKeepsWhatIsThere) {
    if (!own_mounts())
        GTEST_SKIP() << "no mount namespace of its own (needs CAP_SYS_ADMIN)";
    TinyTmpfs state(64);
    MarudOptions options;
    options.config = config_for(state.path());
    Marud marud(options);
    marud.start();
    WorkerOptions worker = without_pool(marud);
    worker.pool_bytes = 1 * kMiB;
    {
        Worker old(worker);
        expect_works(old, 1);
        // Seen by marud as well: it lives in the same mount namespace.
        state.make_read_only("sessions");
        expect_only_what_has_begun_goes_on(marud, old, "Read-only file system");
        state.make_writable("sessions");
        expect_everything_begins_again(marud, old);
    }
    EXPECT_EQ(wait_uncharged(marud.socket(), 10'000), "");
}

TEST(Records, AReadOnlyDirectoryAtStartIsNamed) {
    if (!own_mounts())
        GTEST_SKIP() << "no mount namespace of its own (needs CAP_SYS_ADMIN)";
    TinyTmpfs state(64);
    ASSERT_EQ(::mkdir((state.path() + "/maru").c_str(), 0755), 0);
    state.make_read_only("maru");
    MarudOptions options;
    options.config = config_for(state.path() + "/maru");
    Marud marud(options);
    marud.spawn();
    EXPECT_EQ(marud.wait_exit(10'000), 1);
    EXPECT_THAT(marud.log(), HasSubstr(state.path() + "/maru"));
    EXPECT_THAT(marud.log(), HasSubstr("Read-only file system"));
    state.make_writable("maru");
}

// The same without privileges, and at each of the calls that write a record.
TEST(Records, EveryStepOfARecordMayFail) {
    CallShim shim;
    Marud marud(shimmed(shim));
    marud.start();
    Unchanged unchanged(marud);
    struct {
        shim_call call;
        int error;
        const char *match, *why;
        int expected;
    } const cases[] = {{SHIM_OPEN_WRITE, EROFS, ".session", "Read-only file system", -EIO},
                       {SHIM_OPEN_WRITE, EMFILE, ".session", "Too many open files", -EMFILE},
                       {SHIM_RENAME, EIO, "", "Input/output error", -EIO}};
    for (const auto &fault : cases) {
        int code = 0;
        shim.fail(fault.call, fault.error, -1, 0, fault.match);
        EXPECT_THAT(refusal(marud, "engine", &code), HasSubstr(fault.why));
        EXPECT_EQ(code, fault.expected);
        EXPECT_EQ(query_status(marud.socket()).sessions, 0u);
        shim.pass_all();
        EXPECT_EQ(refusal(marud, "engine", &code), "");
    }
    // At each record of a pool's opening: the pool, its segment made, its segment granted.
    Worker worker(without_pool(marud));
    for (int skip = 0; skip < 3; ++skip) {
        shim.fail(SHIM_RENAME, EIO, -1, skip);
        maru_pool_options options = pool_of(1 * kMiB);
        maru_pool *pool = nullptr;
        EXPECT_EQ(maru_pool_open(worker.client, &options, &pool), -EIO) << "record " << skip;
        EXPECT_THAT(maru_last_error(), HasSubstr("cannot record it"));
        shim.pass_all();
        EXPECT_EQ(wait_uncharged(marud.socket(), 10'000), "") << "record " << skip;
    }
    maru_pool_options options = pool_of(1 * kMiB);
    ASSERT_EQ(maru_pool_open(worker.client, &options, &worker.pool), 0) << maru_last_error();
    expect_works(worker, 1);
    EXPECT_EQ(worker.close(), 0);
    unchanged.expect();
}

}  // namespace
}  // namespace maru::test
