// A record that cannot be written: nothing begins that the next life of marud would not know.

#include "tests/daemon/protocol/harness.h"

namespace maru::test {
namespace {

using testing::Test;
using wire::Status;

class RecordFailure : public Test {
  protected:
    World world;
    Client worker{world, world.peer(1000, 1)};

    Answer open_pool(uint64_t bytes = 8 * kMiB, uint64_t key = 1) {
        return worker.call(
            wire::OpenPoolRequest{.capacity_bytes = bytes, .page_bytes = 4096, .request_key = key});
    }
    Service::Counters counters() { return world.service->counters(); }
};

TEST_F(RecordFailure, RefusesTheSessionAndForgetsIt) {
    world.save_error = ENOSPC;
    Answer answer = worker.open(1, "engine");
    EXPECT_TRUE(answer.refused(Status::Internal));
    EXPECT_NE(answer.message.find("No space left"), std::string::npos) << answer.message;
    EXPECT_EQ(counters().sessions, 0u);
    EXPECT_TRUE(world.records.empty() && world.unsaved.empty());
    // The same token, engine and connection, once there is room again.
    world.save_error = 0;
    EXPECT_EQ(worker.open(1, "engine").status, Status::Ok);
    EXPECT_EQ(world.records.size(), 1u);
}

TEST_F(RecordFailure, RefusesThePoolAndReturnsItsCharge) {
    worker.open(1, "engine");
    world.save_error = EROFS;
    EXPECT_TRUE(open_pool().refused(Status::Internal));
    EXPECT_EQ(counters().reserved_bytes, 0u);
    EXPECT_TRUE(world.records.begin()->second.pools.empty());
    world.save_error = 0;
    EXPECT_EQ(open_pool().as<wire::PoolReply>().segment_count, 2u);
    EXPECT_EQ(counters().reserved_bytes, 8 * kMiB);
}

TEST_F(RecordFailure, DropsTheSegmentThatWasMade) {
    worker.open(1, "engine");
    wire::Id pool = open_pool().as<wire::PoolReply>().pool;
    world.save_error = ENOSPC;
    EXPECT_TRUE(worker.call(wire::GrantSegmentRequest{pool, 0}).refused(Status::Internal));
    EXPECT_TRUE(world.held.empty());
    EXPECT_EQ(counters().reserved_bytes, 8 * kMiB) << "the pool is there, and charged";
    world.save_error = 0;
    EXPECT_EQ(worker.call(wire::GrantSegmentRequest{pool, 0}).segments.size(), 1u);
    EXPECT_EQ(worker.call(wire::SegmentMappedRequest{pool, 0}).status, Status::Ok);
}

// Its worker heard no: it unmaps. The file is sealed and serves nobody any more.
TEST_F(RecordFailure, TakesBackASegmentThatIsSealedButNotRecordedAsGranted) {
    worker.open(1, "engine");
    wire::Id pool = open_pool().as<wire::PoolReply>().pool;
    EXPECT_EQ(worker.call(wire::GrantSegmentRequest{pool, 0}).segments.size(), 1u);
    world.save_error = ENOSPC;
    EXPECT_TRUE(worker.call(wire::SegmentMappedRequest{pool, 0}).refused(Status::Internal));
    wire::Id ns = worker.name("ns");
    worker.describe(ns);
    EXPECT_NE(worker.commit_one(ns, 1, Client::item(pool, 1, 0, 1)).status, Status::Ok);
    world.save_error = 0;
    // Still mapped somewhere: not made anew behind its back.
    world.mapped.insert({pool, 0});
    EXPECT_TRUE(worker.call(wire::GrantSegmentRequest{pool, 0}).refused(Status::Busy));
    world.mapped.clear();
    EXPECT_EQ(worker.call(wire::GrantSegmentRequest{pool, 0}).segments.size(), 1u);
    EXPECT_EQ(worker.call(wire::SegmentMappedRequest{pool, 0}).status, Status::Ok);
    EXPECT_EQ(worker.commit_one(ns, 2, Client::item(pool, 1, 0, 1)).status, Status::Ok);
}

TEST_F(RecordFailure, KeepsTheChargeOverARestartFromTheOlderRecord) {
    worker.open(1, "engine");
    wire::Id pool = open_pool().as<wire::PoolReply>().pool;
    EXPECT_EQ(worker.call(wire::GrantSegmentRequest{pool, 0}).segments.size(), 1u);
    world.save_error = ENOSPC;
    EXPECT_TRUE(worker.call(wire::SegmentMappedRequest{pool, 0}).refused(Status::Internal));
    world.restart(true);
    EXPECT_EQ(counters().reserved_bytes, 8 * kMiB);
    world.check();
}

// What a successor of a killed engine is told: how much is about to come back.
TEST_F(RecordFailure, ARefusedPoolHearsWhatIsBeingProven) {
    worker.open(1, "engine");
    wire::Id pool = worker.pool(32 * kMiB / 4096);
    world.mapped.insert({pool, 0});
    world.kill(1);
    world.pump();
    Client successor{world, world.peer(1000, 2)};
    EXPECT_EQ(successor.open(2, "engine").status, Status::Ok);
    auto ask = [&](uint64_t bytes) {
        return successor.call(
            wire::OpenPoolRequest{.capacity_bytes = bytes, .page_bytes = 4096, .request_key = 5});
    };
    Answer refused = ask(32 * kMiB);
    EXPECT_TRUE(refused.refused(Status::Quota));
    EXPECT_EQ(refused.detail, 32 * kMiB);
    EXPECT_NE(refused.message.find("still being proven free"), std::string::npos);
    EXPECT_EQ(ask(33 * kMiB).detail, 0u) << "more than a worker may have: waiting would not help";
    world.mapped.clear();
    world.pass(5 * kSec);
    EXPECT_EQ(ask(32 * kMiB).as<wire::PoolReply>().capacity_bytes, 32 * kMiB);
}

}  // namespace
}  // namespace maru::test
