// Leases: whose they are, and the three ways in which they end.
#include "tests/daemon/directory/fixture.h"

namespace maru {
namespace {

using wire::Status;

class LeaseTest : public DirectoryTest {
  protected:
    PoolIndex pool = add_pool(kCid, 42, wire::Scope::Host);
};

TEST_F(LeaseTest, EndOfTheHolderEndsItsLeasesOnly) {
    wire::ReplicaName names[3];
    for (uint64_t i = 0; i < 3; ++i) {
        names[i] = put(pool, key_of(i), i);
        acquire(kAnn, i);
        acquire(kAnn, i);
    }
    acquire(kBob, 0);
    directory.retire_pool(pool);
    EXPECT_EQ(directory.holder_leases(kAnn), 6u);
    directory.drop_holder(kAnn);
    EXPECT_EQ(directory.holder_leases(kAnn), 0u);
    EXPECT_EQ(directory.pool_leases(pool), 1u);
    EXPECT_EQ(directory.take_drained().size(), 2u);
    EXPECT_EQ(directory.reclaim(names[0], kCid), Status::Busy);
    EXPECT_EQ(directory.reclaim(names[1], kCid), Status::Ok);
    directory.drop_holder(kBob);
    directory.drop_holder(kBob);
    directory.drop_holder(12345);
    EXPECT_EQ(directory.reclaim(names[0], kCid), Status::Ok);
}

// A few holders are found along the ring of the replica, more in a table.
TEST_F(LeaseTest, ManyHoldersOfOneReplicaAreEachFound) {
    constexpr uint32_t kMany = 20;
    const wire::ReplicaName replica = put(pool, key_of(1), 0), other = put(pool, key_of(2), 1);
    for (HolderIndex holder = 10; holder < 10 + kMany; ++holder)
        directory.set_host_domain(holder, kHostDomain);
    for (int round = 0; round < 3; ++round) {
        uint32_t there = 0;
        for (HolderIndex holder = 10; holder < 10 + kMany; ++holder) {
            for (uint32_t i = 0; i <= holder % 3; ++i)
                EXPECT_EQ(acquire(holder, 1).status, Status::Ok);
            EXPECT_EQ(directory.release(holder, other), Status::NotFound);
            ASSERT_EQ(directory.check_invariants(), "") << "with " << ++there;
        }
        // The even ones first, so that few are left, then none.
        for (HolderIndex odd : {0u, 1u}) {
            for (HolderIndex holder = 10 + odd; holder < 10 + kMany; holder += 2) {
                EXPECT_EQ(directory.lease_count(holder, replica), holder % 3 + 1);
                for (uint32_t i = 0; i <= holder % 3; ++i)
                    EXPECT_EQ(directory.release(holder, replica), Status::Ok);
                EXPECT_EQ(directory.release(holder, replica), Status::NotFound);
                ASSERT_EQ(directory.check_invariants(), "") << "without " << holder;
            }
        }
        EXPECT_EQ(directory.pool_leases(pool), 0u);
    }
}

TEST_F(LeaseTest, RestoreKeepsWhatIsNamedAndDropsTheRest) {
    wire::ReplicaName names[4];
    for (uint64_t i = 0; i < 4; ++i) {
        names[i] = put(pool, key_of(i), i);
        acquire(kAnn, i);
        acquire(kAnn, i);
    }
    acquire(kBob, 2);
    directory.begin_lease_restore(kAnn);
    EXPECT_EQ(directory.set_lease(kAnn, names[0], 2, 9), Status::Ok);
    EXPECT_EQ(directory.set_lease(kAnn, names[1], 1, 9), Status::Ok);
    acquire(kAnn, 3);  // taken since: it stays
    EXPECT_EQ(directory.holder_leases(kAnn), 8u);
    directory.retire_pool(pool);
    directory.end_lease_restore(kAnn);
    EXPECT_EQ(directory.lease_count(kAnn, names[0]), 2u);
    EXPECT_EQ(directory.lease_count(kAnn, names[1]), 1u);
    EXPECT_EQ(directory.lease_count(kAnn, names[2]), 0u);
    EXPECT_EQ(directory.lease_count(kAnn, names[3]), 3u);
    EXPECT_EQ(directory.lease_count(kBob, names[2]), 1u);
    EXPECT_TRUE(directory.take_drained().empty());
    directory.end_lease_restore(kAnn);  // nothing is left to confirm
    EXPECT_EQ(directory.holder_leases(kAnn), 6u);
}

TEST_F(LeaseTest, RestoreBegunTwiceForgetsTheFirst) {
    const wire::ReplicaName name = put(pool, key_of(1), 0);
    acquire(kAnn, 1);
    directory.begin_lease_restore(kAnn);
    directory.set_lease(kAnn, name, 1, 0);
    directory.begin_lease_restore(kAnn);
    directory.end_lease_restore(kAnn);
    EXPECT_EQ(directory.holder_leases(kAnn), 0u);
}

TEST_F(LeaseTest, HolderDroppedDuringRestoreHoldsNothing) {
    for (uint64_t i = 0; i < 2; ++i)
        put(pool, key_of(i), i);
    acquire(kAnn, 0);
    directory.begin_lease_restore(kAnn);
    acquire(kAnn, 1);
    directory.drop_holder(kAnn);
    EXPECT_EQ(directory.totals().leases, 0u);
    directory.end_lease_restore(kAnn);
}

TEST_F(LeaseTest, SetLeaseIsDeniedOnAForeignPrivateReplica) {
    const wire::ReplicaName name = put(add_pool(kBob), key_of(1), 0);
    EXPECT_EQ(directory.set_lease(kAnn, name, 1, 0), Status::Denied);
    EXPECT_EQ(directory.set_lease(kBob, name, 0, 0), Status::Ok);
    EXPECT_EQ(directory.set_lease(kBob, name, 1, 0), Status::Ok);
    EXPECT_EQ(directory.holder_leases(kBob), 1u);
}

TEST_F(LeaseTest, HugeCountsAddUpWithoutWrapping) {
    const wire::ReplicaName name = put(pool, key_of(1), 0);
    for (const HolderIndex holder : {kAnn, kBob})
        EXPECT_EQ(directory.set_lease(holder, name, UINT32_MAX, 0), Status::Ok);
    EXPECT_EQ(directory.pool_leases(pool), 2 * uint64_t{UINT32_MAX});
    EXPECT_EQ(acquire(kAnn, 1).status, Status::Quota);
    EXPECT_EQ(directory.lease_count(kAnn, name), UINT32_MAX);
    EXPECT_EQ(directory.set_lease(kAnn, name, 1, 0), Status::Ok);
    directory.drop_holder(kBob);
    EXPECT_EQ(directory.pool_leases(pool), 1u);
}

TEST_F(LeaseTest, LeaseRestoredAfterTheDrainIsWaitedForAgain) {
    const wire::CommitItem what = item(key_of(1), 0);
    const wire::CommitResult result = directory.republish(ns, pool, what, true);
    const wire::ReplicaName name{result.replica, what.generation};
    directory.set_lease(kAnn, name, 1, 0);
    EXPECT_TRUE(directory.take_drained().empty());
    directory.release(kAnn, name);
    EXPECT_EQ(directory.take_drained().size(), 1u);
}

TEST_F(LeaseTest, DrainedReplicaThatWasReclaimedIsNotTold) {
    const wire::ReplicaName name = put(pool, key_of(1), 0);
    acquire(kAnn, 1);
    directory.retire(name, kCid);
    directory.release(kAnn, name);
    EXPECT_EQ(directory.reclaim(name, kCid), Status::Ok);
    put(pool, key_of(2), 0);  // in the same slot
    EXPECT_TRUE(directory.take_drained().empty());
}

}  // namespace
}  // namespace maru
