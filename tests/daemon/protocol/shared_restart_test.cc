// Shared memory when marud dies and comes back, and its workers in any order.
#include <algorithm>

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

// Its pages may have been written to since: no later life of marud may take the record's word for it.
TEST_F(SharedTest, WhatAWorkerDoesNotHaveWhenItComesBackIsNoHitAfterAnyRestart) {
    world.restart(true);
    attach(owner, 1, "owner", &ns);
    wire::RepublishItem retired = told(ns, 1, 0);
    retired.retiring = 1;
    republish(owner, {retired, told(ns, 2, 0)});  // and the third one is not named
    EXPECT_EQ(attach_done(owner).status, Status::Ok);
    attach(reader, 2, "reader", &reader_ns);
    EXPECT_EQ(attach_done(reader).status, Status::Ok);
    const auto expect_the_second = [&] {
        EXPECT_EQ(reader.probe(reader_ns, {1}), 0u);
        EXPECT_EQ(reader.probe(reader_ns, {2}), 1u);
        EXPECT_EQ(reader.probe(reader_ns, {3}), 0u);
    };
    expect_the_second();
    world.kill(10);
    world.pump();
    for (int lives = 0; lives < 2; ++lives) {  // the second one reads what the first one began anew
        SCOPED_TRACE(lives);
        world.restart(true);
        attach(reader, 2, "reader", &reader_ns);
        EXPECT_EQ(attach_done(reader).status, Status::Ok);
        expect_the_second();
    }
}

// A reader holds up the answer, and marud dies meanwhile; then the owner, which has told nobody.
TEST_F(SharedTest, WhatAForcedCloseRetiredIsNoHitAfterARestart) {
    const auto lease = reader.acquire(reader_ns, {1}).at(0);
    reader.call(wire::MapSegmentRequest{{lease.replica, lease.generation}});
    const uint64_t id = owner.send(wire::ClosePoolRequest{pool, wire::ClosePhase::Force});
    world.pump();
    EXPECT_FALSE(world.replied(owner.connection, id));
    EXPECT_EQ(reader.probe(reader_ns, {1, 2, 3}), 0u);
    world.restart(true);
    world.kill(10);
    world.pump();
    attach(reader, 2, "reader", &reader_ns);
    republish(reader, {told(reader_ns, 1, 1)});
    EXPECT_EQ(attach_done(reader).status, Status::Ok);
    for (const uint32_t key : {1, 2, 3})
        EXPECT_EQ(reader.probe(reader_ns, {key}), 0u) << key;
}

// What is retired and still read is in a record that is begun anew no object: its pages are written
// to once the reader has gone.
TEST_F(SharedTest, ARecordThatIsBegunAnewHasNothingThatIsRetired) {
    const auto lease = reader.acquire(reader_ns, {1}).at(0);
    reader.call(wire::MapSegmentRequest{{lease.replica, lease.generation}});
    EXPECT_EQ(owner.retire({lease.replica, lease.generation}), Status::Pending);
    // And a namespace of which the new record has nothing yet is told with its next object.
    const wire::Id empty_ns = owner.name("empty");
    owner.describe(empty_ns);
    EXPECT_EQ(owner.commit_one(empty_ns, 4, Client::item(pool, 4, 4, 4)).status, Status::Ok);
    const wire::ReplicaName fourth{owner.acquire(empty_ns, {4}).at(0).replica, 4};
    EXPECT_EQ(owner.release(fourth), Status::Ok);
    EXPECT_EQ(owner.retire(fourth), Status::Ok);
    world.objects = world.service->object_records();
    EXPECT_EQ(owner.commit_one(empty_ns, 5, Client::item(pool, 5, 5, 5)).status, Status::Ok);
    EXPECT_EQ(reader.release({lease.replica, lease.generation}), Status::Ok);
    world.kill(10);
    world.pump();
    world.restart(true);
    attach(reader, 2, "reader", &reader_ns);
    EXPECT_EQ(attach_done(reader).status, Status::Ok);
    EXPECT_EQ(reader.probe(reader_ns, {1}), 0u);
    EXPECT_EQ(reader.probe(reader_ns, {2, 3}), 2u);
    EXPECT_EQ(reader.probe(reader.name("empty"), {4}), 0u);
    EXPECT_EQ(reader.probe(reader.name("empty"), {5}), 1u);
}

