#include "tests/daemon/protocol/shared_fixture.h"

namespace maru::test {
namespace {

TEST_F(SharedTest, EverybodyOfTheUidHitsAndNobodyElse) {
    EXPECT_EQ(reader.probe(reader_ns, {1, 2, 3, 4}), 3u);
    Client stranger(world, world.peer(1001, 12));
    stranger.open(3, "stranger");
    EXPECT_EQ(stranger.probe(stranger.name("model"), {1, 2, 3}), 0u);
}

// What is retired may be read by a session that has not told its leases to this life of marud.
TEST_F(SharedTest, AnEmptySegmentWaitsForReadersWhoAreNotBack) {
    const auto lease = reader.acquire(reader_ns, {1}).at(0);
    reader.call(wire::MapSegmentRequest{{lease.replica, lease.generation}});
    world.restart(true);
    owner.attach(1, "owner").as<wire::AttachReply>();
    EXPECT_EQ(owner.call(wire::AttachDoneRequest{}).status, Status::Ok);  // and names nothing
    world.kill(10);
    world.pump();
    EXPECT_TRUE(world.held.contains({pool, 0}));
    EXPECT_EQ(world.service->counters().reserved_bytes, 64u << 10);
    world.check();
    reader.attach(2, "reader").as<wire::AttachReply>();
    reader_ns = reader.name("model");
    reader.describe(reader_ns);
    wire::RepublishItem item{Client::item(pool, 1, 1, 1), reader_ns, 1, 0};
    Answer told = reader.call(wire::RepublishRequest{{&item, 1}});
    ASSERT_EQ(told.statuses.at(0), Status::Ok);
    EXPECT_EQ(reader.call(wire::AttachDoneRequest{}).status, Status::Ok);
    EXPECT_EQ(reader.probe(reader_ns, {1}), 0u);  // read, and no hit
    EXPECT_TRUE(world.held.contains({pool, 0}));
    EXPECT_EQ(reader.release({told.replicas.at(0), 1}), Status::Ok);
    EXPECT_FALSE(world.held.contains({pool, 0}));
    EXPECT_EQ(world.service->counters().reserved_bytes, 0u);
    world.check();
}

// Its first answer was lost, then marud was restarted: it opens again, and holds nobody up.
TEST_F(SharedTest, ASessionThatIsOpenedAgainHasNoLeasesToTell) {
    Client fresh(world, world.peer(1000, 13));
    fresh.open(5, "fresh");
    world.restart(true);
    world.kill(10);
    world.pump();
    reader.attach(2, "reader").as<wire::AttachReply>();
    EXPECT_EQ(reader.call(wire::AttachDoneRequest{}).status, Status::Ok);
    EXPECT_EQ(reader.call(wire::RetireSegmentRequest{pool, 0}).as<wire::CountReply>().count, 3u);
    EXPECT_FALSE(world.held.contains({pool, 0}));
    EXPECT_EQ(world.service->counters().reserved_bytes, 0u);
    EXPECT_TRUE(fresh.open(5, "fresh").as<wire::SessionReply>().existed);
    world.check();
}

TEST_F(SharedTest, AnotherUidNeitherMapsNorRetires) {
    Client stranger(world, world.peer(1001, 12));
    stranger.open(3, "stranger");
    const auto lease = reader.acquire(reader_ns, {1}).at(0);
    const wire::ReplicaName name{lease.replica, lease.generation};
    for (bool adopted : {false, true}) {
        SCOPED_TRACE(adopted ? "adopted" : "of a living worker");
        EXPECT_TRUE(stranger.call(wire::MapSegmentRequest{name}).refused(Status::NotFound));
        EXPECT_TRUE(stranger.call(wire::RetireSegmentRequest{pool, 0}).refused(Status::Denied));
        EXPECT_EQ(stranger.release(name), Status::NotFound);
        EXPECT_EQ(reader.probe(reader_ns, {1, 2, 3}), 3u);
        if (!adopted) {
            world.kill(10);
            world.pump();
        }
    }
}

TEST_F(SharedTest, ALeaseOnWhatIsAdoptedIsReleasedUnderItsOldName) {
    const auto lease = reader.acquire(reader_ns, {2}).at(0);
    world.kill(10);
    world.pump();
    Answer view = reader.call(wire::MapSegmentRequest{{lease.replica, lease.generation}});
    EXPECT_EQ(view.as<wire::ViewReply>().pool, pool);
    EXPECT_EQ(reader.release({lease.replica, lease.generation}), Status::Ok);
    EXPECT_EQ(reader.release({lease.replica, lease.generation}), Status::NotFound);
}

TEST_F(SharedTest, AFailedRecordGrantsNoSegmentAndKeepsNoCharge) {
    const uint64_t before = world.service->counters().reserved_bytes;
    world.save_error = ENOSPC;
    EXPECT_TRUE(owner.call(wire::GrantSegmentRequest{pool, 1}).refused(Status::Internal));
    EXPECT_EQ(world.service->counters().reserved_bytes, before);
    EXPECT_FALSE(world.held.contains({pool, 1}));
    world.check();
    world.save_error = 0;
    EXPECT_EQ(owner.call(wire::GrantSegmentRequest{pool, 1}).as<wire::SegmentReply>().bytes,
              64u << 10);
    // Sealed, and that could not be recorded: it is proven free of mappings and made anew.
    world.save_error = ENOSPC;
    EXPECT_TRUE(owner.call(wire::SegmentMappedRequest{pool, 1}).refused(Status::Internal));
    world.check();
    world.save_error = 0;
    EXPECT_EQ(owner.call(wire::GrantSegmentRequest{pool, 1}).as<wire::SegmentReply>().bytes,
              64u << 10);
    EXPECT_EQ(owner.call(wire::SegmentMappedRequest{pool, 1}).status, Status::Ok);
    EXPECT_EQ(world.service->counters().reserved_bytes, before + (64u << 10));
    world.check();
}

// Its record must not charge again, after a restart, what was given back meanwhile.
TEST_F(SharedTest, AFencedReaderKeepsItsLeasesAndNothingElse) {
    reader.pool(4);
    const auto lease = reader.acquire(reader_ns, {1}).at(0);
    reader.vanish();
    Client newcomer(world, world.peer(1000, 12));
    newcomer.open(4, "reader");
    world.pump();
    EXPECT_EQ(world.service->counters().reserved_bytes, 64u << 10);
    uint32_t fenced = 0;
    for (const auto &[id, record] : world.records)
        if (record.fenced) {
            ++fenced;
            EXPECT_TRUE(record.pools.empty());
        }
    EXPECT_EQ(fenced, 1u);
    EXPECT_EQ(owner.retire({lease.replica, lease.generation}), Status::Pending);
    world.restart(true);
    EXPECT_EQ(world.service->counters().reserved_bytes, 64u << 10);
    world.check();
    world.kill(11);
    world.check();
}

// Forgotten over a restart, proven, and then not made anew: no record may name the charge of the old
// one when it has returned.
TEST_F(SharedTest, ASegmentThatCannotBeMadeAnewIsInNoRecord) {
    owner.call(wire::GrantSegmentRequest{pool, 1});  // mapped by nobody's word
    world.mapped.insert({pool, 1});
    world.restart(true);
    owner.attach(1, "owner").as<wire::AttachReply>();
    ns = owner.name("model");
    owner.describe(ns);
    EXPECT_EQ(owner.call(wire::AttachDoneRequest{}).status, Status::Ok);
    EXPECT_EQ(world.service->counters().reserved_bytes, 128u << 10);
    world.mapped.clear();
    world.create_error = ENOMEM;
    EXPECT_TRUE(owner.call(wire::GrantSegmentRequest{pool, 1}).refused(Status::NoMemory));
    EXPECT_EQ(world.service->counters().reserved_bytes, 64u << 10);
    for (const auto &[id, record] : world.records)
        for (const auto &known : record.pools)
            EXPECT_FALSE(known.segments.at(1).created);
    world.restart(true);
    EXPECT_EQ(world.service->counters().reserved_bytes, 64u << 10);
    world.check();
}

TEST_F(SharedTest, SegmentsAreChargedAsTheyAreGranted) {
    EXPECT_EQ(world.service->counters().reserved_bytes, 64u << 10);
    owner.call(wire::GrantSegmentRequest{pool, 1});
    EXPECT_EQ(world.service->counters().reserved_bytes, 128u << 10);
}

// A later life of marud must know of it before there is a view.
TEST_F(SharedTest, ASegmentIsLentToNobodyWhoseRecordDoesNotSaySo) {
    const auto lease = reader.acquire(reader_ns, {1}).at(0);
    const wire::ReplicaName name{lease.replica, lease.generation};
    world.save_error = ENOSPC;
    EXPECT_TRUE(reader.call(wire::MapSegmentRequest{name}).refused(Status::Internal));
    EXPECT_FALSE(world.records.at(reader.session).reads_shared);
    world.save_error = 0;
    EXPECT_EQ(reader.call(wire::MapSegmentRequest{name}).segments.size(), 1u);
    EXPECT_TRUE(world.records.at(reader.session).reads_shared);
    EXPECT_FALSE(world.records.at(owner.session).reads_shared);
    world.save_error = ENOSPC;  // once is enough
    EXPECT_EQ(reader.call(wire::MapSegmentRequest{name}).segments.size(), 1u);
}

TEST_F(SharedTest, OnlyALeaseOpensASegmentToAReader) {
    EXPECT_TRUE(reader.call(wire::MapSegmentRequest{{1, 1}}).refused(Status::NotFound));
    auto lease = reader.acquire(reader_ns, {1}).at(0);
    Answer view = reader.call(wire::MapSegmentRequest{{lease.replica, lease.generation}});
    EXPECT_EQ(view.as<wire::ViewReply>().pool, pool);
    EXPECT_EQ(view.segments, (std::vector<SegmentRef>{{pool, 0}}));
}

TEST_F(SharedTest, WhatIsProvenIsAdoptedAndWhatIsMappedIsNoHit) {
    world.mapped.insert({pool, 0});
    world.kill(10);
    world.pump();
    EXPECT_EQ(reader.probe(reader_ns, {1}), 0u);
    world.mapped.clear();
    world.pass(5 * kSec);
    EXPECT_EQ(reader.probe(reader_ns, {1, 2, 3}), 3u);
    EXPECT_EQ(world.service->counters().reserved_bytes, 64u << 10);
    EXPECT_TRUE(world.held.contains({pool, 0}));
}

TEST_F(SharedTest, AnAdoptedSegmentGoesWithItsLastLease) {
    world.kill(10);
    world.pump();
    auto lease = reader.acquire(reader_ns, {2}).at(0);
    reader.call(wire::MapSegmentRequest{{lease.replica, lease.generation}});
    auto count = reader.call(wire::RetireSegmentRequest{pool, 0}).as<wire::CountReply>();
    EXPECT_EQ(count.count, 3u);
    EXPECT_EQ(count.pending, 1u);
    EXPECT_EQ(reader.probe(reader_ns, {1}), 0u);
    EXPECT_TRUE(world.held.contains({pool, 0}));
    EXPECT_EQ(reader.release({lease.replica, lease.generation}), Status::Ok);
    EXPECT_FALSE(world.held.contains({pool, 0}));
    EXPECT_EQ(world.service->counters().reserved_bytes, 0u);
    auto events = reader.events();
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].kind, wire::EventKind::SegmentGone);
}

