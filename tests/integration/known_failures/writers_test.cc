// Writers and readers that die, stand still or meet: whose memory it is stays clear.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <barrier>
#include <cerrno>
#include <sstream>
#include <thread>

#include "tests/integration/known_failures/actor.h"
#include "tests/integration/known_failures/raw_worker.h"
#include "tests/integration/known_failures/worker.h"

namespace maru::test {
namespace {

using wire::Status;

constexpr uint64_t kMiB = 1 << 20;

// A worker that stops in the middle of a store. Arguments: socket, engine.
void writer(Stage &stage) {
    Worker worker({.socket = stage.arguments[0], .engine = stage.arguments[1]});
    maru_reservation run;
    for (std::string command; stage.next(&command);)
        stage.answer(std::to_string(worker.fill(1, &run)));
}
const ActorRole kWriter("writer", writer);

TEST(KnownFailures, A05_AKilledWriterBlocksNoKeyAndLeavesNothingCharged) {
    Marud marud({.config = "[sessions]\ntimeout = \"500ms\"\nheartbeat = \"100ms\"\n"
                           "[cpu]\nsegment_bytes = \"1M\"\n"});
    marud.start();
    Actor a("writer", {marud.socket(), "a"});
    ASSERT_EQ(a.ask("reserve and write"), "0");
    Worker b({.socket = marud.socket(), .engine = "b"});
    EXPECT_EQ(b.store(1), 0);
    auto charged = [&] { return query_status(marud.socket()).host_reserved_bytes; };
    EXPECT_EQ(charged(), 2 * kMiB);
    // Not heard of for longer than the session's time: what it may still write to is not free.
    a.signal(SIGSTOP);
    ASSERT_TRUE(eventually([&] { return query_status(marud.socket()).attached == 1; }));
    EXPECT_EQ(charged(), 2 * kMiB);
    EXPECT_EQ(b.store(2), 0);
    a.kill();
    EXPECT_TRUE(eventually([&] { return charged() == kMiB; })) << marud.log();
    // The same engine begins again and meets no trace of it.
    Worker again({.socket = marud.socket(), .engine = "a"});
    EXPECT_EQ(again.store(1), 0);
    EXPECT_EQ(b.probe(1), 1);
}

TEST(KnownFailures, A06_OfSixteenWritersOfOneKeyOneIsCommitted) {
    constexpr int kThreads = 16, kRounds = 1000;
    Marud marud;
    marud.start();
    const pid_t pid = marud.pid();
    Worker worker({.socket = marud.socket(), .pool_bytes = (kRounds + kThreads) * kPage});
    std::array<int, kThreads> results{};
    std::barrier round(kThreads + 1);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
        threads.emplace_back([&, t] {
            for (uint32_t key = 0; key < kRounds; ++key) {
                maru_reservation run;
                const int reserved = worker.fill(key, &run);
                round.arrive_and_wait();
                results[static_cast<size_t>(t)] = reserved < 0 ? reserved : worker.commit(key, run);
                round.arrive_and_wait();
            }
        });
    bool good = true;
    for (uint32_t key = 0; key < kRounds; ++key) {
        round.arrive_and_wait();
        round.arrive_and_wait();
        // Every writer waits to begin the next round with a run of its own, so count behind it.
        const auto committed = std::count(results.begin(), results.end(), 0);
        const auto present = std::count(results.begin(), results.end(), -EEXIST);
        if (good && (committed != 1 || present != kThreads - 1)) {
            good = false;
            ADD_FAILURE() << "round " << key << ": " << testing::PrintToString(results);
        }
    }
    for (std::thread &thread : threads)
        thread.join();
    const auto info = worker.pool_info();
    EXPECT_EQ(info.allocated_bytes, kRounds * kPage);
    EXPECT_EQ(info.ready_allocated_bytes, kRounds * kPage);
    EXPECT_EQ(info.quarantined_bytes, 0u);
    EXPECT_EQ(query_status(marud.socket()).replicas, static_cast<uint64_t>(kRounds));
    for (const uint32_t key : {0, 1, kRounds / 2, kRounds - 1}) {
        maru_lease *lease = worker.acquire(key);
        EXPECT_TRUE(worker.shows(lease, key));
        EXPECT_EQ(worker.release(lease), 0);
    }
    EXPECT_TRUE(marud.running());
    EXPECT_EQ(marud.pid(), pid);
}

// A reader with one lease of its own and two of a batch. Arguments: socket.
void reader(Stage &stage) {
    Worker worker({.socket = stage.arguments[0], .engine = "reader"});
    std::vector<maru_lease *> single, batch;
    auto right = [&] {
        return worker.shows(single[0], 1) && worker.shows(batch[0], 1) && worker.shows(batch[1], 2);
    };
    for (std::string command; stage.next(&command);) {
        if (command == "acquire") {
            const int stored = worker.store(1) | worker.store(2);
            single = worker.acquire_all(1, 1);
            batch = worker.acquire_all(1, 2);
            stage.answer(stored == 0 && right() ? "right" : "wrong");
        } else if (command == "finish") {
            // Its own next stores must not meet the pages either.
            const int more = worker.store_until_full(10);
            std::ostringstream out;
            out << (right() ? "right" : "wrong") << ' ' << more << ' ' << worker.release(single[0])
                << ' ' << worker.release(batch[0]) << ' ' << worker.release(batch[1]);
            stage.answer(out.str());
        }
    }
}
const ActorRole kReader("reader", reader);

TEST(KnownFailures, A07_AReaderThatStandsStillKeepsItsBytes) {
    Marud marud({.config = "[sessions]\ntimeout = \"200ms\"\nheartbeat = \"50ms\"\n"
                           "[cpu]\nsegment_bytes = \"1M\"\nhost_bytes = \"3M\"\n"});
    marud.start();
    WireClient admin(marud.socket());
    ASSERT_TRUE(admin.hello());
    Actor reader("reader", {marud.socket()});
    ASSERT_EQ(reader.ask("acquire"), "right");
    reader.signal(SIGSTOP);
    const auto stopped = now();
    ASSERT_TRUE(eventually([&] { return query_status(marud.socket()).attached == 0; }));
    Worker other({.socket = marud.socket(), .engine = "other", .pool_bytes = 2 * kMiB});
    EXPECT_EQ(other.store_until_full(1000), static_cast<int>(2 * kMiB / kPage));
    // An operator who wants everything gone gets nothing of it either.
    const auto *list = admin.ask<wire::ListReply>(wire::ListRequest{wire::ListKind::Namespaces});
    ASSERT_TRUE(list);
    const wire::Id ns = std::get<std::vector<wire::NamespaceRow>>(list->rows).at(0).namespace_id;
    const auto *count = admin.ask<wire::CountReply>(wire::AdminRetireRequest{ns, std::nullopt});
    ASSERT_TRUE(count);
    EXPECT_EQ(count->pending, 2u);
    while (since_ms(stopped) < 1000)
        pause_ms(10);
    EXPECT_EQ(query_status(marud.socket()).leases, 3u);
    reader.signal(SIGCONT);
    const std::string pages = std::to_string(kMiB / kPage - 2);
    EXPECT_EQ(reader.ask("finish"), "right " + pages + " 0 0 0");
    EXPECT_TRUE(eventually([&] { return query_status(marud.socket()).leases == 0; }));
    EXPECT_EQ(reader.finish(), 0);
    EXPECT_TRUE(
        eventually([&] { return query_status(marud.socket()).host_reserved_bytes == 2 * kMiB; }));
}

// The same kind, through a marud that comes back and allows fewer leases than are held: what it does
// not take back stays readable for its readers, and its pages are reused only after them.
TEST(KnownFailures, A07_LeasesBeyondTheLimitOfANewMarudStillProtect) {
    Marud marud;
    marud.start();
    Worker worker({.socket = marud.socket()});
    ASSERT_EQ(worker.store(1), 0);
    ASSERT_EQ(worker.store(2), 0);
    const auto one = worker.acquire_all(1, 1), again = worker.acquire_all(1, 1);
    const auto two = worker.acquire_all(2, 1);
    marud.kill();
    marud.set_config("[sessions]\nleases_per_session = 1\n");
    marud.start();
    ASSERT_TRUE(eventually([&] {
        const auto info = worker.client_info();
        return info.reconnects > 0 && info.state == MARU_STATE_ATTACHED;
    }));
    EXPECT_EQ(worker.probe(1), 0) << "two leases do not fit";
    EXPECT_EQ(worker.probe(2), 1);
    EXPECT_EQ(query_status(marud.socket()).replicas, 1u);
    auto right = [&] {
        return worker.shows(one[0], 1) && worker.shows(again[0], 1) && worker.shows(two[0], 2);
    };
    const int pages = static_cast<int>((1 << 20) / kPage);
    EXPECT_EQ(worker.store_until_full(100), pages - 2);
    EXPECT_TRUE(right());
    EXPECT_EQ(worker.release(one[0]), 0);
    EXPECT_EQ(worker.store(1), -ENOSPC) << "one reader is left";
    EXPECT_EQ(worker.release(again[0]), 0);
    EXPECT_TRUE(eventually([&] { return worker.store(1) == 0; }));
    EXPECT_TRUE(worker.shows(two[0], 2));
    EXPECT_EQ(worker.release(two[0]), 0);
    EXPECT_TRUE(eventually([&] { return query_status(marud.socket()).leases == 0; }));
}

// A worker that does not take part in what follows a restart. Arguments: socket.
void old_worker(Stage &stage) {
    RawWorker worker(stage.arguments[0], 1, "old");
    uint32_t epoch = 0;
    wire::AcquireResult leased;
    for (std::string command; stage.next(&command);) {
        std::ostringstream out;
        if (command == "store") {
            worker.open();
            worker.open_pool(2 * kMiB);
            worker.map_segments();
            *worker.memory(0) = std::byte{0x77};
            const Status stored = worker.commit(1, worker.item(1, 0, 0)).status;
            leased = worker.acquire(1);
            epoch = worker.client().epoch();
            out << static_cast<int>(stored) << ' ' << static_cast<int>(leased.status);
        } else if (command == "go on") {  // over a new connection, as if nothing had happened
            worker.reconnect();
            worker.client().set_epoch(epoch);
            auto item = worker.item(2, 1, 1);
            const Status commit =
                worker.client().status(wire::CommitRequest{worker.ns(), 2, {&item, 1}});
            const Status beat = worker.client().status(wire::HeartbeatRequest{});
            const wire::ReplicaName name{leased.replica, leased.generation};
            const Status release = worker.client().status(wire::ReleaseRequest{{&name, 1}});
            out << static_cast<int>(commit) << ' ' << static_cast<int>(beat) << ' '
                << static_cast<int>(release) << ' ' << static_cast<int>(*worker.memory(0));
        }
        stage.answer(out.str());
    }
}
const ActorRole kOldWorker("old-worker", old_worker);

TEST(KnownFailures, A10_WhatAWorkerStillMapsIsNotFreeAfterARestart) {
    for (const bool fdstore : {true, false}) {
        SCOPED_TRACE(fdstore ? "with descriptor store" : "without descriptor store");
        Marud marud(
            {.config = "[cpu]\nhost_bytes = \"8M\"\nsegment_bytes = \"1M\"\n", .fdstore = fdstore});
        marud.start();
        Actor w1("old-worker", {marud.socket()});
        ASSERT_EQ(w1.ask("store"), "0 0");
        marud.restart();
        auto pool_of = [&](RawWorker &worker, uint64_t bytes, uint64_t request_key) {
            wire::OpenPoolRequest request;
            request.capacity_bytes = bytes;
            request.page_bytes = 4096;
            request.request_key = request_key;
            return worker.client().status(request);
        };
        RawWorker w2(marud.socket(), 2, "new");
        w2.open();
        // Of one user, whose quota is the whole host: whichever is told first.
        const auto full = testing::AnyOf(Status::NoSpace, Status::Quota);
        EXPECT_THAT(pool_of(w2, 8 * kMiB, 1), full);
        EXPECT_EQ(pool_of(w2, 6 * kMiB, 2), Status::Ok) << w2.client().message();
        EXPECT_THAT(pool_of(w2, kMiB, 3), full);
        const std::string stale = std::to_string(static_cast<int>(Status::StaleEpoch));
        EXPECT_EQ(w1.ask("go on"), stale + " " + stale + " " + stale + " " + std::to_string(0x77));
        EXPECT_THAT(pool_of(w2, kMiB, 4), full);
        EXPECT_EQ(query_status(marud.socket()).host_reserved_bytes, 8 * kMiB);
        w1.kill();
        EXPECT_TRUE(eventually([&] { return pool_of(w2, 2 * kMiB, 5) == Status::Ok; }))
            << w2.client().message();
        EXPECT_THAT(pool_of(w2, kMiB, 6), full);
    }
}

}  // namespace
}  // namespace maru::test
