// The end of replicas, pools and names.
#include "daemon/directory/replica_state.h"
#include "tests/daemon/directory/fixture.h"

namespace maru {
namespace {

using wire::Status;

class RetireTest : public DirectoryTest {
  protected:
    PoolIndex pool = add_pool(kAnn);
};

TEST(ReplicaStates, OnlyTheTablesEdgesExist) {
    using directory::next_state;
    using directory::ReplicaEvent;
    const ReplicaState states[] = {ReplicaState::Free, ReplicaState::Ready, ReplicaState::Retiring};
    const ReplicaEvent events[] = {ReplicaEvent::Commit, ReplicaEvent::AdoptRetiring,
                                   ReplicaEvent::Retire, ReplicaEvent::Reclaim,
                                   ReplicaEvent::Remove};
    constexpr int kNever = -1, kFree = 0, kReady = 1, kRetiring = 2;
    const int expected[3][5] = {
        {kReady, kRetiring, kNever, kNever, kNever},
        {kNever, kNever, kRetiring, kNever, kFree},
        {kNever, kNever, kNever, kFree, kFree},
    };
    for (size_t s = 0; s < 3; ++s) {
        for (size_t e = 0; e < 5; ++e) {
            const auto next = next_state(states[s], events[e]);
            EXPECT_EQ(next ? static_cast<int>(*next) : kNever, expected[s][e]) << s << " " << e;
        }
    }
}

TEST_F(RetireTest, PinnedReplicaSurvivesRetire) {
    const wire::ReplicaName name = put(pool, key_of(1), 0);
    ASSERT_EQ(acquire(kAnn, 1).status, Status::Ok);
    EXPECT_EQ(directory.retire(name, kAnn), Status::Pending);
    EXPECT_EQ(directory.retire(name, kAnn), Status::Pending);
    EXPECT_FALSE(hit(kAnn, 1));
    EXPECT_EQ(acquire(kAnn, 1).status, Status::Miss);
    EXPECT_EQ(directory.reclaim(name, kAnn), Status::Busy);
    EXPECT_EQ(directory.commit(ns, pool, item(key_of(2), 0)).status, Status::Conflict);
    EXPECT_TRUE(directory.take_drained().empty());

    EXPECT_EQ(directory.release(kAnn, name), Status::Ok);
    const std::vector<DrainedReplica> drained = directory.take_drained();
    ASSERT_EQ(drained.size(), 1u);
    EXPECT_EQ(drained[0].pool, pool);
    EXPECT_EQ(drained[0].name.replica, name.replica);
    EXPECT_EQ(drained[0].name.generation, name.generation);
    EXPECT_TRUE(directory.take_drained().empty());
    EXPECT_EQ(directory.retire(name, kAnn), Status::Ok);
    EXPECT_EQ(directory.reclaim(name, kAnn), Status::Ok);
    EXPECT_EQ(directory.commit(ns, pool, item(key_of(2), 0)).status, Status::Ok);
}

TEST_F(RetireTest, ReclaimNeedsRetireFirst) {
    const wire::ReplicaName name = put(pool, key_of(1), 0);
    EXPECT_EQ(directory.reclaim(name, kAnn), Status::InvalidArgument);
    EXPECT_TRUE(hit(kAnn, 1));
}

TEST_F(RetireTest, OnlyTheOwnerRetiresAndReclaims) {
    const wire::ReplicaName name = put(pool, key_of(1), 0);
    EXPECT_EQ(directory.retire(name, kBob), Status::Denied);
    EXPECT_TRUE(hit(kAnn, 1));
    EXPECT_EQ(directory.retire(name, UINT32_MAX), Status::Ok);
    EXPECT_EQ(directory.reclaim(name, kBob), Status::Denied);
    EXPECT_EQ(directory.reclaim(name, kAnn), Status::Ok);
}

TEST_F(RetireTest, A01_ProbingGivesNoProtection) {
    wire::ReplicaName names[4];
    for (uint64_t i = 0; i < 4; ++i)
        names[i] = put(pool, key_of(i), i);
    for (int i = 0; i < 100; ++i)
        EXPECT_TRUE(hit(kAnn, 1));
    EXPECT_EQ(directory.totals().leases, 0u);
    EXPECT_EQ(directory.retire(names[1], kAnn), Status::Ok);  // no reader: reclaim may follow
    EXPECT_EQ(directory.reclaim(names[1], kAnn), Status::Ok);
    EXPECT_EQ(directory.commit(ns, pool, item(key_of(5), 1)).status, Status::Ok);
}

TEST_F(RetireTest, A03_SecondReleaseChangesNothing) {
    const wire::ReplicaName name = put(pool, key_of(1), 0);
    const PoolIndex shared = add_pool(kCid, 42, wire::Scope::Host);
    const wire::ReplicaName host = put(shared, key_of(2), 0);
    ASSERT_EQ(acquire(kAnn, 2).status, Status::Ok);
    ASSERT_EQ(acquire(kBob, 2).status, Status::Ok);
    EXPECT_EQ(directory.release(kAnn, host), Status::Ok);
    EXPECT_EQ(directory.release(kAnn, host), Status::NotFound);
    EXPECT_EQ(directory.pool_leases(shared), 1u);
    EXPECT_EQ(directory.retire(host, kCid), Status::Pending);
    EXPECT_EQ(directory.release(kAnn, host), Status::NotFound);
    EXPECT_EQ(directory.reclaim(host, kCid), Status::Busy);
    EXPECT_EQ(directory.release(kBob, host), Status::Ok);
    EXPECT_EQ(directory.take_drained().size(), 1u);
    EXPECT_EQ(directory.reclaim(host, kCid), Status::Ok);
    EXPECT_EQ(directory.reclaim(host, kCid), Status::StaleGeneration);  // exactly once
    EXPECT_EQ(directory.release(kAnn, name), Status::NotFound);
}

TEST_F(RetireTest, A04_BothOrdersOfRetireAndReleaseEndFree) {
    const wire::Usage before = directory.pool_usage(pool);
    for (const bool retire_first : {true, false}) {
        const wire::ReplicaName name = put(pool, key_of(1), 0);
        ASSERT_EQ(acquire(kAnn, 1).status, Status::Ok);
        if (retire_first) {
            EXPECT_EQ(directory.retire(name, kAnn), Status::Pending);
            EXPECT_EQ(directory.release(kAnn, name), Status::Ok);
            EXPECT_EQ(directory.take_drained().size(), 1u);
        } else {
            EXPECT_EQ(directory.release(kAnn, name), Status::Ok);
            EXPECT_EQ(directory.retire(name, kAnn), Status::Ok);
            EXPECT_TRUE(directory.take_drained().empty());
        }
        EXPECT_EQ(directory.pool_usage(pool).retiring_bytes, kPage);
        EXPECT_EQ(directory.pool_usage(pool).ready_bytes, 0u);
        EXPECT_EQ(directory.reclaim(name, kAnn), Status::Ok);
        const wire::Usage after = directory.pool_usage(pool);
        EXPECT_EQ(after.allocated_bytes, before.allocated_bytes);
        EXPECT_EQ(after.ready_bytes, before.ready_bytes);
        EXPECT_EQ(after.replicas, before.replicas);
        EXPECT_EQ(after.leases, before.leases);
    }
}

TEST_F(RetireTest, A08_OldNameOfAReusedSlotIsStale) {
    const wire::ReplicaName old = put(pool, key_of(1), 0);
    directory.retire(old, kAnn);
    directory.reclaim(old, kAnn);
    EXPECT_EQ(directory.release(kAnn, old), Status::StaleGeneration);  // free already
    const wire::ReplicaName fresh = put(pool, key_of(2), 0);
    ASSERT_EQ(fresh.replica, old.replica);
    ASSERT_EQ(acquire(kAnn, 2).status, Status::Ok);
    EXPECT_EQ(directory.release(kAnn, old), Status::StaleGeneration);
    EXPECT_EQ(directory.retire(old, kAnn), Status::StaleGeneration);
    EXPECT_EQ(directory.reclaim(old, kAnn), Status::StaleGeneration);
    EXPECT_EQ(directory.set_lease(kAnn, old, 0, 0), Status::StaleGeneration);
    EXPECT_EQ(directory.lease_count(kAnn, old), 0u);
    EXPECT_EQ(directory.lease_count(kAnn, fresh), 1u);
    EXPECT_EQ(directory.pool_usage(pool).replicas, 1u);
    EXPECT_TRUE(hit(kAnn, 2));
}

TEST_F(RetireTest, SlotNeverGetsTheSameNameTwiceInARow) {
    const PoolIndex bobs = add_pool(kBob);
    const wire::CommitResult first = directory.commit(ns, pool, {key_of(1), 0, 0, kPage, 9});
    directory.retire({first.replica, 9}, kAnn);
    directory.reclaim({first.replica, 9}, kAnn);
    const wire::CommitResult second = directory.commit(ns, bobs, {key_of(2), 0, 0, kPage, 9});
    EXPECT_EQ(second.status, Status::Ok);
    EXPECT_NE(second.replica, first.replica);
}

TEST_F(RetireTest, NamesOfOtherLivesAndUnusedSlotsNameNothing) {
    const wire::ReplicaName name = put(pool, key_of(1), 0);
    const wire::ReplicaName other_life{wire::make_id(kEpoch + 1, wire::id_number(name.replica)),
                                       name.generation};
    EXPECT_EQ(directory.retire(other_life, kAnn), Status::StaleEpoch);
    EXPECT_EQ(directory.release(kAnn, other_life), Status::StaleEpoch);
    EXPECT_EQ(directory.reclaim(other_life, kAnn), Status::StaleEpoch);
    EXPECT_EQ(directory.retire({0, 0}, kAnn), Status::StaleEpoch);
    for (const uint32_t number : {0u, 2u, UINT32_MAX}) {
        const wire::ReplicaName unused{wire::make_id(kEpoch, number), name.generation};
        EXPECT_EQ(directory.retire(unused, kAnn), Status::NotFound) << number;
        EXPECT_EQ(directory.release(kAnn, unused), Status::NotFound) << number;
    }
    EXPECT_TRUE(hit(kAnn, 1));
}

TEST_F(RetireTest, A11_CountersReachZeroAndStayThere) {
    for (uint64_t i = 0; i < 3; ++i)
        put(pool, key_of(i), i, 100);
    wire::Usage usage = directory.pool_usage(pool);
    EXPECT_EQ(usage.ready_bytes, 300u);
    EXPECT_EQ(usage.ready_allocated_bytes, 3 * kPage);
    EXPECT_EQ(usage.allocated_bytes, 3 * kPage);
    std::vector<wire::ReplicaName> names;
    const auto remember = [&](PoolIndex, const wire::ReplicaName &name, bool) {
        names.push_back(name);
    };
    const wire::Key one = key_of(1);
    EXPECT_EQ(directory.retire_object(ns, &one, remember), 1u);
    EXPECT_EQ(directory.pool_usage(pool).ready_bytes, 200u);
    EXPECT_EQ(directory.pool_usage(pool).retiring_bytes, kPage);
    EXPECT_EQ(directory.retire_object(ns, nullptr, remember), 2u);
    EXPECT_EQ(directory.retire_object(ns, nullptr, remember), 0u);
    directory.retire_pool(pool);
    ASSERT_EQ(names.size(), 3u);
    for (const wire::ReplicaName &name : names) {
        EXPECT_EQ(directory.reclaim(name, kAnn), Status::Ok);
        EXPECT_EQ(directory.reclaim(name, kAnn), Status::StaleGeneration);
    }
    usage = directory.pool_usage(pool);
    EXPECT_EQ(usage.ready_bytes + usage.ready_allocated_bytes + usage.retiring_bytes +
                  usage.allocated_bytes + usage.replicas + usage.leases,
              0u);
    directory.remove_pool(pool);
    EXPECT_EQ(directory.totals().objects, 0u);
    EXPECT_EQ(directory.totals().pools, 0u);
}

TEST_F(RetireTest, RetiringAnObjectTellsOfReaders) {
    const PoolIndex bobs = add_pool(kBob);
    put(pool, key_of(1), 0);
    put(bobs, key_of(1), 0);
    ASSERT_EQ(acquire(kBob, 1).status, Status::Ok);
    int with = 0, without = 0;
    const wire::Key one = key_of(1);
    EXPECT_EQ(directory.retire_object(ns, &one,
                                      [&](PoolIndex in, const wire::ReplicaName &, bool readers) {
                                          EXPECT_EQ(readers, in == bobs);
                                          ++(readers ? with : without);
                                      }),
              2u);
    EXPECT_EQ(with, 1);
    EXPECT_EQ(without, 1);
}

TEST_F(RetireTest, ARetiredPoolIsReadByThoseWhoDoSoAlready) {
    for (uint64_t i = 0; i < 5; ++i)
        put(pool, key_of(i), i);
    acquire(kAnn, 3);
    directory.retire_pool(pool);
    for (uint64_t i = 0; i < 5; ++i)
        EXPECT_FALSE(hit(kAnn, i));
    EXPECT_EQ(directory.pool_leases(pool), 1u);
    EXPECT_FALSE(directory.sweeping());
}

// More than goes at once: three whole steps and a bit.
class LargePoolTest : public DirectoryTest {
  protected:
    static constexpr uint64_t kCount = 3 * Directory::kSwept + 10;

