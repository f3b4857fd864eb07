// Replies that are lost, late, doubled or of the wrong size: each call gets its own answer or none.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "tests/libmaru/client/fake_marud.h"
#include "tests/libmaru/client/worker.h"

namespace maru::client {
namespace {

using wire::Status;

int64_t now_ms() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

TEST(Replies, StoreAndLoadRoundTrip) {
    FakeMarud marud;
    Worker worker(marud.path());
    EXPECT_EQ(worker.store(1), 0);
    EXPECT_EQ(worker.store(1), -EEXIST);
    EXPECT_EQ(worker.load(1), 0);
    EXPECT_EQ(worker.load(2), -ENOENT);
    EXPECT_TRUE(eventually([&] { return marud.leases() == 0; }));
}

TEST(Replies, CloseTellsEveryReleaseBeforeItAsks) {
    FakeMarud marud;
    Worker worker(marud.path());
    constexpr uint32_t kObjects = 8;
    std::vector<maru_digest> digests;
    for (uint32_t i = 0; i < kObjects; ++i) {
        ASSERT_EQ(worker.store(i), 0);
        digests.push_back(digest(i));
    }
    for (int turn = 0; turn < 10; ++turn) {
        maru_lease *leases[kObjects];
        ASSERT_EQ(maru_acquire(worker.ns, digests.data(), kObjects, nullptr, 0, leases), kObjects);
        for (maru_lease *&lease : leases)
            ASSERT_EQ(maru_lease_release(&lease, 1), 0);
    }
    // The releases of the last turn are still queued behind the first one.
    EXPECT_EQ(maru_pool_close(worker.pool, MARU_CLOSE_DRAINED), 0) << maru_last_error();
    EXPECT_EQ(marud.leases(), 0u);
}

// A17: the answer to a call that gave up is nobody's.
TEST(Replies, LateReplyIsNotTakenForTheNextAnswer) {
    FakeMarud marud;
    Worker worker(marud.path(), 300, 0);
    std::atomic<uint64_t> late{0};
    marud.set_hook([&](const wire::Request &request, int) {
        if (!std::holds_alternative<wire::ProbeRequest>(request.body) || late != 0)
            return Act::Normal;
        late = request.id;
        return Act::Silent;
    });
    const int64_t begin = now_ms();
    EXPECT_EQ(worker.probe(1), -ETIMEDOUT);
    EXPECT_NEAR(static_cast<double>(now_ms() - begin), 300, 100);
    const uint8_t hit = 1;
    auto answer_late = [&] {
        marud.send(late, wire::ProbeReply{1, {&hit, 1}, wire::ProbeReason::None});
    };
    answer_late();
    EXPECT_EQ(worker.probe(2), 0);
    // Its slot is free now, and a next request has it: only the whole id tells the two apart. The
    // late answer comes once more, ahead of the right one.
    constexpr uint64_t kSlots = wire::kMaxInFlight;
    std::atomic<bool> same_slot{false};
    marud.set_hook([&](const wire::Request &request, int) {
        if (std::holds_alternative<wire::ProbeRequest>(request.body)) {
            same_slot = same_slot || request.id % kSlots == late % kSlots;
            answer_late();
        }
        return Act::Normal;
    });
    const std::vector<maru_digest> many(4 * wire::kMaxProbeKeys, digest(2));  // several in flight
    EXPECT_EQ(maru_probe(worker.ns, many.data(), many.size(), nullptr, 0, nullptr), 0)
        << maru_last_error();
    EXPECT_TRUE(same_slot) << "no request met the slot of the late one: this shows nothing";
    EXPECT_EQ(marud.connections(), 1);
}

TEST(Replies, DoubledReplyChangesNothing) {
    FakeMarud marud;
    Worker worker(marud.path());
    ASSERT_EQ(worker.store(1), 0);
    marud.set_hook([&](const wire::Request &request, int) {
        const uint8_t hit = 1;
        if (std::holds_alternative<wire::ProbeRequest>(request.body)) {
            marud.send(request.id, wire::ProbeReply{1, {&hit, 1}, wire::ProbeReason::None});
            marud.send(request.id, wire::ProbeReply{1, {&hit, 1}, wire::ProbeReason::None});
            return Act::Answered;
        }
        return Act::Normal;
    });
    EXPECT_EQ(worker.probe(1), 1);
    EXPECT_EQ(worker.load(2), -ENOENT);
    EXPECT_EQ(worker.load(1), 0);
}

// A59: three answers to four keys are no answers.
TEST(Replies, ProbeWithAnotherCountIsProtocol) {
    FakeMarud marud;
    Worker worker(marud.path(), 1000, 0);
    std::vector<maru_digest> keys;
    for (uint32_t i = 0; i < 9; ++i)
        keys.push_back(digest(i));
    std::atomic<size_t> bytes{1};
    marud.set_hook([&](const wire::Request &request, int) {
        if (!std::holds_alternative<wire::ProbeRequest>(request.body) || bytes == 0)
            return Act::Normal;
        const std::vector<uint8_t> all(bytes, 0xff);
        marud.send(request.id, wire::ProbeReply{8, all, wire::ProbeReason::None});
        return Act::Answered;
    });
    uint8_t bitmap[2] = {0, 0};
    EXPECT_EQ(maru_probe(worker.ns, keys.data(), 9, nullptr, 0, bitmap), -EPROTO);
    EXPECT_EQ(bitmap[0], 0);
    bytes = 3;
    EXPECT_EQ(maru_probe(worker.ns, keys.data(), 9, nullptr, 0, bitmap), -EPROTO);
    bytes = 0;
    EXPECT_EQ(maru_probe(worker.ns, keys.data(), 9, nullptr, 0, bitmap), 0);
    EXPECT_EQ(marud.connections(), 1);  // a probe changes nothing: no reason to part
}

TEST(Replies, AcquireWithAnotherCountHoldsNothing) {
    FakeMarud marud;
    Worker worker(marud.path());
    for (uint32_t i = 0; i < 4; ++i)
        ASSERT_EQ(worker.store(i), 0);
    for (const int extra : {-1, 1}) {
        std::atomic<bool> done{false};
        marud.set_hook([&](const wire::Request &request, int) {
            const auto *acquire = std::get_if<wire::AcquireRequest>(&request.body);
            if (!acquire || done.exchange(true))
                return Act::Normal;
            std::vector<wire::AcquireResult> results(
                static_cast<size_t>(static_cast<int>(acquire->keys.size()) + extra));
            marud.send(request.id, wire::AcquireReply{results});
            return Act::Answered;
        });
        std::vector<maru_digest> keys = {digest(0), digest(1), digest(2), digest(3)};
        std::vector<maru_lease *> leases(4, reinterpret_cast<maru_lease *>(8));
        EXPECT_EQ(maru_acquire(worker.ns, keys.data(), 4, nullptr, 0, leases.data()), -EPROTO);
        for (maru_lease *lease : leases)
            EXPECT_EQ(lease, nullptr);
        EXPECT_EQ(maru_acquire(worker.ns, keys.data(), 4, nullptr, 0, leases.data()), 4);
        EXPECT_EQ(maru_lease_release(leases.data(), 4), 0);
    }
    EXPECT_EQ(marud.connections(), 3);
    EXPECT_TRUE(eventually([&] { return marud.leases() == 0; }));
}

TEST(Replies, OneFailedItemKeepsTheOrderOfTheOthers) {
    FakeMarud marud;
    Worker worker(marud.path());
    for (const uint32_t i : {0u, 1u, 3u})
        ASSERT_EQ(worker.store(i), 0);
    std::vector<maru_digest> keys = {digest(0), digest(1), digest(2), digest(3)};
    std::vector<maru_lease *> leases(4);
    EXPECT_EQ(maru_acquire(worker.ns, keys.data(), 4, nullptr, 0, leases.data()), 3);
    EXPECT_EQ(leases[2], nullptr);
    for (const size_t i : {0u, 1u, 3u})
        EXPECT_EQ(*static_cast<const uint8_t *>(maru_lease_data(leases[i])), i);
    EXPECT_EQ(maru_lease_release(leases.data(), 4), 0);
}

TEST(Replies, CommitWithAnotherCountIsResolved) {
    FakeMarud marud;
    Worker worker(marud.path());
    std::atomic<bool> done{false};
    marud.set_hook([&](const wire::Request &request, int) {
        const auto *commit = std::get_if<wire::CommitRequest>(&request.body);
        if (!commit || done.exchange(true))
            return Act::Normal;
        std::vector<wire::CommitResult> results(commit->items.size() + 1, {1, Status::Ok, 0});
        marud.send(request.id, wire::CommitReply{results});
        return Act::Answered;
    });
    EXPECT_EQ(worker.store(1), 0);  // resolved as absent after the reconnect, and sent again
    EXPECT_EQ(marud.count("resolve"), 1);
    EXPECT_EQ(marud.count("commit"), 2);
    EXPECT_EQ(worker.load(1), 0);
}

// A16: the reply is lost, the commit was done. The pages are nobody's until marud says so.
TEST(Replies, LostCommitReplyIsSettledInTheBackground) {
    FakeMarud marud;
    Worker worker(marud.path(), 200);
    std::atomic<bool> answer{false};
    marud.set_hook([&](const wire::Request &request, int) {
        if (std::holds_alternative<wire::CommitRequest>(request.body))
            return Act::DoSilently;
        if (std::holds_alternative<wire::ResolveRequest>(request.body) && !answer)
            return Act::Silent;
        return Act::Normal;
    });
    EXPECT_EQ(worker.store(1), -EINPROGRESS);
    EXPECT_EQ(worker.info().quarantined_bytes, 4096u);
    EXPECT_EQ(worker.client_info().unknown_commits, 1u);
    // The run is not free: with all other pages taken, nothing is left.
    std::vector<maru_reservation> all(255);
    EXPECT_EQ(maru_reserve(worker.pool, 4096, 255, all.data()), 0);
    maru_reservation one;
    EXPECT_EQ(maru_reserve(worker.pool, 4096, 1, &one), -ENOSPC);
    EXPECT_EQ(maru_abort(worker.pool, all.data(), all.size()), 0);
    answer = true;
    marud.drop_connections();
    EXPECT_TRUE(eventually([&] { return worker.info().quarantined_bytes == 0; }));
    EXPECT_EQ(worker.info().ready_bytes, 4096u);
    EXPECT_EQ(marud.replicas(), 1u);
    EXPECT_EQ(worker.load(1), 0);
    marud.set_hook(nullptr);
}

TEST(Replies, LostCommitReplyIsResolvedOnTheSameConnection) {
    FakeMarud marud;
    Worker worker(marud.path(), 200);
    marud.once("commit", Act::DoSilently);
    EXPECT_EQ(worker.store(1), -EINPROGRESS);
    EXPECT_TRUE(eventually([&] { return worker.info().ready_bytes == 4096; }));
    EXPECT_EQ(marud.connections(), 1);
}

TEST(Replies, LateAcquireReplyLeaksNoLease) {
    FakeMarud marud;
    Worker worker(marud.path(), 200);
    ASSERT_EQ(worker.store(1), 0);
    std::atomic<uint64_t> late{0};
    wire::AcquireResult given;
    marud.set_hook([&](const wire::Request &request, int) {
        if (std::holds_alternative<wire::AcquireRequest>(request.body) && late == 0) {
            late = request.id;
            return Act::DoSilently;
        }
        if (const auto *commit = std::get_if<wire::CommitRequest>(&request.body))
            given.pool = commit->items[0].pool;
        return Act::Normal;
    });
    EXPECT_EQ(worker.load(1), -ETIMEDOUT);
    EXPECT_EQ(marud.leases(), 1u);
    // What the lost reply would have said; the client learned the replica by its own store.
    const auto info = worker.info();
    wire::AcquireResult result;
    result.replica = wire::make_id(0x101, 4);
    result.pool = info.id;
    result.offset = 0;
    result.length = 4096;
    result.generation = uint64_t{wire::id_number(info.id)} << 32 | 1;
    result.status = Status::Ok;
    marud.send(late, wire::AcquireReply{{&result, 1}});
    EXPECT_TRUE(eventually([&] { return marud.leases() == 0; }));
}

TEST(Replies, LocationThatIsNotOursIsAMiss) {
    FakeMarud marud;
    Worker worker(marud.path());
    ASSERT_EQ(worker.store(1), 0);
    const auto info = worker.info();
    wire::AcquireResult good;
    good.replica = wire::make_id(0x101, 4);
    good.pool = info.id;
    good.length = 4096;
    good.generation = uint64_t{wire::id_number(info.id)} << 32 | 1;
    good.status = Status::Ok;
    std::vector<wire::AcquireResult> wrong(5, good);
    wrong[0].offset = 4096;
    wrong[1].generation += 1;
    wrong[2].pool += 1;
    wrong[3].length = 1 << 30;
    wrong[4].replica += 7;
    size_t at = 0;
    marud.set_hook([&](const wire::Request &request, int) {
        if (!std::holds_alternative<wire::AcquireRequest>(request.body))
            return Act::Normal;
        marud.send(request.id, wire::AcquireReply{{&(at < 5 ? wrong[at] : good), 1}});
        return Act::Answered;
    });
    for (; at < 5; ++at)
        EXPECT_EQ(worker.load(1), -ENOENT) << at;
    EXPECT_EQ(worker.load(1), 0);
    EXPECT_TRUE(eventually([&] { return marud.count("release") >= 1; }));
}

// A57: at the descriptor limit the message comes without its descriptor.
TEST(Replies, MissingDescriptorIsAnErrorAndTheSessionGoesOn) {
    FakeMarud marud;
    Worker worker(marud.path(), 1000, 0);
    marud.set_hook([&](const wire::Request &request, int) {
        if (!std::holds_alternative<wire::GrantSegmentRequest>(request.body))
            return Act::Normal;
        marud.send(request.id, wire::SegmentReply{1 << 20, false});
        return Act::Answered;
    });
    maru_pool_options options{};
    options.size = sizeof options;
    options.capacity_bytes = 1 << 20;
    maru_pool *pool = nullptr;
    EXPECT_EQ(maru_pool_open(worker.client, &options, &pool), -EMFILE);
    EXPECT_EQ(pool, nullptr);
    EXPECT_NE(std::string(maru_last_error()).find("RLIMIT_NOFILE"), std::string::npos);
    marud.set_hook(nullptr);
    EXPECT_EQ(maru_pool_open(worker.client, &options, &pool), 0) << maru_last_error();
    EXPECT_EQ(maru_pool_close(pool, MARU_CLOSE_DRAINED), 0) << maru_last_error();
    EXPECT_EQ(marud.connections(), 1);
}

// A58: one attempt, and both versions in the message.
TEST(Replies, VersionMismatchNamesBothVersions) {
    FakeMarud marud;
    marud.set_hook([&](const wire::Request &request, int) {
        marud.send(request.id,
                   wire::StatusOnly{Status::VersionMismatch, "protocol 1 here is not 2", 0});
        return Act::Answered;
    });
    maru_client_options options{};
    options.size = sizeof options;
    options.socket_path = marud.path().c_str();
    options.engine = "e";
    maru_client *client = nullptr;
    EXPECT_EQ(maru_client_open(&options, &client), -EPROTONOSUPPORT);
    EXPECT_EQ(client, nullptr);
    EXPECT_NE(std::string(maru_last_error()).find("protocol 1 here is not 2"), std::string::npos);
    EXPECT_EQ(marud.count("hello"), 1);
}

TEST(Replies, OpenPoolAnswerAfterTheDeadlineGivesThePoolBack) {
    FakeMarud marud;
    Worker worker(marud.path(), 200, 0);
    std::atomic<uint64_t> late{0};
    marud.set_hook([&](const wire::Request &request, int) {
        if (!std::holds_alternative<wire::OpenPoolRequest>(request.body))
            return Act::Normal;
        late = request.id;
        return Act::DoSilently;
    });
    maru_pool_options options{};
    options.size = sizeof options;
    options.capacity_bytes = 1 << 20;
    maru_pool *pool = nullptr;
    EXPECT_EQ(maru_pool_open(worker.client, &options, &pool), -ETIMEDOUT);
    marud.send(late, wire::PoolReply{wire::make_id(0x101, 3), 1 << 20, 1 << 20, 1, 1});
    EXPECT_TRUE(eventually([&] { return marud.count("close_pool") >= 2; }));
}

TEST(Replies, FencedIsForGoodAndMappingsStay) {
    FakeMarud marud;
    Worker worker(marud.path());
    ASSERT_EQ(worker.store(1), 0);
    maru_digest d = digest(1);
    maru_lease *lease = nullptr;
    ASSERT_EQ(maru_acquire(worker.ns, &d, 1, nullptr, 0, &lease), 1);
    marud.send_event({wire::EventKind::Fenced, {}, "engine taken by pid 7"});
    EXPECT_TRUE(eventually([&] { return worker.client_info().state == MARU_STATE_FENCED; }));
    EXPECT_EQ(worker.probe(1), -EKEYREVOKED);
    EXPECT_NE(std::string(maru_last_error()).find("pid 7"), std::string::npos);
    EXPECT_EQ(worker.store(2), 1);  // none was tried
    EXPECT_EQ(*static_cast<const uint8_t *>(maru_lease_data(lease)), 1);
    EXPECT_EQ(maru_client_close(worker.client), -EBUSY);
    EXPECT_EQ(maru_lease_release(&lease, 1), 0);
    EXPECT_EQ(marud.connections(), 1);
}

TEST(Replies, ReclaimEventWaitsForTheLastLeaseHere) {
    FakeMarud marud;
    Worker worker(marud.path());
    ASSERT_EQ(worker.store(1), 0);
    maru_digest d = digest(1);
    maru_lease *lease = nullptr;
    ASSERT_EQ(maru_acquire(worker.ns, &d, 1, nullptr, 0, &lease), 1);
    // marud is wrong about the reader: the pages stay all the same.
    const auto info = worker.info();
    const wire::ReplicaName name{wire::make_id(0x101, 4),
                                 uint64_t{wire::id_number(info.id)} << 32 | 1};
    marud.send_event({wire::EventKind::Reclaim, {&name, 1}, {}});
    EXPECT_TRUE(eventually([&] { return worker.info().retiring_bytes == 4096; }));
    EXPECT_EQ(marud.count("reclaim_ack"), 0);
    EXPECT_EQ(*static_cast<const uint8_t *>(maru_lease_data(lease)), 1);
    EXPECT_EQ(maru_lease_release(&lease, 1), 0);
    EXPECT_TRUE(eventually([&] { return marud.count("reclaim_ack") > 0; }));
}

TEST(Replies, HeartbeatsGoOutWhileNobodyCalls) {
    FakeMarud marud;
    marud.heartbeat_ms = 20;
    Worker worker(marud.path(), 1000, 0);
    EXPECT_TRUE(eventually([&] { return marud.count("heartbeat") >= 3; }));
}

}  // namespace
}  // namespace maru::client