TEST_F(SharedTest, ARecordedRetirementIsOfOneGeneration) {
    world.objects.push_back(RecordedRetirement{pool, 4096, 99});
    world.objects.push_back(RecordedRetirement{pool, 2 * 4096, 2});
    world.kill(10);
    world.pump();
    world.restart(true);
    EXPECT_EQ(world.service->counters().replicas, 2u);
    attach(reader, 2, "reader", &reader_ns);
    EXPECT_EQ(attach_done(reader).status, Status::Ok);
    EXPECT_EQ(reader.probe(reader_ns, {1}), 1u);
    EXPECT_EQ(reader.probe(reader_ns, {2}), 0u);
}

// Who has no view reads nothing, and need not come back for others to reuse their pages.
TEST_F(SharedTest, OnlyReadersOfTheSameUidAreWaitedFor) {
    Client other(world, world.peer(1001, 12)), other_reader(world, world.peer(1001, 13));
    other.open(3, "other");
    other_reader.open(4, "other-reader");
    wire::Id other_ns = other.name("model");
    other.describe(other_ns);
    const wire::Id other_pool = open_pool(other, 16);
    const wire::CommitItem object = Client::item(other_pool, 1, 0, 1);
    EXPECT_EQ(other.commit_one(other_ns, 1, object).status, Status::Ok);
    for (const auto &[who, in] : {std::pair(&reader, reader_ns), {&other_reader, other_ns}}) {
        const auto lease = who->acquire(in, {1}).at(0);
        who->call(wire::MapSegmentRequest{{lease.replica, lease.generation}});
    }
    world.restart(true);
    attach(reader, 2, "reader", &reader_ns);
    EXPECT_EQ(attach_done(reader).status, Status::Ok);
    attach(owner, 1, "owner", &ns);
    const Answer named = republish(owner, {told(ns, 1, 0)});
    EXPECT_EQ(attach_done(owner).status, Status::Ok);
    EXPECT_EQ(owner.retire({named.replicas.at(0), 1}), Status::Ok);

    attach(other, 3, "other", &other_ns);
    const Answer theirs = republish(other, {{object, other_ns, 0, 0}});
    EXPECT_EQ(attach_done(other).status, Status::Ok);
    const wire::ReplicaName one{theirs.replicas.at(0), 1};
    EXPECT_EQ(other.retire(one), Status::Pending);
    EXPECT_EQ(other.reclaim_ack(one), Status::Busy);
    world.kill(13);
    const auto events = other.events();
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].kind, wire::EventKind::Reclaim);
    EXPECT_EQ(other.reclaim_ack(one), Status::Ok);
}

TEST_F(SharedTest, AWorkerThatNeverReadFromOthersHoldsNobodyUp) {
    reader.acquire(reader_ns, {2});  // and has no view
    world.restart(true);
    attach(owner, 1, "owner", &ns);
    const Answer named = republish(owner, {told(ns, 1, 0), told(ns, 2, 0), told(ns, 3, 0)});
    EXPECT_EQ(attach_done(owner).status, Status::Ok);
    EXPECT_EQ(owner.retire({named.replicas.at(0), 1}), Status::Ok);
    EXPECT_EQ(owner.reclaim_ack({named.replicas.at(0), 1}), Status::Ok);
    world.pass(world.config.session_timeout + kSec);
    for (const std::string &line : world.logged)
        EXPECT_EQ(line.find("is not back"), std::string::npos) << line;
}

// It was not waited for, so that what it had a lease on may have been retired, and written to.
TEST_F(SharedTest, ALeaseWithoutAViewIsWorthNothingOnceItIsRetired) {
    reader.acquire(reader_ns, {1, 2, 3});
    world.restart(true);
    attach(owner, 1, "owner", &ns);
    const Answer named = republish(owner, {told(ns, 1, 0), told(ns, 2, 0), told(ns, 3, 0)});
    EXPECT_EQ(attach_done(owner).status, Status::Ok);
    EXPECT_EQ(owner.retire({named.replicas.at(0), 1}), Status::Ok);
    EXPECT_EQ(owner.retire({named.replicas.at(1), 2}), Status::Ok);
    EXPECT_EQ(owner.reclaim_ack({named.replicas.at(1), 2}), Status::Ok);
    attach(reader, 2, "reader", &reader_ns);
    EXPECT_EQ(
        republish(reader, {told(reader_ns, 1, 1), told(reader_ns, 2, 1), told(reader_ns, 3, 1)})
            .statuses,
        (std::vector{Status::NotFound, Status::NotFound, Status::Ok}));
    EXPECT_EQ(world.service->counters().leases, 1u);
    // Also while the owner is not back.
    world.restart(true);
    attach(reader, 2, "reader", &reader_ns);
    EXPECT_EQ(republish(reader, {told(reader_ns, 2, 1), told(reader_ns, 3, 1)}).statuses,
              (std::vector{Status::NotFound, Status::Ok}));
}

