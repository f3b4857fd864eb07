// Segments that marud grants late, or never: a pool waits for what is about to come back, and no end
// of a pool or of a client waits for a marud that does not answer.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tests/libmaru/client/fake_marud.h"
#include "tests/libmaru/client/worker.h"

namespace maru::client {
namespace {

using wire::Status;

// A call that hangs would hang the test with it: then the program ends here.
template <typename Call>
void returns(Call call, int within_ms = 20'000) {
    std::atomic<bool> done{false};
    std::thread caller([&] {
        call();
        done = true;
    });
    if (!eventually([&] { return done.load(); }, within_ms)) {
        std::fprintf(stderr, "a call did not return within %d ms\n", within_ms);
        std::_Exit(1);
    }
    caller.join();
}

int open_pool(Worker &worker, uint64_t bytes, maru_pool **pool) {
    maru_pool_options options{};
    options.size = sizeof options;
    options.capacity_bytes = bytes;
    options.page_bytes = 4096;
    options.populate_margin_mib = 1;
    return maru_pool_open(worker.client, &options, pool);
}

TEST(Segments, AreAskedForAgainWhileMemoryIsAboutToComeBack) {
    FakeMarud marud;
    Worker worker(marud.path(), 5000, 0);
    std::atomic<int> refusals{3};
    std::atomic<uint64_t> returning{1 << 20};
    marud.set_hook([&](const wire::Request &request, int) {
        if (!std::holds_alternative<wire::GrantSegmentRequest>(request.body) || refusals == 0)
            return Act::Normal;
        --refusals;
        marud.send(request.id, wire::StatusOnly{Status::Quota, "uid quota in bytes", returning});
        return Act::Answered;
    });
    maru_pool *pool = nullptr;
    EXPECT_EQ(open_pool(worker, 1 << 20, &pool), 0) << maru_last_error();
    EXPECT_EQ(marud.count("grant_segment"), 4);
    // Nothing comes back: a refusal at once.
    returning = 0;
    refusals = 1;
    maru_pool *second = nullptr;
    EXPECT_EQ(open_pool(worker, 1 << 20, &second), -EDQUOT);
    EXPECT_EQ(marud.count("grant_segment"), 5);
}

TEST(Segments, AreNotWaitedForBeyondTheDeadline) {
    FakeMarud marud;
    Worker worker(marud.path(), 300, 0);
    marud.set_hook([&](const wire::Request &request, int) {
        if (!std::holds_alternative<wire::GrantSegmentRequest>(request.body))
            return Act::Normal;
        marud.send(request.id, wire::StatusOnly{Status::NoSpace, "host aggregate", 1 << 20});
        return Act::Answered;
    });
    maru_pool *pool = nullptr;
    returns([&] { EXPECT_EQ(open_pool(worker, 1 << 20, &pool), -ENOSPC); });
    // With growing pauses, not as fast as marud answers.
    EXPECT_LE(marud.count("grant_segment"), 8);
}

TEST(Segments, AreNotWaitedForForeverInTheBackground) {
    FakeMarud marud;
    Worker worker(marud.path(), 300, 0);
    marud.set_hook([&](const wire::Request &request, int) {
        const auto *grant = std::get_if<wire::GrantSegmentRequest>(&request.body);
        if (!grant || grant->segment == 0)
            return Act::Normal;
        marud.send(request.id, wire::StatusOnly{Status::Quota, "uid quota in bytes", 1 << 20});
        return Act::Answered;
    });
    maru_pool *pool = nullptr;
    ASSERT_EQ(open_pool(worker, 4 << 20, &pool), 0) << maru_last_error();
    EXPECT_EQ(maru_pool_wait_populated(pool, 20'000), -EDQUOT);
}

TEST(Segments, OfAClosedClientAreWaitedForByNobody) {
    for (const bool away : {false, true}) {
        SCOPED_TRACE(away ? "marud is away" : "marud is silent");
        FakeMarud marud;
        Worker worker(marud.path(), 600'000, 0);
        marud.set_hook([](const wire::Request &request, int) {
            const auto *mapped = std::get_if<wire::SegmentMappedRequest>(&request.body);
            return mapped && mapped->segment == 1 ? Act::Silent : Act::Normal;
        });
        maru_pool *pool = nullptr;
        ASSERT_EQ(open_pool(worker, 4 << 20, &pool), 0) << maru_last_error();
        ASSERT_TRUE(eventually([&] { return marud.count("segment_mapped") >= 2; }));
        marud.set_hook(
            [away](const wire::Request &, int) { return away ? Act::CloseBefore : Act::Silent; });
        if (away) {
            marud.drop_connections();
            ASSERT_TRUE(
                eventually([&] { return worker.client_info().state != MARU_STATE_ATTACHED; }));
        }
        ASSERT_EQ(maru_client_set_timeout(worker.client, 300), 0);  // of the calls that follow
        returns([&] { EXPECT_EQ(maru_client_close(worker.client), 0) << maru_last_error(); });
        worker.client = nullptr;
    }
}

TEST(Segments, AreConfirmedWhenTheFirstAnswerIsLost) {
    FakeMarud marud;
    Worker worker(marud.path(), 300, 0);
    std::atomic<bool> lost{false};
    marud.set_hook([&](const wire::Request &request, int) {
        const auto *mapped = std::get_if<wire::SegmentMappedRequest>(&request.body);
        return mapped && mapped->segment == 1 && !lost.exchange(true) ? Act::DoSilently
                                                                      : Act::Normal;
    });
    maru_pool *pool = nullptr;
    ASSERT_EQ(open_pool(worker, 4 << 20, &pool), 0) << maru_last_error();
    EXPECT_EQ(maru_pool_wait_populated(pool, 20'000), 0) << maru_last_error();
    EXPECT_EQ(marud.connections(), 1);
}

// The request that opens a pool must come to an end without its caller; who fails everything that
// waits must not wait for it.
TEST(Segments, FencingEndsACallThatOpensAPool) {
    FakeMarud marud;
    Worker worker(marud.path(), 1000, 0);
    marud.set_hook([&](const wire::Request &request, int) {
        if (std::holds_alternative<wire::OpenPoolRequest>(request.body))
            return Act::CloseBefore;
        if (!std::holds_alternative<wire::AttachRequest>(request.body))
            return Act::Normal;
        marud.send(request.id, wire::StatusOnly{Status::Fenced, "another worker has it", 0});
        return Act::Answered;
    });
    maru_pool *pool = nullptr;
    returns([&] { EXPECT_LT(open_pool(worker, 1 << 20, &pool), 0); });
    returns([&] { EXPECT_EQ(maru_client_close(worker.client), 0) << maru_last_error(); });
    worker.client = nullptr;
}

}  // namespace
}  // namespace maru::client
