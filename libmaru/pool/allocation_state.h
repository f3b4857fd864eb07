// The life of an allocation before and after commit, as the worker sees it.
//
// One table; a missing edge is refused and changes nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace maru::pool {

enum class AllocationState : uint8_t {
    Free,         // not handed out
    Reserved,     // the caller writes to it
    Committing,   // the commit is sent, not answered
    Quarantined,  // the answer is lost: its fate is unknown, its pages are nobody's
    Ready,        // published
    Retiring,     // withdrawn; readers may be left
};

enum class AllocationEvent : uint8_t {
    Abort,      // given back unwritten or half written
    Send,       // its commit goes out
    Committed,  // marud published it
    Refused,    // marud did not and never will (also: already present elsewhere)
    Lost,       // no answer
    Retire,     // withdrawn
    Reclaim,    // marud says that no reader is left
};

struct AllocationEdge {
    AllocationState from;
    AllocationEvent event;
    AllocationState to;
};

inline constexpr AllocationEdge kAllocationEdges[] = {
    {AllocationState::Reserved, AllocationEvent::Abort, AllocationState::Free},
    {AllocationState::Reserved, AllocationEvent::Send, AllocationState::Committing},
    {AllocationState::Committing, AllocationEvent::Committed, AllocationState::Ready},
    {AllocationState::Committing, AllocationEvent::Refused, AllocationState::Free},
    {AllocationState::Committing, AllocationEvent::Lost, AllocationState::Quarantined},
    {AllocationState::Quarantined, AllocationEvent::Committed, AllocationState::Ready},
    {AllocationState::Quarantined, AllocationEvent::Refused, AllocationState::Free},
    {AllocationState::Ready, AllocationEvent::Retire, AllocationState::Retiring},
    {AllocationState::Retiring, AllocationEvent::Reclaim, AllocationState::Free},
};

// The same by number: every commit looks three times.
inline constexpr uint8_t kNoAllocationState = UINT8_MAX;
inline constexpr auto kNextAllocationStates = [] {
    std::array<std::array<uint8_t, 7>, 6> table{};
    for (auto &from : table)
        from.fill(kNoAllocationState);
    for (const AllocationEdge &edge : kAllocationEdges)
        table[static_cast<size_t>(edge.from)][static_cast<size_t>(edge.event)] =
            static_cast<uint8_t>(edge.to);
    return table;
}();
static_assert(kNextAllocationStates.size() == static_cast<size_t>(AllocationState::Retiring) + 1);
static_assert(kNextAllocationStates[0].size() == static_cast<size_t>(AllocationEvent::Reclaim) + 1);

constexpr std::optional<AllocationState> next_state(AllocationState from, AllocationEvent event) {
    const uint8_t next =
        kNextAllocationStates[static_cast<size_t>(from)][static_cast<size_t>(event)];
    if (next == kNoAllocationState)
        return std::nullopt;
    return static_cast<AllocationState>(next);
}
static_assert(!next_state(AllocationState::Quarantined, AllocationEvent::Abort),
              "an unknown commit is not an abort");

}  // namespace maru::pool
