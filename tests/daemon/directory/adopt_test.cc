// Shared pools: who reads them, and what becomes of a segment when its worker is gone.
#include "tests/daemon/directory/fixture.h"

namespace maru {
namespace {

using wire::Status;

constexpr HolderIndex kStranger = 4;
constexpr uint64_t kPages = kSegment / kPage;  // of a segment

class AdoptTest : public DirectoryTest {
  protected:
    AdoptTest() { directory.set_host_domain(kStranger, kHostDomain + 1); }
    PoolIndex pool = add_pool(kCid, kHostDomain, wire::Scope::Host);
};

TEST_F(AdoptTest, ASharedPoolIsReadByItsDomainOnly) {
    put(pool, key_of(1), 0);
    EXPECT_TRUE(hit(kCid, 1));
    EXPECT_TRUE(hit(kAnn, 1));
    EXPECT_FALSE(hit(kStranger, 1));
    EXPECT_EQ(acquire(kStranger, 1).status, Status::Miss);
    EXPECT_FALSE(hit(99, 1));  // a holder that nothing was said of
    directory.set_host_domain(kAnn, 0);
    EXPECT_FALSE(hit(kAnn, 1));
    // Nor one whose pool has no domain.
    const PoolIndex none = add_pool(0, 0, wire::Scope::Host);
    put(none, key_of(2), 0);
    EXPECT_FALSE(hit(kAnn, 2));
}

TEST_F(AdoptTest, WhatIsReadyStaysAHitUnderItsName) {
    const wire::ReplicaName first = put(pool, key_of(1), 0);
    const wire::ReplicaName second = put(pool, key_of(2), kPages);
    const PoolIndex adopted = directory.adopt_segment(pool, 1);
    ASSERT_NE(adopted, kNoPool);
    ASSERT_NE(adopted, pool);
    const wire::AcquireResult got = acquire(kAnn, 2);
    EXPECT_EQ(got.replica, second.replica);
    EXPECT_EQ(got.generation, second.generation);
    EXPECT_EQ(got.offset, kSegment);
    EXPECT_EQ(directory.pool_usage(adopted).capacity_bytes, kSegment);
    EXPECT_EQ(directory.pool_usage(adopted).ready_bytes, kPage);
    EXPECT_EQ(directory.pool_usage(adopted).leases, 1u);
    EXPECT_EQ(directory.pool_usage(pool).replicas, 1u);
    EXPECT_FALSE(hit(kStranger, 2));
    // The rest of the pool goes without it.
    directory.remove_pool(pool);
    EXPECT_FALSE(hit(kAnn, 1));
    EXPECT_TRUE(hit(kAnn, 2));
    EXPECT_EQ(directory.release(kAnn, first), Status::StaleGeneration);
    EXPECT_EQ(directory.release(kAnn, second), Status::Ok);
    EXPECT_EQ(directory.retire(second, kCid), Status::Denied);  // it is nobody's now
    EXPECT_EQ(directory.retire(second, UINT32_MAX), Status::Ok);
    EXPECT_EQ(directory.reclaim(second, UINT32_MAX), Status::Ok);
    EXPECT_EQ(directory.pool_usage(adopted).replicas, 0u);
}

TEST_F(AdoptTest, LeasesMoveAndRetiringOnesWithoutThemEnd) {
    const wire::ReplicaName leased = put(pool, key_of(1), 0);
    const wire::ReplicaName idle = put(pool, key_of(2), 1);
    acquire(kAnn, 1);
    EXPECT_EQ(directory.retire(leased, kCid), Status::Pending);
    EXPECT_EQ(directory.retire(idle, kCid), Status::Ok);
    const PoolIndex adopted = directory.adopt_segment(pool, 0);
    ASSERT_NE(adopted, kNoPool);
    EXPECT_EQ(directory.pool_usage(adopted).replicas, 1u);
    EXPECT_EQ(directory.pool_usage(adopted).retiring_bytes, kPage);
    EXPECT_FALSE(hit(kAnn, 1));
    EXPECT_EQ(directory.reclaim(idle, UINT32_MAX), Status::StaleGeneration);
    EXPECT_EQ(directory.reclaim(leased, UINT32_MAX), Status::Busy);
    EXPECT_EQ(directory.release(kAnn, leased), Status::Ok);
    const auto drained = directory.take_drained();
    ASSERT_EQ(drained.size(), 1u);
    EXPECT_EQ(drained[0].pool, adopted);
    EXPECT_EQ(directory.reclaim(leased, UINT32_MAX), Status::Ok);
}

TEST_F(AdoptTest, ASegmentWithNothingInItIsNotAdopted) {
    EXPECT_EQ(directory.adopt_segment(pool, 2), kNoPool);
    const wire::ReplicaName gone = put(pool, key_of(1), 2 * kPages);
    directory.retire(gone, kCid);
    EXPECT_EQ(directory.adopt_segment(pool, 2), kNoPool);
    EXPECT_EQ(directory.pool_usage(pool).replicas, 0u);
    const PoolIndex empty = directory.adopt_segment(pool, 2, true);
    ASSERT_NE(empty, kNoPool);
    EXPECT_EQ(directory.pool_usage(empty).replicas, 0u);
    EXPECT_EQ(directory.pool_usage(empty).capacity_bytes, kSegment);
}

TEST_F(AdoptTest, AnotherCopyInTheDomainIsPresent) {
    put(pool, key_of(1), 0);
    const PoolIndex other = add_pool(kAnn, kHostDomain, wire::Scope::Host);
    EXPECT_EQ(directory.commit(ns, other, item(key_of(1), 0)).status, Status::AlreadyPresent);
    directory.adopt_segment(pool, 0);
    EXPECT_EQ(directory.commit(ns, other, item(key_of(1), 0)).status, Status::AlreadyPresent);
}

TEST_F(AdoptTest, RetireSegmentTakesThatSegmentAlone) {
    put(pool, key_of(1), 0);
    const wire::ReplicaName leased = put(pool, key_of(2), 1);
    put(pool, key_of(3), kPages);
    acquire(kAnn, 2);
    uint32_t readers = 0;
    EXPECT_EQ(
        directory.retire_segment(
            pool, 0, [&](PoolIndex, const wire::ReplicaName &, bool read) { readers += read; }),
        2u);
    EXPECT_EQ(readers, 1u);
    EXPECT_FALSE(hit(kAnn, 1));
    EXPECT_TRUE(hit(kAnn, 3));
    EXPECT_EQ(directory.retire_segment(pool, 0, [](PoolIndex, const wire::ReplicaName &, bool) {}),
              0u);
    EXPECT_EQ(directory.retire_segment(pool, 9, [](PoolIndex, const wire::ReplicaName &, bool) {}),
              0u);
    EXPECT_EQ(directory.release(kAnn, leased), Status::Ok);
}

TEST_F(AdoptTest, ARevokedSegmentTakesNoCommitUntilItIsGrantedAgain) {
    put(pool, key_of(1), 0);
    put(pool, key_of(2), kPages);
    directory.revoke_segment(pool, 0);
    EXPECT_FALSE(hit(kAnn, 1));
    EXPECT_TRUE(hit(kAnn, 2));
    EXPECT_EQ(directory.commit(ns, pool, item(key_of(1), 0)).status, Status::Conflict);
    directory.grant_segment(pool, 0);
    EXPECT_EQ(directory.commit(ns, pool, item(key_of(1), 0)).status, Status::Ok);
}

TEST_F(AdoptTest, ACopyIsFoundByItsPlace) {
    const wire::CommitItem ready = item(key_of(1), 2);
    ASSERT_EQ(directory.commit(ns, pool, ready).status, Status::Ok);
    const wire::CommitItem retired = item(key_of(1), 3, 2 * kPage - 1);
    EXPECT_EQ(directory.republish(ns, pool, retired, true).status, Status::Incompatible);
    const wire::CommitItem second = item(key_of(1), 3);
    const wire::Id id = directory.republish(ns, pool, second, true).replica;
    EXPECT_EQ(directory.find_at(ns, pool, ready)->state, ReplicaState::Ready);
    EXPECT_EQ(directory.find_at(ns, pool, second)->state, ReplicaState::Retiring);
    EXPECT_EQ(directory.find_at(ns, pool, second)->name.replica, id);
    const auto missing = [&](wire::CommitItem other) {
        return !directory.find_at(ns, pool, other).has_value();
    };
    wire::CommitItem other = ready;
    other.key = key_of(2);
    EXPECT_TRUE(missing(other));
    other = ready;
    other.generation = second.generation;
    EXPECT_TRUE(missing(other));
    other = ready;
    other.length = kPage - 1;
    EXPECT_TRUE(missing(other));
    other = ready;
    other.offset = 9 * kPage;
    EXPECT_TRUE(missing(other));
    other.offset = UINT64_MAX - kPage + 1;
    EXPECT_TRUE(missing(other));
    EXPECT_FALSE(directory.find_at(ns, kNoPool, ready));
    EXPECT_FALSE(directory.find_at(ns + 1, pool, ready));
    (void)directory.take_drained();
}

// A walk over the copies of one object is bounded, whatever a client names or commits.
TEST_F(AdoptTest, CopiesThatAreRetiredAndReadAreBoundedInNumber) {
    constexpr uint32_t kMost = 1024;
    const PoolIndex wide = add_pool(kAnn, kHostDomain, wire::Scope::Host, 2 * kMost / kPages);
    wire::ReplicaName last;
    for (uint32_t i = 0; i < kMost; ++i) {
        const wire::CommitItem copy = item(key_of(1), i);
        const wire::CommitResult named = directory.republish(ns, wide, copy, true);
        ASSERT_EQ(named.status, Status::Ok) << i;
        last = {named.replica, copy.generation};
    }
    EXPECT_EQ(directory.republish(ns, wide, item(key_of(1), kMost), true).status, Status::NoSpace);
    EXPECT_EQ(directory.republish(ns, pool, item(key_of(1), 0), false).status, Status::NoSpace);
    EXPECT_EQ(directory.commit(ns, pool, item(key_of(1), 0)).status, Status::NoSpace);
    EXPECT_EQ(directory.commit(ns, pool, item(key_of(2), 0)).status, Status::Ok);
    EXPECT_EQ(directory.reclaim(last, kAnn), Status::Ok);
    EXPECT_EQ(directory.commit(ns, pool, item(key_of(1), 1)).status, Status::Ok);
    (void)directory.take_drained();
}

}  // namespace
}  // namespace maru