TEST_F(SharedTest, ARestartKeepsWhatIsAdoptedAndBelievesNoWorker) {
    owner.retire({owner.acquire(ns, {3}).at(0).replica, 3});
    world.kill(10);
    world.pump();
    world.restart(true);
    reader.attach(2, "reader").as<wire::AttachReply>();
    reader_ns = reader.name("model");
    reader.describe(reader_ns);
    wire::RepublishItem item{Client::item(pool, 3, 3, 3), reader_ns, 0, 0};
    EXPECT_NE(reader.call(wire::RepublishRequest{{&item, 1}}).statuses.at(0), Status::Ok);
    EXPECT_EQ(reader.call(wire::AttachDoneRequest{}).status, Status::Ok);
    EXPECT_EQ(reader.probe(reader_ns, {1, 2, 3}), 2u);
    world.restart(false);
    EXPECT_EQ(world.service->counters().replicas, 0u);
}

TEST_F(SharedTest, AWorkerThatLeavesKeepsNothingAndLosesNothing) {
    EXPECT_EQ(owner.close_pool(pool, wire::ClosePhase::Leave).status, Status::Ok);
    EXPECT_EQ(owner.call(wire::CloseSessionRequest{}).status, Status::Ok);
    EXPECT_EQ(reader.probe(reader_ns, {1, 2, 3}), 3u);
}

