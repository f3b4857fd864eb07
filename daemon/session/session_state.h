// The life of a connection and of a session, as two tables.
//
// A missing edge is a violation: next_state() says nullopt and the caller refuses. A session is
// Attached only between an answer that made it whole and the next doubt; only then are its pools
// found. Fenced and Exiting never lead back: a fenced token and a dead process stay what they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>

namespace maru {

template <typename State, typename Event>
struct Edge {
    State from;
    Event event;
    State to;
};

template <typename State, typename Event, size_t N>
constexpr std::optional<State> next_state(const Edge<State, Event> (&edges)[N], State from,
                                          Event event) {
    for (const auto &edge : edges)
        if (edge.from == from && edge.event == event)
            return edge.to;
    return std::nullopt;
}

// ---- connection ---------------------------------------------------------------------------------

enum class ConnectionState : uint8_t { AwaitHello, AwaitProof, Ready, InSession };
inline constexpr size_t kConnectionStates = 4;

enum class ConnectionEvent : uint8_t { Hello, HelloWithNonce, Proof, SessionBound, SessionLeft };
inline constexpr size_t kConnectionEvents = 5;

inline constexpr Edge<ConnectionState, ConnectionEvent> kConnectionEdges[] = {
    {ConnectionState::AwaitHello, ConnectionEvent::Hello, ConnectionState::Ready},
    {ConnectionState::AwaitHello, ConnectionEvent::HelloWithNonce, ConnectionState::AwaitProof},
    {ConnectionState::AwaitProof, ConnectionEvent::Proof, ConnectionState::Ready},
    {ConnectionState::Ready, ConnectionEvent::SessionBound, ConnectionState::InSession},
    {ConnectionState::InSession, ConnectionEvent::SessionLeft, ConnectionState::Ready},
};

constexpr std::optional<ConnectionState> next_state(ConnectionState from, ConnectionEvent event) {
    return next_state(kConnectionEdges, from, event);
}

// ---- session ------------------------------------------------------------------------------------

enum class SessionState : uint8_t {
    Attached,   // whole: its pools are found
    Silent,     // connected, but no request for a session_timeout: hidden
    Detached,   // no connection; its process lives, as far as we know: hidden
    Attaching,  // Attach answered, AttachDone awaited, in the life of marud that opened it: hidden
    Recorded,   // from a record of an earlier life, its worker not back yet: charged, hidden
    Restoring,  // the same, Attach answered, AttachDone awaited
    Fenced,     // lost its engine for good; charged until the proof
    Exiting,    // its process is gone; charged until the proof
    Closed,
};
inline constexpr size_t kSessionStates = 9;

enum class SessionEvent : uint8_t {
    Request,         // anything from its connection
    Timeout,         // nothing for a session_timeout
    ConnectionLost,  // closed by either side, or replaced
    Attach,
    AttachDone,
    Fence,   // a newcomer takes the engine
    Exit,    // the pidfd fired
    Close,   // the session asked, or nothing is left that it would come back for
    Proven,  // nothing of it is mapped any more
};
inline constexpr size_t kSessionEvents = 9;

inline constexpr Edge<SessionState, SessionEvent> kSessionEdges[] = {
    {SessionState::Attached, SessionEvent::Request, SessionState::Attached},
    {SessionState::Attached, SessionEvent::Timeout, SessionState::Silent},
    {SessionState::Attached, SessionEvent::ConnectionLost, SessionState::Detached},
    {SessionState::Attached, SessionEvent::Exit, SessionState::Exiting},
    {SessionState::Attached, SessionEvent::Close, SessionState::Closed},

    {SessionState::Silent, SessionEvent::Request, SessionState::Attached},
    {SessionState::Silent, SessionEvent::ConnectionLost, SessionState::Detached},
    {SessionState::Silent, SessionEvent::Exit, SessionState::Exiting},

    {SessionState::Detached, SessionEvent::Attach, SessionState::Attaching},
    {SessionState::Detached, SessionEvent::Fence, SessionState::Fenced},
    {SessionState::Detached, SessionEvent::Exit, SessionState::Exiting},
    {SessionState::Detached, SessionEvent::Close, SessionState::Closed},

    {SessionState::Attaching, SessionEvent::Request, SessionState::Attaching},
    {SessionState::Attaching, SessionEvent::AttachDone, SessionState::Attached},
    {SessionState::Attaching, SessionEvent::ConnectionLost, SessionState::Detached},
    {SessionState::Attaching, SessionEvent::Exit, SessionState::Exiting},

    {SessionState::Recorded, SessionEvent::Attach, SessionState::Restoring},
    {SessionState::Recorded, SessionEvent::Fence, SessionState::Fenced},
    {SessionState::Recorded, SessionEvent::Exit, SessionState::Exiting},

    {SessionState::Restoring, SessionEvent::Request, SessionState::Restoring},
    {SessionState::Restoring, SessionEvent::AttachDone, SessionState::Attached},
    // Half told is not told: it starts again from the first page.
    {SessionState::Restoring, SessionEvent::ConnectionLost, SessionState::Recorded},
    {SessionState::Restoring, SessionEvent::Exit, SessionState::Exiting},

    // A fenced worker may give its memory back while it lives: F_SEAL_WRITE proves that too.
    {SessionState::Fenced, SessionEvent::Exit, SessionState::Exiting},
    {SessionState::Fenced, SessionEvent::Proven, SessionState::Closed},

    {SessionState::Exiting, SessionEvent::Proven, SessionState::Closed},
};

constexpr std::optional<SessionState> next_state(SessionState from, SessionEvent event) {
    return next_state(kSessionEdges, from, event);
}

static_assert(!next_state(SessionState::Attached, SessionEvent::Fence));
static_assert(!next_state(SessionState::Fenced, SessionEvent::Attach));
static_assert(!next_state(SessionState::Exiting, SessionEvent::Attach));

// As maructl shows it.
constexpr const char *session_state_name(SessionState state) {
    switch (state) {
        case SessionState::Attached:
            return "attached";
        case SessionState::Silent:
            return "silent";
        case SessionState::Detached:
            return "detached";
        case SessionState::Attaching:
        case SessionState::Restoring:
            return "attaching";
        case SessionState::Recorded:
            return "recorded";
        case SessionState::Fenced:
            return "fenced";
        case SessionState::Exiting:
            return "exiting";
        case SessionState::Closed:
            return "closed";
    }
    return "?";
}

}  // namespace maru
