// Cases reduced from public reports of systems like this one.
#include "tests/daemon/protocol/harness.h"

namespace maru::test {
namespace {

using wire::Status;

struct Worker : Client {
    Worker(World &w, uint32_t uid, uint32_t pid, uint8_t secret, std::string_view engine)
        : Client(w, w.peer(uid, pid)) {
        open(secret, engine);
        ns = name("model");
        describe(ns);
        mine = pool(32);
    }
    wire::Id ns = 0, mine = 0;
};

TEST(KnownFailures, A05AWriterKilledBeforeCommitBlocksNoKeyAndLeavesNothing) {
    World world;
    Worker a(world, 1000, 10, 1, "a");  // reserves pages locally, writes, never commits
    Worker b(world, 1000, 11, 2, "b");
    uint64_t both = world.service->counters().reserved_bytes;
    world.mapped.insert({a.mine, 0});
    world.kill(10);
    EXPECT_EQ(b.commit_one(b.ns, 1, Client::item(b.mine, 1, 0, 1)).status, Status::Ok);
    EXPECT_EQ(world.service->counters().reserved_bytes, both);
    world.mapped.clear();
    world.pass(kSec);
    EXPECT_EQ(world.service->counters().reserved_bytes, both / 2);
}

TEST(KnownFailures, A06SixteenCommitsOfOneKeyMakeOneReplica) {
    World world;
    Worker worker(world, 1000, 10, 1, "a");
    uint64_t op = 1;
    for (uint32_t round = 0; round < 60; ++round) {
        uint32_t ok = 0, present = 0;
        wire::Id replica = 0;
        for (uint32_t thread = 0; thread < 16; ++thread, ++op) {
            auto result =
                worker.commit_one(worker.ns, op, Client::item(worker.mine, round, thread, op));
            ok += result.status == Status::Ok;
            present += result.status == Status::AlreadyPresent;
            replica = result.replica;
        }
        EXPECT_EQ(ok, 1u);
        EXPECT_EQ(present, 15u);
        EXPECT_EQ(worker.call(wire::UsageRequest{worker.mine})
                      .as<wire::UsageReply>()
                      .usage.allocated_bytes,
                  4096u);
        wire::ReplicaName name{replica, op - 16};
        EXPECT_EQ(worker.retire(name), Status::Ok);
        EXPECT_EQ(worker.reclaim_ack(name), Status::Ok);
    }
}

TEST(KnownFailures, A08ALateNameOfARecycledSlotTouchesNobody) {
    World world;
    Worker worker(world, 1000, 10, 1, "a");
    auto k1 = worker.commit_one(worker.ns, 1, Client::item(worker.mine, 1, 0, 1));
    wire::ReplicaName old{k1.replica, 1};
    worker.retire(old);
    worker.reclaim_ack(old);
    auto k2 = worker.commit_one(worker.ns, 2, Client::item(worker.mine, 2, 0, 2));
    EXPECT_EQ(k2.replica, k1.replica);  // the slot is reused
    auto leased = worker.acquire(worker.ns, {2})[0];
    EXPECT_EQ(worker.release(old), Status::StaleGeneration);
    EXPECT_EQ(worker.retire(old), Status::StaleGeneration);
    EXPECT_EQ(worker.reclaim_ack(old), Status::StaleGeneration);
    EXPECT_EQ(world.service->counters().leases, 1u);
    EXPECT_EQ(worker.probe(worker.ns, {2}), 1u);
    EXPECT_EQ(worker.release({leased.replica, leased.generation}), Status::Ok);
}

TEST(KnownFailures, A10WhatARestartedMarudFindsMappedIsNotFree) {
    World world;
    world.config.worker_cpu_bytes = world.config.uid_cpu_bytes = world.config.host_cpu_bytes;
    world.service->reconfigure(world.config);
    Worker w1(world, 1000, 10, 1, "a");
    w1.commit_one(w1.ns, 1, Client::item(w1.mine, 1, 0, 1));
    uint64_t held = world.service->counters().reserved_bytes;
    world.restart(false);
    Client w2(world, world.peer(1001, 11));
    w2.open(2, "b");
    wire::OpenPoolRequest all{
        .capacity_bytes = world.config.host_cpu_bytes, .page_bytes = 4096, .request_key = 1};
    EXPECT_TRUE(w2.call(all).refused(Status::NoSpace));
    all.capacity_bytes = world.config.host_cpu_bytes - held;
    w2.call(all).as<wire::PoolReply>();
    // W1 speaks with its old epoch over a new connection.
    w1.connection = world.connect(w1.peer);
    w1.call(wire::HelloRequest{});
    EXPECT_TRUE(w1.commit(w1.ns, 2, {Client::item(w1.mine, 2, 1, 2)}).refused(Status::StaleEpoch));
    EXPECT_TRUE(w1.call(wire::HeartbeatRequest{}).refused(Status::StaleEpoch));
    // Only its exit gives its memory to somebody else.
    world.pass(3600 * kSec);
    wire::OpenPoolRequest more{.capacity_bytes = held, .page_bytes = 4096, .request_key = 2};
    EXPECT_TRUE(w2.call(more).refused(Status::NoSpace));
    world.kill(10);
    world.pump();
    w2.call(more).as<wire::PoolReply>();
}

TEST(KnownFailures, A16ALostReplyIsRetriedWithTheSameResult) {
    World world;
    Worker worker(world, 1000, 10, 1, "a");
    auto item = Client::item(worker.mine, 1, 0, 1);
    auto first = worker.commit_one(worker.ns, 7, item);
    worker.vanish();
    worker.attach(1, "a", 7);
    worker.call(wire::AttachDoneRequest{});
    for (int retry = 0; retry < 3; ++retry) {
        auto again = worker.commit_one(worker.ns, 7, item);
        EXPECT_EQ(again.status, Status::Ok);
        EXPECT_EQ(again.replica, first.replica);
    }
    auto usage = worker.call(wire::UsageRequest{worker.mine}).as<wire::UsageReply>().usage;
    EXPECT_EQ(usage.replicas, 1u);
    EXPECT_EQ(usage.allocated_bytes, 4096u);
    auto other = item;
    other.length = 8192;
    EXPECT_EQ(worker.commit_one(worker.ns, 7, other).status, Status::Conflict);
    EXPECT_EQ(world.service->counters().replicas, 1u);
}

TEST(KnownFailures, A01ProbesProtectNothing) {
    World world;
    Worker worker(world, 1000, 10, 1, "a");
    auto k1 = worker.commit_one(worker.ns, 1, Client::item(worker.mine, 1, 0, 1));
    for (int i = 0; i < 100; ++i)
        EXPECT_EQ(worker.probe(worker.ns, {1}), 1u);
    EXPECT_EQ(world.service->counters().leases, 0u);
    EXPECT_EQ(worker.retire({k1.replica, 1}), Status::Ok);
}

TEST(KnownFailures, A02CancelledLoadsGiveEveryLeaseBackOnce) {
    World world;
    Worker worker(world, 1000, 10, 1, "a");
    std::vector<wire::CommitItem> items;
    std::vector<uint32_t> keys;
    for (uint32_t i = 0; i < 8; ++i) {
        items.push_back(Client::item(worker.mine, i, i, i + 1));
        keys.push_back(i);
    }
    worker.commit(worker.ns, 1, items);
    std::vector<wire::ReplicaName> names;
    for (const auto &leased : worker.acquire(worker.ns, keys))
        names.push_back({leased.replica, leased.generation});
    EXPECT_EQ(world.service->counters().leases, 8u);
    EXPECT_EQ(worker.call(wire::ReleaseRequest{names}).statuses, std::vector(8, Status::Ok));
    EXPECT_EQ(worker.call(wire::ReleaseRequest{names}).statuses, std::vector(8, Status::NotFound));
    EXPECT_EQ(world.service->counters().leases, 0u);
    EXPECT_EQ(worker.call(wire::RetireRequest{names}).statuses, std::vector(8, Status::Ok));
}

TEST(KnownFailures, A03AnotherReadersLeaseSurvivesADoubleRelease) {
    World world;
    Worker worker(world, 1000, 10, 1, "a");
    worker.commit_one(worker.ns, 1, Client::item(worker.mine, 1, 0, 1));
    auto leased = worker.acquire(worker.ns, {1})[0];
    Client second(world, world.peer(1000, 11));
    second.open(2, "b");
    wire::ReplicaName name{leased.replica, leased.generation};
    EXPECT_EQ(second.release(name), Status::NotFound);
    EXPECT_EQ(second.release(name), Status::NotFound);
    EXPECT_EQ(world.service->counters().leases, 1u);
    EXPECT_EQ(worker.retire(name), Status::Pending);
    EXPECT_EQ(worker.release(name), Status::Ok);
    EXPECT_EQ(worker.reclaim_ack(name), Status::Ok);
    EXPECT_EQ(worker.reclaim_ack(name), Status::StaleGeneration);
}

TEST(KnownFailures, A11CountersReachZeroAndNeverWrap) {
    World world;
    Worker worker(world, 1000, 10, 1, "a");
    for (uint32_t i = 1; i <= 3; ++i)
        worker.commit_one(worker.ns, i, Client::item(worker.mine, i, i, i));
    Client admin(world, world.peer(0, 50, true));
    admin.hello();
    auto allocated = [&] {
        return worker.call(wire::UsageRequest{}).as<wire::UsageReply>().usage.allocated_bytes;
    };
    auto acknowledge = [&] {
        for (const SeenEvent &event : worker.events())
            if (event.kind == wire::EventKind::Reclaim)
                worker.call(wire::ReclaimAckRequest{event.items});
    };
    EXPECT_EQ(allocated(), 3 * 4096u);
    admin.call(wire::AdminRetireRequest{worker.ns, wire::Key{digest(1), 0, 0}});
    acknowledge();
    EXPECT_EQ(allocated(), 2 * 4096u);
    admin.call(wire::AdminRetireRequest{worker.ns, std::nullopt});
    acknowledge();
    EXPECT_EQ(allocated(), 0u);
    admin.call(wire::AdminRetireRequest{worker.ns, std::nullopt});
    acknowledge();
    EXPECT_EQ(allocated(), 0u);
    worker.close_pool(worker.mine, wire::ClosePhase::Drain);
    EXPECT_EQ(worker.close_pool(worker.mine, wire::ClosePhase::Finish).status, Status::Ok);
    auto usage = worker.call(wire::UsageRequest{}).as<wire::UsageReply>().usage;
    EXPECT_EQ(usage.reserved_bytes, 0u);
    EXPECT_EQ(usage.ready_bytes, 0u);
    EXPECT_EQ(usage.retiring_bytes, 0u);
}

}  // namespace
}  // namespace maru::test
