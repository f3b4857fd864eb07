#include "tests/daemon/protocol/harness.h"

namespace maru::test {
namespace {

using wire::Status;

struct AttachTest : testing::Test {
    AttachTest() : worker(world, world.peer(1000, 10)) {
        session = worker.open(1, "a").as<wire::SessionReply>().session;
        ns = worker.name("model");
        worker.describe(ns);
        pool = worker.pool(16);
        for (uint32_t key = 1; key <= 4; ++key)
            replicas.push_back(
                worker.commit_one(ns, key, Client::item(pool, key, key, key)).replica);
    }
    wire::ReplicaName name(uint32_t key) { return {replicas[key - 1], key}; }
    std::vector<Status> told(std::vector<wire::LeaseItem> items) {
        return worker.call(wire::AttachLeasesRequest{items}).statuses;
    }
    World world;
    Client worker;
    wire::Id session = 0, ns = 0, pool = 0;
    std::vector<wire::Id> replicas;
};

TEST_F(AttachTest, TheSameProcessFindsEverythingAsItWas) {
    worker.acquire(ns, {1, 2});
    worker.vanish();
    auto reply = worker.attach(1, "a", 1).as<wire::AttachReply>();
    EXPECT_EQ(reply.session, session);
    EXPECT_TRUE(reply.same_life);
    EXPECT_TRUE(reply.missing_pools.empty());
    EXPECT_EQ(told({{replicas[0], 1, 1}, {replicas[1], 2, 1}}),
              (std::vector{Status::Ok, Status::Ok}));
    EXPECT_EQ(worker.call(wire::AttachDoneRequest{}).status, Status::Ok);
    EXPECT_EQ(worker.probe(ns, {1, 2, 3, 4}), 4u);
    EXPECT_EQ(world.service->counters().leases, 2u);
    EXPECT_EQ(worker.release(name(1)), Status::Ok);
}

TEST_F(AttachTest, OnlyTheSameProcessReattaches) {
    worker.vanish();
    Client thief(world, world.peer(1000, 11));
    EXPECT_TRUE(thief.attach(1, "a").refused(Status::Denied));
    Client other_uid(world, world.peer(1001, 12));
    EXPECT_TRUE(other_uid.attach(1, "a").refused(Status::Denied));
    // The same pid number, given by the kernel to a later process (A19).
    Client reborn(world, worker.peer);
    reborn.peer.process = 9999;
    reborn.peer.start_time += 5;
    EXPECT_TRUE(reborn.attach(1, "a").refused(Status::Denied));
    EXPECT_TRUE(worker.attach(2, "a").refused(Status::NotFound));
    EXPECT_TRUE(worker.attach(1, "b").refused(Status::Conflict));
    EXPECT_TRUE(worker.attach(1, "a", 0, wire::Role::Scheduler).refused(Status::Conflict));
    worker.attach(1, "a").as<wire::AttachReply>();
}

TEST_F(AttachTest, TheOldConnectionIsShutFirstAndHeardNoMore) {
    ConnectionId old = worker.connection;
    Client again(world, worker.peer);
    again.epoch = worker.epoch;
    again.attach(1, "a", 5).as<wire::AttachReply>();
    EXPECT_TRUE(world.closed.contains(old));
    // A commit that was still in the old socket is dropped, and its fate is known.
    std::vector<wire::CommitItem> late = {Client::item(pool, 9, 9, 9)};
    uint64_t id = worker.send(wire::CommitRequest{ns, 5, late});
    EXPECT_FALSE(world.replied(old, id));
    EXPECT_EQ(again.resolve(5, 1).results[0].status, Status::Absent);
    again.call(wire::AttachDoneRequest{});
    EXPECT_EQ(again.commit_one(ns, 5, late[0]).status, Status::Absent);
    EXPECT_EQ(world.service->counters().replicas, 4u);
}

TEST_F(AttachTest, PoolsStayHiddenUntilAttachDone) {
    worker.vanish();
    worker.attach(1, "a");
    std::vector<wire::Digest> keys = {digest(1)};
    EXPECT_TRUE(worker.call(wire::ProbeRequest{ns, keys, {}, false}).refused(Status::Protocol));
    EXPECT_TRUE(worker.commit(ns, 9, {Client::item(pool, 9, 9, 9)}).refused(Status::Protocol));
    EXPECT_TRUE(worker.call(wire::ReleaseRequest{}).refused(Status::Protocol));
    EXPECT_TRUE(worker.call(wire::CloseSessionRequest{}).refused(Status::Protocol));
    EXPECT_EQ(worker.call(wire::HeartbeatRequest{}).status, Status::Ok);
    EXPECT_EQ(worker.name("model"), ns);
    EXPECT_EQ(worker.describe(ns).status, Status::Ok);
    worker.call(wire::AttachDoneRequest{});
    EXPECT_EQ(worker.probe(ns, {1}), 1u);
    EXPECT_TRUE(worker.call(wire::AttachDoneRequest{}).refused(Status::Protocol));
    EXPECT_TRUE(worker.call(wire::AttachLeasesRequest{}).refused(Status::Protocol));
    EXPECT_TRUE(worker.attach(1, "a").as<wire::AttachReply>().same_life);
    EXPECT_TRUE(worker.call(wire::AttachRequest{token(1), wire::Role::Worker, "a"})
                    .refused(Status::Protocol));
}

TEST_F(AttachTest, LeasesNotNamedAreGoneAndNoneIsWonByNaming) {
    worker.acquire(ns, {1, 2});
    worker.acquire(ns, {1});
    worker.vanish();
    worker.attach(1, "a");
    EXPECT_EQ(told({{replicas[0], 1, 1},   // one of two: an acquire's reply was lost
                    {replicas[2], 3, 1},   // never acquired
                    {replicas[1], 2, 5},   // more than there are
                    {replicas[0], 99, 1},  // another generation
                    {replicas[1], 2, 0},
                    {wire::make_id(1000, 1), 1, 1}}),
              (std::vector{Status::Ok, Status::NotFound, Status::NotFound, Status::NotFound,
                           Status::NotFound, Status::StaleEpoch}));
    worker.call(wire::AttachDoneRequest{});
    EXPECT_EQ(world.service->counters().leases, 1u);
    EXPECT_EQ(worker.release(name(2)), Status::NotFound);
    EXPECT_EQ(worker.release(name(1)), Status::Ok);
    EXPECT_EQ(worker.release(name(1)), Status::NotFound);
}

TEST_F(AttachTest, ReplicasDrainedMeanwhileAreReclaimedAfterAttachDone) {
    worker.acquire(ns, {1, 2});
    EXPECT_EQ(worker.retire(name(1)), Status::Pending);
    worker.vanish();
    worker.attach(1, "a");
    told({{replicas[1], 2, 1}});  // the release of 1 was lost with the connection
    EXPECT_TRUE(worker.events().empty());
    worker.call(wire::AttachDoneRequest{});
    auto events = worker.events();
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].kind, wire::EventKind::Reclaim);
    ASSERT_EQ(events[0].items.size(), 1u);
    EXPECT_EQ(events[0].items[0].replica, replicas[0]);
}

