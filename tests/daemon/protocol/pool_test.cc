#include "tests/daemon/protocol/harness.h"

namespace maru::test {
namespace {

using wire::ClosePhase;
using wire::Status;

wire::OpenPoolRequest asking(uint64_t bytes, uint64_t key, uint32_t page = 4096) {
    return {.capacity_bytes = bytes, .page_bytes = page, .request_key = key};
}

struct PoolTest : testing::Test {
    PoolTest() : worker(world, world.peer(1000, 10)) { worker.open(1, "a"); }
    uint64_t reserved() { return world.service->counters().reserved_bytes; }
    World world;
    Client worker;
};

TEST_F(PoolTest, CapacityIsWholePagesAndSegmentsAreEqualButTheLast) {
    auto pool = worker.call(asking(10 * kMiB + 1, 1)).as<wire::PoolReply>();
    EXPECT_EQ(pool.capacity_bytes, 10 * kMiB + 4096);
    EXPECT_EQ(pool.segment_bytes, 4 * kMiB);
    EXPECT_EQ(pool.segment_count, 3u);
    EXPECT_EQ(wire::id_epoch(pool.pool), 1001u);
    EXPECT_EQ(reserved(), pool.capacity_bytes);
    EXPECT_EQ(worker.call(wire::GrantSegmentRequest{pool.pool, 2}).as<wire::SegmentReply>().bytes,
              2 * kMiB + 4096);
}

TEST_F(PoolTest, ASmallPoolHasOneSmallSegment) {
    auto pool = worker.call(asking(1, 1)).as<wire::PoolReply>();
    EXPECT_EQ(pool.capacity_bytes, 4096u);
    EXPECT_EQ(pool.segment_bytes, 4096u);
    EXPECT_EQ(pool.segment_count, 1u);
}

TEST_F(PoolTest, SegmentsAreWholePagesOfTheirKind) {
    // A page larger than the configured segment.
    auto large = worker.call(asking(16 * kMiB, 1, 8 * kMiB)).as<wire::PoolReply>();
    EXPECT_EQ(large.segment_bytes, 8 * kMiB);
    EXPECT_EQ(large.segment_count, 2u);
    wire::OpenPoolRequest huge = asking(3 * kMiB, 2);
    huge.huge_pages = wire::HugePages::Try;
    auto made = worker.call(huge).as<wire::PoolReply>();
    EXPECT_EQ(made.capacity_bytes, 4 * kMiB);
    EXPECT_EQ(made.segment_bytes % (2 * kMiB), 0u);
    world.config.segment_bytes = 5000;  // not a whole page: rounded up to one
    world.service->reconfigure(world.config);
    EXPECT_EQ(worker.call(asking(16384, 3)).as<wire::PoolReply>().segment_bytes, 8192u);
}

TEST_F(PoolTest, GenerationsOfDifferentPoolsNeverCoincide) {
    std::set<uint64_t> ranges;
    for (uint64_t key = 1; key <= 20; ++key) {
        uint64_t first = worker.call(asking(4096, key)).as<wire::PoolReply>().first_generation;
        EXPECT_NE(first, 0u);
        EXPECT_TRUE(ranges.insert(first >> 40).second);
    }
}

TEST_F(PoolTest, ARetryReturnsTheSamePoolAndChargesOnce) {
    wire::Id pool = worker.call(asking(8192, 7)).as<wire::PoolReply>().pool;
    EXPECT_EQ(worker.call(asking(8192, 7)).as<wire::PoolReply>().pool, pool);
    EXPECT_EQ(reserved(), 8192u);
    EXPECT_TRUE(worker.call(asking(4096, 7)).refused(Status::Conflict));
    EXPECT_NE(worker.call(asking(8192, 8)).as<wire::PoolReply>().pool, pool);
}

TEST_F(PoolTest, BadFieldsAreNamedWithWhatIsAllowed) {
    EXPECT_EQ(worker.call(asking(0, 1)).message,
              "capacity_bytes is 0; 1 to 1152921504606846976 are allowed");
    EXPECT_TRUE(worker.call(asking(UINT64_MAX, 1)).refused(Status::InvalidArgument));
    for (uint32_t page : {0u, 1u, 2048u, 4097u, 12288u, 1u << 31})
        EXPECT_TRUE(worker.call(asking(8192, 1, page)).refused(Status::InvalidArgument)) << page;
    EXPECT_TRUE(worker.call(asking(8192, 0)).refused(Status::InvalidArgument));
    wire::OpenPoolRequest node = asking(8192, 1);
    node.numa_node = -2;
    EXPECT_TRUE(worker.call(node).refused(Status::InvalidArgument));
    node.numa_node = 5000;
    EXPECT_TRUE(worker.call(node).refused(Status::InvalidArgument));
    EXPECT_EQ(reserved(), 0u);
}

TEST_F(PoolTest, WhatIsNotThereYetIsUnsupportedByName) {
    wire::OpenPoolRequest cxl = asking(4096, 1), ssd = cxl, domain = cxl, l2 = cxl;
    cxl.medium = wire::Medium::Cxl;
    ssd.medium = wire::Medium::Ssd;
    domain.scope = wire::Scope::Domain;
    l2.tier = wire::Tier::L2;
    for (auto [request, capability] :
         {std::pair{cxl, "mixed_storage_v1"}, std::pair{ssd, "l2_storage_v1"},
          std::pair{domain, "mixed_storage_v1"}, std::pair{l2, "l2_storage_v1"}}) {
        Answer answer = worker.call(request);
        EXPECT_TRUE(answer.refused(Status::Unsupported));
        EXPECT_NE(answer.message.find(capability), std::string::npos) << answer.message;
    }
    EXPECT_EQ(reserved(), 0u);
}

TEST_F(PoolTest, BudgetIsBoundedByWorkerUidAndHost) {
    // worker 32 MiB, uid 48 MiB, host 64 MiB
    Answer over = worker.call(asking(33 * kMiB, 1));
    EXPECT_TRUE(over.refused(Status::Quota));
    EXPECT_EQ(over.message, "worker grant in bytes: asked 34603008, used 0, limit 33554432");
    worker.call(asking(32 * kMiB, 1)).as<wire::PoolReply>();
    Client second(world, world.peer(1000, 11));
    second.open(2, "b");
    over = second.call(asking(17 * kMiB, 1));
    EXPECT_TRUE(over.refused(Status::Quota));
    EXPECT_EQ(over.message,
              "uid 1000 quota in bytes: asked 17825792, used 33554432, limit 50331648");
    second.call(asking(16 * kMiB, 1)).as<wire::PoolReply>();
    Client third(world, world.peer(1001, 12));
    third.open(3, "a");
    over = third.call(asking(17 * kMiB, 1));
    EXPECT_TRUE(over.refused(Status::NoSpace));
    EXPECT_EQ(over.message,
              "host aggregate in bytes: asked 17825792, used 50331648, limit 67108864");
    third.call(asking(16 * kMiB, 1)).as<wire::PoolReply>();
    EXPECT_EQ(reserved(), 64 * kMiB);
    world.check();
}

TEST_F(PoolTest, DescriptorsAreBoundedPerUid) {
    world.config.max_descriptors_per_uid = 4;
    world.service->reconfigure(world.config);
    wire::Id pool = worker.call(asking(12 * kMiB, 1)).as<wire::PoolReply>().pool;  // 3 segments
    EXPECT_TRUE(worker.call(asking(8 * kMiB, 2)).refused(Status::Quota));
    worker.call(asking(4096, 3)).as<wire::PoolReply>();
    EXPECT_TRUE(worker.call(asking(4096, 4)).refused(Status::Quota));
    worker.close_pool(pool, ClosePhase::Drain);
    worker.close_pool(pool, ClosePhase::Finish);
    worker.call(asking(4096, 4)).as<wire::PoolReply>();
}

TEST_F(PoolTest, ASegmentIsMadeOnceAndPassedAsOftenAsAsked) {
    wire::Id pool = worker.call(asking(8192, 1)).as<wire::PoolReply>().pool;
    uint64_t first = worker.send(wire::GrantSegmentRequest{pool, 0});
    uint64_t second = worker.send(wire::GrantSegmentRequest{pool, 0});
    ASSERT_EQ(world.creating.size(), 1u);
    EXPECT_EQ(world.creating[0].second.bytes, 8192u);
    EXPECT_FALSE(world.replied(worker.connection, first));  // deferred
    world.pump();
    SegmentRef ref{pool, 0};
    for (uint64_t id : {first, second}) {
        Answer answer = world.take(worker.connection, id);
        EXPECT_EQ(answer.as<wire::SegmentReply>().bytes, 8192u);
        EXPECT_EQ(answer.segments, std::vector<SegmentRef>{ref});
    }
    EXPECT_EQ(worker.call(wire::GrantSegmentRequest{pool, 0}).segments.size(), 1u);
    EXPECT_TRUE(worker.call(wire::GrantSegmentRequest{pool, 1}).refused(Status::InvalidArgument));
    ASSERT_EQ(world.records.size(), 1u);
    const auto &saved = world.records.begin()->second.pools.at(0).segments.at(0);
    EXPECT_TRUE(saved.created);
    EXPECT_FALSE(saved.sealed);
    EXPECT_EQ(saved.identity, World::identity(ref));
}

TEST_F(PoolTest, AFailureOfTheKernelIsAnErrorAndNotTheEnd) {
    wire::Id pool = worker.call(asking(8192, 1)).as<wire::PoolReply>().pool;
    for (auto [code, status] :
         {std::pair{ENOMEM, Status::NoMemory}, std::pair{ENOSPC, Status::NoMemory},
          std::pair{EMFILE, Status::FdLimit}, std::pair{EIO, Status::Internal}}) {
        world.create_error = code;
        EXPECT_TRUE(worker.call(wire::GrantSegmentRequest{pool, 0}).refused(status));
    }
    world.create_error = 0;
    EXPECT_EQ(worker.call(wire::GrantSegmentRequest{pool, 0}).segments.size(), 1u);
    world.seal_error = EBUSY;
    EXPECT_TRUE(worker.call(wire::SegmentMappedRequest{pool, 0}).refused(Status::Internal));
    world.seal_error = 0;
    EXPECT_EQ(worker.call(wire::SegmentMappedRequest{pool, 0}).status, Status::Ok);
}

TEST_F(PoolTest, NothingIsCommittedIntoASegmentBeforeItIsMappedAndSealed) {
    wire::Id ns = worker.name("model");
    worker.describe(ns);
    wire::Id pool = worker.call(asking(8192, 1)).as<wire::PoolReply>().pool;
    EXPECT_TRUE(worker.call(wire::SegmentMappedRequest{pool, 0}).refused(Status::InvalidArgument));
    EXPECT_EQ(worker.commit_one(ns, 1, Client::item(pool, 1, 0, 1)).status, Status::Conflict);
    worker.call(wire::GrantSegmentRequest{pool, 0});
    EXPECT_EQ(worker.commit_one(ns, 2, Client::item(pool, 1, 0, 1)).status, Status::Conflict);
    uint64_t mapped = worker.send(wire::SegmentMappedRequest{pool, 0});
    uint64_t again = worker.send(wire::SegmentMappedRequest{pool, 0});
    EXPECT_EQ(world.sealing.size(), 1u);
    // Not sealed yet.
    uint64_t early = worker.send(wire::CommitRequest{ns, 3, std::span<const wire::CommitItem>{}});
    EXPECT_TRUE(world.replied(worker.connection, early));
    EXPECT_FALSE(world.replied(worker.connection, mapped));
    world.pump();
    EXPECT_EQ(world.take(worker.connection, mapped).status, Status::Ok);
    EXPECT_EQ(world.take(worker.connection, again).status, Status::Ok);
    EXPECT_EQ(worker.commit_one(ns, 4, Client::item(pool, 1, 0, 1)).status, Status::Ok);
    EXPECT_EQ(worker.call(wire::SegmentMappedRequest{pool, 0}).status, Status::Ok);
    EXPECT_TRUE(world.records.begin()->second.pools.at(0).segments.at(0).sealed);
}

TEST_F(PoolTest, UnansweredRequestsAreBounded) {
    world.config.max_in_flight = 3;
    world.service->reconfigure(world.config);
    wire::Id pool = worker.call(asking(8192, 1)).as<wire::PoolReply>().pool;
    for (int i = 0; i < 3; ++i)
        worker.send(wire::GrantSegmentRequest{pool, 0});
    uint64_t over = worker.send(wire::GrantSegmentRequest{pool, 0});
    EXPECT_TRUE(world.take(worker.connection, over).refused(Status::Again));
    world.pump();
    worker.call(wire::GrantSegmentRequest{pool, 0}).as<wire::SegmentReply>();
}

// ---- close
// ---------------------------------------------------------------------------------------

TEST_F(PoolTest, DrainIsBusyAndChangesNothingWhileLeasesLive) {
    wire::Id ns = worker.name("model");
    worker.describe(ns);
    wire::Id pool = worker.pool(4);
    worker.commit_one(ns, 1, Client::item(pool, 1, 0, 1));
    auto leased = worker.acquire(ns, {1});
    Answer busy = worker.close_pool(pool, ClosePhase::Drain);
    EXPECT_EQ(busy.as<wire::ClosePoolReply>().status, Status::Busy);
    EXPECT_EQ(busy.detail, 1u);
    EXPECT_EQ(busy.message, "1 leases are held on it by pid 10 (python3)");
    EXPECT_EQ(worker.commit_one(ns, 2, Client::item(pool, 2, 1, 2)).status, Status::Ok);
    worker.release({leased[0].replica, leased[0].generation});
    EXPECT_EQ(worker.close_pool(pool, ClosePhase::Drain).status, Status::Ok);
    EXPECT_EQ(worker.close_pool(pool, ClosePhase::Drain).status, Status::Ok);
    EXPECT_NE(worker.commit_one(ns, 3, Client::item(pool, 3, 2, 3)).status, Status::Ok);
    EXPECT_EQ(worker.acquire(ns, {1})[0].status, Status::Miss);
    EXPECT_EQ(worker.probe(ns, {1}), 0u);
    EXPECT_TRUE(worker.call(wire::GrantSegmentRequest{pool, 0}).refused(Status::Busy));
    EXPECT_TRUE(worker.call(wire::SegmentMappedRequest{pool, 0}).refused(Status::Busy));
}

TEST_F(PoolTest, FinishCreditsOnlyWithProof) {
    wire::Id pool = worker.pool(4);
    EXPECT_TRUE(worker.close_pool(pool, ClosePhase::Finish).refused(Status::InvalidArgument));
    worker.close_pool(pool, ClosePhase::Drain);
    world.mapped.insert({pool, 0});
    Answer busy = worker.close_pool(pool, ClosePhase::Finish);
    EXPECT_EQ(busy.as<wire::ClosePoolReply>().status, Status::Busy);
    EXPECT_EQ(busy.detail, 0u);
    EXPECT_EQ(reserved(), 4 * 4096u);
    // marud does not go on by itself: the worker has to unmap and say so.
    uint64_t asked = world.proofs_asked;
    world.pass(100 * kSec);
    EXPECT_EQ(world.proofs_asked, asked);
    world.mapped.clear();
    EXPECT_EQ(worker.close_pool(pool, ClosePhase::Finish).status, Status::Ok);
    EXPECT_EQ(reserved(), 0u);
    EXPECT_TRUE(world.held.empty());
    EXPECT_TRUE(world.records.begin()->second.pools.empty());
    EXPECT_TRUE(worker.close_pool(pool, ClosePhase::Finish).refused(Status::NotFound));
}

TEST_F(PoolTest, FinishAskedTwiceAsksTheKernelOnce) {
    wire::Id pool = worker.pool(4);
    worker.close_pool(pool, ClosePhase::Drain);
    uint64_t one = worker.send(wire::ClosePoolRequest{pool, ClosePhase::Finish});
    uint64_t two = worker.send(wire::ClosePoolRequest{pool, ClosePhase::Finish});
    EXPECT_EQ(world.proving.size(), 1u);
    EXPECT_EQ(reserved(), 4 * 4096u);  // not before the proof
    world.pump();
    EXPECT_EQ(world.take(worker.connection, one).status, Status::Ok);
    EXPECT_EQ(world.take(worker.connection, two).status, Status::Ok);
}

TEST_F(PoolTest, FinishOfAPoolWithoutSegmentsNeedsNoProof) {
    wire::Id pool = worker.call(asking(8192, 1)).as<wire::PoolReply>().pool;
    worker.close_pool(pool, ClosePhase::Drain);
    EXPECT_EQ(worker.close_pool(pool, ClosePhase::Finish).status, Status::Ok);
    EXPECT_EQ(world.proofs_asked, 0u);
    EXPECT_EQ(reserved(), 0u);
}

TEST_F(PoolTest, ASegmentThatCanNeverBeProvenStaysChargedToItsUid) {
    wire::Id pool = worker.call(asking(12 * kMiB, 1)).as<wire::PoolReply>().pool;
    for (uint32_t i = 0; i < 3; ++i)
        worker.call(wire::GrantSegmentRequest{pool, i});
    world.refusing.insert({pool, 1});
    worker.close_pool(pool, ClosePhase::Drain);
    Answer denied = worker.close_pool(pool, ClosePhase::Finish);
    EXPECT_TRUE(denied.refused(Status::Denied));
    EXPECT_NE(denied.message.find("4194304 bytes carry F_SEAL_SEAL"), std::string::npos);
    EXPECT_EQ(reserved(), 4 * kMiB);
    EXPECT_EQ(world.service->counters().unproven_bytes, 4 * kMiB);
    // The worker itself is free of it; its uid is not.
    EXPECT_EQ(worker.call(wire::CloseSessionRequest{}).status, Status::Ok);
    EXPECT_EQ(reserved(), 4 * kMiB);
    worker.open(2, "a");
    auto usage = worker.call(wire::UsageRequest{}).as<wire::UsageReply>().usage;
    EXPECT_EQ(usage.reserved_bytes, 4 * kMiB);
    EXPECT_EQ(usage.quarantined_bytes, 4 * kMiB);
    auto list = worker.call(wire::ListRequest{wire::ListKind::Pools});
    auto rows = std::get<std::vector<wire::PoolRow>>(list.as<wire::ListReply>().rows);
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0].state, "quarantined");
    EXPECT_EQ(rows[0].pool, pool);
    // For this life of marud only.
    worker.call(wire::CloseSessionRequest{});
    world.restart(true);
    EXPECT_EQ(reserved(), 0u);
}