TEST_F(SharedTest, WhoHoldsUpTheReuseOfMemoryIsSaidOnce) {
    const auto lease = reader.acquire(reader_ns, {1}).at(0);
    reader.call(wire::MapSegmentRequest{{lease.replica, lease.generation}});
    world.restart(true);
    attach(owner, 1, "owner", &ns);
    const Answer named = republish(owner, {told(ns, 1, 0), told(ns, 2, 0), told(ns, 3, 0)});
    EXPECT_EQ(attach_done(owner).status, Status::Ok);
    EXPECT_EQ(owner.retire({named.replicas.at(0), 1}), Status::Pending);
    const auto explained =
        owner.call(wire::ExplainRequest{ns, Client::item(pool, 1, 1, 1).key, "owner"});
    const auto &rows = explained.as<wire::ExplainReply>().replicas;
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(
        rows[0].reason,
        "retiring: pid 11 (python3) is not back after the restart of marud and may be reading "
        "it");
    const auto said = [&] {
        return std::count_if(world.logged.begin(), world.logged.end(), [](const std::string &line) {
            return line.find(
                       "pid 11 (python3), uid 1000, is not back after the restart of marud: "
                       "retired shared memory of uid 1000 is not reused until it is back or "
                       "exits") != std::string::npos;
        });
    };
    world.pass(world.config.session_timeout - kSec);
    EXPECT_EQ(said(), 0);
    world.pass(2 * kSec);
    EXPECT_EQ(said(), 1);
    world.pass(100 * kSec);
    EXPECT_EQ(said(), 1);
}

// An admin retires it while its worker, which is reading it as well, is not back.
TEST_F(SharedTest, ReclaimWaitsForTheLeasesThatAWorkerTellsOfItsOwn) {
    owner.acquire(ns, {1});
    world.restart(true);
    attach(reader, 2, "reader", &reader_ns);
    EXPECT_EQ(attach_done(reader).status, Status::Ok);
    EXPECT_EQ(reader.call(wire::RetireSegmentRequest{pool, 0}).as<wire::CountReply>().count, 3u);
    attach(owner, 1, "owner", &ns);
    const Answer named = republish(owner, {told(ns, 1, 1), told(ns, 2, 0), told(ns, 3, 0)});
    EXPECT_EQ(named.statuses, (std::vector{Status::Ok, Status::Ok, Status::Ok}));
    EXPECT_EQ(attach_done(owner).status, Status::Ok);
    auto events = owner.events();
    ASSERT_EQ(events.size(), 2u);
    EXPECT_EQ(events[0].kind, wire::EventKind::Retired);
    EXPECT_EQ(events[0].items.size(), 3u);
    EXPECT_EQ(events[1].kind, wire::EventKind::Reclaim);
    ASSERT_EQ(events[1].items.size(), 2u);
    for (const wire::ReplicaName &name : events[1].items)
        EXPECT_NE(name.replica, named.replicas[0]);
    EXPECT_EQ(owner.release({named.replicas[0], 1}), Status::Ok);
    events = owner.events();
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].items.at(0).replica, named.replicas[0]);
}

