// The whole of Service checked against itself, for tests and the simulation.
#include <algorithm>
#include <unordered_map>

#include "daemon/protocol/service_impl.h"

namespace maru {

std::string Service::Impl::check_invariants() const {
    if (std::string problem = directory.check_invariants(); !problem.empty())
        return "directory: " + problem;
    std::string problem;
    auto fail = [&](const std::string &what) {
        if (problem.empty())
            problem = what;
    };
    std::unordered_map<ConnectionId, uint32_t> waiting;
    auto count = [&](const std::vector<Waiter> &waiters) {
        for (const Waiter &waiter : waiters)
            ++waiting[waiter.connection];
    };
    uint64_t charged = 0;
    uint32_t forced = 0;
    std::unordered_map<const Session *, uint64_t> of_session;
    pools.each([&](const Pool &pool) {
        std::string who = "pool " + std::to_string(pool.id) + ": ";
        const Session &owner = *pool.owner;
        if (std::find(owner.pools.begin(), owner.pools.end(), pool.index) == owner.pools.end())
            fail(who + "its owner does not know it");
        if (pool.shared()) {
            for (uint32_t i = 0; i < pool.segments.size(); ++i) {
                const Segment &segment = pool.segments[i];
                bool there = segment.state != SegmentState::None &&
                             segment.state != SegmentState::Proven &&
                             segment.state != SegmentState::Adopted;
                if (there != segment.charge.held() && !(segment.forgotten && !there))
                    fail(who + "the charge of segment " + std::to_string(i) +
                         " does not fit its state");
            }
        } else if (pool.charge.bytes() != pool.capacity_bytes)
            fail(who + std::to_string(pool.charge.bytes()) +
                 " bytes are charged for a capacity of " + std::to_string(pool.capacity_bytes));
        if (pool.visible != (owner.state == SessionState::Attached))
            fail(who + "visible does not fit an owner that is " + session_state_name(owner.state));
        bool ending = owner.state == SessionState::Fenced || owner.state == SessionState::Exiting;
        if (ending != (pool.state == PoolState::Orphaned))
            fail(who + "its end does not fit an owner that is " + session_state_name(owner.state));
        charged += pool.charged_bytes();
        of_session[&owner] += pool.charged_bytes();
        forced += !pool.drain_waiters.empty();
        count(pool.drain_waiters);
        count(pool.finish_waiters);
        bool undecided = false, mapped = false;
        for (const Segment &segment : pool.segments) {
            count(segment.waiters);
            undecided |= segment.state == SegmentState::Creating ||
                         segment.state == SegmentState::Sealing ||
                         segment.state == SegmentState::Proving;
            mapped |= segment.state == SegmentState::StillMapped;
            if (segment.held &&
                (segment.state == SegmentState::Proven || segment.state == SegmentState::None ||
                 segment.state == SegmentState::Adopted))
                fail(who + "a segment is held that should be dropped");
        }
        if (pool.state == PoolState::Orphaned && !undecided && !(mapped && pool.retry_at))
            fail(who + "orphaned, and nothing drives its proof");
        if (pool.retry_at && pool.retry_at < deadline)
            fail(who + "the deadline is later than its next proof");
    });
    for (const Unproven &rest : unproven)
        charged += rest.charge.bytes();
    adopted_segments.each([&](const AdoptedSegment &kept) {
        std::string who = "adopted segment " + std::to_string(kept.ref.segment) + " of pool " +
                          std::to_string(kept.ref.pool) + ": ";
        charged += kept.charge.bytes();
        if (kept.charge.bytes() != kept.bytes)
            fail(who + "its charge is not its size");
        if (pools.at(kept.index))
            fail(who + "has the place of a pool");
        if (!directory.pool_usage(kept.index).replicas && !unknown_readers(kept.uid, kept.ref.pool))
            fail(who + "nothing is in it, but it is there");
    });
    std::unordered_map<uint32_t, uint32_t> unknown;
    sessions.each([&](const Session &session) {
        if (session.leases_unknown)
            ++unknown[session.uid];
    });
    if (unknown != unknown_by_uid)
        fail("sessions with unknown leases are miscounted");
    if (!to_record.empty())
        fail("something is not recorded that was answered");
    if (charged != quota.host_bytes())
        fail("pools are charged " + std::to_string(charged) + " bytes, the host counts " +
             std::to_string(quota.host_bytes()));
    if (forced != forced_closes)
        fail("forced closes are miscounted");

    sessions.each([&](const Session &session) {
        std::string who = "session " + std::to_string(session.id) + ": ";
        bool connected =
            session.state == SessionState::Attached || session.state == SessionState::Silent ||
            session.state == SessionState::Attaching || session.state == SessionState::Restoring;
        auto found = connections.find(session.connection);
        if (connected != (found != connections.end()))
            fail(who + "its connection does not fit the state " +
                 session_state_name(session.state));
        if (found != connections.end() && found->second.session != &session)
            fail(who + "its connection belongs to another");
        if (session.account.bytes != of_session[&session])
            fail(who + "its grant does not add up");
        if (!session.worker() &&
            (!session.pools.empty() || directory.holder_leases(session.holder)))
            fail(who + "a scheduler has memory");
        bool gone = session.state == SessionState::Exiting || session.fenced;
        bool holds = engines.holder(session.uid, session.engine) == session.holder;
        if (session.worker() && !gone && !holds)
            fail(who + "its engine is somebody else's");
        if (holds && (gone || !session.worker()))
            fail(who + "holds an engine it must not");
        if (session.state == SessionState::Exiting && directory.holder_leases(session.holder))
            fail(who + "a dead process holds leases");
        if (gone && session.pools.empty() && holds_nothing(session))
            fail(who + "nothing is left of it, but it is there");
        if (session.state == SessionState::Attached &&
            session.last_heard + config.session_timeout < deadline)
            fail(who + "the deadline is later than its timeout");
    });
    for (const auto &[id, connection] : connections) {
        if (connection.deferred != waiting[id])
            fail("connection " + std::to_string(id) + ": unanswered requests are miscounted");
        waiting.erase(id);
        if ((connection.state == ConnectionState::InSession) != (connection.session != nullptr))
            fail("connection " + std::to_string(id) + ": its state does not fit its session");
    }
    if (std::any_of(waiting.begin(), waiting.end(), [](const auto &w) { return w.second != 0; }))
        fail("an answer waits for a connection that is gone");
    return problem;
}

}  // namespace maru