    LargePoolTest() {
        for (uint64_t i = 0; i < kCount; ++i)
            names.push_back(put(large, key_of(i), i));
    }
    // How many steps are left; nothing is wrong between any two of them.
    int sweep_all() {
        int steps = 0;
        for (bool more = directory.sweeping(); more; ++steps) {
            EXPECT_EQ(directory.check_invariants(), "");
            more = directory.sweep();
        }
        EXPECT_FALSE(directory.sweeping());
        return steps;
    }

    PoolIndex large = add_pool(kCid, kHostDomain, wire::Scope::Host, kCount *kPage / kSegment + 1);
    std::vector<wire::ReplicaName> names;
};

TEST_F(LargePoolTest, OneThatIsRemovedIsGoneAtOnceAndItsMemoryInSteps) {
    const PoolIndex small = add_pool(kAnn);
    put(small, key_of(0), 0);
    acquire(kBob, 1);
    acquire(kBob, kCount - 1);
    directory.retire(names[2], kCid);
    directory.remove_pool(large);
    EXPECT_TRUE(directory.sweeping());
    EXPECT_EQ(directory.totals().pools, 1u);
    EXPECT_EQ(directory.pool_usage(large).replicas, 0u);
    EXPECT_EQ(directory.pool_leases(large), 0u);
    EXPECT_TRUE(hit(kAnn, 0));
    EXPECT_FALSE(hit(kBob, kCount - 1));
    for (const wire::ReplicaName &name : {names[0], names[1], names[2], names[kCount - 1]}) {
        EXPECT_EQ(directory.release(kBob, name), Status::StaleGeneration);
        EXPECT_EQ(directory.reclaim(name, UINT32_MAX), Status::StaleGeneration);
        EXPECT_EQ(directory.set_lease(kBob, name, 1, 0), Status::StaleGeneration);
        EXPECT_FALSE(directory.find_replica(name));
    }
    EXPECT_EQ(directory.commit(ns, large, item(key_of(kCount), kCount)).status, Status::NotFound);
    std::vector<Directory::ReplicaView> rows;
    for (uint64_t cursor = 0; (cursor = directory.list_replicas(cursor, 0, 100, rows));) {
    }
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0].pool, small);
    std::vector<Directory::LeaseView> leases;
    EXPECT_EQ(directory.list_leases(0, 100, leases), 0u);
    EXPECT_TRUE(leases.empty());
    // Its number is not another pool's before the last of it has gone.
    EXPECT_NE(add_pool(kBob), large);
    directory.drop_holder(kBob);
    EXPECT_TRUE(directory.take_drained().empty());
    uint64_t told = 0;
    EXPECT_EQ(directory.retire_object(ns, nullptr,
                                      [&](PoolIndex in, const wire::ReplicaName &, bool) {
                                          EXPECT_EQ(in, small);
                                          ++told;
                                      }),
              1u);
    EXPECT_EQ(told, 1u);
    EXPECT_EQ(sweep_all(), 3);
    EXPECT_EQ(directory.totals().replicas, 1u);
    EXPECT_EQ(add_pool(kBob), large);
}