// Nobody knows whose record it was, so nobody's pages are free.
TEST_F(SharedTest, AReaderWhoseRecordIsLostIsStillReading) {
    const auto lease = reader.acquire(reader_ns, {1}).at(0);
    reader.call(wire::MapSegmentRequest{{lease.replica, lease.generation}});
    world.records.erase(reader.session);
    world.sessions_lost = true;
    world.restart(true);
    attach(owner, 1, "owner", &ns);
    const Answer named = republish(owner, {told(ns, 1, 0), told(ns, 2, 0)});
    EXPECT_EQ(attach_done(owner).status, Status::Ok);
    EXPECT_EQ(owner.retire({named.replicas.at(0), 1}), Status::Pending);
    EXPECT_EQ(owner.reclaim_ack({named.replicas.at(0), 1}), Status::Busy);
    const auto explained =
        owner.call(wire::ExplainRequest{ns, Client::item(pool, 1, 1, 1).key, "owner"});
    EXPECT_EQ(
        explained.as<wire::ExplainReply>().replicas.at(0).reason,
        "retiring: a session whose record was lost is not back after the restart of marud and "
        "may be reading it");
    // What is shared in this life is not concerned.
    const wire::Id fresh = open_pool(owner, 16, 8);
    const wire::ReplicaName own = {owner.commit_one(ns, 9, Client::item(fresh, 9, 0, 1)).replica,
                                   1};
    EXPECT_EQ(owner.retire(own), Status::Ok);
    EXPECT_EQ(owner.reclaim_ack(own), Status::Ok);
    EXPECT_TRUE(std::any_of(world.logged.begin(), world.logged.end(), [](const std::string &line) {
        return line.find("a session record is lost") != std::string::npos;
    }));
    world.kill(10);
    world.pump();
    EXPECT_TRUE(world.held.contains({pool, 0}));
    EXPECT_FALSE(world.held.contains({fresh, 0}));
    world.sessions_lost = false;
    world.restart(true);
    EXPECT_FALSE(world.held.contains({pool, 0}) && world.service->counters().replicas == 0);
}

// Of two copies that one domain has had over time, one is found; the other is read as well.
TEST_F(SharedTest, ASecondCopyStaysForItsReaders) {
    owner.vanish();
    Client other(world, world.peer(1000, 12));
    other.open(4, "other");
    const wire::Id other_ns = other.name("model");
    other.describe(other_ns);
    const wire::Id second = open_pool(other, 16);
    ASSERT_GT(second, pool);  // so that it is the surplus one
    EXPECT_EQ(other.commit_one(other_ns, 1, Client::item(second, 1, 5, 9)).status, Status::Ok);
    const auto lease = reader.acquire(reader_ns, {1}).at(0);
    ASSERT_EQ(lease.pool, second);
    reader.call(wire::MapSegmentRequest{{lease.replica, lease.generation}});
    world.kill(10);
    world.kill(12);
    world.pump();
    world.restart(true);
    attach(reader, 2, "reader", &reader_ns);
    const Answer named = republish(reader, {{Client::item(second, 1, 5, 9), reader_ns, 1, 0}});
    EXPECT_EQ(named.statuses, std::vector{Status::Ok});
    EXPECT_EQ(attach_done(reader).status, Status::Ok);
    EXPECT_EQ(world.service->counters().reserved_bytes, 128u << 10);
    EXPECT_TRUE(world.held.contains({second, 0}));
    EXPECT_EQ(reader.probe(reader_ns, {1, 2, 3}), 3u);
    EXPECT_EQ(reader.release({named.replicas.at(0), 9}), Status::Ok);
    EXPECT_FALSE(world.held.contains({second, 0}));
    EXPECT_EQ(world.service->counters().reserved_bytes, 64u << 10);
}

TEST_F(SharedTest, WhatIsRetiredWhileItsReaderIsAwayWaitsForIt) {
    const auto lease = reader.acquire(reader_ns, {1}).at(0);
    reader.call(wire::MapSegmentRequest{{lease.replica, lease.generation}});
    world.kill(10);
    world.pump();
    world.restart(true);
    Client admin(world, world.peer(1000, 12));
    admin.hello();
    EXPECT_EQ(admin.call(wire::RetireSegmentRequest{pool, 0}).as<wire::CountReply>().count, 3u);
    attach(reader, 2, "reader", &reader_ns);
    const Answer named = republish(reader, {told(reader_ns, 1, 1)});
    EXPECT_EQ(named.statuses, std::vector{Status::Ok});
    EXPECT_EQ(attach_done(reader).status, Status::Ok);
    EXPECT_TRUE(world.held.contains({pool, 0}));
    EXPECT_EQ(world.service->counters().replicas, 1u);
    EXPECT_EQ(reader.release({named.replicas.at(0), 1}), Status::Ok);
    EXPECT_EQ(world.service->counters().reserved_bytes, 0u);
}

