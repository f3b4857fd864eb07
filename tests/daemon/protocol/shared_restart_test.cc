// Shared memory when marud dies and comes back, and its workers in any order.
#include "tests/daemon/protocol/shared_fixture.h"

namespace maru::test {
namespace {

// Closing a pool, marud dies between the proof of one segment and that of the next. Its worker passes
// all that it has.
TEST_F(SharedTest, AWorkerComesBackFromTheMiddleOfALeaveWithoutAStore) {
    owner.call(wire::GrantSegmentRequest{pool, 1});
    owner.call(wire::SegmentMappedRequest{pool, 1});
    world.mapped.insert({pool, 1});
    EXPECT_EQ(owner.close_pool(pool, wire::ClosePhase::Leave).status, Status::Busy);
    EXPECT_EQ(reader.probe(reader_ns, {1, 2, 3}), 3u);  // segment 0 is adopted
    world.restart(false);
    attach(reader, 2, "reader", &reader_ns);
    EXPECT_EQ(attach_done(reader).status, Status::Ok);
    attach(owner, 1, "owner", &ns);
    const std::vector<AttachedDescriptor> both = {descriptor(pool, 0), descriptor(pool, 1)};
    EXPECT_EQ(
        owner.call(wire::AttachPoolRequest{pool, 128 << 10, 64 << 10, 4096, 0, 2, 9}, both).status,
        Status::Ok);
    const auto kept = world.service->adopted_descriptors();
    EXPECT_EQ(kept[0].pool, 0u);  // closed
    EXPECT_EQ(kept[1], (SegmentRef{pool, 1}));
    world.held.insert(kept[1]);
    EXPECT_EQ(attach_done(owner).status, Status::Ok);
    world.mapped.clear();
    EXPECT_EQ(owner.close_pool(pool, wire::ClosePhase::Leave).status, Status::Ok);
    EXPECT_EQ(world.service->counters().reserved_bytes, 0u);
}

// Its connection is lost before it has told everything, and the application releases meanwhile.
TEST_F(SharedTest, ALeaseThatIsNotToldAgainHasEnded) {
    reader.acquire(reader_ns, {1, 2});
    world.restart(true);
    attach(owner, 1, "owner", &ns);
    republish(owner, {told(ns, 1, 0), told(ns, 2, 0), told(ns, 3, 0)});
    EXPECT_EQ(attach_done(owner).status, Status::Ok);
    attach(reader, 2, "reader", &reader_ns);
    republish(reader, {told(reader_ns, 1, 1), told(reader_ns, 2, 1)});
    EXPECT_EQ(world.service->counters().leases, 2u);
    reader.vanish();
    attach(reader, 2, "reader", &reader_ns);
    republish(reader, {told(reader_ns, 2, 1)});
    EXPECT_EQ(attach_done(reader).status, Status::Ok);
    EXPECT_EQ(world.service->counters().leases, 1u);
    EXPECT_EQ(reader.probe(reader_ns, {1, 2, 3}), 3u);
}

// A pool that is half left comes back open; what is adopted of it is marud's all the same.
TEST_F(SharedTest, AnAdoptedSegmentIsNeverGrantedAgain) {
    owner.call(wire::GrantSegmentRequest{pool, 1});
    owner.call(wire::SegmentMappedRequest{pool, 1});
    world.mapped.insert({pool, 1});
    EXPECT_EQ(owner.close_pool(pool, wire::ClosePhase::Leave).status, Status::Busy);
    world.restart(true);
    attach(reader, 2, "reader", &reader_ns);
    EXPECT_EQ(attach_done(reader).status, Status::Ok);
    attach(owner, 1, "owner", &ns);
    // It may name what it had stored, and read it.
    const Answer named = republish(owner, {told(ns, 1, 1), told(ns, 2, 0)});
    EXPECT_EQ(named.statuses, (std::vector{Status::Ok, Status::Ok}));
    EXPECT_EQ(attach_done(owner).status, Status::Ok);
    EXPECT_TRUE(owner.call(wire::GrantSegmentRequest{pool, 0}).refused(Status::InvalidArgument));
    EXPECT_TRUE(owner.call(wire::SegmentMappedRequest{pool, 0}).refused(Status::InvalidArgument));
    EXPECT_TRUE(world.held.contains({pool, 0}));
    EXPECT_EQ(owner.commit_one(ns, 9, Client::item(pool, 9, 9, 99)).status, Status::Conflict);
    EXPECT_EQ(reader.probe(reader_ns, {1, 2, 3}), 3u);
    EXPECT_EQ(world.service->counters().reserved_bytes, 128u << 10);
    world.mapped.clear();
    EXPECT_EQ(owner.release({named.replicas.at(0), 1}), Status::Ok);
    EXPECT_EQ(owner.close_pool(pool, wire::ClosePhase::Leave).status, Status::Ok);
    EXPECT_EQ(world.service->counters().reserved_bytes, 64u << 10);
    EXPECT_EQ(reader.probe(reader_ns, {1, 2, 3}), 3u);
}

// Its file is gone with the last life of marud, and its worker has not kept it either.
TEST_F(SharedTest, WhatWasReadyInALostSegmentIsNotInTheOneThatTakesItsPlace) {
    const auto lease = reader.acquire(reader_ns, {1}).at(0);
    reader.call(wire::MapSegmentRequest{{lease.replica, lease.generation}});
    world.restart(false);
    attach(reader, 2, "reader", &reader_ns);
    EXPECT_EQ(republish(reader, {told(reader_ns, 1, 1)}).statuses, std::vector{Status::Ok});
    attach(owner, 1, "owner", &ns);
    EXPECT_EQ(attach_done(owner).status, Status::Ok);
    // The reader is told in the middle of its own return.
    const auto events = reader.events();
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].kind, wire::EventKind::SegmentGone);
    EXPECT_EQ(events[0].items.at(0).replica, pool);
    EXPECT_EQ(attach_done(reader).status, Status::Ok);
    EXPECT_EQ(owner.call(wire::GrantSegmentRequest{pool, 0}).segments.size(), 1u);
    EXPECT_EQ(owner.call(wire::SegmentMappedRequest{pool, 0}).status, Status::Ok);
    EXPECT_EQ(reader.probe(reader_ns, {1}), 0u);
    world.restart(true);
    EXPECT_EQ(world.service->counters().replicas, 0u);
    world.check();
}

}  // namespace
}  // namespace maru::test
