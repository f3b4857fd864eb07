#include "tests/daemon/protocol/harness.h"

namespace maru::test {
namespace {

using wire::Status;

struct LivenessTest : testing::Test {
    LivenessTest() : worker(world, world.peer(1000, 10)) {
        worker.open(1, "a");
        ns = worker.name("model");
        worker.describe(ns);
        pool = worker.pool(16);
        worker.commit_one(ns, 1, Client::item(pool, 1, 0, 1));
        leased = worker.acquire(ns, {1})[0];
    }
    Service::Counters counters() { return world.service->counters(); }
    std::string state() {
        Client admin(world, world.peer(0, 99, true));
        admin.hello();
        Answer answer = admin.call(wire::ListRequest{wire::ListKind::Sessions});
        admin.vanish();
        auto rows = std::get<std::vector<wire::SessionRow>>(answer.as<wire::ListReply>().rows);
        return rows.empty() ? "" : rows[0].state;
    }
    World world;
    Client worker;
    wire::Id ns = 0, pool = 0;
    wire::AcquireResult leased;
};

TEST_F(LivenessTest, SilenceHidesAndChangesNothingElse) {
    world.pass(29 * kSec);
    EXPECT_EQ(state(), "attached");
    world.pass(2 * kSec);
    EXPECT_EQ(state(), "silent");
    world.pass(100'000 * kSec);
    EXPECT_EQ(state(), "silent");
    EXPECT_EQ(counters().leases, 1u);
    EXPECT_EQ(counters().replicas, 1u);
    EXPECT_EQ(counters().reserved_bytes, 16 * 4096u);
    EXPECT_EQ(counters().attached, 0u);
    // It was only stopped: back with its next beat.
    EXPECT_EQ(worker.call(wire::HeartbeatRequest{}).status, Status::Ok);
    EXPECT_EQ(state(), "attached");
    EXPECT_EQ(worker.probe(ns, {1}), 1u);
    EXPECT_EQ(worker.release({leased.replica, leased.generation}), Status::Ok);
}

TEST_F(LivenessTest, ASilentWorkerKeepsItsEngine) {
    world.pass(40 * kSec);
    Client rival(world, world.peer(1000, 11));
    Answer busy = rival.open(2, "a");
    EXPECT_TRUE(busy.refused(Status::Busy));
    EXPECT_NE(busy.message.find("silent"), std::string::npos) << busy.message;
}

TEST_F(LivenessTest, AnyRequestIsALifeSign) {
    for (int i = 0; i < 10; ++i) {
        world.pass(20 * kSec);
        worker.probe(ns, {1});
    }
    EXPECT_EQ(state(), "attached");
}

TEST_F(LivenessTest, ALostConnectionHidesAndKeepsEverything) {
    Client scheduler(world, world.peer(1000, 20));
    scheduler.open(9, "a", wire::Role::Scheduler);
    worker.vanish();
    EXPECT_EQ(scheduler.probe(ns, {1}), 0u);
    world.pass(100'000 * kSec);
    EXPECT_EQ(counters().leases, 1u);
    EXPECT_EQ(counters().reserved_bytes, 16 * 4096u);
    EXPECT_TRUE(world.held.contains({pool, 0}));
    EXPECT_EQ(world.proofs_asked, 0u);
}

TEST_F(LivenessTest, ExitEndsLeasesAtOnceAndChargesByProof) {
    world.mapped.insert({pool, 0});
    world.kill(10);
    EXPECT_TRUE(world.closed.contains(worker.connection));
    EXPECT_EQ(counters().leases, 0u);
    EXPECT_EQ(counters().reserved_bytes, 16 * 4096u);
    EXPECT_EQ(counters().unproven_bytes, 16 * 4096u);
    EXPECT_EQ(state(), "exiting");
    world.pass(60 * kSec);
    EXPECT_EQ(counters().reserved_bytes, 16 * 4096u);
    world.mapped.clear();
    world.pass(500 * kMs);
    EXPECT_EQ(counters().reserved_bytes, 0u);
    EXPECT_EQ(counters().unproven_bytes, 0u);
    EXPECT_EQ(counters().sessions, 0u);
    EXPECT_EQ(counters().replicas, 0u);
    EXPECT_TRUE(world.records.empty());
    EXPECT_TRUE(world.held.empty());
}

TEST_F(LivenessTest, ProofIsAskedAgainAfterOneMillisecondDoublingToFiveHundred) {
    world.mapped.insert({pool, 0});
    world.kill(10);
    world.pump();
    EXPECT_EQ(world.proofs_asked, 1u);
    TimeNs expected = 1 * kMs;
    for (uint64_t asked = 2; asked < 15; ++asked) {
        world.pass(expected - 1);
        EXPECT_EQ(world.proofs_asked, asked - 1);
        world.pass(1);
        EXPECT_EQ(world.proofs_asked, asked);
        expected = std::min<TimeNs>(expected * 2, 500 * kMs);
    }
}

TEST_F(LivenessTest, ARefusedProofIsNotRetriedAndStaysCharged) {
    world.refusing.insert({pool, 0});
    world.kill(10);
    world.pump();
    world.pass(60 * kSec);
    EXPECT_EQ(world.proofs_asked, 1u);
    EXPECT_EQ(counters().sessions, 0u);
    EXPECT_EQ(counters().reserved_bytes, 16 * 4096u);
    EXPECT_EQ(counters().unproven_bytes, 16 * 4096u);
    EXPECT_TRUE(world.held.empty());
    // Its engine and its token are not.
    Client next(world, world.peer(1000, 11));
    next.open(1, "a").as<wire::SessionReply>();
}

TEST_F(LivenessTest, ExitOfADetachedWorkerIsSeen) {
    worker.vanish();
    EXPECT_TRUE(world.service->watched(worker.peer.process));
    world.kill(10);
    world.pump();
    EXPECT_EQ(counters().reserved_bytes, 0u);
    EXPECT_EQ(counters().sessions, 0u);
    EXPECT_FALSE(world.service->watched(worker.peer.process));
}

TEST_F(LivenessTest, ExitWhileASegmentIsBeingMadeWaitsForIt) {
    Answer answer = worker.call(
        wire::OpenPoolRequest{.capacity_bytes = 4096, .page_bytes = 4096, .request_key = 2});
    wire::Id second = answer.as<wire::PoolReply>().pool;
    worker.send(wire::GrantSegmentRequest{second, 0});
    world.kill(10);
    world.check();
    EXPECT_EQ(counters().reserved_bytes, 17 * 4096u);
    world.pump();
    EXPECT_EQ(counters().reserved_bytes, 0u);
    EXPECT_TRUE(world.held.empty());
}

TEST_F(LivenessTest, ExitWhileASegmentIsBeingSealedWaitsForIt) {
    Answer answer = worker.call(
        wire::OpenPoolRequest{.capacity_bytes = 4096, .page_bytes = 4096, .request_key = 2});
    wire::Id second = answer.as<wire::PoolReply>().pool;
    worker.call(wire::GrantSegmentRequest{second, 0});
    worker.send(wire::SegmentMappedRequest{second, 0});
    world.seal_error = EBUSY;
    world.kill(10);
    world.check();
    world.pump();
    EXPECT_EQ(counters().reserved_bytes, 0u);
    world.check();
}

TEST_F(LivenessTest, ExitDuringFinishGoesOnToTheEnd) {
    worker.release({leased.replica, leased.generation});
    worker.close_pool(pool, wire::ClosePhase::Drain);
    world.mapped.insert({pool, 0});
    worker.send(wire::ClosePoolRequest{pool, wire::ClosePhase::Finish});
    world.kill(10);
    world.check();
    world.pump();
    EXPECT_EQ(counters().reserved_bytes, 16 * 4096u);
    world.mapped.clear();
    world.pass(kSec);
    EXPECT_EQ(counters().reserved_bytes, 0u);
    EXPECT_EQ(counters().sessions, 0u);
}

TEST_F(LivenessTest, AForcedCloseEndsWithItsReader) {
    uint64_t forced = worker.send(wire::ClosePoolRequest{pool, wire::ClosePhase::Force});
    EXPECT_FALSE(world.replied(worker.connection, forced));
    world.kill(10);
    world.pump();
    world.check();
    EXPECT_FALSE(world.replied(worker.connection, forced));  // nobody is there to hear it
    EXPECT_EQ(counters().reserved_bytes, 0u);
}

TEST_F(LivenessTest, ConnectionsOfAnExitedProcessAreClosedWithAndWithoutASession) {
    Client bare(world, worker.peer);
    bare.hello();
    world.kill(10);
    EXPECT_TRUE(world.closed.contains(bare.connection));
    EXPECT_EQ(counters().connections, 0u);
}

TEST_F(LivenessTest, WhatMarudSleptThroughIsNobodysFault) {
    world.pass(29 * kSec);
    world.stall(60 * kSec);  // marud was stopped
    world.service->tick(world.now);
    EXPECT_EQ(state(), "attached");
    world.pass(29 * kSec);  // a full timeout from the resume
    EXPECT_EQ(state(), "attached");
    world.pass(2 * kSec);
    EXPECT_EQ(state(), "silent");
}

TEST_F(LivenessTest, ADetachedSessionWithNothingIsForgottenAfterATimeout) {
    Client scheduler(world, world.peer(1000, 20));
    scheduler.open(9, "a", wire::Role::Scheduler);
    scheduler.vanish();
    EXPECT_EQ(counters().sessions, 2u);
    scheduler.attach(9, "a", 0, wire::Role::Scheduler).as<wire::AttachReply>();
    scheduler.call(wire::AttachDoneRequest{});
    scheduler.vanish();
    world.pass(31 * kSec);
    EXPECT_EQ(counters().sessions, 1u);  // not the worker: it has memory
    EXPECT_TRUE(scheduler.attach(9, "a", 0, wire::Role::Scheduler).refused(Status::NotFound));
}

TEST_F(LivenessTest, ShutdownTellsEverySession) {
    world.service->shutdown(world.now);
    auto events = worker.events();
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].kind, wire::EventKind::Shutdown);
    EXPECT_EQ(world.records.size(), 1u);  // for the next life
}

TEST_F(LivenessTest, AShorterTimeoutCountsFromTheReload) {
    world.pass(10 * kSec);
    world.config.session_timeout = 5 * kSec;
    world.service->reconfigure(world.config);
    world.pass(0);
    EXPECT_EQ(state(), "silent");
}

}  // namespace
}  // namespace maru::test
