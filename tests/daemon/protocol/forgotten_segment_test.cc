// A segment that its worker had not got SegmentMapped answered for when marud was restarted: made
// anew, but only once nobody can touch the old file, because the pool is charged only once.
#include "tests/daemon/protocol/harness.h"

namespace maru::test {
namespace {

// A pool of one segment, granted and mapped by its worker, when marud dies before it was sealed.
struct ForgottenSegment : ::testing::Test {
    World world;
    Client worker{world, world.peer(1000, 10)};
    wire::Id pool = 0;

    void SetUp() override {
        worker.open(1, "a");
        pool = worker
                   .call(wire::OpenPoolRequest{
                       .capacity_bytes = 4 * kMiB, .page_bytes = 4096, .request_key = 1})
                   .as<wire::PoolReply>()
                   .pool;
        EXPECT_EQ(worker.call(wire::GrantSegmentRequest{pool, 0}).segments.size(), 1u);
        world.restart(true);
        EXPECT_FALSE(worker.attach(1, "a").as<wire::AttachReply>().same_life);
    }
};

TEST_F(ForgottenSegment, IsMadeAnewAfterItsProof) {
    EXPECT_EQ(worker.call(wire::AttachDoneRequest{}).status, wire::Status::Ok);
    EXPECT_FALSE(world.held.contains({pool, 0}));
    EXPECT_TRUE(
        worker.call(wire::SegmentMappedRequest{pool, 0}).refused(wire::Status::InvalidArgument));
    EXPECT_EQ(worker.call(wire::GrantSegmentRequest{pool, 0}).segments.size(), 1u);
    EXPECT_EQ(worker.call(wire::SegmentMappedRequest{pool, 0}).status, wire::Status::Ok);
}

TEST_F(ForgottenSegment, IsNotMadeAnewWhileAForkedChildMapsIt) {
    world.mapped.insert({pool, 0});
    EXPECT_EQ(worker.call(wire::AttachDoneRequest{}).status, wire::Status::Ok);
    EXPECT_TRUE(world.held.contains({pool, 0}));
    EXPECT_TRUE(worker.call(wire::GrantSegmentRequest{pool, 0}).refused(wire::Status::Busy));
    EXPECT_TRUE(world.creating.empty());
    world.mapped.clear();
    EXPECT_EQ(worker.call(wire::GrantSegmentRequest{pool, 0}).segments.size(), 1u);
}

// It was asked about for ever, and each answer said that it would come free.
TEST_F(ForgottenSegment, ThatCanNeverBeProvenIsRefusedForGood) {
    world.refusing.insert({pool, 0});
    EXPECT_EQ(worker.call(wire::AttachDoneRequest{}).status, wire::Status::Ok);
    for (int tries = 0; tries < 2; ++tries) {
        const Answer answer = worker.call(wire::GrantSegmentRequest{pool, 0});
        EXPECT_TRUE(answer.refused(wire::Status::Denied)) << answer.message;
        EXPECT_NE(answer.message.find("F_SEAL_SEAL"), std::string::npos) << answer.message;
        EXPECT_TRUE(world.proving.empty());
    }
    EXPECT_EQ(world.service->counters().reserved_bytes, 4 * kMiB);
}

// Its worker adds F_SEAL_SEAL after the first question: whoever asks next waits for this answer.
TEST_F(ForgottenSegment, ThatIsFoundToBeUnprovableIsRefusedForGoodToWhoeverWaits) {
    world.mapped.insert({pool, 0});
    EXPECT_EQ(worker.call(wire::AttachDoneRequest{}).status, wire::Status::Ok);
    world.refusing.insert({pool, 0});
    const Answer answer = worker.call(wire::GrantSegmentRequest{pool, 0});
    EXPECT_TRUE(answer.refused(wire::Status::Denied)) << answer.message;
    EXPECT_NE(answer.message.find("F_SEAL_SEAL"), std::string::npos) << answer.message;
    EXPECT_EQ(world.service->counters().reserved_bytes, 4 * kMiB);
}

TEST_F(ForgottenSegment, HoldsTheChargeOfItsClosedPoolUntilItsProof) {
    world.mapped.insert({pool, 0});
    EXPECT_EQ(worker.call(wire::AttachDoneRequest{}).status, wire::Status::Ok);
    EXPECT_EQ(worker.close_pool(pool, wire::ClosePhase::Drain).status, wire::Status::Ok);
    EXPECT_EQ(worker.close_pool(pool, wire::ClosePhase::Finish).status, wire::Status::Busy);
    EXPECT_EQ(world.service->counters().reserved_bytes, 4 * kMiB);
    world.mapped.clear();
    EXPECT_EQ(worker.close_pool(pool, wire::ClosePhase::Finish).status, wire::Status::Ok);
    EXPECT_EQ(world.service->counters().reserved_bytes, 0u);
}

TEST_F(ForgottenSegment, IsForgottenAgainByTheNextLife) {
    world.mapped.insert({pool, 0});
    EXPECT_EQ(worker.call(wire::AttachDoneRequest{}).status, wire::Status::Ok);
    world.restart(true);
    worker.attach(1, "a");
    EXPECT_EQ(worker.call(wire::AttachDoneRequest{}).status, wire::Status::Ok);
    EXPECT_TRUE(worker.call(wire::GrantSegmentRequest{pool, 0}).refused(wire::Status::Busy));
}

// Its pool was being finished when marud died: what was never sealed is not taken for sealed.
TEST_F(ForgottenSegment, IsNotTakenForSealedAfterAnUnfinishedClose) {
    EXPECT_EQ(worker.call(wire::AttachDoneRequest{}).status, wire::Status::Ok);
    EXPECT_EQ(worker.call(wire::GrantSegmentRequest{pool, 0}).segments.size(), 1u);
    world.mapped.insert({pool, 0});
    EXPECT_EQ(worker.close_pool(pool, wire::ClosePhase::Drain).status, wire::Status::Ok);
    EXPECT_EQ(worker.close_pool(pool, wire::ClosePhase::Finish).status, wire::Status::Busy);
    worker.pool(1, 2);  // writes the record
    world.restart(true);
    worker.attach(1, "a");
    wire::Id ns = worker.name("one");
    worker.describe(ns);
    EXPECT_EQ(worker.call(wire::AttachDoneRequest{}).status, wire::Status::Ok);
    EXPECT_EQ(worker.commit_one(ns, 1, Client::item(pool, 1, 0, 1)).status, wire::Status::Conflict);
}

}  // namespace
}  // namespace maru::test
