#include "libmaru/pool/allocation_state.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

namespace maru::pool {
namespace {

using S = AllocationState;
using E = AllocationEvent;

// The table written out a second time, by hand: every pair that is not here must be refused.
TEST(AllocationState, EveryPairIsAnEdgeOrRefused) {
    const std::set<std::tuple<S, E, S>> expected = {
        {S::Reserved, E::Abort, S::Free},         {S::Reserved, E::Send, S::Committing},
        {S::Committing, E::Committed, S::Ready},  {S::Committing, E::Refused, S::Free},
        {S::Committing, E::Lost, S::Quarantined}, {S::Quarantined, E::Committed, S::Ready},
        {S::Quarantined, E::Refused, S::Free},    {S::Ready, E::Retire, S::Retiring},
        {S::Retiring, E::Reclaim, S::Free},
    };
    std::set<std::tuple<S, E, S>> found;
    for (S from : {S::Free, S::Reserved, S::Committing, S::Quarantined, S::Ready, S::Retiring})
        for (E event :
             {E::Abort, E::Send, E::Committed, E::Refused, E::Lost, E::Retire, E::Reclaim})
            if (auto to = next_state(from, event))
                found.insert({from, event, *to});
    EXPECT_EQ(found, expected);
}

TEST(AllocationState, ReadersAndUnknownCommitsNeverLeadStraightToFree) {
    EXPECT_FALSE(next_state(S::Ready, E::Reclaim));
    EXPECT_FALSE(next_state(S::Ready, E::Abort));
    EXPECT_FALSE(next_state(S::Committing, E::Abort));
    EXPECT_FALSE(next_state(S::Quarantined, E::Abort));
}

}  // namespace
}  // namespace maru::pool
