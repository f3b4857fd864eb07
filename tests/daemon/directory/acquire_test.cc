// Acquire: what it promises for one key and for whole manifests.
#include "tests/daemon/directory/fixture.h"

namespace maru {
namespace {

using wire::AcquireResult;
using wire::Status;

class AcquireTest : public DirectoryTest {
  protected:
    // `shards` x `parts` objects under each key, at pages of their own.
    void put_all(uint64_t number, uint32_t shards, uint32_t parts) {
        for (uint32_t shard = 0; shard < shards; ++shard)
            for (uint32_t part = 0; part < parts; ++part)
                names.push_back(put(pool, key_of(number, shard, part), page++));
    }
    uint32_t acquire_many(std::vector<uint64_t> numbers, const wire::Manifest &manifest,
                          bool stop_at_miss = false, uint32_t room = kPlenty) {
        std::vector<wire::Digest> keys;
        for (const uint64_t number : numbers)
            keys.push_back(digest_of(number));
        results.assign(numbers.size() * manifest.objects(), AcquireResult{});
        return directory.acquire(kAnn, ns, keys, manifest, stop_at_miss, room, 5, results);
    }
    Status status(size_t i) const { return results.at(i).status; }

    PoolIndex pool = add_pool(kAnn);
    uint64_t page = 0;
    std::vector<wire::ReplicaName> names;
    std::vector<AcquireResult> results;
};

TEST_F(AcquireTest, SecondAcquireCountsAndNeedsItsOwnRelease) {
    const wire::ReplicaName name = put(pool, key_of(1), 0);
    acquire(kAnn, 1);
    acquire(kAnn, 1);
    EXPECT_EQ(directory.lease_count(kAnn, name), 2u);
    EXPECT_EQ(directory.holder_leases(kAnn), 2u);
    directory.retire(name, kAnn);
    EXPECT_EQ(directory.release(kAnn, name), Status::Ok);
    EXPECT_EQ(directory.reclaim(name, kAnn), Status::Busy);
    EXPECT_EQ(directory.release(kAnn, name), Status::Ok);
    EXPECT_EQ(directory.release(kAnn, name), Status::NotFound);
    EXPECT_EQ(directory.reclaim(name, kAnn), Status::Ok);
}

TEST_F(AcquireTest, ResultsAreKeyMajorShardsOuterPartsInner) {
    put_all(1, 2, 3);
    put_all(2, 2, 3);
    EXPECT_EQ(acquire_many({1, 2}, {0, 2, 0, 3}), 12u);
    for (size_t i = 0; i < 12; ++i) {
        EXPECT_EQ(status(i), Status::Ok);
        EXPECT_EQ(results[i].replica, names[i].replica) << i;
    }
    EXPECT_EQ(acquire_many({1}, {1, 1, 1, 2}), 2u);
    EXPECT_EQ(results[0].replica, names[4].replica);
    EXPECT_EQ(results[1].replica, names[5].replica);
}

TEST_F(AcquireTest, ManifestIsAllOrNothingPerKey) {
    put_all(1, 2, 2);
    put_all(2, 2, 1);  // its parts 1 are missing
    put_all(3, 2, 2);
    EXPECT_EQ(acquire_many({1, 2, 3}, {0, 2, 0, 2}), 8u);
    for (size_t i = 0; i < 12; ++i) {
        EXPECT_EQ(status(i), i / 4 == 1 ? Status::Miss : Status::Ok) << i;
        EXPECT_EQ(results[i].replica == 0, i / 4 == 1) << i;
    }
    EXPECT_EQ(directory.totals().leases, 8u);
    EXPECT_EQ(directory.holder_leases(kAnn), 8u);
}

TEST_F(AcquireTest, StopAtMissLeavesLaterKeysAlone) {
    put_all(1, 1, 1);
    put_all(3, 1, 1);
    EXPECT_EQ(acquire_many({1, 2, 3}, kOne, true), 1u);
    EXPECT_EQ(status(0), Status::Ok);
    EXPECT_EQ(status(1), Status::Miss);
    EXPECT_EQ(status(2), Status::Miss);
    EXPECT_EQ(acquire_many({1, 2, 3}, kOne, false), 2u);
    EXPECT_EQ(status(2), Status::Ok);
}

TEST_F(AcquireTest, NoRoomIsQuotaForWholeKeys) {
    put_all(1, 2, 1);
    put_all(2, 2, 1);
    put_all(3, 2, 1);
    EXPECT_EQ(acquire_many({1, 2, 9, 3}, {0, 2, 0, 1}, false, 3), 2u);
    EXPECT_EQ(directory.holder_leases(kAnn), 2u);
    const Status expected[] = {Status::Ok,   Status::Ok,   Status::Quota, Status::Quota,
                               Status::Miss, Status::Miss, Status::Quota, Status::Quota};
    for (size_t i = 0; i < 8; ++i)
        EXPECT_EQ(status(i), expected[i]) << i;
    EXPECT_EQ(acquire_many({1, 2, 9, 3}, {0, 2, 0, 1}, true, 3), 2u);
    for (size_t i = 0; i < 8; ++i)
        EXPECT_EQ(status(i), i < 2 ? Status::Ok : Status::Quota) << i;
    EXPECT_EQ(acquire_many({1}, {0, 2, 0, 1}, false, 0), 0u);
    EXPECT_EQ(status(0), Status::Quota);
}

TEST_F(AcquireTest, A02_UnusedPartOfAHitIsReleasedOnce) {
    put_all(1, 8, 1);
    EXPECT_EQ(acquire_many({1}, {0, 8, 0, 1}), 8u);
    for (const wire::ReplicaName &name : names)
        EXPECT_EQ(directory.release(kAnn, name), Status::Ok);
    EXPECT_EQ(directory.totals().leases, 0u);
    for (const wire::ReplicaName &name : names) {
        EXPECT_EQ(directory.release(kAnn, name), Status::NotFound);
        EXPECT_EQ(directory.retire(name, kAnn), Status::Ok);
        EXPECT_EQ(directory.reclaim(name, kAnn), Status::Ok);
    }
}

TEST_F(AcquireTest, ForeignPrivateCopyIsNeverAcquired) {
    put(pool, key_of(1), 0);
    EXPECT_EQ(acquire(kBob, 1).status, Status::Miss);
    EXPECT_EQ(acquire(kAnn, 1).status, Status::Ok);
}

TEST_F(AcquireTest, SharedCopyIsAcquiredByAnybody) {
    put(add_pool(kCid, 42, wire::Scope::Host), key_of(1), 0);
    EXPECT_EQ(acquire(kBob, 1).status, Status::Ok);
    EXPECT_EQ(acquire(kAnn, 1).status, Status::Ok);
}

TEST_F(AcquireTest, AnotherReadableCopyServesWhileOneRetires) {
    const wire::ReplicaName own = put(pool, key_of(1), 0);
    put(add_pool(kCid, 42, wire::Scope::Host), key_of(1), 0);
    directory.retire(own, kAnn);
    const AcquireResult result = acquire(kAnn, 1);
    EXPECT_EQ(result.status, Status::Ok);
    EXPECT_NE(result.replica, own.replica);
}

TEST_F(AcquireTest, HiddenAndClosingPoolsMissButKeepTheirLeases) {
    const wire::ReplicaName name = put(pool, key_of(1), 0);
    acquire(kAnn, 1);
    directory.set_visible(pool, false);
    EXPECT_FALSE(hit(kAnn, 1));
    EXPECT_EQ(acquire(kAnn, 1).status, Status::Miss);
    EXPECT_EQ(directory.pool_leases(pool), 1u);
    EXPECT_EQ(directory.pool_usage(pool).ready_bytes, kPage);
    directory.set_visible(pool, true);
    directory.set_closing(pool, true);
    EXPECT_FALSE(hit(kAnn, 1));
    EXPECT_EQ(acquire(kAnn, 1).status, Status::Miss);
    EXPECT_EQ(directory.release(kAnn, name), Status::Ok);
    directory.set_closing(pool, false);
    EXPECT_TRUE(hit(kAnn, 1));
}

TEST_F(AcquireTest, ReplicaOnSecondTierIsNotAHit) {
    const PoolIndex ssd = directory.add_pool({.owner = kAnn,
                                              .domain = 50,
                                              .medium = wire::Medium::Ssd,
                                              .tier = wire::Tier::L2,
                                              .scope = wire::Scope::Host,
                                              .capacity_bytes = kSegment,
                                              .segment_bytes = kSegment,
                                              .page_bytes = kPage});
    directory.grant_segment(ssd, 0);
    put(ssd, key_of(1), 0);
    EXPECT_FALSE(hit(kAnn, 1));
    EXPECT_EQ(acquire(kAnn, 1).status, Status::Miss);
}

TEST_F(AcquireTest, ManifestsThatNameNothingAreMisses) {
    put(pool, key_of(1, UINT32_MAX, UINT32_MAX), 0);
    put(pool, key_of(1), 1);
    const wire::Digest key = digest_of(1);
    uint8_t bits = 0xff;
    for (const wire::Manifest &manifest :
         {wire::Manifest{0, 0, 0, 1}, wire::Manifest{0, 1, 0, 0},
          wire::Manifest{UINT32_MAX, 2, 0, 1}, wire::Manifest{0, 1, UINT32_MAX, 2},
          wire::Manifest{2, UINT32_MAX, 0, 1}, wire::Manifest{0, UINT32_MAX, 0, UINT32_MAX}}) {
        EXPECT_EQ(directory.probe(kAnn, ns, {&key, 1}, manifest, false, {&bits, 1}), 0u);
        EXPECT_EQ(bits, 0u);
    }
    const wire::Manifest last{UINT32_MAX, 1, UINT32_MAX, 1};
    EXPECT_EQ(directory.probe(kAnn, ns, {&key, 1}, last, false, {&bits, 1}), 1u);
    EXPECT_EQ(acquire_many({1}, {UINT32_MAX, 2, 0, 1}), 0u);
    EXPECT_EQ(status(0), Status::Miss);
}

TEST_F(AcquireTest, SameKeyTwiceInOneBatchIsTwoLeases) {
    put_all(1, 1, 1);
    EXPECT_EQ(acquire_many({1, 1}, kOne), 2u);
    EXPECT_EQ(directory.lease_count(kAnn, names[0]), 2u);
}

TEST_F(AcquireTest, LargeBatchesCrossTheLookupBatch) {
    for (uint64_t i = 0; i < 60; ++i)
        if (i % 7 != 3)
            put_all(i, 2, 2);
    std::vector<uint64_t> numbers(60);
    for (uint64_t i = 0; i < 60; ++i)
        numbers[i] = i;
    // 60 keys of 4 objects; every seventh misses at its first object, so batches get out of step.
    EXPECT_EQ(acquire_many(numbers, {0, 2, 0, 2}), directory.totals().objects);
    EXPECT_EQ(directory.totals().leases, directory.totals().objects);
    for (size_t i = 0; i < results.size(); ++i)
        EXPECT_EQ(status(i), i / 4 % 7 == 3 ? Status::Miss : Status::Ok) << i;
}

}  // namespace
}  // namespace maru