// The slot of a replica that its worker did not name goes to another one.
TEST_F(SharedTest, AReclaimIsNotKeptFromAWorkerForOneThatItHadNotNamed) {
    const auto lease = reader.acquire(reader_ns, {1}).at(0);
    reader.call(wire::MapSegmentRequest{{lease.replica, lease.generation}});
    world.restart(true);
    attach(reader, 2, "reader", &reader_ns);
    const Answer held = republish(reader, {told(reader_ns, 1, 1)});
    EXPECT_EQ(attach_done(reader).status, Status::Ok);
    attach(owner, 1, "owner", &ns);
    EXPECT_EQ(attach_done(owner).status, Status::Ok);  // names nothing
    EXPECT_EQ(owner.close_pool(pool, wire::ClosePhase::Leave).status, Status::Ok);
    EXPECT_EQ(reader.release({held.replicas.at(0), 1}), Status::Ok);  // of an adopted one
    const wire::Id next = open_pool(owner, 16);
    wire::ReplicaName same;
    for (uint32_t i = 0; i < 8 && same.replica != held.replicas[0]; ++i)
        same = {owner.commit_one(ns, 20 + i, Client::item(next, 20 + i, i, 50 + i)).replica,
                50 + i};
    ASSERT_EQ(same.replica, held.replicas[0]);
    const auto key = static_cast<uint32_t>(same.generation - 30);
    ASSERT_EQ(reader.acquire(reader_ns, {key}).at(0).replica, same.replica);
    EXPECT_EQ(owner.retire(same), Status::Pending);
    owner.events();
    EXPECT_EQ(reader.release(same), Status::Ok);
    const auto events = owner.events();
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].kind, wire::EventKind::Reclaim);
}

// A record is begun anew in parts while everything goes on.
TEST_F(SharedTest, ARecordThatIsWrittenInPartsIsTrueAtItsEnd) {
    for (uint32_t key = 4; key <= 12; ++key)
        owner.commit_one(ns, key, Client::item(pool, key, key, key));
    const wire::Id late_ns = owner.name("late");
    owner.describe(late_ns);
    std::vector<ObjectRecord> fresh;
    uint64_t cursor = 0;
    uint32_t parts = 0;
    const auto part = [&] {
        for (ObjectRecord &fact : world.service->object_records(cursor, 2))
            fresh.push_back(std::move(fact));
        ++parts;
    };
    const auto meanwhile = [&](auto act) {
        const size_t before = world.objects.size();
        act();
        fresh.insert(fresh.end(), world.objects.begin() + static_cast<ptrdiff_t>(before),
                     world.objects.end());
    };
    const auto retire = [&](uint32_t key) {
        const auto lease = owner.acquire(ns, {key}).at(0);
        const wire::ReplicaName name{lease.replica, lease.generation};
        owner.release(name);
        EXPECT_EQ(owner.retire(name), Status::Ok);
        EXPECT_EQ(owner.reclaim_ack(name), Status::Ok);
    };
    part();
    ASSERT_NE(cursor, 0u);
    meanwhile([&] { retire(1); });  // written already
    meanwhile([&] { retire(9); });  // not yet
    meanwhile([&] {                 // into the place of what was written, and of what was not
        EXPECT_EQ(owner.commit_one(ns, 20, Client::item(pool, 20, 1, 50)).status, Status::Ok);
        EXPECT_EQ(owner.commit_one(late_ns, 21, Client::item(pool, 21, 9, 51)).status, Status::Ok);
    });
    part();
    meanwhile([&] { world.kill(10), world.pump(); });  // adopted
    do
        part();
    while (cursor);
    EXPECT_GT(parts, 3u);
    // The next life finds the same in the new record as in the old one.
    const auto old = world.objects;
    for (const bool anew : {false, true}) {
        SCOPED_TRACE(anew);
        world.objects = anew ? fresh : old;
        world.restart(true);
        attach(reader, 2, "reader", &reader_ns);
        EXPECT_EQ(attach_done(reader).status, Status::Ok);
        EXPECT_EQ(reader.probe(reader_ns, {20, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12}), 11u);
        EXPECT_EQ(reader.probe(reader_ns, {1}), 0u);
        EXPECT_EQ(reader.probe(reader_ns, {9}), 0u);
        EXPECT_EQ(reader.probe(reader.name("late"), {21}), 1u);
        EXPECT_EQ(world.service->counters().replicas, 12u);
    }
}

}  // namespace
}  // namespace maru::test
