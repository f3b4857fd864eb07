// Objects, leases and counters: what a lookup protects, and what comes back when.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <set>

#include "tests/integration/known_failures/raw_worker.h"
#include "tests/integration/known_failures/worker.h"

namespace maru::test {
namespace {

using wire::Status;

// The bytes of a worker that have to return: all but capacity, reservation and population.
std::array<uint64_t, 5> used(Worker &worker) {
    const auto info = worker.pool_info();
    return {info.allocated_bytes, info.ready_bytes, info.ready_allocated_bytes,
            info.quarantined_bytes, info.retiring_bytes};
}

TEST(KnownFailures, A01_ProbesTakeNoProtection) {
    Marud marud;
    marud.start();
    Worker worker({.socket = marud.socket(), .pool_bytes = 4 * kPage});
    for (uint32_t key = 1; key <= 4; ++key)
        ASSERT_EQ(worker.store(key), 0);
    ASSERT_EQ(worker.store(5), -ENOSPC);
    for (int i = 0; i < 100; ++i)
        ASSERT_EQ(worker.probe(1), 1);
    EXPECT_EQ(worker.client_info().leases, 0u);
    EXPECT_EQ(query_status(marud.socket()).leases, 0u);
    // The one that was probed makes room like any other.
    EXPECT_EQ(worker.retire(1), 0);
    EXPECT_TRUE(eventually([&] { return worker.store(5) == 0; }, 1000));
    EXPECT_EQ(worker.probe(1), 0);
    for (uint32_t key = 2; key <= 5; ++key)
        EXPECT_EQ(worker.probe(key), 1);
}

TEST(KnownFailures, A02_ACancelledLoadGivesEveryLeaseBackOnce) {
    Marud marud;
    marud.start();
    Worker worker({.socket = marud.socket()});
    for (uint32_t key = 0; key < 8; ++key)
        ASSERT_EQ(worker.store(key), 0);
    const auto leases = worker.acquire_all(0, 8);
    for (uint32_t key = 0; key < 3; ++key)
        EXPECT_TRUE(worker.shows(leases[key], key));
    EXPECT_EQ(query_status(marud.socket()).leases, 8u);
    EXPECT_EQ(maru_lease_release(leases.data(), leases.size()), 0);
    EXPECT_TRUE(eventually([&] { return query_status(marud.socket()).leases == 0; }, 1000));
    for (maru_lease *lease : leases)
        EXPECT_EQ(worker.release(lease), -ENOENT);
    EXPECT_EQ(worker.client_info().leases, 0u);
    for (uint32_t key = 0; key < 8; ++key)
        EXPECT_EQ(worker.retire(key), 0);
    EXPECT_TRUE(eventually([&] { return worker.pool_info().allocated_bytes == 0; }));
    EXPECT_EQ(query_status(marud.socket()).leases, 0u);
}

TEST(KnownFailures, A03_ADoubleReleaseTakesNothingFromAnotherReader) {
    Marud marud({.config = "[cpu]\nhost_bytes = \"2M\"\nsegment_bytes = \"1M\"\n"});
    marud.start();
    Worker worker({.socket = marud.socket()});
    ASSERT_EQ(worker.store(1), 0);
    maru_lease *one = worker.acquire(1), *two = worker.acquire(1);
    ASSERT_TRUE(one && two);
    EXPECT_EQ(query_status(marud.socket()).leases, 2u);
    EXPECT_EQ(worker.release(one), 0);
    EXPECT_EQ(worker.release(one), -ENOENT);
    EXPECT_EQ(worker.client_info().leases, 1u);
    EXPECT_TRUE(eventually([&] { return query_status(marud.socket()).leases == 1; }));
    // Nobody may get its pages while it is read: not its owner, not after a retire, not another.
    EXPECT_EQ(worker.retire(1), 0);
    const int own = worker.store_until_full(100);
    EXPECT_EQ(own, static_cast<int>((1 << 20) / kPage) - 1);
    {
        Worker other({.socket = marud.socket(), .engine = "other"});
        EXPECT_GT(other.store_until_full(5000), 0);
        maru_pool_options more{};
        more.size = sizeof more;
        more.capacity_bytes = 1 << 20;
        maru_pool *none = nullptr;
        EXPECT_EQ(maru_pool_open(other.client, &more, &none), -EDQUOT) << maru_last_error();
        EXPECT_TRUE(worker.shows(two, 1));
    }
    EXPECT_EQ(query_status(marud.socket()).leases, 1u);
    EXPECT_EQ(worker.release(two), 0);
    // Reclaimed exactly once: room for one object and no more.
    EXPECT_TRUE(eventually([&] { return worker.pool_info().retiring_bytes == 0; }));
    EXPECT_EQ(worker.store_until_full(9000), 1);
    EXPECT_EQ(query_status(marud.socket()).leases, 0u);
}

TEST(KnownFailures, A04_RetireAndReleaseInEitherOrderFreeTheObject) {
    Marud marud;
    marud.start();
    Worker worker({.socket = marud.socket()});
    const auto before = used(worker);
    for (const bool retire_first : {true, false}) {
        SCOPED_TRACE(retire_first ? "lease, retire, release" : "lease, release, retire");
        ASSERT_EQ(worker.store(1), 0);
        EXPECT_NE(used(worker), before);
        maru_lease *lease = worker.acquire(1);
        ASSERT_TRUE(lease);
        if (retire_first) {
            EXPECT_EQ(worker.retire(1), 0);
            EXPECT_EQ(worker.pool_info().retiring_bytes, kPage);
            EXPECT_TRUE(worker.shows(lease, 1));
        }
        EXPECT_EQ(worker.release(lease), 0);
        if (!retire_first) {
            EXPECT_EQ(worker.retire(1), 0);
        }
        EXPECT_TRUE(eventually([&] { return used(worker) == before; }));
        EXPECT_TRUE(eventually([&] {
            const auto status = query_status(marud.socket());
            return status.replicas == 0 && status.leases == 0 && status.usage.ready_bytes == 0 &&
                   status.usage.retiring_bytes == 0;
        }));
    }
}

TEST(KnownFailures, A08_NamesOfAReusedSlotAreStale) {
    Marud marud;
    marud.start();
    RawWorker worker(marud.socket(), 1, "engine");
    worker.open();
    worker.open_pool(1 << 20);
    worker.map_segments();
    const auto first = worker.item(1, 0, 0);
    const auto k1 = worker.commit(1, first);
    ASSERT_EQ(k1.status, Status::Ok);
    const wire::ReplicaName old{k1.replica, first.generation};
    ASSERT_EQ(worker.name_one<wire::RetireRequest>(old), Status::Ok);
    ASSERT_EQ(worker.name_one<wire::ReclaimAckRequest>(old), Status::Ok);
    const auto k2 = worker.commit(2, worker.item(2, 0, 1));
    ASSERT_EQ(k2.status, Status::Ok);
    ASSERT_EQ(k2.replica, k1.replica) << "the slot is used again, or this test shows nothing";
    const auto leased = worker.acquire(2);
    ASSERT_EQ(leased.status, Status::Ok);
    const auto before = worker.usage();
    EXPECT_EQ(before.leases, 1u);
    EXPECT_EQ(worker.name_one<wire::ReleaseRequest>(old), Status::StaleGeneration);
    EXPECT_EQ(worker.name_one<wire::RetireRequest>(old), Status::StaleGeneration);
    EXPECT_EQ(worker.name_one<wire::ReclaimAckRequest>(old), Status::StaleGeneration);
    auto unchanged = [&] {
        const auto after = worker.usage();
        EXPECT_EQ(after.leases, before.leases);
        EXPECT_EQ(after.replicas, before.replicas);
        EXPECT_EQ(after.ready_bytes, before.ready_bytes);
        EXPECT_EQ(after.reserved_bytes, before.reserved_bytes);
        EXPECT_EQ(worker.probe(2), 1u);
    };
    unchanged();
    // A client that comes back with a lease of the old name has none.
    const uint32_t epoch = worker.client().epoch();
    worker.reconnect();
    ASSERT_EQ(worker.attach(epoch), Status::Ok);
    const std::array<wire::LeaseItem, 2> held = {
        wire::LeaseItem{old.replica, old.generation, 1},
        wire::LeaseItem{leased.replica, leased.generation, 1}};
    const auto *kept = worker.client().ask<wire::ItemStatusReply>(wire::AttachLeasesRequest{held});
    ASSERT_TRUE(kept && kept->statuses.size() == 2);
    EXPECT_EQ(kept->statuses[0], Status::NotFound);
    EXPECT_EQ(kept->statuses[1], Status::Ok);
    ASSERT_EQ(worker.client().status(wire::AttachDoneRequest{}), Status::Ok);
    unchanged();
    EXPECT_EQ(worker.name_one<wire::ReleaseRequest>({leased.replica, leased.generation}),
              Status::Ok);
}

TEST(KnownFailures, A11_CountersFallToZeroAndNeverBelow) {
    Marud marud;
    marud.start();
    WireClient admin(marud.socket());
    ASSERT_TRUE(admin.hello());
    Worker worker({.socket = marud.socket()});
    for (uint32_t key = 1; key <= 3; ++key)
        ASSERT_EQ(worker.store(key), 0);
    wire::Id ns = 0;
    const auto *list = admin.ask<wire::ListReply>(wire::ListRequest{wire::ListKind::Namespaces});
    ASSERT_TRUE(list);
    for (const auto &row : std::get<std::vector<wire::NamespaceRow>>(list->rows))
        if (row.text == kText)
            ns = row.namespace_id;
    ASSERT_NE(ns, 0u);

    // All that is counted, in one list: by the worker, for its uid, and for the host.
    auto counters = [&] {
        std::vector<uint64_t> out;
        if (worker.pool) {
            const auto own = used(worker);
            out.assign(own.begin(), own.end());
        } else {
            out.assign(5, 0);
        }
        const auto *usage = admin.ask<wire::UsageReply>(wire::UsageRequest{});
        EXPECT_TRUE(usage);
        const wire::Usage u = usage ? usage->usage : wire::Usage{};
        out.insert(out.end(), {u.allocated_bytes, u.ready_bytes, u.ready_allocated_bytes,
                               u.quarantined_bytes, u.pinned_bytes, u.retiring_bytes, u.replicas,
                               u.leases, u.capacity_bytes, u.reserved_bytes});
        const auto status = query_status(marud.socket());
        out.insert(out.end(),
                   {status.objects, status.replicas, status.leases, status.host_reserved_bytes,
                    status.usage.ready_bytes, status.usage.allocated_bytes});
        return out;
    };
    std::vector<uint64_t> last = counters();
    auto falls = [&](const char *step) {
        const auto next = counters();
        for (size_t i = 0; i < next.size(); ++i)
            EXPECT_LE(next[i], last[i]) << "counter " << i << " after " << step;
        last = next;
    };
    auto remove = [&](std::optional<wire::Key> key, uint64_t expected) {
        const auto *count = admin.ask<wire::CountReply>(wire::AdminRetireRequest{ns, key});
        ASSERT_TRUE(count);
        EXPECT_EQ(count->count, expected);
    };
    auto allocated = [&](uint64_t bytes) {
        return eventually([&] { return worker.pool_info().allocated_bytes == bytes; });
    };
    wire::Key one;
    const maru_digest digest = digest_of(1);
    std::copy_n(digest.bytes, sizeof digest.bytes, one.digest.bytes.begin());
    remove(one, 1);
    EXPECT_TRUE(allocated(2 * kPage));
    falls("remove one");
    remove(std::nullopt, 2);
    EXPECT_TRUE(allocated(0));
    falls("remove all");
    remove(std::nullopt, 0);
    falls("remove all again");
    EXPECT_EQ(worker.retire(1), -ENOENT);
    falls("retire what is gone");
    EXPECT_EQ(worker.close_pool(), 0) << maru_last_error();
    falls("close");
    EXPECT_EQ(last, std::vector<uint64_t>(last.size(), 0));
}

TEST(KnownFailures, A14_AStoreThatCannotFitRetiresNothing) {
    constexpr uint64_t kMiB = 1 << 20;
    Marud marud({.config = "[cpu]\nhost_bytes = \"64M\"\n"});
    marud.start();
    Worker worker({.socket = marud.socket(),
                   .pool_bytes = 64 * kMiB,
                   .page_bytes = 64 << 10,
                   .object_bytes = 4 * kMiB});
    for (uint32_t key = 0; key < 15; ++key)
        ASSERT_EQ(worker.store(key), 0) << maru_last_error();
    const std::vector<char> large(65 * kMiB, 'x');
    const void *source = large.data();
    const maru_key key = key_of(99);
    int result = 1;
    EXPECT_EQ(maru_store(worker.ns, worker.pool, &key, &source, large.size(), 1, &result), 0);
    EXPECT_EQ(result, -ENOSPC);
    maru_pool_options cxl{};
    cxl.size = sizeof cxl;
    cxl.capacity_bytes = kMiB;
    cxl.medium = MARU_MEDIUM_CXL;
    maru_pool *none = nullptr;
    EXPECT_EQ(maru_pool_open(worker.client, &cxl, &none), -EOPNOTSUPP);
    EXPECT_THAT(maru_last_error(), testing::HasSubstr("CXL"));
    const auto status = query_status(marud.socket());
    EXPECT_EQ(status.replicas, 15u);
    EXPECT_EQ(status.usage.retiring_bytes, 0u);
    EXPECT_EQ(worker.pool_info().ready_bytes, 60 * kMiB);
    for (uint32_t i = 0; i < 15; ++i) {
        maru_lease *lease = worker.acquire(i);
        EXPECT_TRUE(worker.shows(lease, i)) << i;
        EXPECT_EQ(worker.release(lease), 0);
    }
}

}  // namespace
}  // namespace maru::test
