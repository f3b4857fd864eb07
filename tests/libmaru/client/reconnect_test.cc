// The connection ends, or marud dies, at every step: nothing is lost, nothing is done twice, and the
// caller does not notice within its deadline.
#include <gtest/gtest.h>

#include <string>

#include "tests/libmaru/client/fake_marud.h"
#include "tests/libmaru/client/worker.h"

namespace maru::client {
namespace {

struct Step {
    const char *request;
    Act act;
};
std::string name_of(const testing::TestParamInfo<Step> &info) {
    static const char *const kActs[] = {"Normal",     "Silent",    "DoSilently", "CloseBefore",
                                        "CloseAfter", "DieBefore", "DieAfter"};
    return std::string(info.param.request) + "_" + kActs[static_cast<int>(info.param.act)];
}

class EveryStep : public testing::TestWithParam<Step> {};

TEST_P(EveryStep, IsSurvived) {
    FakeMarud marud;
    marud.once(GetParam().request, GetParam().act);
    {
        Worker worker(marud.path(), 5000, 64 * 1024);
        ASSERT_TRUE(worker.pool);
        EXPECT_EQ(worker.store(1), 0) << maru_last_error();
        EXPECT_EQ(worker.load(1), 0) << maru_last_error();
        EXPECT_EQ(worker.probe(1), 1) << maru_last_error();
        EXPECT_EQ(worker.store(2), 0) << maru_last_error();
        maru_key k = key(1);
        EXPECT_EQ(maru_retire(worker.ns, &k, 1, nullptr), 1) << maru_last_error();
        EXPECT_TRUE(eventually([&] { return worker.info().allocated_bytes == 4096; }))
            << worker.info().allocated_bytes;
        EXPECT_EQ(worker.load(1), -ENOENT);
        EXPECT_EQ(worker.load(2), 0) << maru_last_error();
        // All of the pool is there again, and marud agrees about every page.
        for (uint32_t i = 10; i < 25; ++i)
            EXPECT_EQ(worker.store(i), 0) << i << maru_last_error();
        EXPECT_EQ(worker.store(99), -ENOSPC);
        for (uint32_t i = 10; i < 25; ++i)
            EXPECT_EQ(worker.load(i), 0) << i;
        EXPECT_TRUE(eventually([&] { return marud.leases() == 0; }));
        EXPECT_EQ(marud.replicas(), 16u);
        EXPECT_EQ(worker.client_info().unknown_commits, 0u);
    }
    EXPECT_GT(marud.count(GetParam().request), 0) << "this step never happened";
    EXPECT_EQ(marud.stale_names(), 0u);
    EXPECT_EQ(marud.replicas(), 0u);  // the close was drained
}

std::vector<Step> steps() {
    std::vector<Step> all;
    for (const char *request :
         {"commit", "acquire", "probe", "release", "retire", "reclaim_ack", "open_pool",
          "grant_segment", "segment_mapped", "register_namespace", "describe"})
        for (const Act act : {Act::CloseBefore, Act::CloseAfter, Act::DieBefore, Act::DieAfter})
            all.push_back({request, act});
    return all;
}
INSTANTIATE_TEST_SUITE_P(Reconnect, EveryStep, testing::ValuesIn(steps()), name_of);

// The steps of coming back, each interrupted once more.
class EveryRestoreStep : public testing::TestWithParam<Step> {};

TEST_P(EveryRestoreStep, IsDoneAgain) {
    FakeMarud marud;
    Worker worker(marud.path(), 5000, 256 * 1024);
    for (uint32_t i = 0; i < 10; ++i)
        ASSERT_EQ(worker.store(i), 0);
    maru_digest d = digest(3);
    maru_lease *lease = nullptr;
    ASSERT_EQ(maru_acquire(worker.ns, &d, 1, nullptr, 0, &lease), 1);
    marud.once(GetParam().request, GetParam().act);
    if (std::string(GetParam().request) ==
        "attach_leases")  // told only to a marud that never stopped
        marud.drop_connections();
    else
        marud.restart();
    for (uint32_t i = 0; i < 10; ++i)
        EXPECT_EQ(worker.load(i), 0) << i << " " << maru_last_error();
    EXPECT_TRUE(eventually([&] { return marud.leases() == 1; })) << marud.leases();
    EXPECT_EQ(*static_cast<const uint8_t *>(maru_lease_data(lease)), 3);
    EXPECT_EQ(maru_lease_release(&lease, 1), 0);
    EXPECT_TRUE(eventually([&] { return marud.leases() == 0; }));
    EXPECT_EQ(marud.stale_names(), 0u);
    EXPECT_EQ(marud.replicas(), 10u);
    EXPECT_GT(marud.count(GetParam().request), 0) << "this step never happened";
}

std::vector<Step> restore_steps() {
    std::vector<Step> all;
    for (const char *request : {"hello", "attach", "register_namespace", "describe", "attach_pool",
                                "republish", "attach_done", "attach_leases"})
        for (const Act act : {Act::CloseBefore, Act::CloseAfter, Act::DieBefore, Act::DieAfter})
            all.push_back({request, act});
    return all;
}
INSTANTIATE_TEST_SUITE_P(Reconnect, EveryRestoreStep, testing::ValuesIn(restore_steps()), name_of);

TEST(Reconnect, SameLifeTellsTheLeasesAndNothingElse) {
    FakeMarud marud;
    Worker worker(marud.path());
    for (uint32_t i = 0; i < 3; ++i)
        ASSERT_EQ(worker.store(i), 0);
    maru_digest d = digest(1);
    maru_lease *leases[2];
    ASSERT_EQ(maru_acquire(worker.ns, &d, 1, nullptr, 0, &leases[0]), 1);
    ASSERT_EQ(maru_acquire(worker.ns, &d, 1, nullptr, 0, &leases[1]), 1);
    marud.drop_connections();
    EXPECT_EQ(worker.load(2), 0) << maru_last_error();
    EXPECT_EQ(marud.count("republish"), 0);
    EXPECT_EQ(marud.count("attach_leases"), 1);
    EXPECT_TRUE(eventually([&] { return marud.leases() == 2; }));
    EXPECT_EQ(maru_lease_release(leases, 2), 0);
    EXPECT_TRUE(eventually([&] { return marud.leases() == 0; }));
    EXPECT_EQ(worker.client_info().reconnects, 1u);
    EXPECT_EQ(worker.client_info().republished, 0u);
}

// Numbers of a new life may name other namespaces: the texts go first.
TEST(Reconnect, NamespacesAreFoundByTextWhateverTheirNewNumbers) {
    FakeMarud marud;
    Worker worker(marud.path(), 3000, 1 << 20, "first");
    maru_namespace *second = nullptr;
    ASSERT_EQ(maru_namespace_open(worker.client, "second", &second), 0);
    maru_schema schema{sizeof schema, Worker::kObject, "f"};
    ASSERT_EQ(maru_client_describe(worker.client, second, &schema), 0);
    ASSERT_EQ(worker.store(1), 0);
    // In the new life somebody else registers the second text before we come back.
    marud.restart("second");
    const maru_digest d = digest(1);
    EXPECT_EQ(worker.probe(1), 1) << maru_last_error();
    EXPECT_EQ(maru_probe(second, &d, 1, nullptr, 0, nullptr), 0);
    maru_namespace *again = nullptr;
    EXPECT_EQ(maru_namespace_open(worker.client, "first", &again), 0);
    EXPECT_EQ(again, worker.ns);
    EXPECT_EQ(marud.stale_names(), 0u);
}

TEST(Reconnect, CallsWaitWithinTheirDeadlineWhileMarudIsAway) {
    FakeMarud marud;
    Worker worker(marud.path(), 300);
    marud.set_hook([](const wire::Request &request, int connection) {
        return connection > 1 && std::holds_alternative<wire::HelloRequest>(request.body)
                   ? Act::CloseBefore
                   : Act::Normal;
    });
    marud.drop_connections();
    EXPECT_TRUE(eventually([&] { return worker.client_info().state != MARU_STATE_ATTACHED; }));
    const int64_t result = worker.probe(1);
    EXPECT_TRUE(result == -ENOTCONN || result == -ETIMEDOUT) << result;
    // Not sent, so not published: the run comes back at once.
    const int stored = worker.store(1);
    EXPECT_TRUE(stored == -ENOTCONN || stored == -ETIMEDOUT) << stored;
    EXPECT_EQ(worker.info().allocated_bytes, 0u);
    marud.set_hook(nullptr);
    EXPECT_TRUE(eventually([&] { return worker.client_info().state == MARU_STATE_ATTACHED; }));
    EXPECT_EQ(worker.store(1), 0);
}

}  // namespace
}  // namespace maru::client
