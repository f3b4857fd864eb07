#include "daemon/session/ledger.h"

#include <gtest/gtest.h>

namespace maru {
namespace {

wire::CommitResult made(wire::Id replica) { return {replica, wire::Status::Ok, 0}; }

TEST(Ledger, KeepsTheFirstResultUntilItIsAcknowledged) {
    Ledger ledger(8);
    ledger.record(3, 77, made(5));
    ASSERT_NE(ledger.find(3), nullptr);
    EXPECT_EQ(ledger.find(3)->replica, 5u);
    EXPECT_EQ(ledger.find(3)->content, 77u);
    EXPECT_EQ(ledger.find(2), nullptr);
    ledger.acknowledge(3);
    EXPECT_EQ(ledger.find(3), nullptr);
    EXPECT_TRUE(ledger.acknowledged(3));
    EXPECT_FALSE(ledger.in_reach(3));
    EXPECT_EQ(ledger.items(), 0u);
}

TEST(Ledger, IsBoundedAndNamesWhatPinsIt) {
    Ledger ledger(4);
    for (uint64_t op = 1; op <= 4; ++op) {
        ASSERT_TRUE(ledger.in_reach(op));
        ledger.record(op, op, made(op));
    }
    EXPECT_FALSE(ledger.in_reach(5));
    EXPECT_EQ(ledger.pinned_by(), 1u);
    ledger.acknowledge(1);
    EXPECT_TRUE(ledger.in_reach(5));
    EXPECT_EQ(ledger.pinned_by(), 2u);
}

TEST(Ledger, NeverDeadEndsOverALongLife) {
    Ledger ledger(100);
    for (uint64_t op = 1; op <= 100'000; ++op) {
        ASSERT_TRUE(ledger.in_reach(op));
        ASSERT_EQ(ledger.find(op), nullptr);
        ledger.record(op, op, made(op));
        if (op > 70)
            ledger.acknowledge(op - 70);
        ASSERT_LE(ledger.items(), 71u);
    }
    for (uint64_t op = 100'000 - 69; op <= 100'000; ++op)
        EXPECT_EQ(ledger.find(op)->replica, op);
}

TEST(Ledger, AcknowledgingFarAheadForgetsEverything) {
    Ledger ledger(1000);
    for (uint64_t op = 1; op <= 300; ++op)
        ledger.record(op, op, made(op));
    ledger.acknowledge(1'000'000);
    EXPECT_EQ(ledger.items(), 0u);
    EXPECT_FALSE(ledger.in_reach(300));
    EXPECT_TRUE(ledger.in_reach(1'000'001));
    ledger.acknowledge(5);  // never goes back
    EXPECT_EQ(ledger.watermark(), 1'000'000u);
}

TEST(Ledger, GapsAreKeptApart) {
    Ledger ledger(1024);
    ledger.record(1, 1, made(1));
    ledger.record(65, 65, made(65));  // the same place in a ring of 64
    ledger.record(1024, 1024, made(1024));
    EXPECT_EQ(ledger.find(1)->replica, 1u);
    EXPECT_EQ(ledger.find(65)->replica, 65u);
    EXPECT_EQ(ledger.find(1024)->replica, 1024u);
    EXPECT_EQ(ledger.find(129), nullptr);
}

TEST(Ledger, AbsentIsAResultLikeAnyOther) {
    Ledger ledger(8);
    ledger.record_absent(2);
    EXPECT_EQ(ledger.find(2)->status, wire::Status::Absent);
}

TEST(Ledger, LoweringTheLimitForgetsNothing) {
    Ledger ledger(100);
    ledger.record(90, 1, made(9));
    ledger.set_max_items(10);
    EXPECT_EQ(ledger.find(90)->replica, 9u);
    EXPECT_FALSE(ledger.in_reach(11));
    ledger.acknowledge(85);
    EXPECT_TRUE(ledger.in_reach(95));
    EXPECT_EQ(ledger.find(90)->replica, 9u);
}

TEST(CommitContent, EveryFieldTellsTwoCommitsApart) {
    wire::CommitItem item{{{}, 1, 2}, 3, 4096, 8192, 5};
    uint64_t base = commit_content(7, item);
    EXPECT_EQ(base, commit_content(7, item));
    EXPECT_NE(base, commit_content(8, item));
    for (size_t byte = 0; byte < sizeof(item); ++byte) {
        wire::CommitItem other = item;
        reinterpret_cast<uint8_t *>(&other)[byte] ^= 1;
        EXPECT_NE(base, commit_content(7, other)) << byte;
    }
}

}  // namespace
}  // namespace maru
