// marud dies and comes back; its workers do not.
#include "tests/daemon/protocol/harness.h"

namespace maru::test {
namespace {

using wire::Status;

struct RestartTest : testing::TestWithParam<bool> {
    bool store() const { return GetParam(); }  // do descriptors survive marud?
    RestartTest() : worker(world, world.peer(1000, 10)) {
        session = worker.open(1, "a").as<wire::SessionReply>().session;
        ns_one = worker.name("one");
        ns_two = worker.name("two");
        worker.describe(ns_one);
        worker.describe(ns_two);
        pool = worker.pool(8);
        worker.commit(ns_one, 1, {item(1, 0, 1), item(2, 1, 2)});
        worker.commit(ns_two, 3, {item(9, 2, 3)});
    }
    wire::CommitItem item(uint32_t key, uint64_t page, uint64_t generation) {
        return Client::item(pool, key, page, generation);
    }
    AttachedDescriptor descriptor(uint32_t segment = 0) {
        return {true, false, 8 * 4096, World::identity({pool, segment})};
    }
    Answer attach_pool(std::vector<AttachedDescriptor> descriptors) {
        Answer answer =
            worker.call(wire::AttachPoolRequest{pool, 8 * 4096, 8 * 4096, 4096, 0,
                                                static_cast<uint32_t>(descriptors.size()), 4},
                        descriptors);
        for (SegmentRef ref : world.service->adopted_descriptors())
            if (ref.pool)
                world.held.insert(ref);
        return answer;
    }
    Answer republish(std::vector<wire::RepublishItem> items) {
        return worker.call(wire::RepublishRequest{items});
    }
    // As libmaru does it: texts, schema, descriptors, replicas, done.
    void come_back(bool other_order = false) {
        world.restart(store());
        auto reply = worker.attach(1, "a", 4).as<wire::AttachReply>();
        EXPECT_FALSE(reply.same_life);
        EXPECT_EQ(reply.session, session);
        EXPECT_EQ(reply.missing_pools.size(), store() ? 0u : 1u);
        if (other_order)
            ns_two = worker.name("two");
        ns_one = worker.name("one");
        ns_two = worker.name("two");
        worker.describe(ns_one);
        worker.describe(ns_two);
        if (!store()) {
            EXPECT_EQ(attach_pool({descriptor()}).status, Status::Ok);
        }
        Answer answer = republish({{item(1, 0, 1), ns_one, 1, 0},
                                   {item(2, 1, 2), ns_one, 0, 0},
                                   {item(9, 2, 3), ns_two, 0, 0}});
        EXPECT_EQ(answer.statuses, (std::vector{Status::Ok, Status::Ok, Status::Ok}));
        replicas = answer.replicas;
    }
    World world;
    Client worker;
    wire::Id session = 0, ns_one = 0, ns_two = 0, pool = 0;
    std::vector<wire::Id> replicas;
};
INSTANTIATE_TEST_SUITE_P(WithAndWithoutStore, RestartTest, testing::Bool(),
                         [](const auto &chosen) { return chosen.param ? "Store" : "NoStore"; });

TEST_P(RestartTest, LosesNoReadyObject) {
    come_back();
    EXPECT_EQ(worker.call(wire::AttachDoneRequest{}).status, Status::Ok);
    EXPECT_EQ(worker.probe(ns_one, {1, 2}), 2u);
    EXPECT_EQ(worker.probe(ns_two, {9}), 1u);
    EXPECT_EQ(wire::id_epoch(replicas[0]), 1002u);
    EXPECT_EQ(world.service->counters().reserved_bytes, 8 * 4096u);
    // The lease that was held is held.
    EXPECT_EQ(world.service->counters().leases, 1u);
    EXPECT_EQ(worker.retire({replicas[0], 1}), Status::Pending);
    EXPECT_EQ(worker.release({replicas[0], 1}), Status::Ok);
    EXPECT_EQ(worker.release({replicas[0], 1}), Status::NotFound);
    // It goes on as before: operations, generations, a further restart.
    EXPECT_EQ(worker.commit_one(ns_one, 4, item(5, 5, 5)).status, Status::Ok);
    EXPECT_EQ(worker.commit_one(ns_one, 5, item(5, 0, 6)).status, Status::Conflict);
    EXPECT_EQ(world.records.size(), 1u);
    EXPECT_EQ(world.records.begin()->first, session);
}

TEST_P(RestartTest, NamespacesInTheOtherOrderNeverAnswerForEachOther) {
    wire::Id old_one = ns_one, old_two = ns_two;
    come_back(true);
    worker.call(wire::AttachDoneRequest{});
    EXPECT_EQ(wire::id_number(ns_two), wire::id_number(old_one));  // the numbers did swap
    EXPECT_EQ(worker.probe(ns_one, {1, 2}), 2u);
    EXPECT_EQ(worker.probe(ns_one, {9}), 0u);
    EXPECT_EQ(worker.probe(ns_two, {9}), 1u);
    EXPECT_EQ(worker.probe(ns_two, {1}), 0u);
    // Old numbers are refused, not understood.
    std::vector<wire::Digest> keys = {digest(1)};
    for (wire::Id old : {old_one, old_two})
        EXPECT_TRUE(
            worker.call(wire::ProbeRequest{old, keys, {}, false}).refused(Status::StaleEpoch));
    std::vector<wire::RepublishItem> stale = {{item(1, 0, 1), old_one, 0, 0}};
    world.restart(store());
    worker.attach(1, "a", 4);
    EXPECT_EQ(republish(stale).statuses, std::vector{Status::StaleEpoch});
}

TEST_P(RestartTest, NothingIsFoundOrGrantedBeforeItsWorkerIsBack) {
    world.restart(store());
    EXPECT_EQ(world.service->counters().reserved_bytes, 8 * 4096u);
    EXPECT_EQ(world.service->counters().attached, 0u);
    Client other(world, world.peer(1000, 11));
    other.open(2, "b");
    wire::OpenPoolRequest rest{.capacity_bytes = 32 * kMiB, .page_bytes = 4096, .request_key = 1};
    other.call(rest).as<wire::PoolReply>();
    Client third(world, world.peer(1000, 12));
    third.open(3, "c");
    rest.capacity_bytes = 16 * kMiB;  // what the uid would have without the record
    EXPECT_TRUE(third.call(rest).refused(Status::Quota));
    rest.capacity_bytes = 16 * kMiB - 8 * 4096;
    third.call(rest).as<wire::PoolReply>();
}

TEST_P(RestartTest, TheEngineIsKeptForAWhileAndThenGivenToANewcomer) {
    world.restart(store());
    Client rival(world, world.peer(1000, 11));
    Answer busy = rival.open(2, "a");
    EXPECT_TRUE(busy.refused(Status::Busy));
    EXPECT_NE(busy.message.find("expected back"), std::string::npos) << busy.message;
    world.stall(20 * kSec);  // that was not the worker's fault
    world.pass(25 * kSec);
    EXPECT_TRUE(rival.open(2, "a").refused(Status::Busy));
    world.pass(6 * kSec);
    world.mapped.insert({pool, 0});
    rival.open(2, "a").as<wire::SessionReply>();
    EXPECT_TRUE(worker.attach(1, "a").refused(Status::Fenced));
    EXPECT_EQ(world.service->counters().reserved_bytes, 8 * 4096u);
    // Fenced over a further restart, too.
    world.restart(store());
    EXPECT_TRUE(worker.attach(1, "a").refused(Status::Fenced));
    rival.attach(2, "a").as<wire::AttachReply>();
    rival.call(wire::AttachDoneRequest{});
    world.mapped.clear();
    world.kill(10);
    world.pass(kSec);
    EXPECT_EQ(world.service->counters().reserved_bytes, 0u);
    EXPECT_TRUE(worker.attach(1, "a").refused(Status::Fenced));
}

TEST_P(RestartTest, OnlyTheRecordedProcessReattaches) {
    world.restart(store());
    Client other(world, world.peer(1000, 11));
    EXPECT_TRUE(other.attach(1, "a").refused(Status::Denied));
    Client reborn(world, worker.peer);  // the same pid, another process (A19)
    reborn.peer.start_time += 1;
    EXPECT_TRUE(reborn.attach(1, "a").refused(Status::Denied));
    Client other_uid(world, worker.peer);
    other_uid.peer.uid = 1001;
    EXPECT_TRUE(other_uid.attach(1, "a").refused(Status::Denied));
    EXPECT_TRUE(worker.attach(2, "a").refused(Status::NotFound));
    EXPECT_TRUE(worker.attach(1, "b").refused(Status::Conflict));
    worker.attach(1, "a").as<wire::AttachReply>();
}

TEST_P(RestartTest, AnInvisiblePidIsNotTakenForAnother) {
    Client hidden(world, {1000, 1000, 0, 0, 777, false, "-"});
    hidden.open(5, "hidden");
    hidden.pool(1);
    world.restart(store());
    Answer denied = hidden.attach(5, "hidden");
    EXPECT_TRUE(denied.status == Status::Denied || denied.status == Status::NotFound);
}

TEST_P(RestartTest, AConnectionLostHalfwayStartsAgain) {
    come_back();
    worker.vanish();
    EXPECT_EQ(world.service->counters().attached, 0u);
    auto reply = worker.attach(1, "a", 4).as<wire::AttachReply>();
    EXPECT_FALSE(reply.same_life);
    EXPECT_TRUE(reply.missing_pools.empty());  // what was adopted is ours
    Answer again = republish({{item(1, 0, 1), ns_one, 1, 0},
                              {item(2, 1, 2), ns_one, 0, 0},
                              {item(9, 2, 3), ns_two, 0, 0}});
    EXPECT_EQ(again.statuses, (std::vector{Status::Ok, Status::Ok, Status::Ok}));
    EXPECT_EQ(again.replicas, replicas);
    worker.call(wire::AttachDoneRequest{});
    EXPECT_EQ(world.service->counters().replicas, 3u);
    EXPECT_EQ(world.service->counters().leases, 1u);
    // From here it is a session of this life.
    worker.vanish();
    EXPECT_TRUE(worker.attach(1, "a", 4).as<wire::AttachReply>().same_life);
}

TEST_P(RestartTest, AnUnansweredCommitOfTheOldLifeIsAbsent) {
    come_back();
    EXPECT_EQ(worker.resolve(4, 1).results[0].status, Status::Absent);
    worker.call(wire::AttachDoneRequest{});
    EXPECT_EQ(worker.commit_one(ns_one, 4, item(4, 4, 4)).status, Status::Absent);
}

TEST_P(RestartTest, RetiredBeforeIsNotFoundAfter) {
    world.restart(store());
    worker.attach(1, "a", 4);
    ns_one = worker.name("one");
    worker.describe(ns_one);
    if (!store())
        attach_pool({descriptor()});
    Answer answer = republish({{item(1, 0, 1), ns_one, 0, 1}, {item(2, 1, 2), ns_one, 1, 1}});
    EXPECT_EQ(answer.statuses, (std::vector{Status::Ok, Status::Ok}));
    EXPECT_TRUE(worker.events().empty());
    worker.call(wire::AttachDoneRequest{});
    EXPECT_EQ(worker.probe(ns_one, {1}), 0u);
    auto events = worker.events();
    ASSERT_EQ(events.size(), 1u);
    ASSERT_EQ(events[0].items.size(), 1u);  // the other one is read
    EXPECT_EQ(events[0].items[0].replica, answer.replicas[0]);
    EXPECT_EQ(worker.reclaim_ack({answer.replicas[0], 1}), Status::Ok);
    EXPECT_EQ(worker.release({answer.replicas[1], 2}), Status::Ok);
    EXPECT_EQ(worker.events().size(), 1u);
}

TEST_P(RestartTest, RepublishChecksEveryItem) {
    Client other(world, world.peer(1000, 11));
    other.open(2, "b");
    wire::Id foreign = other.pool(2);
    world.restart(store());
    worker.attach(1, "a", 4);
    ns_one = worker.name("one");
    ns_two = worker.name("two");
    worker.describe(ns_one);
    if (!store())
        attach_pool({descriptor()});
    Answer answer = republish({
        {Client::item(foreign, 1, 0, 1), ns_one, 0, 0},
        {Client::item(4711, 1, 0, 1), ns_one, 0, 0},
        {item(1, 0, 1), wire::make_id(1002, 99), 0, 0},
        {item(1, 0, 1), ns_two, 0, 0},
        {Client::item(pool, 1, 0, 1, 100), ns_one, 0, 0},
        {item(1, 0, 1), ns_one, 1u << 31, 0},
        {item(1, 99, 1), ns_one, 0, 0},
        {item(1, 0, 1), ns_one, 0, 0},
        {item(2, 0, 2), ns_one, 0, 0},
    });
    EXPECT_EQ(answer.statuses,
              (std::vector{Status::Denied, Status::NotFound, Status::NotFound,
                           Status::InvalidArgument, Status::Incompatible, Status::Quota,
                           Status::Conflict, Status::Ok, Status::Conflict}));
    EXPECT_EQ(world.service->counters().replicas, 1u);
}

TEST_P(RestartTest, AWorkerThatDiedWithMarudLeavesNothingCharged) {
    world.processes.clear();
    world.restart(store());
    world.pump();
    world.check();
    EXPECT_EQ(world.service->counters().reserved_bytes, 0u);
    EXPECT_EQ(world.service->counters().sessions, 0u);
    EXPECT_TRUE(world.records.empty());
    EXPECT_TRUE(world.held.empty());
    Client next(world, world.peer(1000, 30));
    next.open(7, "a").as<wire::SessionReply>();
}

TEST_P(RestartTest, AWorkerThatDiesBeforeItIsBackIsProven) {
    world.restart(store());
    world.mapped.insert({pool, 0});
    world.kill(10);
    world.pump();
    // With a descriptor the proof is asked for; without one the exit is the only proof there is.
    EXPECT_EQ(world.service->counters().reserved_bytes, store() ? 8 * 4096u : 0u);
    world.mapped.clear();
    world.pass(kSec);
    EXPECT_EQ(world.service->counters().reserved_bytes, 0u);
    EXPECT_TRUE(world.records.empty());
}

TEST_P(RestartTest, ASegmentThatWasNotYetMappedIsMadeAnew) {
    Answer opened = worker.call(
        wire::OpenPoolRequest{.capacity_bytes = 4096, .page_bytes = 4096, .request_key = 2});
    wire::Id second = opened.as<wire::PoolReply>().pool;
    worker.call(wire::GrantSegmentRequest{second, 0});
    come_back();
    worker.call(wire::AttachDoneRequest{});
    EXPECT_FALSE(world.held.contains({second, 0}));
    EXPECT_EQ(worker.call(wire::GrantSegmentRequest{second, 0}).segments.size(), 1u);
    EXPECT_EQ(worker.call(wire::SegmentMappedRequest{second, 0}).status, Status::Ok);
    EXPECT_EQ(worker.commit_one(ns_one, 10, Client::item(second, 20, 0, 50)).status, Status::Ok);
}

TEST_P(RestartTest, APoolWhoseReplyWasLostIsFoundByItsKey) {
    wire::OpenPoolRequest request{.capacity_bytes = 4000, .page_bytes = 4096, .request_key = 2};
    wire::Id second = worker.call(request).as<wire::PoolReply>().pool;
    uint64_t reserved = world.service->counters().reserved_bytes;
    come_back();
    worker.call(wire::AttachDoneRequest{});
    EXPECT_EQ(worker.call(request).as<wire::PoolReply>().pool, second);
    EXPECT_EQ(world.service->counters().reserved_bytes, reserved);
    request.request_key = 3;
    EXPECT_EQ(wire::id_epoch(worker.call(request).as<wire::PoolReply>().pool), 1002u);
}

TEST_P(RestartTest, AnOpenWhoseReplyWasLostIsFoundByItsToken) {
    Client fresh(world, world.peer(1000, 40));
    wire::Id id = fresh.open(8, "fresh").as<wire::SessionReply>().session;
    world.restart(store());
    fresh.connection = 0;
    auto reply = fresh.open(8, "fresh").as<wire::SessionReply>();
    EXPECT_EQ(reply.session, id);
    EXPECT_TRUE(reply.existed);
    fresh.pool(1);
    // One with pools must attach.
    Client impatient(world, worker.peer);
    EXPECT_TRUE(impatient.open(1, "a").refused(Status::Conflict));
}

// ---- descriptors, without a store
// ----------------------------------------------------------------

struct NoStore : RestartTest {
    void back() {
        world.restart(false);
        worker.attach(1, "a", 4);
        ns_one = worker.name("one");
        worker.describe(ns_one);
    }
};
INSTANTIATE_TEST_SUITE_P(Descriptors, NoStore, testing::Values(false));

TEST_P(NoStore, ADescriptorIsAdoptedOnlyWhenItIsTheRecordedFile) {
    back();
    auto refused = [&](AttachedDescriptor bad, std::string_view why) {
        Answer answer = attach_pool({bad});
        EXPECT_TRUE(answer.refused(Status::InvalidArgument));
        EXPECT_NE(answer.message.find(why), std::string::npos) << answer.message;
        EXPECT_EQ(world.service->adopted_descriptors()[0].pool, 0u);
        EXPECT_TRUE(world.held.empty());
    };
    AttachedDescriptor bad = descriptor();
    bad.sealed = false;
    refused(bad, "lacks a seal");
    bad = descriptor();
    bad.bytes -= 4096;
    refused(bad, "bytes");
    bad = descriptor();
    bad.identity.inode += 1;
    refused(bad, "not the file");
    bad = descriptor();
    bad.identity.device += 1;
    refused(bad, "not the file");
    EXPECT_TRUE(attach_pool({}).refused(Status::InvalidArgument));
    EXPECT_TRUE(attach_pool({descriptor(), descriptor()}).refused(Status::InvalidArgument));
    std::vector<AttachedDescriptor> one = {descriptor()};
    EXPECT_TRUE(worker.call(wire::AttachPoolRequest{pool, 4096, 8 * 4096, 4096, 0, 1, 4}, one)
                    .refused(Status::Incompatible));
    EXPECT_TRUE(
        worker.call(wire::AttachPoolRequest{pool, 8 * 4096, 8 * 4096, 4096, UINT32_MAX, 1, 4}, one)
            .refused(Status::InvalidArgument));
    EXPECT_TRUE(worker.call(wire::AttachPoolRequest{777, 4096, 8 * 4096, 4096, 0, 1, 4}, one)
                    .refused(Status::NotFound));
    EXPECT_EQ(attach_pool({descriptor()}).status, Status::Ok);
    EXPECT_EQ(world.service->adopted_descriptors()[0], (SegmentRef{pool, 0}));
    // A second time it changes nothing, and the shell closes it.
    EXPECT_EQ(attach_pool({descriptor()}).status, Status::Ok);
    EXPECT_EQ(world.service->adopted_descriptors()[0].pool, 0u);
}

TEST_P(NoStore, WithoutItsSegmentAPoolTakesNoReplicas) {
    back();
    EXPECT_EQ(republish({{item(1, 0, 1), ns_one, 0, 0}}).statuses, std::vector{Status::Conflict});
    worker.call(wire::AttachDoneRequest{});
    EXPECT_EQ(worker.commit_one(ns_one, 4, item(1, 0, 1)).status, Status::Conflict);
    EXPECT_EQ(world.service->counters().reserved_bytes, 8 * 4096u);
    // It may have the segment made anew.
    EXPECT_EQ(worker.call(wire::GrantSegmentRequest{pool, 0}).segments.size(), 1u);
    EXPECT_EQ(worker.call(wire::SegmentMappedRequest{pool, 0}).status, Status::Ok);
    EXPECT_EQ(worker.commit_one(ns_one, 5, item(1, 0, 1)).status, Status::Ok);
}

TEST_P(NoStore, AMarudKilledBetweenSealAndRecordBelievesTheSeal) {
    // The record says created; the descriptor says sealed.
    for (auto &[id, record] : world.records)
        record.pools.at(0).segments.at(0).sealed = false;
    back();
    EXPECT_EQ(attach_pool({descriptor()}).status, Status::Ok);
    EXPECT_EQ(republish({{item(1, 0, 1), ns_one, 0, 0}}).statuses, std::vector{Status::Ok});
}

// The connection is lost before AttachDone, so the worker tells everything again; meanwhile a reader
// may have finished.
TEST_P(RestartTest, LeasesToldAgainAreNotCountedTwice) {
    world.config.max_leases_per_session = 4;
    for (uint32_t leases : {3u, 3u, 0u}) {
        if (leases == 3 && world.service->counters().leases == 0)
            world.restart(store());
        else
            worker.vanish();
        worker.attach(1, "a", 4).as<wire::AttachReply>();
        ns_one = worker.name("one");
        worker.describe(ns_one);
        if (!store()) {
            EXPECT_EQ(attach_pool({descriptor()}).status, Status::Ok);
        }
        EXPECT_EQ(republish({{item(1, 0, 1), ns_one, leases, 0}}).statuses,
                  std::vector{Status::Ok});
        EXPECT_EQ(world.service->counters().leases, leases);
    }
    EXPECT_EQ(republish({{item(2, 1, 2), ns_one, 5, 0}}).statuses, std::vector{Status::Quota});
    EXPECT_EQ(world.service->counters().replicas, 1u);  // not published without its leases
}

// A worker that holds more than a marud with other limits gives it: what does not fit is not there at
// all, since a replica without the leases of its readers would be reclaimed under them.
TEST_P(RestartTest, WhatTheSessionHasNoLeasesForIsNotPublished) {
    world.config.max_leases_per_session = 4;
    world.restart(store());
    worker.attach(1, "a", 4).as<wire::AttachReply>();
    ns_one = worker.name("one");
    worker.describe(ns_one);
    if (!store()) {
        EXPECT_EQ(attach_pool({descriptor()}).status, Status::Ok);
    }
    Answer answer = republish({{item(1, 0, 1), ns_one, 3, 0},
                               {item(2, 1, 2), ns_one, 2, 0},    // one lease too many
                               {item(3, 2, 3), ns_one, 9, 1},    // withdrawn, and still read
                               {item(4, 3, 4), ns_one, 1, 0},    // the last one
                               {item(5, 4, 5), ns_one, 1, 1},    // none is left
                               {item(6, 5, 6), ns_one, 0, 0}});  // needs none
    EXPECT_EQ(answer.statuses, (std::vector{Status::Ok, Status::Quota, Status::Quota, Status::Ok,
                                            Status::Quota, Status::Ok}));
    for (const size_t refused : {1u, 2u, 4u})
        EXPECT_EQ(answer.replicas[refused], 0u);
    EXPECT_EQ(world.service->counters().replicas, 3u);
    EXPECT_EQ(world.service->counters().leases, 4u);
    EXPECT_EQ(worker.call(wire::AttachDoneRequest{}).status, Status::Ok);
    EXPECT_EQ(worker.probe(ns_one, {1}), 1u);
    EXPECT_EQ(worker.probe(ns_one, {4}), 1u);
    EXPECT_EQ(worker.probe(ns_one, {6}), 1u);
    for (uint32_t key : {2u, 3u, 5u})
        EXPECT_EQ(worker.probe(ns_one, {key}), 0u) << key;
    EXPECT_TRUE(worker.events().empty()) << "nobody is asked to reclaim what is not there";
    // Their pages are nobody's: their owner may commit into them again once its readers are done.
    EXPECT_EQ(worker.commit_one(ns_one, 4, item(2, 1, 12)).status, Status::Ok);
    EXPECT_EQ(worker.commit_one(ns_one, 5, item(5, 4, 15)).status, Status::Ok);
    EXPECT_EQ(worker.probe(ns_one, {2}), 1u);
    auto usage = worker.call(wire::UsageRequest{pool}).as<wire::UsageReply>().usage;
    EXPECT_EQ(usage.replicas, 5u);
    EXPECT_EQ(usage.leases, 4u);
}

}  // namespace
}  // namespace maru::test