TEST_F(PoolTest, ForceRetiresEverythingAndAnswersWithTheLastLease) {
    wire::Id ns = worker.name("model");
    worker.describe(ns);
    wire::Id pool = worker.pool(4);
    worker.commit(ns, 1, {Client::item(pool, 1, 0, 1), Client::item(pool, 2, 1, 2)});
    auto leased = worker.acquire(ns, {1, 2});
    uint64_t forced = worker.send(wire::ClosePoolRequest{pool, ClosePhase::Force});
    EXPECT_FALSE(world.replied(worker.connection, forced));
    EXPECT_EQ(worker.probe(ns, {1}), 0u);
    EXPECT_EQ(worker.close_pool(pool, ClosePhase::Finish).status, Status::Busy);
    worker.release({leased[0].replica, leased[0].generation});
    EXPECT_FALSE(world.replied(worker.connection, forced));
    worker.release({leased[1].replica, leased[1].generation});
    EXPECT_EQ(world.take(worker.connection, forced).status, Status::Ok);
    EXPECT_TRUE(worker.events().empty());  // freed as a whole, not one by one
    EXPECT_EQ(worker.close_pool(pool, ClosePhase::Force).status, Status::Ok);
    EXPECT_EQ(worker.close_pool(pool, ClosePhase::Finish).status, Status::Ok);
    EXPECT_EQ(world.service->counters().replicas, 0u);
}

