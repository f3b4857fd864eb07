// A cache that outlives its engine: pools of scope host against a real marud and real deaths.
//
// Every engine here is a process, killed with SIGKILL; every byte that another one reads is compared.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/integration/engine_process.h"
#include "tests/integration/marud_fixture.h"
#include "tests/integration/status_query.h"
#include "tests/integration/wire_client.h"

namespace maru::test {
namespace {

constexpr char kConfig[] =
    "[cpu]\nhost_bytes = \"64M\"\nuid_bytes = \"8M\"\nhost_segment_bytes = \"1M\"\n";
constexpr uint64_t kSegment = 1 << 20;

MarudOptions options(bool fdstore = true) {
    MarudOptions made;
    made.config = kConfig;
    made.fdstore = fdstore;
    return made;
}

EngineOptions engine(const Marud &marud, const std::string &name = "engine") {
    EngineOptions made;
    made.socket = marud.socket();
    made.engine = name;
    return made;
}

// Adoption follows the exit by some milliseconds, on a loaded machine by more.
std::string tell_until(EngineProcess &who, const std::string &line, const std::string &wanted) {
    std::string answer;
    for (int tries = 0; tries < 1000; ++tries) {
        answer = who.tell(line);
        if (answer == wanted || answer == "gone")
            break;
        ::usleep(10'000);
    }
    return answer;
}

// The output of a maructl of this user.
std::string maructl(const Marud &marud, const std::string &words) {
    const std::string line =
        std::string(MARUCTL_PATH) + " --socket " + marud.socket() + " " + words + " 2>&1";
    FILE *pipe = ::popen(line.c_str(), "r");
    if (!pipe)
        return "popen: " + std::string(std::strerror(errno));
    std::string out;
    char text[256];
    while (std::fgets(text, sizeof text, pipe))
        out += text;
    const int status = ::pclose(pipe);
    return status == 0 ? out : "exit " + std::to_string(status) + ": " + out;
}

// Any; pool 0: there is none.
wire::PoolRow adopted_segment(const Marud &marud) {
    WireClient client(marud.socket());
    if (!client.hello())
        return {};
    const auto *pools = client.ask<wire::ListReply>(wire::ListRequest{wire::ListKind::Pools, 0, 0});
    if (pools)
        for (const auto &row : std::get<std::vector<wire::PoolRow>>(pools->rows))
            if (row.state == "adopted") {
                wire::PoolRow copy;  // its texts end with the reply
                copy.pool = row.pool;
                copy.segment = row.segment;
                return copy;
            }
    return {};
}

TEST(HostPool, WhatAKilledEngineStoredIsAHitForTheNext) {
    Marud marud(options());
    marud.start();
    EngineProcess first(engine(marud));
    ASSERT_EQ(first.tell("store 0 24"), "stored 24 present 0 refused 0 -");
    first.kill();
    EngineProcess second(engine(marud));
    ASSERT_EQ(tell_until(second, "hits 24", "hits 24"), "hits 24") << marud.log();
    EXPECT_EQ(second.tell("load 24"), "loaded 24 wrong 0");
    EXPECT_EQ(second.tell("load 24"), "loaded 24 wrong 0");  // over the views that are there
    // It is there already: nothing is stored twice, and the pages are free again.
    EXPECT_EQ(second.tell("store 0 24"), "stored 0 present 24 refused 0 -");
    EXPECT_EQ(second.tell("info").substr(0, 12), "allocated 0 ");
    wire::StatusReply status = query_status(marud.socket());
    EXPECT_GE(status.adopted_segments, 3u);
    EXPECT_EQ(status.adopted_bytes, status.adopted_segments * kSegment);
    EXPECT_EQ(status.unproven_bytes, 0u);
}

TEST(HostPool, AnEngineThatClosesLeavesItsObjects) {
    Marud marud(options());
    marud.start();
    EngineProcess first(engine(marud));
    ASSERT_EQ(first.tell("store 0 12"), "stored 12 present 0 refused 0 -");
    ASSERT_EQ(first.tell("close"), "closed");
    EngineProcess second(engine(marud));
    EXPECT_EQ(second.tell("hits 12"), "hits 12") << marud.log();
    EXPECT_EQ(second.tell("load 12"), "loaded 12 wrong 0");
}

TEST(HostPool, TwoEnginesShareOneHost) {
    Marud marud(options());
    marud.start();
    EngineProcess a(engine(marud, "a")), b(engine(marud, "b"));
    ASSERT_EQ(a.tell("store 0 10"), "stored 10 present 0 refused 0 -");
    EXPECT_EQ(b.tell("load 10"), "loaded 10 wrong 0");
    EXPECT_EQ(b.tell("store 5 10"), "stored 5 present 5 refused 0 -");
    EXPECT_EQ(a.tell("load 15"), "loaded 15 wrong 0");
    // The owner takes one back while it is read: the reader keeps its bytes, nobody else finds it.
    ASSERT_EQ(b.tell("hold 3"), "held");
    EXPECT_EQ(a.tell("retire 3 1"), "retired 1");
    EXPECT_EQ(a.tell("hits 15"), "hits 14");
    EXPECT_EQ(a.tell("store 100 20"), "stored 20 present 0 refused 0 -");
    EXPECT_EQ(b.tell("check"), "right");
    // The owner dies under the reader.
    a.kill();
    EXPECT_EQ(tell_until(b, "hits 15", "hits 14"), "hits 14") << marud.log();
    EXPECT_EQ(b.tell("check"), "right");
    EXPECT_EQ(b.tell("drop"), "dropped");
    EXPECT_EQ(b.tell("load 15"), "loaded 14 wrong 0");
}

TEST(HostPool, AWorkerScopePoolStaysPrivate) {
    Marud marud(options());
    marud.start();
    EngineOptions own = engine(marud, "private");
    own.host = false;
    own.pool_bytes = 4 << 20;
    EngineProcess a(own), b(engine(marud, "b"));
    ASSERT_EQ(a.tell("store 0 4"), "stored 4 present 0 refused 0 -");
    EXPECT_EQ(b.tell("hits 4"), "hits 0");
    EXPECT_EQ(b.tell("store 0 4"), "stored 4 present 0 refused 0 -");
    a.kill();
    EXPECT_EQ(b.tell("load 4"), "loaded 4 wrong 0");
}

TEST(HostPool, AnotherUidNeverHits) {
    if (::geteuid() != 0)
        GTEST_SKIP() << "needs root, to run an engine as another user";
    Marud marud(options());
    std::filesystem::permissions(marud.directory(), std::filesystem::perms::all);
    marud.start();
    ASSERT_EQ(::chmod(marud.socket().c_str(), 0666), 0);
    EngineProcess mine(engine(marud));
    ASSERT_EQ(mine.tell("store 0 6"), "stored 6 present 0 refused 0 -");
    EngineOptions other = engine(marud);
    other.uid = 2001;
    std::unique_ptr<EngineProcess> owned;
    try {
        owned = std::make_unique<EngineProcess>(other);
    } catch (const std::exception &error) {
        FAIL() << error.what() << "\n" << marud.log();
    }
    EngineProcess &stranger = *owned;
    EXPECT_EQ(stranger.tell("hits 6"), "hits 0");
    EXPECT_EQ(stranger.tell("load 6"), "loaded 0 wrong 0");
    mine.kill();
    EngineProcess again(engine(marud));
    ASSERT_EQ(tell_until(again, "hits 6", "hits 6"), "hits 6");
    EXPECT_EQ(stranger.tell("hits 6"), "hits 0");
    EXPECT_EQ(stranger.tell("store 0 6"), "stored 6 present 0 refused 0 -");  // its own copy
    EXPECT_EQ(stranger.tell("load 6"), "loaded 6 wrong 0");
}

TEST(HostPool, TwentyEnginesInRoomForEightSegments) {
    Marud marud(options());
    marud.start();
    uint32_t stored = 0;
    for (int life = 0; life < 20; ++life) {
        EngineProcess one(engine(marud));
        const std::string hits = tell_until(one, "hits 400", "hits " + std::to_string(stored));
        ASSERT_EQ(hits, "hits " + std::to_string(stored)) << "life " << life << marud.log();
        ASSERT_EQ(one.tell("load 400"), "loaded " + std::to_string(stored) + " wrong 0");
        // Some new ones in each life; when the room is used up they are skipped, and hits stay.
        const std::string answer = one.tell("store " + std::to_string(stored) + " 7");
        uint32_t now = 0, present = 0, refused = 0;
        ASSERT_EQ(std::sscanf(answer.c_str(), "stored %u present %u refused %u", &now, &present,
                              &refused),
                  3)
            << answer;
        ASSERT_EQ(now + refused, 7u) << answer;
        if (refused) {
            ASSERT_NE(answer.find("ENOSPC"), std::string::npos) << answer;
        }
        stored += now;
        one.kill();
    }
    const wire::StatusReply status = query_status(marud.socket());
    std::printf("after 20 lives: %u objects, %u segments adopted, %llu bytes charged\n", stored,
                status.adopted_segments,
                static_cast<unsigned long long>(status.host_reserved_bytes));
    EXPECT_GE(stored, 8u * 7);
    EXPECT_LE(status.host_reserved_bytes, 8 * kSegment);
    // A full pool skips, and takes no hit away.
    EngineProcess reader(engine(marud, "reader"));
    ASSERT_EQ(tell_until(reader, "hits 400", "hits " + std::to_string(stored)),
              "hits " + std::to_string(stored));
    EXPECT_EQ(reader.tell("store 500 1"), "stored 0 present 0 refused 1 ENOSPC");
    // Making room by hand: an adopted segment goes as a whole, once nobody reads it.
    const wire::PoolRow adopted = adopted_segment(marud);
    ASSERT_NE(adopted.pool, 0u);
    char name[64];
    std::snprintf(name, sizeof name, "0x%llx:%u", static_cast<unsigned long long>(adopted.pool),
                  adopted.segment);
    unsigned long long retired = 0, pending = 0;
    std::string told = maructl(marud, std::string("retire --json --segment ") + name);
    ASSERT_EQ(std::sscanf(told.c_str(), "{\"retired\":%llu,\"pending\":%llu}", &retired, &pending),
              2)
        << told;
    EXPECT_GT(retired, 0u);
    EXPECT_EQ(pending, 0u);
    const auto left = static_cast<uint32_t>(stored - retired);
    EXPECT_EQ(reader.tell("hits 400"), "hits " + std::to_string(left));
    EXPECT_EQ(reader.tell("load 400"), "loaded " + std::to_string(left) + " wrong 0");
    EXPECT_EQ(query_status(marud.socket()).adopted_segments, status.adopted_segments - 1);
    EXPECT_EQ(tell_until(reader, "store 500 7", "stored 0 present 7 refused 0 -"),
              "stored 0 present 7 refused 0 -");
    EXPECT_EQ(reader.tell("hits 507"), "hits " + std::to_string(left + 7));
    // And all of the namespace: what its living worker stored as well.
    told = maructl(marud, "retire --namespace host-pool-test/1");
    EXPECT_EQ(told,
              "retired " + std::to_string(left + 7) + " replicas, 0 of them still have readers\n");
    EXPECT_EQ(reader.tell("hits 507"), "hits 0");
    EXPECT_EQ(query_status(marud.socket()).adopted_segments, 0u);
    EXPECT_LE(query_status(marud.socket()).host_reserved_bytes, 2 * kSegment);  // the reader's own
    // With the last shared memory its record goes.
    const std::string record = marud.directory() + "/sessions/shared.objects";
    EXPECT_TRUE(std::filesystem::exists(record));
    reader.kill();
    for (int tries = 0; std::filesystem::exists(record) && tries < 2000; ++tries)
        ::usleep(10'000);
    EXPECT_FALSE(std::filesystem::exists(record)) << marud.log();
}

TEST(HostPool, ARestartedMarudKeepsHitsOfTheDeadAndTheLiving) {
    Marud marud(options());
    marud.start();
    EngineProcess dead(engine(marud, "dead"));
    ASSERT_EQ(dead.tell("store 0 12"), "stored 12 present 0 refused 0 -");
    dead.kill();
    EngineProcess living(engine(marud, "living"));
    ASSERT_EQ(tell_until(living, "hits 12", "hits 12"), "hits 12");
    ASSERT_EQ(living.tell("store 12 12"), "stored 12 present 0 refused 0 -");
    EngineProcess reader(engine(marud, "reader"));
    ASSERT_EQ(reader.tell("hold 2"), "held");
    ASSERT_EQ(reader.tell("hold 14"), "held");
    ASSERT_EQ(living.tell("retire 14 1"), "retired 1");
    marud.restart();
    // A new engine, before anybody is back: what is adopted is a hit at once.
    EngineProcess fresh(engine(marud, "fresh"));
    EXPECT_EQ(fresh.tell("load 12"), "loaded 12 wrong 0") << marud.log();
    EXPECT_EQ(tell_until(fresh, "hits 24", "hits 23"), "hits 23") << marud.log();
    EXPECT_EQ(fresh.tell("load 24"), "loaded 23 wrong 0");
    // The lease on what was retired before is still one.
    EXPECT_EQ(living.tell("store 200 30").substr(0, 7), "stored ");
    EXPECT_EQ(reader.tell("check"), "right");
    EXPECT_EQ(reader.tell("drop"), "dropped");
    EXPECT_EQ(reader.tell("load 24"), "loaded 23 wrong 0");
    living.kill();
    EXPECT_EQ(tell_until(fresh, "hits 24", "hits 23"), "hits 23") << marud.log();
    marud.restart();
    EXPECT_EQ(tell_until(fresh, "load 24", "loaded 23 wrong 0"), "loaded 23 wrong 0")
        << marud.log();
}

TEST(HostPool, WithoutADescriptorStoreOnlyTheLivingAreKept) {
    Marud marud(options(false));
    marud.start();
    EngineProcess dead(engine(marud, "dead"));
    ASSERT_EQ(dead.tell("store 0 6"), "stored 6 present 0 refused 0 -");
    dead.kill();
    EngineProcess living(engine(marud, "living"));
    ASSERT_EQ(tell_until(living, "hits 6", "hits 6"), "hits 6");
    ASSERT_EQ(living.tell("store 6 6"), "stored 6 present 0 refused 0 -");
    ASSERT_EQ(living.tell("hold 1"), "held");
    marud.restart();
    EngineProcess fresh(engine(marud, "fresh"));
    EXPECT_EQ(tell_until(fresh, "hits 12", "hits 6"), "hits 6") << marud.log();
    EXPECT_EQ(fresh.tell("load 12"), "loaded 6 wrong 0");
    EXPECT_EQ(living.tell("check"), "right");  // its mapping is its own
    EXPECT_EQ(living.tell("drop"), "dropped");
    EXPECT_EQ(query_status(marud.socket()).adopted_segments, 0u);
}

TEST(HostPool, ADamagedRecordIsNotBelieved) {
    Marud marud(options());
    marud.start();
    EngineProcess dead(engine(marud, "dead"));
    ASSERT_EQ(dead.tell("store 0 12"), "stored 12 present 0 refused 0 -");
    dead.kill();
    EngineProcess living(engine(marud, "living"));
    ASSERT_EQ(tell_until(living, "hits 12", "hits 12"), "hits 12");
    ASSERT_EQ(living.tell("store 12 4"), "stored 4 present 0 refused 0 -");
    marud.kill();
    const std::string path = marud.directory() + "/sessions/shared.objects";
    {
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        ASSERT_TRUE(file) << path;
        file.seekp(600);
        file.put('\x5a');
    }
    marud.start();
    EngineProcess fresh(engine(marud, "fresh"));
    EXPECT_EQ(fresh.tell("hits 16"), "hits 0") << marud.log();
    EXPECT_EQ(tell_until(living, "hits 16", "hits 0"), "hits 0");
    EXPECT_NE(marud.log().find("shared.objects' is set aside"), std::string::npos);
    // And there is room again: everything of the dead is given back.
    EXPECT_EQ(query_status(marud.socket()).adopted_segments, 0u);
    EXPECT_EQ(fresh.tell("store 0 4"), "stored 4 present 0 refused 0 -");
}

// The raw protocol, as a reader that means harm would speak it.
TEST(HostPool, ADescriptorForReadersCannotBecomeWritable) {
    Marud marud(options());
    marud.start();
    EngineProcess owner(engine(marud));
    ASSERT_EQ(owner.tell("store 0 1"), "stored 1 present 0 refused 0 -");
    WireClient reader(marud.socket());
    ASSERT_TRUE(reader.hello());
    wire::OpenSessionRequest open;
    open.token[0] = 7;
    open.engine = "reader";
    ASSERT_EQ(reader.status(open), wire::Status::Ok);
    const auto *ns =
        reader.ask<wire::NamespaceReply>(wire::RegisterNamespaceRequest{"host-pool-test/1"});
    ASSERT_TRUE(ns);
    const wire::Id ns_id = ns->namespace_id;
    for (const bool adopted : {false, true}) {
        SCOPED_TRACE(adopted ? "adopted" : "of a living owner");
        wire::Digest digest;
        digest.bytes[31] = 9;
        wire::ReplicaName name;
        for (int tries = 0; tries < 1000 && !name.replica; ++tries) {
            const auto *got = reader.ask<wire::AcquireReply>(
                wire::AcquireRequest{ns_id, {&digest, 1}, {}, false});
            ASSERT_TRUE(got);
            if (got->results[0].status == wire::Status::Ok)
                name = {got->results[0].replica, got->results[0].generation};
            else
                ::usleep(10'000);
        }
        const auto *view = reader.ask<wire::ViewReply>(wire::MapSegmentRequest{name});
        ASSERT_TRUE(view) << reader.message();
        const uint64_t bytes = view->bytes;
        ASSERT_EQ(reader.fds().size(), 1u);
        const int fd = reader.fds()[0].get();
        auto map = [&](int descriptor, int protection) {
            void *at = ::mmap(nullptr, bytes, protection, MAP_SHARED, descriptor, 0);
            const int code = at == MAP_FAILED ? errno : 0;
            if (at != MAP_FAILED)
                ::munmap(at, bytes);
            return code;
        };
        EXPECT_EQ(map(fd, PROT_READ), 0);
        EXPECT_EQ(map(fd, PROT_READ | PROT_WRITE), EACCES);
        EXPECT_EQ(::pwrite(fd, "x", 1, 0), -1);
        EXPECT_EQ(::fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL), -1);
        void *at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
        ASSERT_NE(at, MAP_FAILED);
        EXPECT_EQ(::mprotect(at, bytes, PROT_READ | PROT_WRITE), -1);
        ::munmap(at, bytes);
        // The same uid may open it anew, and gains nothing by it.
        UniqueFd again(::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDWR | O_CLOEXEC));
        if (again) {
            EXPECT_EQ(map(again.get(), PROT_READ | PROT_WRITE), EPERM);
            EXPECT_EQ(::pwrite(again.get(), "x", 1, 0), -1);
            EXPECT_EQ(::fallocate(again.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096),
                      -1);
            EXPECT_EQ(::ftruncate(again.get(), 0), -1);
            again.reset();
        }
        // Who holds no lease has nothing to map.
        ASSERT_TRUE(reader.ask<wire::ItemStatusReply>(wire::ReleaseRequest{{&name, 1}}));
        EXPECT_EQ(reader.status(wire::MapSegmentRequest{name}), wire::Status::NotFound);
        if (!adopted)
            owner.kill();
    }
}

TEST(HostPool, ARecordThatCannotBeBegunIsTriedAgainUntilItCan) {
    Marud marud(options());
    marud.start();
    const std::string path = marud.directory() + "/sessions/shared.objects";
    std::filesystem::create_directory(path + ".new");  // in the way
    EngineProcess first(engine(marud));
    ASSERT_EQ(first.tell("store 0 8"), "stored 8 present 0 refused 0 -");
    EXPECT_FALSE(std::filesystem::exists(path));
    ::usleep(2'500'000);  // it is tried once a second, and stays in the way for some attempts
    EXPECT_FALSE(std::filesystem::exists(path));
    std::filesystem::remove(path + ".new");
    for (int tries = 0; tries < 1000 && !std::filesystem::exists(path); ++tries)
        ::usleep(10'000);
    ASSERT_TRUE(std::filesystem::exists(path)) << marud.log();
    const std::string log = marud.log();
    const size_t said = log.find("shared memory is not recorded");
    ASSERT_NE(said, std::string::npos);
    EXPECT_EQ(log.find("shared memory is not recorded", said + 1), std::string::npos) << log;
    EXPECT_EQ(log.find("is not begun anew"), std::string::npos) << log;
    EXPECT_NE(log.find("the record of shared memory is written again"), std::string::npos);
    // With all that is true.
    marud.restart();
    first.kill();
    EngineProcess second(engine(marud));
    EXPECT_EQ(tell_until(second, "hits 8", "hits 8"), "hits 8") << marud.log();
}

}  // namespace
}  // namespace maru::test

int main(int argc, char **argv) {
    if (int status = maru::test::engine_main(argc, argv); status >= 0)
        return status;
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
