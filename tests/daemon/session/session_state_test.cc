#include "daemon/session/session_state.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace maru {
namespace {

using S = SessionState;
using E = SessionEvent;

// Walks every pair: the table has this many edges and no pair twice, so each of the others is
// refused.
TEST(SessionState, EveryPairHasAtMostOneEdge) {
    std::set<std::pair<int, int>> seen;
    for (const auto &edge : kSessionEdges)
        EXPECT_TRUE(
            seen.insert({static_cast<int>(edge.from), static_cast<int>(edge.event)}).second);
    size_t found = 0;
    for (size_t s = 0; s < kSessionStates; ++s)
        for (size_t e = 0; e < kSessionEvents; ++e) {
            auto to = next_state(static_cast<S>(s), static_cast<E>(e));
            bool listed = seen.contains({static_cast<int>(s), static_cast<int>(e)});
            EXPECT_EQ(to.has_value(), listed);
            found += to.has_value();
        }
    EXPECT_EQ(found, std::size(kSessionEdges));
}

TEST(SessionState, ClosedIsTheEndAndIsReachedFromEveryState) {
    for (size_t e = 0; e < kSessionEvents; ++e)
        EXPECT_FALSE(next_state(S::Closed, static_cast<E>(e)));
    for (size_t s = 0; s < kSessionStates; ++s) {
        std::set<S> reached = {static_cast<S>(s)};
        for (size_t round = 0; round < kSessionStates; ++round)
            for (const auto &edge : kSessionEdges)
                if (reached.contains(edge.from))
                    reached.insert(edge.to);
        EXPECT_TRUE(reached.contains(S::Closed)) << s;
    }
}

TEST(SessionState, FencedAndExitingNeverComeBack) {
    for (S from : {S::Fenced, S::Exiting})
        for (size_t e = 0; e < kSessionEvents; ++e)
            if (auto to = next_state(from, static_cast<E>(e))) {
                EXPECT_TRUE(*to == S::Exiting || *to == S::Closed);
            }
}

TEST(SessionState, EveryLivingStateEndsWithItsProcess) {
    for (S from :
         {S::Attached, S::Silent, S::Detached, S::Attaching, S::Recorded, S::Restoring, S::Fenced})
        EXPECT_EQ(next_state(from, E::Exit), S::Exiting);
}

TEST(SessionState, OnlyAnAbsentSessionIsFenced) {
    for (size_t s = 0; s < kSessionStates; ++s) {
        S from = static_cast<S>(s);
        EXPECT_EQ(next_state(from, E::Fence).has_value(),
                  from == S::Detached || from == S::Recorded);
    }
}

TEST(SessionState, EveryStateHasAName) {
    for (size_t s = 0; s < kSessionStates; ++s)
        EXPECT_STRNE(session_state_name(static_cast<S>(s)), "?");
    EXPECT_STREQ(session_state_name(static_cast<S>(200)), "?");
}

TEST(ConnectionState, EveryPairHasAtMostOneEdge) {
    size_t found = 0;
    for (size_t s = 0; s < kConnectionStates; ++s)
        for (size_t e = 0; e < kConnectionEvents; ++e)
            found += next_state(static_cast<ConnectionState>(s), static_cast<ConnectionEvent>(e))
                         .has_value();
    EXPECT_EQ(found, std::size(kConnectionEdges));
}

TEST(ConnectionState, ASessionNeedsHelloAndProof) {
    EXPECT_FALSE(next_state(ConnectionState::AwaitHello, ConnectionEvent::SessionBound));
    EXPECT_FALSE(next_state(ConnectionState::AwaitProof, ConnectionEvent::SessionBound));
    EXPECT_FALSE(next_state(ConnectionState::InSession, ConnectionEvent::SessionBound));
}

}  // namespace
}  // namespace maru
