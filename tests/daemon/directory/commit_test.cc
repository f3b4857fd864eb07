// What a commit is checked for, and that a refused one leaves nothing behind.
#include "tests/daemon/directory/fixture.h"

namespace maru {
namespace {

using wire::Status;

class CommitTest : public DirectoryTest {
  protected:
    Status commit(uint64_t number, uint64_t offset, uint64_t length, uint64_t with_generation) {
        return directory
            .commit(ns, pool, wire::CommitItem{key_of(number), 0, offset, length, with_generation})
            .status;
    }
    PoolIndex pool = add_pool(kAnn);
};

TEST_F(CommitTest, CommittedReplicaIsFoundWithItsPlace) {
    const wire::ReplicaName name = put(pool, key_of(1), 3, kPage + 1);
    EXPECT_EQ(wire::id_epoch(name.replica), kEpoch);
    EXPECT_TRUE(hit(kAnn, 1));
    const wire::AcquireResult result = acquire(kAnn, 1);
    EXPECT_EQ(result.status, Status::Ok);
    EXPECT_EQ(result.replica, name.replica);
    EXPECT_EQ(result.pool, wire::make_id(kEpoch, 1000));
    EXPECT_EQ(result.offset, 3 * kPage);
    EXPECT_EQ(result.length, kPage + 1);
    EXPECT_EQ(result.generation, name.generation);
}

TEST_F(CommitTest, LengthAndGenerationZeroAreInvalid) {
    EXPECT_EQ(commit(1, 0, 0, 1), Status::InvalidArgument);
    EXPECT_EQ(commit(1, 0, kPage, 0), Status::InvalidArgument);
}

TEST_F(CommitTest, RangesOutsideThePoolConflictWhateverTheNumbers) {
    const uint64_t end = 4 * kSegment;
    const uint64_t huge = UINT64_MAX;
    for (const auto &[offset, length] :
         std::vector<std::pair<uint64_t, uint64_t>>{{end, 1},
                                                    {end - kPage, kPage + 1},
                                                    {0, huge},
                                                    {huge - kPage + 1, kPage},
                                                    {huge - kPage + 1, huge},
                                                    {kPage, huge - kPage + 1},
                                                    {huge, 1},
                                                    {huge, huge},
                                                    {uint64_t{1} << 63, uint64_t{1} << 63}})
        EXPECT_EQ(commit(1, offset, length, 1), Status::Conflict) << offset << "+" << length;
    EXPECT_EQ(directory.totals().replicas, 0u);
    EXPECT_EQ(commit(1, end - kPage, kPage, 1), Status::Ok);
}

TEST_F(CommitTest, MisalignedOffsetConflicts) {
    EXPECT_EQ(commit(1, 1, kPage, 1), Status::Conflict);
    EXPECT_EQ(commit(1, kPage / 2, 1, 1), Status::Conflict);
}

TEST_F(CommitTest, RangeOverTheEndOfASegmentConflicts) {
    EXPECT_EQ(commit(1, kSegment - kPage, 2 * kPage, 1), Status::Conflict);
    EXPECT_EQ(commit(1, kSegment - kPage, kPage + 1, 1), Status::Conflict);
    EXPECT_EQ(commit(1, kSegment - kPage, kPage, 1), Status::Ok);
    EXPECT_EQ(commit(2, 0, 2 * kSegment, 2), Status::Conflict);
    EXPECT_EQ(commit(2, kSegment, kSegment, 2), Status::Ok);
}

TEST_F(CommitTest, SegmentThatIsNotGrantedConflicts) {
    PoolSpec spec;
    spec.owner = kAnn;
    spec.domain = 9;
    spec.capacity_bytes = 2 * kSegment;
    spec.segment_bytes = kSegment;
    spec.page_bytes = kPage;
    pool = directory.add_pool(spec);
    directory.grant_segment(pool, 1);
    EXPECT_EQ(commit(1, 0, kPage, 1), Status::Conflict);
    EXPECT_EQ(commit(1, kSegment, kPage, 1), Status::Ok);
}

TEST_F(CommitTest, ShortLastSegmentEndsWhereThePoolEnds) {
    PoolSpec spec;
    spec.owner = kAnn;
    spec.domain = 9;
    spec.capacity_bytes = kSegment + 3 * kPage;
    spec.segment_bytes = kSegment;
    spec.page_bytes = kPage;
    pool = directory.add_pool(spec);
    directory.grant_segment(pool, 0);
    directory.grant_segment(pool, 1);
    EXPECT_EQ(commit(1, kSegment, 4 * kPage, 1), Status::Conflict);
    EXPECT_EQ(commit(1, kSegment, 3 * kPage, 1), Status::Ok);
}

TEST_F(CommitTest, OverlapWithReadyOrRetiringConflictsAndChangesNothing) {
    const wire::ReplicaName name = put(pool, key_of(1), 4, 4 * kPage);
    const wire::Usage before = directory.pool_usage(pool);
    for (int round = 0; round < 2; ++round) {
        EXPECT_EQ(commit(2, 3 * kPage, 2 * kPage, 99), Status::Conflict);
        EXPECT_EQ(commit(2, 7 * kPage, kPage, 99), Status::Conflict);
        EXPECT_EQ(commit(2, 0, 64 * kPage, 99), Status::Conflict);
        EXPECT_EQ(commit(1, 7 * kPage, 4 * kPage, 99), Status::Conflict);  // also under its own key
        EXPECT_FALSE(hit(kAnn, 2));
        EXPECT_EQ(directory.pool_usage(pool).allocated_bytes, before.allocated_bytes);
        EXPECT_EQ(directory.totals().objects, 1u);
        EXPECT_EQ(directory.retire(name, kAnn), Status::Ok);
    }
    EXPECT_EQ(directory.reclaim(name, kAnn), Status::Ok);
    EXPECT_EQ(commit(2, 3 * kPage, 2 * kPage, 99), Status::Ok);
}

TEST_F(CommitTest, GenerationMustBeAboveAllThatItsPagesHad) {
    const wire::CommitItem first{key_of(1), 0, 2 * kPage, 2 * kPage, 10};
    const wire::CommitResult result = directory.commit(ns, pool, first);
    ASSERT_EQ(result.status, Status::Ok);
    EXPECT_EQ(commit(2, 8 * kPage, kPage, 5), Status::Ok);  // other pages: any order
    directory.retire({result.replica, 10}, kAnn);
    EXPECT_EQ(directory.reclaim({result.replica, 10}, kAnn), Status::Ok);
    EXPECT_EQ(commit(3, 0, 3 * kPage, 10), Status::Conflict);
    EXPECT_EQ(commit(3, 3 * kPage, kPage, 9), Status::Conflict);
    EXPECT_EQ(commit(3, 0, 2 * kPage, 9), Status::Ok);  // beside them
    EXPECT_EQ(commit(4, 2 * kPage, kPage, 11), Status::Ok);
}

TEST_F(CommitTest, SameDomainIsAlreadyPresentOnlyWhileReady) {
    const wire::ReplicaName name = put(pool, key_of(1), 0);
    const wire::CommitResult again = directory.commit(ns, pool, item(key_of(1), 1));
    EXPECT_EQ(again.status, Status::AlreadyPresent);
    EXPECT_EQ(again.replica, name.replica);
    EXPECT_EQ(directory.pool_usage(pool).replicas, 1u);
    directory.retire(name, kAnn);
    EXPECT_EQ(directory.commit(ns, pool, item(key_of(1), 1)).status, Status::Ok);
}

TEST_F(CommitTest, A06_OneOfManyCommitsOfAKeyWins) {
    for (uint64_t round = 0; round < 100; ++round) {
        int committed = 0, present = 0;
        wire::ReplicaName winner;
        for (uint64_t worker = 0; worker < 16; ++worker) {
            const wire::CommitItem what = item(key_of(round), worker);
            const wire::CommitResult result = directory.commit(ns, pool, what);
            committed += result.status == Status::Ok;
            present += result.status == Status::AlreadyPresent;
            if (result.status == Status::Ok)
                winner = {result.replica, what.generation};
        }
        EXPECT_EQ(committed, 1);
        EXPECT_EQ(present, 15);
        EXPECT_EQ(directory.pool_usage(pool).allocated_bytes, kPage);
        EXPECT_EQ(directory.retire(winner, kAnn), Status::Ok);
        EXPECT_EQ(directory.reclaim(winner, kAnn), Status::Ok);
    }
}

TEST_F(CommitTest, ForeignPrivateCopyDoesNotSuppress) {
    // Even when both pools were given one domain by mistake.
    const PoolIndex bobs = add_pool(kBob, 42);
    const PoolIndex anns = add_pool(kAnn, 42);
    put(bobs, key_of(1), 0);
    EXPECT_FALSE(hit(kAnn, 1));
    put(anns, key_of(1), 0);
    EXPECT_TRUE(hit(kAnn, 1));
    EXPECT_EQ(directory.totals().objects, 1u);
    EXPECT_EQ(directory.totals().replicas, 2u);
}

TEST_F(CommitTest, SharedCopySuppressesInItsDomainOnly) {
    const PoolIndex here = add_pool(kBob, 42, wire::Scope::Host);
    const PoolIndex also_here = add_pool(kAnn, 42, wire::Scope::Host);
    put(here, key_of(1), 0);
    EXPECT_EQ(directory.commit(ns, also_here, item(key_of(1), 0)).status, Status::AlreadyPresent);
    EXPECT_EQ(directory.commit(ns, pool, item(key_of(1), 0)).status, Status::Ok);
    // What nobody can read now must not keep anything out.
    directory.set_visible(here, false);
    EXPECT_EQ(directory.commit(ns, also_here, item(key_of(1), 0)).status, Status::Ok);
}

TEST_F(CommitTest, OtherSizeIsIncompatibleNeverAHit) {
    put(pool, key_of(1), 0, 100);
    const PoolIndex bobs = add_pool(kBob);
    EXPECT_EQ(directory.commit(ns, bobs, item(key_of(1), 0, 101)).status, Status::Incompatible);
    EXPECT_EQ(directory.commit(ns, pool, item(key_of(1), 1, 99)).status, Status::Incompatible);
    EXPECT_EQ(directory.commit(ns, bobs, item(key_of(1), 0, 100)).status, Status::Ok);
}

TEST_F(CommitTest, DescribedSizeBindsEveryCommit) {
    EXPECT_EQ(directory.describe_namespace(ns, 0, "bf16"), Status::InvalidArgument);
    EXPECT_EQ(directory.describe_namespace(ns, 100, "bf16"), Status::Ok);
    EXPECT_EQ(directory.describe_namespace(ns, 100, "bf16"), Status::Ok);
    EXPECT_EQ(directory.describe_namespace(ns, 100, "fp8"), Status::Incompatible);
    EXPECT_EQ(directory.describe_namespace(ns, 101, "bf16"), Status::Incompatible);
    EXPECT_EQ(directory.describe_namespace(ns + 1, 100, "bf16"), Status::NotFound);
    EXPECT_EQ(commit(1, 0, 101, 1), Status::Incompatible);
    EXPECT_EQ(commit(1, 0, 100, 1), Status::Ok);
    EXPECT_EQ(directory.namespace_view(ns).object_bytes, 100u);
}

TEST_F(CommitTest, HiddenAndClosingPoolsRefuse) {
    directory.set_visible(pool, false);
    EXPECT_EQ(commit(1, 0, kPage, 1), Status::Unavailable);
    directory.set_visible(pool, true);
    directory.set_closing(pool, true);
    EXPECT_EQ(commit(1, 0, kPage, 1), Status::Unavailable);
    directory.set_closing(pool, false);
    EXPECT_EQ(commit(1, 0, kPage, 1), Status::Ok);
}

TEST_F(CommitTest, UnknownNamespaceOrPoolIsNotFound) {
    EXPECT_EQ(directory.commit(0, pool, item(key_of(1), 0)).status, Status::NotFound);
    EXPECT_EQ(directory.commit(ns + 1, pool, item(key_of(1), 0)).status, Status::NotFound);
    EXPECT_EQ(directory.commit(ns, pool + 1, item(key_of(1), 0)).status, Status::NotFound);
    EXPECT_EQ(directory.commit(ns, UINT32_MAX, item(key_of(1), 0)).status, Status::NotFound);
}

TEST_F(CommitTest, EqualKeysOfTwoNamespacesAreTwoObjects) {
    NamespaceIndex other = 0;
    ASSERT_EQ(directory.register_namespace(1000, "model, fp8", &other), Status::Ok);
    put(pool, key_of(1), 0);
    const wire::Digest key = digest_of(1);
    uint8_t bits = 0;
    EXPECT_EQ(directory.probe(kAnn, other, {&key, 1}, kOne, false, {&bits, 1}), 0u);
    EXPECT_EQ(directory.commit(other, pool, item(key_of(1), 1, 7)).status, Status::Ok);
    EXPECT_EQ(directory.totals().objects, 2u);
    EXPECT_EQ(directory.namespace_view(ns).objects, 1u);
    EXPECT_EQ(directory.namespace_view(other).objects, 1u);
}

TEST(DirectoryLimits, FullTableIsNoSpaceAndRecovers) {
    Directory directory({.epoch = kEpoch, .max_namespaces = 1, .max_replicas = 2});
    NamespaceIndex ns = 0, other = 0;
    ASSERT_EQ(directory.register_namespace(1000, "a", &ns), Status::Ok);
    EXPECT_EQ(directory.register_namespace(1000, "b", &other), Status::Again);
    EXPECT_EQ(directory.register_namespace(1000, "a", &other), Status::Ok);
    EXPECT_EQ(other, ns);
    const PoolIndex pool = directory.add_pool({.owner = kAnn,
                                               .capacity_bytes = kSegment,
                                               .segment_bytes = kSegment,
                                               .page_bytes = kPage});
    directory.grant_segment(pool, 0);
    wire::CommitResult last;
    for (uint64_t i = 0; i < 2; ++i) {
        last = directory.commit(ns, pool, {key_of(i), 0, i * kPage, kPage, 1});
        EXPECT_EQ(last.status, Status::Ok);
    }
    EXPECT_EQ(directory.commit(ns, pool, {key_of(2), 0, 2 * kPage, kPage, 1}).status,
              Status::NoSpace);
    EXPECT_EQ(directory.check_invariants(), "");
    directory.retire({last.replica, 1}, kAnn);
    directory.reclaim({last.replica, 1}, kAnn);
    EXPECT_EQ(directory.commit(ns, pool, {key_of(2), 0, 2 * kPage, kPage, 1}).status, Status::Ok);
}

TEST_F(CommitTest, RepublishIsIdempotentForTheSameItem) {
    const wire::CommitItem what = item(key_of(1), 0);
    const wire::CommitResult first = directory.republish(ns, pool, what, false);
    EXPECT_EQ(first.status, Status::Ok);
    const wire::CommitResult again = directory.republish(ns, pool, what, false);
    EXPECT_EQ(again.status, Status::Ok);
    EXPECT_EQ(again.replica, first.replica);
    EXPECT_EQ(directory.totals().replicas, 1u);
    EXPECT_TRUE(hit(kAnn, 1));
    // The same pages under another name, or with another generation, are an overlap.
    EXPECT_EQ(directory.republish(ns, pool, item(key_of(2), 0), false).status, Status::Conflict);
    EXPECT_EQ(directory.republish(ns, pool, item(key_of(1), 0), false).status, Status::Conflict);
    EXPECT_EQ(directory.republish(ns, pool, item(key_of(1), 1, 5), false).status,
              Status::Incompatible);
}

TEST_F(CommitTest, RepublishedRetiringReplicaIsNeverFoundAndDrains) {
    directory.set_visible(pool, false);
    const wire::CommitItem what = item(key_of(1), 0);
    const wire::CommitResult result = directory.republish(ns, pool, what, true);
    ASSERT_EQ(result.status, Status::Ok);
    const wire::ReplicaName name{result.replica, what.generation};
    EXPECT_EQ(directory.set_lease(kAnn, name, 1, 0), Status::Ok);
    directory.set_visible(pool, true);
    EXPECT_FALSE(hit(kAnn, 1));
    EXPECT_TRUE(directory.take_drained().empty());
    EXPECT_EQ(directory.release(kAnn, name), Status::Ok);
    const std::vector<DrainedReplica> drained = directory.take_drained();
    ASSERT_EQ(drained.size(), 1u);
    EXPECT_EQ(drained[0].name.replica, name.replica);
    EXPECT_EQ(directory.reclaim(name, kAnn), Status::Ok);
}

TEST_F(CommitTest, RepublishedRetiringReplicaWithoutLeasesIsDrainedAtOnce) {
    const wire::CommitItem what = item(key_of(1), 0);
    ASSERT_EQ(directory.republish(ns, pool, what, true).status, Status::Ok);
    EXPECT_EQ(directory.take_drained().size(), 1u);
    EXPECT_TRUE(directory.take_drained().empty());
}

TEST_F(CommitTest, SurplusRepublishedCopyIsKeptButNotFound) {
    put(pool, key_of(1), 0);
    const wire::CommitItem what = item(key_of(1), 1);
    const wire::CommitResult result = directory.republish(ns, pool, what, false);
    ASSERT_EQ(result.status, Status::Ok);
    std::vector<Directory::ReplicaView> views;
    directory.find_object(ns, key_of(1), views);
    ASSERT_EQ(views.size(), 2u);
    EXPECT_EQ(views[0].state, ReplicaState::Ready);
    EXPECT_EQ(views[1].state, ReplicaState::Retiring);
    EXPECT_EQ(views[1].name.replica, result.replica);
}

}  // namespace
}  // namespace maru