TEST_F(AttachTest, AReclaimIsToldAgainUntilItIsAcknowledged) {
    worker.acquire(ns, {1});
    worker.retire(name(1));
    worker.release(name(1));
    EXPECT_EQ(worker.events().size(), 1u);  // and lost
    for (int round = 0; round < 2; ++round) {
        worker.vanish();
        worker.attach(1, "a");
        worker.call(wire::AttachDoneRequest{});
        auto events = worker.events();
        ASSERT_EQ(events.size(), 1u);
        EXPECT_EQ(events[0].items[0].replica, replicas[0]);
    }
    EXPECT_EQ(worker.reclaim_ack(name(1)), Status::Ok);
    worker.vanish();
    worker.attach(1, "a");
    worker.call(wire::AttachDoneRequest{});
    EXPECT_TRUE(worker.events().empty());
    EXPECT_NE(worker.reclaim_ack(name(1)), Status::Ok);
}

TEST_F(AttachTest, AConnectionLostHalfwayIsNothing) {
    worker.acquire(ns, {1});
    worker.vanish();
    worker.attach(1, "a");
    told({{replicas[0], 1, 1}});
    worker.vanish();
    EXPECT_EQ(world.service->counters().leases, 1u);
    worker.attach(1, "a");
    told({{replicas[0], 1, 1}});
    worker.call(wire::AttachDoneRequest{});
    EXPECT_EQ(worker.release(name(1)), Status::Ok);
}

TEST_F(AttachTest, TheWatermarkTravelsWithAttach) {
    worker.vanish();
    worker.attach(1, "a", 3);
    EXPECT_TRUE(worker.resolve(2, 1).refused(Status::InvalidArgument));
    EXPECT_EQ(worker.resolve(3, 1).results[0].status, Status::Committed);
}

TEST_F(AttachTest, RepublishAndAttachPoolBelongToARestart) {
    worker.vanish();
    worker.attach(1, "a");
    EXPECT_TRUE(worker.call(wire::RepublishRequest{}).refused(Status::Protocol));
    std::vector<AttachedDescriptor> descriptors(1);
    EXPECT_TRUE(worker.call(wire::AttachPoolRequest{pool}, descriptors).refused(Status::Protocol));
    EXPECT_EQ(world.service->adopted_descriptors().size(), 1u);
    EXPECT_EQ(world.service->adopted_descriptors()[0].pool, 0u);
}

TEST_F(AttachTest, DescriptorsAreForAttachPoolAlone) {
    std::vector<AttachedDescriptor> descriptors(3);
    EXPECT_TRUE(worker.call(wire::HeartbeatRequest{}, descriptors).refused(Status::Protocol));
    ASSERT_EQ(world.service->adopted_descriptors().size(), 3u);
    for (SegmentRef ref : world.service->adopted_descriptors())
        EXPECT_EQ(ref.pool, 0u);
}

}  // namespace
}  // namespace maru::test