TEST_F(LargePoolTest, WhatALeavingPoolHadMayBeCommittedElsewhere) {
    directory.remove_pool(large);
    const PoolIndex small = add_pool(kCid, kHostDomain, wire::Scope::Host);
    for (uint64_t i = 0; i < 3; ++i)
        put(small, key_of(kCount - 1 - i), i);
    EXPECT_EQ(directory.republish(ns, small, item(key_of(5), 5), false).status, Status::Ok);
    for (uint64_t i : {kCount - 1, kCount - 3, uint64_t{5}})
        EXPECT_TRUE(hit(kBob, i));
    sweep_all();
    for (uint64_t i : {kCount - 1, kCount - 3, uint64_t{5}})
        EXPECT_TRUE(hit(kBob, i));
    EXPECT_EQ(directory.totals().replicas, 4u);
}

TEST_F(LargePoolTest, OneThatIsRetiredGoesInStepsToo) {
    acquire(kBob, 7);
    directory.set_closing(large, true);
    directory.retire_pool(large);
    EXPECT_FALSE(hit(kBob, kCount - 1));
    EXPECT_EQ(sweep_all(), 3);
    EXPECT_EQ(directory.pool_usage(large).retiring_bytes, kCount * kPage);
    EXPECT_EQ(directory.pool_usage(large).ready_bytes, 0u);
    directory.retire_pool(large);
    directory.remove_pool(large);  // what was begun is not gone on with
    sweep_all();
    EXPECT_EQ(directory.totals().replicas, 0u);
}

