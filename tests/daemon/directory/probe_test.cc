// Probe: what it answers, and that it allocates nothing.
#include <cstdlib>
#include <new>

#include "tests/daemon/directory/fixture.h"

namespace {
// Every allocation of this thread, so that a test can see whether one was made.
thread_local uint64_t allocations = 0;
}  // namespace

// Not inlined: the compiler would see free() on what `new` gave, and warn.
[[gnu::noinline]] void *operator new(size_t size) {
    ++allocations;
    if (void *memory = std::malloc(size ? size : 1))
        return memory;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void *memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void *memory, size_t) noexcept { std::free(memory); }

namespace maru {
namespace {

using wire::Status;

class ProbeTest : public DirectoryTest {
  protected:
    // Keys 0..count-1, those for which `present` holds committed.
    template <typename Present>
    void fill(uint64_t count, Present present) {
        const PoolIndex pool = add_pool(kAnn, 0, wire::Scope::Worker, 64);
        for (uint64_t i = 0; i < count; ++i) {
            keys.push_back(digest_of(i));
            if (present(i))
                put(pool, key_of(i), i);
        }
        bitmap.assign((count + 7) / 8, 0xff);
    }
    uint32_t probe(bool stop_at_miss, const wire::Manifest &manifest = kOne) {
        return directory.probe(kAnn, ns, keys, manifest, stop_at_miss, bitmap);
    }
    bool bit(size_t i) const { return bitmap[i / 8] >> i % 8 & 1; }

    std::vector<wire::Digest> keys;
    std::vector<uint8_t> bitmap;
};

TEST_F(ProbeTest, BitmapNamesEveryReadableKey) {
    fill(1003, [](uint64_t i) { return i < 41 || i % 3 == 0; });
    EXPECT_EQ(probe(false), 41u);
    for (size_t i = 0; i < 1003; ++i)
        EXPECT_EQ(bit(i), i < 41 || i % 3 == 0) << i;
    EXPECT_EQ(bitmap.back() >> 3, 0);  // no bit past the last key
}

TEST_F(ProbeTest, StopAtMissClearsAllBehindIt) {
    for (const uint64_t miss : {0u, 1u, 7u, 8u, 9u, 31u, 32u, 63u, 100u}) {
        keys.clear();
        fill(101, [&](uint64_t i) { return i != miss; });
        EXPECT_EQ(probe(true), miss);
        for (size_t i = 0; i < 101; ++i)
            EXPECT_EQ(bit(i), i < miss) << i << " of " << miss;
        EXPECT_EQ(probe(false), miss);
        for (size_t i = 0; i < 101; ++i)
            EXPECT_EQ(bit(i), i != miss) << i << " of " << miss;
        EXPECT_EQ(directory.retire_object(ns, nullptr, [](PoolIndex, auto &, bool) {}), 100u);
    }
}

TEST_F(ProbeTest, AllHitsAndNoKeysAreNoSpecialCases) {
    EXPECT_EQ(probe(true), 0u);
    fill(64, [](uint64_t) { return true; });
    EXPECT_EQ(probe(true), 64u);
    for (const uint8_t byte : bitmap)
        EXPECT_EQ(byte, 0xff);
}

TEST_F(ProbeTest, UnknownNamespaceIsAMiss) {
    fill(9, [](uint64_t) { return true; });
    EXPECT_EQ(directory.probe(kAnn, ns + 1, keys, kOne, false, bitmap), 0u);
    EXPECT_EQ(bitmap[0] | bitmap[1], 0);
    EXPECT_EQ(directory.probe(kAnn, 0, keys, kOne, false, bitmap), 0u);
}

TEST_F(ProbeTest, KeyNeedsAllObjectsOfItsManifest) {
    const PoolIndex pool = add_pool(kAnn);
    uint64_t page = 0;
    for (uint64_t i = 0; i < 20; ++i) {
        keys.push_back(digest_of(i));
        for (uint32_t shard = 0; shard < 3; ++shard)
            for (uint32_t part = 0; part < 2; ++part)
                if (i % 5 != 4 || shard != i % 3 || part != i % 2)
                    put(pool, key_of(i, shard, part), page++);
    }
    bitmap.assign(3, 0xff);
    EXPECT_EQ(probe(false, {0, 3, 0, 2}), 4u);
    for (size_t i = 0; i < 20; ++i)
        EXPECT_EQ(bit(i), i % 5 != 4) << i;
    EXPECT_EQ(probe(false, {0, 3, 0, 3}), 0u);
    EXPECT_EQ(bitmap[0] | bitmap[1] | bitmap[2], 0);
}

TEST_F(ProbeTest, ProbeAllocatesNothingAndTakesNothing) {
    fill(2048, [](uint64_t i) { return i % 5 != 4; });
    const uint64_t before = allocations;
    EXPECT_EQ(probe(false), 4u);
    EXPECT_EQ(probe(true), 4u);
    EXPECT_EQ(probe(false, {0, 2, 0, 2}), 0u);
    EXPECT_EQ(allocations, before);
    EXPECT_EQ(directory.totals().leases, 0u);
    static_assert(noexcept(directory.probe(0, 0, {}, kOne, false, {})));
}

}  // namespace
}  // namespace maru