TEST_F(PoolTest, DeferredAnswersDieWithTheirConnectionButTheWorkIsDone) {
    wire::Id pool = worker.call(asking(8192, 1)).as<wire::PoolReply>().pool;
    worker.send(wire::GrantSegmentRequest{pool, 0});
    worker.vanish();
    world.check();
    world.pump();  // would fail on a reply to a closed connection
    EXPECT_TRUE(world.held.contains({pool, 0}));
    worker.attach(1, "a");
    worker.call(wire::AttachDoneRequest{});
    EXPECT_EQ(worker.call(wire::GrantSegmentRequest{pool, 0}).segments.size(), 1u);
    worker.send(wire::SegmentMappedRequest{pool, 0});
    worker.vanish();
    world.pump();
    worker.attach(1, "a");
    worker.call(wire::AttachDoneRequest{});
    EXPECT_TRUE(world.records.begin()->second.pools.at(0).segments.at(0).sealed);
    worker.close_pool(pool, ClosePhase::Drain);
    worker.send(wire::ClosePoolRequest{pool, ClosePhase::Finish});
    worker.vanish();
    world.pump();
    EXPECT_EQ(reserved(), 0u);
    worker.attach(1, "a");
    worker.call(wire::AttachDoneRequest{});
    EXPECT_TRUE(worker.close_pool(pool, ClosePhase::Finish).refused(Status::NotFound));
}