TEST_F(LargePoolTest, WhatWasToBeRetiredIsNotAdoptedAsReady) {
    directory.set_closing(large, true);
    directory.retire_pool(large);
    const auto segments = static_cast<uint32_t>(kCount * kPage / kSegment + 1);
    for (uint32_t segment = 0; segment < segments; ++segment)
        EXPECT_EQ(directory.adopt_segment(large, segment), kNoPool);
    EXPECT_EQ(directory.totals().replicas, 0u);
    sweep_all();
}

TEST_F(LargePoolTest, ANamespaceIsRetiredSoManyAtATime) {
    uint64_t told = 0;
    const auto tell = [&](PoolIndex, const wire::ReplicaName &, bool) { ++told; };
    EXPECT_EQ(directory.retire_object(ns, nullptr, tell, 1000), 1000u);
    EXPECT_EQ(directory.pool_usage(large).ready_bytes, (kCount - 1000) * kPage);
    for (uint64_t page = 0, step; (step = directory.retire_segment(large, 0, tell, 7)); ++page)
        ASSERT_LE(step, 7u);
    while (directory.retire_object(ns, nullptr, tell, 1000))
        EXPECT_EQ(directory.check_invariants(), "");
    EXPECT_EQ(told, kCount);
}

TEST_F(RetireTest, RemovedPoolLeavesNothingBehind) {
    const PoolIndex shared = add_pool(kCid, 42, wire::Scope::Host);
    const wire::ReplicaName gone = put(shared, key_of(1), 0);
    put(pool, key_of(1), 0);
    acquire(kBob, 1);
    directory.retire(gone, kCid);
    directory.remove_pool(shared);
    EXPECT_EQ(directory.holder_leases(kBob), 0u);
    EXPECT_EQ(directory.totals().leases, 0u);
    EXPECT_EQ(directory.totals().replicas, 1u);
    EXPECT_TRUE(hit(kAnn, 1));
    EXPECT_FALSE(hit(kBob, 1));
    EXPECT_EQ(directory.release(kBob, gone), Status::StaleGeneration);
    EXPECT_TRUE(directory.take_drained().empty());
    EXPECT_EQ(directory.pool_usage(shared).capacity_bytes, 0u);
    const PoolIndex next = add_pool(kBob, 43);
    EXPECT_EQ(next, shared);  // dense, reused
    EXPECT_EQ(directory.pool_usage(next).replicas, 0u);
    put(next, key_of(2), 0);
    EXPECT_FALSE(hit(kAnn, 2));
}

}  // namespace
}  // namespace maru