// An engine that is started again at once meets the charge of the one that was killed.
TEST_F(SharedTest, ARefusedSegmentSaysWhatIsAboutToComeBack) {
    world.config.uid_cpu_bytes = 64 << 10;
    world.service->reconfigure(world.config);
    const wire::Id own = open_pool(reader, 16);
    const auto ask = [&] { return reader.call(wire::GrantSegmentRequest{own, 0}); };
    Answer full = ask();
    EXPECT_TRUE(full.refused(Status::Quota));
    EXPECT_EQ(full.detail, 0u);  // of an engine that lives
    world.mapped.insert({pool, 0});
    owner.vanish();
    Client newcomer(world, world.peer(1000, 12));
    newcomer.open(4, "owner");
    world.pump();
    EXPECT_EQ(ask().detail, 0u);  // of one that was fenced, and lives
    world.kill(10);
    world.pump();
    Answer returning = ask();
    EXPECT_TRUE(returning.refused(Status::Quota));
    EXPECT_EQ(returning.detail, 64u << 10);
    EXPECT_NE(returning.message.find("still being proven free"), std::string::npos);
    world.mapped.clear();
    world.pass(20 * kSec);
    EXPECT_EQ(ask().detail, 0u);  // adopted: it stays charged
}

}  // namespace
}  // namespace maru::test
