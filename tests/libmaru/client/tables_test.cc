// The tables of the client: what is held, which leases, which operations.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "libmaru/client/bits.h"
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
    auto hash_of = [&](uint32_t slot) { return static_cast<uint32_t>(keys[slot] % 13); };
    std::map<uint64_t, uint32_t> model;
    std::mt19937_64 random(7);
    for (int step = 0; step < 20'000; ++step) {
        const auto slot = static_cast<uint32_t>(random() % keys.size());
        if (model.count(keys[slot]) && model[keys[slot]] == slot) {
            index.erase(slot, hash_of(slot));
            model.erase(keys[slot]);
        } else {
            const uint64_t key = random() % 10'000;
            if (model.count(key))
                continue;
            keys[slot] = key;
            index.insert(slot, hash_of(slot));
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

// The ring grows while it has wrapped around, and records keep their ids.
TEST(CommitLedger, RecordsAreFoundWhateverHasGoneBefore) {
    CommitLedger ledger;
    uint64_t settled = 0;
    for (uint64_t id = 1; id <= 5000; ++id) {
        CommitRecord record;
        record.index = static_cast<uint32_t>(id);
        ASSERT_EQ(ledger.add(record), id);
        if (id % 3 == 0)
            continue;
        ASSERT_EQ(ledger.find(++settled)->index, settled);
        ledger.settle(settled);
    }
    EXPECT_EQ(ledger.lowest_unsettled(), settled + 1);
    EXPECT_EQ(ledger.find(settled), nullptr);
    EXPECT_EQ(ledger.find(ledger.next_id()), nullptr);
    for (uint64_t id = settled + 1; id <= 5000; ++id) {
        ASSERT_NE(ledger.find(id), nullptr) << id;
        EXPECT_EQ(ledger.find(id)->index, id);
    }
    EXPECT_EQ(ledger.unsettled(), 5000 - settled);
}

TEST(Bits, AreWhatASingleBitAtATimeSays) {
    std::mt19937 random(1);
    for (int round = 0; round < 2000; ++round) {
        const uint32_t count = random() % 300,
                       at = random() % 3 ? random() % 32 * 8 : random() % 256;
        std::vector<uint8_t> from((count + 7) / 8), to((at + count + 7) / 8);
        for (uint8_t &byte : from)
            byte = random() % 4 ? 0xff : static_cast<uint8_t>(random());
        std::vector<uint8_t> wanted = to;
        uint32_t ones = 0;
        for (uint32_t i = 0; i < count; ++i) {
            if (!(from[i / 8] >> (i % 8) & 1))
                continue;
            ones += ones == i;
            wanted[(at + i) / 8] |= static_cast<uint8_t>(1u << (at + i) % 8);
        }
        ASSERT_EQ(leading_ones(from, count), ones) << count;
        set_bits(to, at, from, count);
        ASSERT_EQ(to, wanted) << at << ' ' << count;
        const uint32_t first = random() % (at + count + 1);
        for (uint32_t i = first; i < wanted.size() * 8; ++i)
            wanted[i / 8] &= static_cast<uint8_t>(~(1u << i % 8));
        clear_bits_from(to, first);
        ASSERT_EQ(to, wanted) << first;
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
