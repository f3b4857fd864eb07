// The life of a replica as the directory sees it: RESERVED and WRITING are the worker's own and
// never reach it. FREED is Free: the slot, not the memory, which then belongs to the worker again.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "daemon/directory/directory.h"

namespace maru::directory {

enum class ReplicaEvent : uint8_t {
    Commit,         // transfer and visibility complete; also a READY one published again
    AdoptRetiring,  // published again after a restart of marud, but retired before it
    Retire,         // no new reader from now on
    Reclaim,        // the owner's word that it will reuse the pages; only without leases
    Remove,         // the pool is gone: its owner's exit is proven, or it has unmapped
};

struct ReplicaEdge {
    ReplicaState from;
    ReplicaEvent event;
    ReplicaState to;
};

inline constexpr ReplicaEdge kReplicaEdges[] = {
    {ReplicaState::Free, ReplicaEvent::Commit, ReplicaState::Ready},
    {ReplicaState::Free, ReplicaEvent::AdoptRetiring, ReplicaState::Retiring},
    {ReplicaState::Ready, ReplicaEvent::Retire, ReplicaState::Retiring},
    {ReplicaState::Ready, ReplicaEvent::Remove, ReplicaState::Free},
    {ReplicaState::Retiring, ReplicaEvent::Reclaim, ReplicaState::Free},
    {ReplicaState::Retiring, ReplicaEvent::Remove, ReplicaState::Free},
};

constexpr std::optional<ReplicaState> next_state(ReplicaState from, ReplicaEvent event) {
    for (const ReplicaEdge &edge : kReplicaEdges)
        if (edge.from == from && edge.event == event)
            return edge.to;
    return std::nullopt;
}
// A page is never reused straight from READY: its readers would not have been asked.
static_assert(!next_state(ReplicaState::Ready, ReplicaEvent::Reclaim));
// What retired never comes back.
static_assert(!next_state(ReplicaState::Retiring, ReplicaEvent::Commit));

// The same as a table: every commit looks at it.
inline constexpr uint8_t kNoState = UINT8_MAX;
inline constexpr auto kNextStates = [] {
    std::array<std::array<uint8_t, 5>, 3> table{};
    for (size_t from = 0; from < table.size(); ++from)
        for (size_t event = 0; event < table[from].size(); ++event) {
            const auto next =
                next_state(static_cast<ReplicaState>(from), static_cast<ReplicaEvent>(event));
            table[from][event] = next ? static_cast<uint8_t>(*next) : kNoState;
        }
    return table;
}();
static_assert(static_cast<size_t>(ReplicaState::Retiring) + 1 == kNextStates.size());
static_assert(static_cast<size_t>(ReplicaEvent::Remove) + 1 == kNextStates[0].size());

// The one place that assigns a state. Callers check what a peer asks first: a missing edge is a bug.
inline void transition(ReplicaState &state, ReplicaEvent event) {
    const uint8_t next = kNextStates[static_cast<size_t>(state)][static_cast<size_t>(event)];
    assert(next != kNoState);
    state = static_cast<ReplicaState>(next);
}

}  // namespace maru::directory
