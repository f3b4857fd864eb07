#include "tests/daemon/protocol/harness.h"

namespace maru::test {
namespace {

using wire::Status;

struct ObjectTest : testing::Test {
    ObjectTest() : worker(world, world.peer(1000, 10)) {
        worker.open(1, "a");
        ns = worker.name("model");
        worker.describe(ns);
        pool = worker.pool(64);
    }
    wire::CommitItem item(uint32_t key, uint64_t page, uint64_t generation) {
        return Client::item(pool, key, page, generation);
    }
    World world;
    Client worker;
    wire::Id ns = 0, pool = 0;
};

TEST_F(ObjectTest, StoreProbeAcquireReleaseRetireReclaim) {
    auto done = worker.commit_one(ns, 1, item(1, 0, 1));
    EXPECT_EQ(done.status, Status::Ok);
    EXPECT_EQ(worker.probe(ns, {1, 2}), 1u);
    auto leased = worker.acquire(ns, {1});
    ASSERT_EQ(leased.size(), 1u);
    EXPECT_EQ(leased[0].status, Status::Ok);
    EXPECT_EQ(leased[0].pool, pool);
    EXPECT_EQ(leased[0].offset, 0u);
    EXPECT_EQ(leased[0].length, 4096u);
    EXPECT_EQ(leased[0].replica, done.replica);
    wire::ReplicaName name{leased[0].replica, leased[0].generation};
    EXPECT_EQ(worker.retire(name), Status::Pending);
    EXPECT_EQ(worker.probe(ns, {1}), 0u);
    EXPECT_EQ(worker.acquire(ns, {1})[0].status, Status::Miss);
    EXPECT_EQ(worker.reclaim_ack(name), Status::Busy);
    EXPECT_TRUE(worker.events().empty());
    EXPECT_EQ(worker.release(name), Status::Ok);
    auto events = worker.events();
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].kind, wire::EventKind::Reclaim);
    ASSERT_EQ(events[0].items.size(), 1u);
    EXPECT_EQ(events[0].items[0].replica, name.replica);
    // The pages are taken until the owner has said that it freed them.
    EXPECT_EQ(worker.commit_one(ns, 2, item(2, 0, 2)).status, Status::Conflict);
    EXPECT_EQ(worker.reclaim_ack(name), Status::Ok);
    EXPECT_EQ(worker.commit_one(ns, 3, item(2, 0, 3)).status, Status::Ok);
    EXPECT_EQ(world.service->counters().replicas, 1u);
}

TEST_F(ObjectTest, ARetryReturnsTheFirstResultAndOtherContentIsAConflict) {
    auto first = worker.commit_one(ns, 7, item(1, 0, 1));
    for (int retry = 0; retry < 3; ++retry) {
        auto again = worker.commit_one(ns, 7, item(1, 0, 1));
        EXPECT_EQ(again.status, Status::Ok);
        EXPECT_EQ(again.replica, first.replica);
    }
    EXPECT_EQ(worker.commit_one(ns, 7, item(1, 1, 1)).status, Status::Conflict);
    EXPECT_EQ(worker.commit_one(ns, 7, item(2, 0, 1)).status, Status::Conflict);
    EXPECT_EQ(world.service->counters().replicas, 1u);
    // Errors are results, too: the same one again, although it would go well by now.
    EXPECT_EQ(worker.commit_one(ns, 8, item(3, 0, 9)).status, Status::Conflict);
    wire::ReplicaName name{first.replica, 1};
    EXPECT_EQ(worker.retire(name), Status::Ok);
    EXPECT_EQ(worker.reclaim_ack(name), Status::Ok);
    EXPECT_EQ(worker.commit_one(ns, 8, item(3, 0, 9)).status, Status::Conflict);
    EXPECT_EQ(worker.commit_one(ns, 9, item(3, 0, 9)).status, Status::Ok);
}

TEST_F(ObjectTest, AnAcknowledgedOperationIsNeverRunAgain) {
    auto done = worker.commit_one(ns, 1, item(1, 0, 1));
    worker.acknowledged = 1;
    EXPECT_TRUE(worker.commit(ns, 1, {item(1, 0, 1)}).refused(Status::InvalidArgument));
    EXPECT_TRUE(worker.resolve(1, 1).refused(Status::InvalidArgument));
    // Not even after what it did has gone.
    wire::ReplicaName name{done.replica, 1};
    worker.retire(name);
    worker.reclaim_ack(name);
    Answer late = worker.commit(ns, 1, {item(1, 0, 2)});
    EXPECT_TRUE(late.refused(Status::InvalidArgument));
    EXPECT_EQ(late.message,
              "operation 1 was acknowledged (the watermark is 1): it is never run again");
    EXPECT_EQ(world.service->counters().replicas, 0u);
    // A batch that begins below the watermark is refused as a whole.
    EXPECT_TRUE(
        worker.commit(ns, 1, {item(4, 4, 4), item(5, 5, 5)}).refused(Status::InvalidArgument));
    EXPECT_EQ(world.service->counters().replicas, 0u);
}