TEST_F(PoolTest, FinishWaitsForASegmentThatIsBeingMade) {
    wire::Id pool = worker.call(asking(8192, 1)).as<wire::PoolReply>().pool;
    uint64_t grant = worker.send(wire::GrantSegmentRequest{pool, 0});
    worker.send(wire::ClosePoolRequest{pool, ClosePhase::Drain});
    uint64_t finish = worker.send(wire::ClosePoolRequest{pool, ClosePhase::Finish});
    EXPECT_FALSE(world.replied(worker.connection, finish));
    world.pump();
    EXPECT_TRUE(world.take(worker.connection, grant).refused(Status::Busy));
    EXPECT_EQ(world.take(worker.connection, finish).status, Status::Ok);
    EXPECT_TRUE(world.held.empty());
    world.check();
}

TEST_F(PoolTest, LateFactsAreHarmless) {
    SegmentRef ghost{12345, 0};
    world.held.insert(ghost);
    world.service->on_segment_created(ghost, Service::CreatedSegment{}, world.now);
    EXPECT_FALSE(world.held.contains(ghost));  // dropped, not leaked
    world.service->on_segment_created(ghost, Error{ENOMEM, "x"}, world.now);
    world.service->on_segment_sealed(ghost, {}, world.now);
    world.service->on_segment_proven(ghost, Service::Proof::Proven, world.now);
    wire::Id pool = worker.pool(4);
    world.service->on_segment_proven({pool, 0}, Service::Proof::Proven, world.now);
    world.service->on_segment_sealed({pool, 9}, {}, world.now);
    EXPECT_EQ(reserved(), 4 * 4096u);
    world.check();
}

