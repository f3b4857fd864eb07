#include "tests/daemon/protocol/harness.h"

namespace maru::test {
namespace {

using wire::Role;
using wire::Status;

TEST(Session, OpensAndIsRecordedBeforeTheReply) {
    World world;
    Client worker(world, world.peer(1000, 10));
    auto session = worker.open(1, "a").as<wire::SessionReply>();
    EXPECT_FALSE(session.existed);
    EXPECT_EQ(wire::id_epoch(session.session), 1001u);
    ASSERT_TRUE(world.records.contains(session.session));
    const SessionRecord &record = world.records[session.session];
    EXPECT_EQ(record.uid, 1000u);
    EXPECT_EQ(record.pid, 10u);
    EXPECT_EQ(record.start_time, 110u);
    EXPECT_EQ(record.engine, "a");
    EXPECT_EQ(record.client_name, "test");
    EXPECT_NE(record.token_hash, (std::array<uint8_t, 32>{}));
}

TEST(Session, EverythingBeforeASessionIsAProtocolError) {
    World world;
    Client client(world, world.peer(1000, 10));
    client.connection = world.connect(client.peer);
    EXPECT_TRUE(client.call(wire::StatusRequest{}).refused(Status::Protocol));
    client.hello();
    EXPECT_TRUE(client.call(wire::HeartbeatRequest{}).refused(Status::Protocol));
    EXPECT_TRUE(client.call(wire::ProbeRequest{}).refused(Status::Protocol));
    EXPECT_TRUE(client.call(wire::AttachDoneRequest{}).refused(Status::Protocol));
    EXPECT_TRUE(client.call(wire::CloseSessionRequest{}).refused(Status::Protocol));
}

TEST(Session, AnotherEpochIsStale) {
    World world;
    Client worker(world, world.peer(1000, 10));
    worker.open(1, "a");
    worker.epoch = 1000;
    EXPECT_TRUE(worker.call(wire::HeartbeatRequest{}).refused(Status::StaleEpoch));
    EXPECT_TRUE(worker.call(wire::StatusRequest{}).refused(Status::StaleEpoch));
    worker.epoch = 0;
    EXPECT_TRUE(worker.call(wire::HeartbeatRequest{}).refused(Status::StaleEpoch));
}

TEST(Session, OpenChecksItsFields) {
    World world;
    Client worker(world, world.peer(1000, 10));
    EXPECT_TRUE(worker.open(1, "").refused(Status::InvalidArgument));
    EXPECT_TRUE(worker.open(1, std::string(257, 'e')).refused(Status::InvalidArgument));
    EXPECT_TRUE(worker.open(1, "a", Role::Admin).refused(Status::InvalidArgument));
    EXPECT_TRUE(worker.call(wire::OpenSessionRequest{{}, Role::Worker, "a"})
                    .refused(Status::InvalidArgument));
    worker.open(1, std::string(256, 'e')).as<wire::SessionReply>();
}

TEST(Session, ARetriedOpenAnswersTheSameSession) {
    World world;
    Client worker(world, world.peer(1000, 10));
    wire::Id first = worker.open(1, "a").as<wire::SessionReply>().session;
    auto again = worker.open(1, "a").as<wire::SessionReply>();
    EXPECT_EQ(again.session, first);
    EXPECT_TRUE(again.existed);
    // Over another connection, because the first one was cut with the reply in it.
    worker.vanish();
    again = worker.open(1, "a").as<wire::SessionReply>();
    EXPECT_EQ(again.session, first);
    EXPECT_TRUE(again.existed);
    // Even while marud still has the old one.
    ConnectionId old = worker.connection;
    worker.hello();
    EXPECT_EQ(worker.open(1, "a").as<wire::SessionReply>().session, first);
    EXPECT_TRUE(world.closed.contains(old));
    EXPECT_EQ(world.service->counters().sessions, 1u);
}

TEST(Session, ATokenInUseIsNotOpenedAgain) {
    World world;
    Client worker(world, world.peer(1000, 10));
    worker.open(1, "a");
    worker.pool(1);
    EXPECT_TRUE(worker.open(1, "a").refused(Status::Conflict));
    EXPECT_TRUE(worker.open(1, "b").refused(Status::Conflict));
    EXPECT_TRUE(worker.open(2, "b").refused(Status::Protocol));  // one session a connection
    Client other(world, world.peer(1000, 11));
    EXPECT_TRUE(other.open(1, "a").refused(Status::Denied));
}

TEST(Session, OneAttachedWorkerPerEngineAndTheErrorNamesIt) {
    World world;
    Client first(world, world.peer(1000, 10)), second(world, world.peer(1000, 11));
    first.open(1, "a");
    world.pass(5 * kSec);
    Answer busy = second.open(2, "a");
    EXPECT_TRUE(busy.refused(Status::Busy));
    EXPECT_EQ(busy.message, "engine 'a' is held by pid 10 (python3), attached since 5 s ago");
    // Another engine, another uid, and a scheduler are no rivals.
    second.open(2, "b").as<wire::SessionReply>();
    Client other_uid(world, world.peer(1001, 12)), scheduler(world, world.peer(1000, 13));
    other_uid.open(3, "a").as<wire::SessionReply>();
    scheduler.open(4, "a", Role::Scheduler).as<wire::SessionReply>();
    EXPECT_EQ(world.service->counters().attached, 4u);
}

TEST(Session, ARefusedOpenLeavesNothingBehind) {
    World world;
    world.config.max_sessions_per_uid = 2;
    world.service->reconfigure(world.config);
    Client first(world, world.peer(1000, 10));
    first.open(1, "a");
    for (uint8_t i = 0; i < 5; ++i) {
        Client rival(world, world.peer(1000, 20 + i));
        EXPECT_TRUE(rival.open(static_cast<uint8_t>(50 + i), "a").refused(Status::Busy));
    }
    EXPECT_EQ(world.records.size(), 1u);
    Client second(world, world.peer(1000, 11));
    second.open(2, "b").as<wire::SessionReply>();
    Client third(world, world.peer(1000, 12));
    EXPECT_TRUE(third.open(3, "c").refused(Status::Quota));
    second.call(wire::CloseSessionRequest{});
    third.open(3, "c").as<wire::SessionReply>();
}

TEST(Session, ADetachedWorkerLosesItsEngineForGood) {
    World world;
    Client first(world, world.peer(1000, 10)), second(world, world.peer(1000, 11));
    first.open(1, "a");
    world.mapped.insert({first.pool(4), 0});
    first.vanish();
    second.open(2, "a").as<wire::SessionReply>();
    // Its token is stale, its charge stays.
    EXPECT_TRUE(first.attach(1, "a").refused(Status::Fenced));
    EXPECT_TRUE(first.open(1, "a").refused(Status::Fenced));
    EXPECT_EQ(world.service->counters().reserved_bytes, 4 * 4096u);
    EXPECT_EQ(world.service->counters().unproven_bytes, 4 * 4096u);
    // Not by a clock.
    world.pass(3600 * kSec);
    EXPECT_EQ(world.service->counters().reserved_bytes, 4 * 4096u);
    // It unmaps, although it lives: that is proof, too.
    world.mapped.clear();
    world.pass(20 * kSec);
    EXPECT_EQ(world.service->counters().reserved_bytes, 0u);
    EXPECT_EQ(world.records.size(), 1u);
    // A slow client still learns what happened to it.
    EXPECT_TRUE(first.attach(1, "a").refused(Status::Fenced));
}

TEST(Session, TheEngineOfAnExitedProcessIsFreeWhileItsChargesStay) {
    World world;
    Client first(world, world.peer(1000, 10)), second(world, world.peer(1000, 11));
    first.open(1, "a");
    wire::Id pool = first.pool(4);
    world.mapped.insert({pool, 0});  // a forked child still maps it
    world.kill(10);
    second.open(2, "a").as<wire::SessionReply>();
    EXPECT_EQ(world.service->counters().reserved_bytes, 4 * 4096u);
    world.mapped.clear();
    world.pass(1 * kSec);
    EXPECT_EQ(world.service->counters().reserved_bytes, 0u);
    EXPECT_TRUE(world.held.empty());
}

TEST(Session, DescribeComesBeforeCommitAndIsSetOnce) {
    World world;
    Client worker(world, world.peer(1000, 10));
    worker.open(1, "a");
    wire::Id ns = worker.name("model-a"), other = worker.name("model-b");
    wire::Id pool = worker.pool(8);
    EXPECT_TRUE(
        worker.commit(ns, 1, {Client::item(pool, 1, 0, 1)}).refused(Status::InvalidArgument));
    EXPECT_TRUE(worker.describe(ns, 0).refused(Status::InvalidArgument));
    EXPECT_TRUE(worker.describe(ns, 4096, "").refused(Status::InvalidArgument));
    EXPECT_TRUE(worker.describe(wire::make_id(1000, 1)).refused(Status::StaleEpoch));
    EXPECT_TRUE(worker.describe(wire::make_id(1001, 99)).refused(Status::NotFound));
    EXPECT_EQ(worker.describe(ns).status, Status::Ok);
    EXPECT_EQ(worker.describe(ns).status, Status::Ok);
    EXPECT_TRUE(worker.describe(ns, 8192).refused(Status::Conflict));
    EXPECT_TRUE(worker.describe(ns, 4096, "other").refused(Status::Conflict));
    // The refused commit was not run and its id is free.
    EXPECT_EQ(worker.commit_one(ns, 1, Client::item(pool, 1, 0, 1)).status, Status::Ok);
    EXPECT_EQ(worker.commit_one(ns, 2, Client::item(pool, 2, 1, 2, 4095)).status,
              Status::Incompatible);
    // A further namespace with the same schema.
    EXPECT_TRUE(
        worker.commit(other, 3, {Client::item(pool, 3, 2, 3)}).refused(Status::InvalidArgument));
    EXPECT_EQ(worker.describe(other).status, Status::Ok);
    EXPECT_EQ(worker.commit_one(other, 3, Client::item(pool, 3, 2, 3)).status, Status::Ok);
}

TEST(Session, ANamespaceDescribedOtherwiseIsIncompatible) {
    World world;
    Client first(world, world.peer(1000, 10)), second(world, world.peer(1000, 11));
    first.open(1, "a");
    second.open(2, "b");
    first.describe(first.name("model"), 4096, "raw");
    wire::Id ns = second.name("model");
    EXPECT_TRUE(second.describe(ns, 8192, "raw").refused(Status::Incompatible));
    EXPECT_TRUE(second.describe(ns, 4096, "packed").refused(Status::Incompatible));
    EXPECT_EQ(second.describe(ns, 4096, "raw").status, Status::Ok);
}

TEST(Session, NamespacesAreByFullTextAndBounded) {
    ServiceConfig config = World::default_config();
    config.max_namespaces = 2;
    World world(config);
    Client worker(world, world.peer(1000, 10));
    worker.open(1, "a");
    EXPECT_TRUE(worker.call(wire::RegisterNamespaceRequest{""}).refused(Status::InvalidArgument));
    std::string huge(16 * 1024 + 1, 'x');
    EXPECT_TRUE(worker.call(wire::RegisterNamespaceRequest{huge}).refused(Status::InvalidArgument));
    wire::Id one = worker.name("one");
    EXPECT_NE(worker.name("two"), one);
    EXPECT_EQ(worker.name("one"), one);
    EXPECT_TRUE(worker.call(wire::RegisterNamespaceRequest{"three"}).refused(Status::Again));
}

// A stranger who knows a text has a namespace of his own: he cannot fix the size of ours.
TEST(Session, ANamespaceBelongsToAUid) {
    World world;
    Client stranger(world, world.peer(1001, 10)), worker(world, world.peer(1000, 11));
    stranger.open(1, "a");
    worker.open(2, "a");
    wire::Id theirs = stranger.name("model");
    EXPECT_EQ(stranger.describe(theirs, 512, "raw").status, Status::Ok);
    wire::Id ours = worker.name("model");
    EXPECT_NE(ours, theirs);
    EXPECT_EQ(worker.describe(ours, 4096, "raw").status, Status::Ok);
    EXPECT_EQ(worker.name("model"), ours);
    // Another's number is as good as none, for whatever a session does with one.
    std::vector<wire::CommitItem> items(1);
    std::vector<wire::Digest> keys(1);
    EXPECT_TRUE(worker.describe(theirs, 4096, "raw").refused(Status::NotFound));
    EXPECT_TRUE(worker.call(wire::CommitRequest{theirs, 1, items}).refused(Status::NotFound));
    EXPECT_TRUE(worker.call(wire::ProbeRequest{theirs, keys}).refused(Status::NotFound));
    EXPECT_TRUE(worker.call(wire::AcquireRequest{theirs, keys}).refused(Status::NotFound));
    EXPECT_TRUE(worker.call(wire::ListRequest{wire::ListKind::Objects, 0, theirs})
                    .refused(Status::NotFound));
    EXPECT_TRUE(worker.call(wire::ExplainRequest{theirs, {}, "a"}).refused(Status::NotFound));
    EXPECT_TRUE(worker.call(wire::AdminRetireRequest{theirs, {}}).refused(Status::NotFound));
    // An admin looks at all of them, and works in none but those of its own uid.
    Client admin(world, world.peer(0, 12, true));
    admin.open(3, "a");
    EXPECT_TRUE(admin.call(wire::ProbeRequest{theirs, keys}).refused(Status::NotFound));
    EXPECT_EQ(admin.call(wire::AdminRetireRequest{theirs, {}}).as<wire::CountReply>().count, 0u);
    EXPECT_EQ(world.service->check_invariants(), "");
}

TEST(Session, NoUidUsesUpTheNamespacesOfOthers) {
    ServiceConfig config = World::default_config();
    config.max_namespaces = 3;
    config.max_namespaces_per_uid = 2;
    World world(config);
    Client greedy(world, world.peer(1001, 10)), worker(world, world.peer(1000, 11));
    greedy.open(1, "a");
    worker.open(2, "a");
    greedy.name("one");
    greedy.name("two");
    Answer refused = greedy.call(wire::RegisterNamespaceRequest{"three"});
    EXPECT_TRUE(refused.refused(Status::Quota));
    EXPECT_NE(refused.message.find("limits.namespaces_per_uid"), std::string::npos);
    EXPECT_NE(greedy.name("one"), 0u);  // a known one is no new one
    EXPECT_NE(worker.name("three"), 0u);
    // More for everybody after a reload, as far as the directory has room.
    config.max_namespaces_per_uid = 5;
    world.service->reconfigure(config);
    EXPECT_TRUE(greedy.call(wire::RegisterNamespaceRequest{"three"}).refused(Status::Again));
}

TEST(Session, ASchedulerIsMetadataOnly) {
    World world;
    Client scheduler(world, world.peer(1000, 10));
    scheduler.open(1, "a", Role::Scheduler);
    wire::Id ns = scheduler.name("model");
    EXPECT_EQ(scheduler.call(wire::HeartbeatRequest{}).status, Status::Ok);
    Answer denied = scheduler.call(
        wire::OpenPoolRequest{.capacity_bytes = 4096, .page_bytes = 4096, .request_key = 1});
    EXPECT_TRUE(denied.refused(Status::Denied));
    EXPECT_EQ(denied.message,
              "OpenPool: a scheduler session is metadata-only; only a worker session may do this");
    EXPECT_TRUE(scheduler.describe(ns).refused(Status::Denied));
    EXPECT_TRUE(scheduler.call(wire::GrantSegmentRequest{}).refused(Status::Denied));
    EXPECT_TRUE(scheduler.call(wire::SegmentMappedRequest{}).refused(Status::Denied));
    EXPECT_TRUE(scheduler.call(wire::ClosePoolRequest{}).refused(Status::Denied));
    EXPECT_TRUE(scheduler.call(wire::CommitRequest{}).refused(Status::Denied));
    EXPECT_TRUE(scheduler.call(wire::ResolveRequest{}).refused(Status::Denied));
    EXPECT_TRUE(scheduler.call(wire::AcquireRequest{}).refused(Status::Denied));
    EXPECT_TRUE(scheduler.call(wire::ReleaseRequest{}).refused(Status::Denied));
    EXPECT_TRUE(scheduler.call(wire::RetireRequest{}).refused(Status::Denied));
    EXPECT_TRUE(scheduler.call(wire::ReclaimAckRequest{}).refused(Status::Denied));
    EXPECT_EQ(scheduler.call(wire::CloseSessionRequest{}).status, Status::Ok);
}

TEST(Session, CloseEndsLeasesAndFreesTokenAndEngine) {
    World world;
    Client worker(world, world.peer(1000, 10));
    worker.open(1, "a");
    wire::Id pool = worker.pool(4);
    Answer busy = worker.call(wire::CloseSessionRequest{});
    EXPECT_TRUE(busy.refused(Status::Busy));
    worker.close_pool(pool, wire::ClosePhase::Drain);
    EXPECT_EQ(worker.close_pool(pool, wire::ClosePhase::Finish).status, Status::Ok);
    EXPECT_EQ(worker.call(wire::CloseSessionRequest{}).status, Status::Ok);
    EXPECT_TRUE(world.records.empty());
    EXPECT_EQ(world.service->counters().sessions, 0u);
    EXPECT_TRUE(worker.call(wire::HeartbeatRequest{}).refused(Status::Protocol));
    EXPECT_FALSE(worker.open(1, "a").as<wire::SessionReply>().existed);
}

TEST(Session, CloseTakesPoolsWithItThatNoSegmentWasGrantedOf) {
    World world;
    Client worker(world, world.peer(1000, 10));
    worker.open(1, "a");
    worker.call(
        wire::OpenPoolRequest{.capacity_bytes = 4096, .page_bytes = 4096, .request_key = 9});
    EXPECT_EQ(worker.call(wire::CloseSessionRequest{}).status, Status::Ok);
    EXPECT_EQ(world.service->counters().reserved_bytes, 0u);
}

TEST(Session, DrainingAdmitsNothingNewAndReadersGoOn) {
    World world;
    Client worker(world, world.peer(1000, 10));
    worker.open(1, "a");
    wire::Id ns = worker.name("model");
    worker.describe(ns);
    wire::Id pool = worker.pool(8);
    EXPECT_EQ(worker.commit_one(ns, 1, Client::item(pool, 1, 0, 1)).status, Status::Ok);
    world.service->drain(true);
    auto events = worker.events();
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].kind, wire::EventKind::Draining);
    EXPECT_TRUE(worker.commit(ns, 2, {Client::item(pool, 2, 1, 2)}).refused(Status::Unavailable));
    EXPECT_EQ(worker.commit_one(ns, 1, Client::item(pool, 1, 0, 1)).status, Status::Ok);  // a retry
    EXPECT_TRUE(worker
                    .call(wire::OpenPoolRequest{
                        .capacity_bytes = 4096, .page_bytes = 4096, .request_key = 5})
                    .refused(Status::Unavailable));
    Client other(world, world.peer(1000, 11));
    EXPECT_TRUE(other.open(2, "b").refused(Status::Unavailable));
    auto leased = worker.acquire(ns, {1});
    ASSERT_EQ(leased[0].status, Status::Ok);
    EXPECT_EQ(worker.release({leased[0].replica, leased[0].generation}), Status::Ok);
    world.service->drain(false);
    EXPECT_EQ(worker.commit_one(ns, 2, Client::item(pool, 2, 1, 2)).status, Status::Ok);
}

}  // namespace
}  // namespace maru::test
