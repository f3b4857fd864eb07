// The tables of the client: what is held, which leases, which operations.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "libmaru/client/commit_ledger.h"
#include "libmaru/client/held_table.h"
#include "libmaru/client/lease_table.h"
#include "libmaru/client/slot_index.h"

namespace maru::client {
namespace {

// Against std::map, with a hash so bad that chains wrap and cross.
TEST(SlotIndex, FindsWhatIsInItAfterAnyHistory) {
    SlotIndex index;
    std::vector<uint64_t> keys(500);
    auto hash_of = [&](uint32_t slot) { return keys[slot] % 13; };
    std::map<uint64_t, uint32_t> model;
    std::mt19937_64 random(7);
    for (int step = 0; step < 20'000; ++step) {
        const auto slot = static_cast<uint32_t>(random() % keys.size());
        if (model.count(keys[slot]) && model[keys[slot]] == slot) {
            index.erase(slot, hash_of);
            model.erase(keys[slot]);
        } else {
            const uint64_t key = random() % 10'000;
            if (model.count(key))
                continue;
            keys[slot] = key;
            index.insert(slot, hash_of);
            model[key] = slot;
        }
        if (step % 100 == 0) {
            ASSERT_EQ(index.size(), model.size());
            for (auto &[key, found] : model)
                ASSERT_EQ(index.find(key % 13, [&, k = key](uint32_t s) { return keys[s] == k; }),
                          found);
            ASSERT_EQ(index.find(3, [&](uint32_t s) { return keys[s] == 99'999; }),
                      SlotIndex::kNone);
        }
    }
}

TEST(HeldTable, IsFoundByReplicaAndWhileReadyByKey) {
    HeldTable table;
    auto *ns = reinterpret_cast<Namespace *>(64), *other = reinterpret_cast<Namespace *>(128);
    wire::Key key;
    key.shard = 3;
    const uint32_t held = table.add(ns, nullptr, key, 77, {4096, 100, 5});
    EXPECT_EQ(table.find_replica(77), held);
    EXPECT_EQ(table.find_ready(ns, key), held);
    EXPECT_EQ(table.find_ready(other, key), HeldTable::kNone);
    key.part = 1;
    EXPECT_EQ(table.find_ready(ns, key), HeldTable::kNone);
    key.part = 0;
    table.rename(held, 78);
    EXPECT_EQ(table.find_replica(77), HeldTable::kNone);
    EXPECT_EQ(table.find_replica(78), held);
    table.withdraw(held, HeldState::Retiring);
    EXPECT_EQ(table.find_ready(ns, key), HeldTable::kNone);
    EXPECT_EQ(table.find_replica(78), held);
    table.remove(held);
    EXPECT_EQ(table.find_replica(78), HeldTable::kNone);
    EXPECT_EQ(table.size(), 0u);
}

// A released handle stays refused through many uses of its slot.
TEST(LeaseTable, ReleasedHandlesDoNotEndLaterLeases) {
    LeaseTable table;
    std::set<void *> released;
    for (int round = 0; round < 60; ++round) {
        std::vector<void *> handles;
        for (int i = 0; i < 256; ++i)
            handles.push_back(table.add(nullptr, 0, nullptr, 1, 1));
        for (void *old : released) {
            ASSERT_EQ(LeaseHandle::live(old), nullptr);
            ASSERT_FALSE(LeaseHandle::end(old));
        }
        for (void *handle : handles) {
            ASSERT_NE(LeaseHandle::live(handle), nullptr);
            ASSERT_TRUE(LeaseHandle::end(handle));
            ASSERT_FALSE(LeaseHandle::end(handle));
            table.recycle(LeaseHandle::slot(handle));
            released.insert(handle);
        }
        ASSERT_EQ(table.live(), 0u);
    }
}

TEST(CommitLedger, WatermarkIsBelowTheLowestUnsettled) {
    CommitLedger ledger;
    EXPECT_EQ(ledger.watermark(), 0u);
    for (uint64_t id = 1; id <= 5; ++id)
        EXPECT_EQ(ledger.add({}), id);
    ledger.settle(2);
    ledger.settle(3);
    EXPECT_EQ(ledger.watermark(), 0u);
    EXPECT_EQ(ledger.find(2), nullptr);
    EXPECT_EQ(ledger.span(), 5u);
    ledger.settle(1);
    EXPECT_EQ(ledger.watermark(), 3u);
    EXPECT_EQ(ledger.lowest_unsettled(), 4u);
    EXPECT_EQ(ledger.unsettled(), 2u);
    ledger.settle(5);
    ledger.settle(4);
    EXPECT_EQ(ledger.watermark(), 5u);
    EXPECT_EQ(ledger.next_id(), 6u);
    EXPECT_EQ(ledger.span(), 0u);
}

}  // namespace
}  // namespace maru::client
