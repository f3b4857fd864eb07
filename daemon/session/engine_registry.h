// EngineRegistry: which worker stands for an engine.
//
// An engine is (uid, id): two uids never meet. It has at most one holder, a worker; a scheduler
// asks for it and never holds it. A holder stays until it closes, its process exits, or a newcomer
// of the same uid takes the engine from one that is not there: may_claim() is that rule, in one
// place.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/directory/directory.h"
#include "daemon/session/session_state.h"

namespace maru {

enum class Claim : uint8_t {
    Fence,  // the holder is away: it loses the engine for good
    Busy,   // the holder is there, or is expected back
};

// `expected_back`: a session_timeout after a restart of marud has not passed yet.
constexpr Claim may_claim(SessionState holder, bool expected_back) {
    switch (holder) {
        case SessionState::Detached:
            return Claim::Fence;
        case SessionState::Recorded:
            return expected_back ? Claim::Busy : Claim::Fence;
        default:
            // A silent worker is connected: stopped in a debugger, or its host is slow. Whoever
            // wants its engine must end it first; taking it away would fence a worker that did
            // nothing wrong.
            return Claim::Busy;
    }
}

class EngineRegistry {
  public:
    static constexpr HolderIndex kNobody = 0;

    HolderIndex holder(uint32_t uid, std::string_view engine) const {
        auto found = holders_.find(Name{uid, engine});
        return found == holders_.end() ? kNobody : found->second;
    }
    void take(uint32_t uid, std::string_view engine, HolderIndex holder) {
        holders_[Key{uid, std::string(engine)}] = holder;
    }
    // Does nothing when somebody else holds it by now.
    void leave(uint32_t uid, std::string_view engine, HolderIndex holder) {
        auto found = holders_.find(Name{uid, engine});
        if (found != holders_.end() && found->second == holder)
            holders_.erase(found);
    }
    size_t size() const { return holders_.size(); }

  private:
    using Key = std::pair<uint32_t, std::string>;
    using Name = std::pair<uint32_t, std::string_view>;
    // Looks a string_view up without making a string of it: scheduler probes come here.
    struct Before {
        using is_transparent = void;
        template <typename A, typename B>
        bool operator()(const A &a, const B &b) const {
            return a.first != b.first ? a.first < b.first
                                      : std::string_view(a.second) < std::string_view(b.second);
        }
    };
    std::map<Key, HolderIndex, Before> holders_;
};

}  // namespace maru
