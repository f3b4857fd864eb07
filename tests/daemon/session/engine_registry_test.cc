#include "daemon/session/engine_registry.h"

#include <gtest/gtest.h>

namespace maru {
namespace {

TEST(EngineRegistry, TwoUidsNeverMeet) {
    EngineRegistry engines;
    engines.take(1, "a", 5);
    EXPECT_EQ(engines.holder(1, "a"), 5u);
    EXPECT_EQ(engines.holder(2, "a"), EngineRegistry::kNobody);
    EXPECT_EQ(engines.holder(1, "b"), EngineRegistry::kNobody);
}

TEST(EngineRegistry, WhoLostAnEngineCannotGiveItAway) {
    EngineRegistry engines;
    engines.take(1, "a", 5);
    engines.take(1, "a", 6);
    engines.leave(1, "a", 5);
    EXPECT_EQ(engines.holder(1, "a"), 6u);
    engines.leave(1, "a", 6);
    EXPECT_EQ(engines.holder(1, "a"), EngineRegistry::kNobody);
    EXPECT_EQ(engines.size(), 0u);
}

TEST(EngineRegistry, OnlyAnAbsentHolderLosesItsEngine) {
    for (size_t s = 0; s < kSessionStates; ++s) {
        auto state = static_cast<SessionState>(s);
        bool away = state == SessionState::Detached || state == SessionState::Recorded;
        EXPECT_EQ(may_claim(state, false) == Claim::Fence, away) << s;
        EXPECT_EQ(may_claim(state, true) == Claim::Fence, state == SessionState::Detached) << s;
        // What is allowed here must be an edge of the table.
        if (may_claim(state, false) == Claim::Fence) {
            EXPECT_TRUE(next_state(state, SessionEvent::Fence));
        }
    }
}

}  // namespace
}  // namespace maru