TEST_F(ObjectTest, AFullLedgerNamesWhatPinsIt) {
    world.config.max_ledger_items = 4;
    world.service->reconfigure(world.config);
    for (uint32_t op = 1; op <= 4; ++op)
        EXPECT_EQ(worker.commit_one(ns, op, item(op, op, op)).status, Status::Ok);
    Answer full = worker.commit(ns, 5, {item(5, 5, 5)});
    EXPECT_TRUE(full.refused(Status::Again));
    EXPECT_EQ(full.detail, 1u);
    // A batch that does not fit as a whole runs nothing.
    worker.acknowledged = 1;
    EXPECT_TRUE(worker.commit(ns, 5, {item(5, 5, 5), item(6, 6, 6)}).refused(Status::Again));
    EXPECT_EQ(world.service->counters().replicas, 4u);
    EXPECT_EQ(worker.commit_one(ns, 5, item(5, 5, 5)).status, Status::Ok);
}

TEST_F(ObjectTest, OperationIdsAreChecked) {
    EXPECT_TRUE(worker.commit(ns, 0, {item(1, 0, 1)}).refused(Status::InvalidArgument));
    EXPECT_TRUE(worker.commit(ns, UINT64_MAX, {item(1, 0, 1)}).refused(Status::InvalidArgument));
    EXPECT_TRUE(worker.resolve(0, 1).refused(Status::InvalidArgument));
    EXPECT_TRUE(worker.resolve(1, 1025).refused(Status::TooLarge));
    EXPECT_TRUE(worker.resolve(100'000, 1).refused(Status::Again));
    EXPECT_EQ(worker.resolve(1, 0).results.size(), 0u);
}

TEST_F(ObjectTest, BatchesKeepTheirOrderAndGiveAResultPerItem) {
    Answer answer =
        worker.commit(ns, 1,
                      {item(1, 0, 1), item(2, 0, 2), item(3, 1, 3), Client::item(999, 4, 2, 4),
                       Client::item(pool, 5, 3, 5, 1), item(1, 4, 6), item(6, 64, 7)});
    ASSERT_EQ(answer.results.size(), 7u);
    EXPECT_EQ(answer.results[0].status, Status::Ok);
    EXPECT_EQ(answer.results[1].status, Status::Conflict);  // overlaps the first
    EXPECT_EQ(answer.results[2].status, Status::Ok);
    EXPECT_EQ(answer.results[3].status, Status::NotFound);  // no such pool
    EXPECT_EQ(answer.results[4].status, Status::Incompatible);
    EXPECT_EQ(answer.results[5].status, Status::AlreadyPresent);
    EXPECT_EQ(answer.results[5].replica, answer.results[0].replica);
    EXPECT_EQ(answer.results[6].status, Status::Conflict);  // outside
    Answer resolved = worker.resolve(1, 8);
    ASSERT_EQ(resolved.results.size(), 8u);
    EXPECT_EQ(resolved.results[0].status, Status::Committed);
    EXPECT_EQ(resolved.results[0].replica, answer.results[0].replica);
    EXPECT_EQ(resolved.results[1].status, Status::Conflict);
    EXPECT_EQ(resolved.results[5].status, Status::AlreadyPresent);
    EXPECT_EQ(resolved.results[7].status, Status::Unknown);
}

TEST_F(ObjectTest, UnknownIsNotAnAbort) {
    EXPECT_EQ(worker.resolve(1, 1).results[0].status, Status::Unknown);
    // The commit was on its way, and is run.
    EXPECT_EQ(worker.commit_one(ns, 1, item(1, 0, 1)).status, Status::Ok);
    EXPECT_EQ(worker.resolve(1, 1).results[0].status, Status::Committed);
}

TEST_F(ObjectTest, AbsentIsFinal) {
    worker.commit_one(ns, 1, item(1, 0, 1));
    worker.vanish();
    worker.attach(1, "a", 1);
    Answer resolved = worker.resolve(1, 2);
    EXPECT_EQ(resolved.results[0].status, Status::Committed);
    EXPECT_EQ(resolved.results[1].status, Status::Absent);
    worker.call(wire::AttachDoneRequest{});
    EXPECT_EQ(worker.commit_one(ns, 2, item(2, 1, 2)).status, Status::Absent);
    EXPECT_EQ(worker.resolve(2, 1).results[0].status, Status::Absent);
    EXPECT_EQ(world.service->counters().replicas, 1u);
    EXPECT_EQ(worker.commit_one(ns, 3, item(2, 1, 2)).status, Status::Ok);
}

TEST_F(ObjectTest, ARetryAfterReattachRunsOnce) {
    worker.vanish();
    worker.attach(1, "a", 1);
    worker.call(wire::AttachDoneRequest{});
    auto first = worker.commit_one(ns, 1, item(1, 0, 1));
    EXPECT_EQ(first.status, Status::Ok);
    worker.vanish();
    worker.attach(1, "a", 1);
    worker.call(wire::AttachDoneRequest{});
    EXPECT_EQ(worker.commit_one(ns, 1, item(1, 0, 1)).replica, first.replica);
}

TEST_F(ObjectTest, NamespaceIdsOfAnotherLifeAreStale) {
    wire::Id stale = wire::make_id(1000, wire::id_number(ns));
    std::vector<wire::Digest> keys = {digest(1)};
    EXPECT_TRUE(worker.commit(stale, 1, {item(1, 0, 1)}).refused(Status::StaleEpoch));
    EXPECT_TRUE(
        worker.call(wire::ProbeRequest{stale, keys, {}, false}).refused(Status::StaleEpoch));
    EXPECT_TRUE(
        worker.call(wire::AcquireRequest{stale, keys, {}, false}).refused(Status::StaleEpoch));
    EXPECT_EQ(worker.release({wire::make_id(1000, 1), 1}), Status::StaleEpoch);
    EXPECT_EQ(worker.retire({wire::make_id(1000, 1), 1}), Status::StaleEpoch);
    EXPECT_EQ(worker.reclaim_ack({wire::make_id(1000, 1), 1}), Status::StaleEpoch);
    EXPECT_TRUE(worker.call(wire::ProbeRequest{wire::make_id(1001, 77), keys, {}, false})
                    .refused(Status::NotFound));
}

TEST_F(ObjectTest, BatchesAreBounded) {
    std::vector<wire::Digest> keys(2049);
    EXPECT_TRUE(worker.call(wire::ProbeRequest{ns, keys, {}, false}).refused(Status::TooLarge));
    keys.resize(1025);
    EXPECT_TRUE(worker.call(wire::AcquireRequest{ns, keys, {}, false}).refused(Status::TooLarge));
    std::vector<wire::ReplicaName> names(1025);
    EXPECT_TRUE(worker.call(wire::ReleaseRequest{names}).refused(Status::TooLarge));
    EXPECT_TRUE(worker.call(wire::RetireRequest{names}).refused(Status::TooLarge));
    EXPECT_TRUE(worker.call(wire::ReclaimAckRequest{names}).refused(Status::TooLarge));
    std::vector<wire::CommitItem> items(1025);
    EXPECT_TRUE(worker.call(wire::CommitRequest{ns, 1, items}).refused(Status::TooLarge));
    std::vector<wire::PoolGauge> gauges(1025);
    EXPECT_TRUE(worker.call(wire::HeartbeatRequest{gauges}).refused(Status::TooLarge));
    // None is no error.
    EXPECT_EQ(worker.call(wire::ReleaseRequest{}).statuses.size(), 0u);
}

TEST_F(ObjectTest, ManifestsAreCheckedBeforeTheyAreMultiplied) {
    std::vector<wire::Digest> keys = {digest(1)};
    auto probe = [&](wire::Manifest manifest) {
        return worker.call(wire::ProbeRequest{ns, keys, manifest, false});
    };
    EXPECT_TRUE(probe({0, 0, 0, 1}).refused(Status::InvalidArgument));
    EXPECT_TRUE(probe({0, 1, 0, 0}).refused(Status::InvalidArgument));
    EXPECT_TRUE(probe({UINT32_MAX, 2, 0, 1}).refused(Status::InvalidArgument));
    EXPECT_TRUE(probe({0, 65536, 0, 65536}).refused(Status::TooLarge));  // 0 in 32 bits
    EXPECT_TRUE(probe({0, UINT32_MAX, 0, UINT32_MAX}).refused(Status::TooLarge));
    EXPECT_TRUE(probe({0, 257, 0, 256}).refused(Status::TooLarge));
    probe({0, 256, 0, 256}).as<wire::ProbeReply>();
    probe({UINT32_MAX, 1, 0, 1}).as<wire::ProbeReply>();
    EXPECT_TRUE(worker.call(wire::AcquireRequest{ns, keys, {0, 1025, 0, 1}, false})
                    .refused(Status::TooLarge));
}

TEST_F(ObjectTest, AManifestIsAllOrNothing) {
    wire::CommitItem part0 = item(1, 0, 1), part1 = item(1, 1, 2);
    part1.key.part = 1;
    worker.commit(ns, 1, {part0});
    std::vector<wire::Digest> keys = {digest(1)};
    wire::Manifest both{0, 1, 0, 2};
    Answer none = worker.call(wire::AcquireRequest{ns, keys, both, false});
    ASSERT_EQ(none.acquired.size(), 2u);
    EXPECT_EQ(none.acquired[0].status, Status::Miss);
    EXPECT_EQ(none.acquired[1].status, Status::Miss);
    EXPECT_EQ(world.service->counters().leases, 0u);
    worker.commit(ns, 2, {part1});
    Answer all = worker.call(wire::AcquireRequest{ns, keys, both, false});
    EXPECT_EQ(all.acquired[0].status, Status::Ok);
    EXPECT_EQ(all.acquired[1].status, Status::Ok);
    EXPECT_EQ(world.service->counters().leases, 2u);
}

TEST_F(ObjectTest, LeasesAreBoundedPerSession) {
    world.config.max_leases_per_session = 2;
    world.service->reconfigure(world.config);
    worker.commit(ns, 1, {item(1, 0, 1), item(2, 1, 2), item(3, 2, 3)});
    auto leased = worker.acquire(ns, {1, 2, 3});
    EXPECT_EQ(leased[0].status, Status::Ok);
    EXPECT_EQ(leased[1].status, Status::Ok);
    EXPECT_EQ(leased[2].status, Status::Quota);
    worker.release({leased[0].replica, leased[0].generation});
    EXPECT_EQ(worker.acquire(ns, {3})[0].status, Status::Ok);
    EXPECT_EQ(worker.acquire(ns, {1})[0].status, Status::Quota);
}

TEST_F(ObjectTest, ASchedulerProbesForTheAttachedWorkerOfItsEngineAndUid) {
    Client scheduler(world, world.peer(1000, 20)), stranger(world, world.peer(1001, 21));
    Client elsewhere(world, world.peer(1000, 22));
    scheduler.open(2, "a", wire::Role::Scheduler);
    stranger.open(3, "a", wire::Role::Scheduler);
    elsewhere.open(4, "b", wire::Role::Scheduler);
    std::vector<wire::Digest> keys = {digest(1), digest(2)};
    auto probe = [&](Client &who) {
        Answer answer = who.call(wire::ProbeRequest{who.name("model"), keys, {}, false});
        auto reply = answer.as<wire::ProbeReply>();
        EXPECT_EQ(answer.bitmap, std::vector<uint8_t>{uint8_t(reply.prefix ? 1 : 0)});
        return std::pair(reply.prefix, reply.reason);
    };
    worker.commit_one(ns, 1, item(1, 0, 1));
    EXPECT_EQ(probe(scheduler), std::pair(1u, wire::ProbeReason::None));
    EXPECT_EQ(probe(stranger), std::pair(0u, wire::ProbeReason::NoWorkerAttached));
    EXPECT_EQ(probe(elsewhere), std::pair(0u, wire::ProbeReason::NoWorkerAttached));
    EXPECT_EQ(world.service->counters().leases, 0u);
    worker.vanish();
    EXPECT_EQ(probe(scheduler), std::pair(0u, wire::ProbeReason::NoWorkerAttached));
    worker.attach(1, "a");
    EXPECT_EQ(probe(scheduler), std::pair(0u, wire::ProbeReason::NoWorkerAttached));
    worker.call(wire::AttachDoneRequest{});
    EXPECT_EQ(probe(scheduler), std::pair(1u, wire::ProbeReason::None));
}

TEST_F(ObjectTest, AProbeThatNamesAWorkerIsAnsweredForThatOneAlone) {
    Client scheduler(world, world.peer(1000, 20));
    scheduler.open(2, "a", wire::Role::Scheduler);
    worker.commit_one(ns, 1, item(1, 0, 1));
    std::vector<wire::Digest> keys = {digest(1)};
    auto probe = [&](Client &who, wire::Id named) {
        Answer answer = who.call(wire::ProbeRequest{who.name("model"), keys, {}, false, named});
        auto reply = answer.as<wire::ProbeReply>();
        EXPECT_EQ(answer.bitmap, std::vector<uint8_t>{uint8_t(reply.prefix ? 1 : 0)});
        return std::pair(reply.prefix, reply.reason);
    };
    const auto hit = std::pair(1u, wire::ProbeReason::None);
    const auto miss = std::pair(0u, wire::ProbeReason::NoWorkerAttached);
    EXPECT_EQ(probe(scheduler, 0), hit);
    EXPECT_EQ(probe(scheduler, worker.session), hit);
    EXPECT_EQ(probe(scheduler, scheduler.session), miss);
    EXPECT_EQ(probe(scheduler, worker.session + 99), miss);
    EXPECT_EQ(probe(worker, worker.session), hit);
    EXPECT_EQ(probe(worker, scheduler.session), miss);
    // Another life of the worker is another worker, whatever it has.
    worker.vanish();
    Client next(world, world.peer(1000, 11));
    next.open(3, "a");
    wire::Id theirs = next.name("model");
    next.describe(theirs);
    next.commit_one(theirs, 1, Client::item(next.pool(4), 1, 0, 1));
    EXPECT_EQ(probe(scheduler, worker.session), miss);
    EXPECT_EQ(probe(scheduler, next.session), hit);
}

TEST_F(ObjectTest, ASchedulerIsToldTheAttachedWorkerOfItsEngineAndUid) {
    Client scheduler(world, world.peer(1000, 20)), stranger(world, world.peer(1001, 21));
    Client elsewhere(world, world.peer(1000, 22));
    scheduler.open(2, "a", wire::Role::Scheduler);
    stranger.open(3, "a", wire::Role::Scheduler);
    elsewhere.open(4, "b", wire::Role::Scheduler);
    auto told = [](Client &who) {
        auto reply = who.call(wire::EngineWorkerRequest{}).as<wire::EngineWorkerReply>();
        return std::pair(reply.session, std::string(reply.namespace_text));
    };
    const auto nobody = std::pair(wire::Id{0}, std::string());
    EXPECT_EQ(told(scheduler), std::pair(worker.session, std::string("model")));
    EXPECT_EQ(told(worker), told(scheduler));
    EXPECT_EQ(told(stranger), nobody);
    EXPECT_EQ(told(elsewhere), nobody);
    // The last that it described, and not the last that it or anybody named.
    worker.name("only named");
    scheduler.name("of the scheduler");
    EXPECT_EQ(told(scheduler).second, "model");
    worker.describe(worker.name("model 2"));
    EXPECT_EQ(told(scheduler).second, "model 2");
    // Away, it is nobody; back, and whole, it is the same.
    worker.vanish();
    EXPECT_EQ(told(scheduler), nobody);
    worker.attach(1, "a");
    EXPECT_EQ(told(scheduler), nobody);
    worker.call(wire::AttachDoneRequest{});
    EXPECT_EQ(told(scheduler), std::pair(worker.session, std::string("model 2")));
    // Another life of the worker is another one, and has described nothing yet.
    worker.vanish();
    Client next(world, world.peer(1000, 11));
    next.open(5, "a");
    EXPECT_NE(next.session, worker.session);
    EXPECT_EQ(told(scheduler), std::pair(next.session, std::string()));
    Client nameless(world, world.peer(1000, 23));
    nameless.hello();
    EXPECT_TRUE(nameless.call(wire::EngineWorkerRequest{}).refused(Status::Protocol));
}

TEST_F(ObjectTest, APrivateCopyIsNoHitForAnotherAndSuppressesNothing) {
    Client other(world, world.peer(1000, 11));
    other.open(2, "b");
    wire::Id same = other.name("model");
    EXPECT_EQ(same, ns);
    other.describe(same);
    wire::Id theirs = other.pool(4);
    worker.commit_one(ns, 1, item(1, 0, 1));
    EXPECT_EQ(other.probe(ns, {1}), 0u);
    EXPECT_EQ(other.acquire(ns, {1})[0].status, Status::Miss);
    EXPECT_EQ(other.commit_one(ns, 1, Client::item(theirs, 1, 0, 1)).status, Status::Ok);
    EXPECT_EQ(other.probe(ns, {1}), 1u);
    EXPECT_EQ(other.acquire(ns, {1})[0].pool, theirs);
    EXPECT_EQ(world.service->counters().replicas, 2u);
    EXPECT_EQ(world.service->counters().objects, 1u);
}

}  // namespace
}  // namespace maru::test