TEST_F(PoolTest, GaugesAreTheWorkersWordWithinBounds) {
    wire::Id ns = worker.name("model");
    worker.describe(ns);
    wire::Id pool = worker.pool(4);
    worker.commit_one(ns, 1, Client::item(pool, 1, 0, 1));
    std::vector<wire::PoolGauge> gauges = {{pool, 3 * 4096, 4096, 2 * 4096, 4096}};
    EXPECT_EQ(worker.call(wire::HeartbeatRequest{gauges}).status, Status::Ok);
    auto usage = worker.call(wire::UsageRequest{pool}).as<wire::UsageReply>();
    EXPECT_EQ(usage.limit_bytes, 4 * 4096u);
    EXPECT_EQ(usage.usage.capacity_bytes, 4 * 4096u);
    EXPECT_EQ(usage.usage.reserved_bytes, 4 * 4096u);
    EXPECT_EQ(usage.usage.allocated_bytes, 3 * 4096u);
    EXPECT_EQ(usage.usage.ready_bytes, 4096u);
    EXPECT_EQ(usage.usage.ready_allocated_bytes, 4096u);
    EXPECT_EQ(usage.usage.quarantined_bytes, 4096u);
    EXPECT_EQ(usage.usage.populated_bytes, 2 * 4096u);
    EXPECT_EQ(usage.usage.pinned_bytes, 4096u);
    gauges = {{pool, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX}, {999, 1, 1, 1, 1}};
    EXPECT_EQ(worker.call(wire::HeartbeatRequest{gauges}).status, Status::Ok);
    usage = worker.call(wire::UsageRequest{pool}).as<wire::UsageReply>();
    EXPECT_EQ(usage.usage.allocated_bytes, 4 * 4096u);
    EXPECT_EQ(usage.usage.quarantined_bytes, 3 * 4096u);
    EXPECT_EQ(usage.usage.populated_bytes, 4 * 4096u);
    EXPECT_EQ(usage.usage.pinned_bytes, 4 * 4096u);
    // A gauge never changes what is charged or given.
    EXPECT_EQ(reserved(), 4 * 4096u);
}

}  // namespace
}  // namespace maru::test
