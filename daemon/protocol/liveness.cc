// Who is there: connections that come and go, silence, exit, and what may be concluded from each.
//
// The ladder: silence or a lost connection hides and changes nothing else; a fired pidfd ends read
// leases; only a proof returns a charge. No clock ends a lease or a charge.
#include <algorithm>
#include <cassert>

#include "daemon/protocol/service_impl.h"

namespace maru {

void Service::Impl::transition(Session &session, SessionEvent event) {
    std::optional<SessionState> to = next_state(session.state, event);
    assert(to);
    if (*to == session.state)
        return;
    session.state = *to;
    ++tally.session_events[static_cast<size_t>(event)];
    session.state_since = now;
    if (*to == SessionState::Attached)
        show(session);
    else
        hide(session);
}

// Any request of its connection proves that it is there.
void Service::Impl::heard(Session &session) {
    session.last_heard = now;
    transition(session, SessionEvent::Request);
    note_deadline(now + config.session_timeout);
}

void Service::Impl::hide(Session &session) {
    for (PoolIndex index : session.pools) {
        Pool &pool = *pools.at(index);
        pool.visible = false;
        directory.set_visible(index, false);
    }
}

void Service::Impl::show(Session &session) {
    if (MARU_MUTANT(RestartLosesHits) && wire::id_epoch(session.id) != config.epoch)
        return;
    for (PoolIndex index : session.pools) {
        Pool &pool = *pools.at(index);
        pool.visible = true;
        directory.set_visible(index, true);
    }
}

void Service::Impl::bind(Connection &connection, Session &session) {
    assert(!connection.session && !session.connection);
    connection.state = *next_state(connection.state, ConnectionEvent::SessionBound);
    connection.session = &session;
    session.connection = connection.id;
}

// Takes the session off its connection, which is closed: whatever is still in it is dropped
// unheard.
void Service::Impl::lose_connection(Session &session, std::string_view why) {
    ConnectionId id = session.connection;
    auto found = connections.find(id);
    assert(found != connections.end());
    forget_waiters(found->second);
    session.connection = 0;
    connections.erase(found);
    connection_lost(session);
    effects.close_connection(id, why);
}

void Service::Impl::connection_lost(Session &session) {
    if (!next_state(session.state, SessionEvent::ConnectionLost))
        return;  // fenced or exiting: nothing changes for it
    transition(session, SessionEvent::ConnectionLost);
    if (MARU_MUTANT(TimeoutFreesPool))
        while (!session.pools.empty())
            remove_pool(*pools.at(session.pools.back()));
    session.last_heard = now;
    if (reapable(session))
        note_deadline(now + config.session_timeout);
}

void Service::Impl::connection_closed(ConnectionId id) {
    auto found = connections.find(id);
    if (found == connections.end())
        return;  // closed by us, and forgotten then
    Connection &connection = found->second;
    Session *session = connection.session;
    forget_waiters(connection);
    connections.erase(found);
    if (session) {
        session->connection = 0;
        connection_lost(*session);
    }
}

void Service::Impl::fence(Session &session, std::string_view by_whom) {
    std::string why = "engine '" + session.engine + "' was taken over by " + std::string(by_whom) +
                      " while this session was away";
    engines.leave(session.uid, session.engine, session.holder);
    session.fenced = true;
    transition(session, SessionEvent::Fence);
    assert(!session.connection);  // one that is connected keeps its engine
    fenced_tokens.push_back(session.token_hash);
    if (fenced_tokens.size() > kMaxFencedTokens)
        fenced_tokens.pop_front();
    (void)save(session);
    effects.log(4, "session of " + person(session) + " fenced: " + why, session.id);
    orphan(session);
}

void Service::Impl::process_exited(ProcessId64 process) {
    if (process == 0)
        return;
    sessions.each([&](Session &session) {
        if (session.process == process)
            exit_session(session);
    });
    // A forked child may still have the socket open: what speaks there is not the process that
    // connected.
    std::vector<ConnectionId> orphans;
    for (const auto &[id, connection] : connections)
        if (connection.peer.process == process)
            orphans.push_back(id);
    for (ConnectionId id : orphans) {
        connection_closed(id);
        effects.close_connection(id, "the process that connected has exited");
    }
    distribute_drained();
    answer_forced_closes();
}

void Service::Impl::exit_session(Session &session) {
    if (!next_state(session.state, SessionEvent::Exit))
        return;
    if (session.connection)
        lose_connection(session, "the process of this session has exited");
    engines.leave(session.uid, session.engine, session.holder);
    transition(session, SessionEvent::Exit);
    // The thread group has dropped its mappings: it reads no more. Its writers are another matter.
    directory.drop_holder(session.holder);
    readers_known(session);
    session.reclaimable.clear();
    session.unnamed.clear();
    if (MARU_MUTANT(BudgetBeforeAck))
        for (PoolIndex index : session.pools) {
            pools.at(index)->charge.release();
            for (Segment &segment : pools.at(index)->segments)
                segment.charge.release();
        }
    effects.log(5, person(session) + " has exited: proving that its pools are unmapped",
                session.id);
    orphan(session);
}

// The last of a session: no pool, no lease, no record. `session` is gone afterwards.
void Service::Impl::forget(Session &session, metrics::SessionEnd how) {
    ++tally.sessions_ended[static_cast<size_t>(how)];
    assert(session.state == SessionState::Closed && session.pools.empty());
    if (session.connection) {
        Connection &connection = connections.at(session.connection);
        connection.session = nullptr;
        connection.state = *next_state(connection.state, ConnectionEvent::SessionLeft);
    }
    engines.leave(session.uid, session.engine, session.holder);
    directory.drop_holder(session.holder);
    directory.set_host_domain(session.holder, 0);
    readers_known(session);
    flush_records();
    effects.remove_session(session.id);
    sessions.destroy(session);
}

// Away with nothing that it would come back for: no memory, no lease. Kept for one timeout, so that
// a short cut of the connection costs nothing, and then forgotten, or a process that opens and
// drops clients would use up its uid's sessions.
bool Service::Impl::reapable(const Session &session) const {
    return session.state == SessionState::Detached && session.pools.empty() &&
           holds_nothing(session);
}

// No lease on what others keep: those end with its process, never with a clock or its engine.
bool Service::Impl::holds_nothing(const Session &session) const {
    return !session.leases_unknown && directory.holder_leases(session.holder) == 0;
}

void Service::Impl::stalled(TimeNs gap) {
    auto later = [&](TimeNs heard) { return std::max(heard + gap, now); };
    sessions.each([&](Session &session) { session.last_heard = later(session.last_heard); });
    if (expected_back_until + gap > now)
        expected_back_until = std::max(expected_back_until + gap, now + config.session_timeout);
    note_deadline(now + config.session_timeout);
}

void Service::Impl::tick() {
    if (now < deadline)
        return;
    std::vector<HolderIndex> silent, gone;
    TimeNs next = INT64_MAX;
    sessions.each([&](Session &session) {
        bool attached = session.state == SessionState::Attached;
        if (!attached && !reapable(session))
            return;
        TimeNs due = session.last_heard + config.session_timeout;
        if (due > now)
            next = std::min(next, due);
        else
            (attached ? silent : gone).push_back(session.holder);
    });
    std::vector<PoolIndex> retry;
    pools.each([&](Pool &pool) {
        if (!pool.retry_at)
            return;
        if (pool.retry_at > now)
            next = std::min(next, pool.retry_at);
        else
            retry.push_back(pool.index);
    });
    say_unknown_readers(next);
    deadline = directory.sweep() ? now : next;

    for (HolderIndex holder : silent) {
        Session &session = *sessions.at(holder);
        transition(session, SessionEvent::Timeout);
        effects.log(4,
                    person(session) + " has been silent for " +
                        seconds_text(now - session.last_heard) + ": its pools are hidden",
                    session.id);
        if (MARU_MUTANT(TimeoutEndsLeases)) {
            directory.drop_holder(session.holder);
            distribute_drained();
            answer_forced_closes();
        }
        if (MARU_MUTANT(TimeoutFreesPool))
            while (!session.pools.empty())
                remove_pool(*pools.at(session.pools.back()));
    }
    for (HolderIndex holder : gone) {
        Session &session = *sessions.at(holder);
        transition(session, SessionEvent::Close);
        forget(session, metrics::SessionEnd::Forgotten);
    }
    for (PoolIndex index : retry)
        if (Pool *pool = pools.at(index); pool && pool->retry_at && pool->retry_at <= now)
            advance_proof(*pool);
}

std::string Service::Impl::person(const Session &session) const {
    std::string pid = session.pid ? std::to_string(session.pid) : "-";
    return "pid " + pid + " (" + (session.command.empty() ? "-" : session.command) + ")";
}

}  // namespace maru
