// Proof: a charge returns when F_SEAL_WRITE says that no writable mapping and no pin is left.
//
// A pool ends in one of two ways. Finish: its worker says that it has unmapped; asked once, and the
// worker hears what is left. Orphan: its worker has exited or is fenced; asked again with a
// doubling delay until it is proven. A refusal (F_SEAL_SEAL) can never be proven: those bytes stay
// charged to the uid for this life of marud. A segment of an exited process that marud has no
// descriptor of (no fd store, and marud was restarted) cannot be asked about at all: the exit is
// the only proof there will ever be. It is private and never handed on, so nobody can read or write
// wrong bytes through it; keeping the charge would leak it for ever.
#include <algorithm>
#include <cassert>
#include <utility>

#include "daemon/protocol/service_impl.h"

namespace maru {

// Its worker will not end these pools any more: marud does. `session` may be gone afterwards.
void Service::Impl::orphan(Session &session) {
    if (session.pools.empty()) {
        if (holds_nothing(session))
            session_proven(session);
        return;
    }
    std::vector<PoolIndex> owned = session.pools;  // the last proof forgets the session
    for (PoolIndex index : owned) {
        Pool &pool = *pools.at(index);
        pool.state = PoolState::Orphaned;
        pool.proof_since = pool.proof_since ? pool.proof_since : now;
        pool.leaving = pool.shared();
        directory.set_closing(index, true);
        pool.retry_delay = kFirstProofDelay;
        pool.retry_at = 0;
    }
    for (PoolIndex index : owned)
        advance_proof(*pools.at(index));
}

void Service::Impl::ask_proof(SegmentRef ref) {
    ++tally.proof_attempts;
    effects.prove_segment(ref);
}

// Asks about every segment that is not decided. Waits for what is under way.
void Service::Impl::advance_proof(Pool &pool) {
    pool.retry_at = 0;
    for (uint32_t i = 0; i < pool.segments.size(); ++i) {
        Segment &segment = pool.segments[i];
        switch (segment.state) {
            case SegmentState::Created:
            case SegmentState::Granted:
            case SegmentState::StillMapped:
                if (segment.held) {
                    segment.state = SegmentState::Proving;
                    ask_proof({pool.id, i});
                } else if (pool.owner->state == SessionState::Exiting) {
                    segment.state = SegmentState::Proven;
                    if (pool.shared()) {
                        (void)save(*pool.owner);
                        segment.charge.release();
                        tell_gone(pool.owner->uid, {pool.id, i});
                    }
                    effects.log(4,
                                "segment " + std::to_string(i) + " of " + person(*pool.owner) +
                                    ": no descriptor of it is left, its exit is the only proof",
                                pool.owner->id);
                } else {
                    segment.state =
                        SegmentState::StillMapped;  // fenced, alive, nothing to ask with
                }
                break;
            default:
                break;
        }
    }
    conclude_proof(pool);
}

// Once every answer is in: the pool goes, or it is asked again later. `pool` may be gone
// afterwards.
void Service::Impl::conclude_proof(Pool &pool) {
    bool mapped = false;
    for (const Segment &segment : pool.segments) {
        switch (segment.state) {
            case SegmentState::Creating:
            case SegmentState::Sealing:
            case SegmentState::Proving:
                return;
            case SegmentState::Created:
            case SegmentState::Granted:
                // Came in after the question was asked.
                advance_proof(pool);
                return;
            case SegmentState::StillMapped:
                mapped = true;
                break;
            default:
                break;
        }
    }
    if (!mapped) {
        Session &owner = *pool.owner;
        bool orphaned = pool.state == PoolState::Orphaned;
        remove_pool(pool);
        if (orphaned && owner.pools.empty() && holds_nothing(owner))
            session_proven(owner);
        return;
    }
    if (pool.state == PoolState::Finishing) {
        pool.state = PoolState::Closing;
        answer_all(pool.finish_waiters,
                   wire::ClosePoolReply{wire::Status::Busy, 0,
                                        "a writable mapping or a pinned page of a segment is left: "
                                        "unmap and unregister it, then Finish again"});
        return;
    }
    TimeNs longest =
        pool.owner->state == SessionState::Exiting ? kLastProofDelay : kLastFencedProofDelay;
    pool.retry_at = now + pool.retry_delay;
    pool.retry_delay = std::min(pool.retry_delay * 2, longest);
    note_deadline(pool.retry_at);
}

void Service::Impl::on_segment_proven(SegmentRef ref, Proof proof) {
    Pool *pool = pools.find(ref.pool);
    if (!pool || ref.segment >= pool->segments.size() ||
        pool->segments[ref.segment].state != SegmentState::Proving)
        return;
    Segment &segment = pool->segments[ref.segment];
    ++tally.proofs[static_cast<size_t>(proof)];
    switch (proof) {
        case Proof::Proven:
            // The record first: it must never name memory whose charge has returned.
            if (!adopt(*pool, ref.segment)) {
                segment.state = SegmentState::Proven;
                drop(*pool, ref.segment);
            }
            if (pool->shared() && !segment.forgotten) {
                (void)save(*pool->owner);
                segment.charge.release();
            }
            break;
        case Proof::StillMapped:
            if (MARU_MUTANT(AdoptWithoutProof) && adopt(*pool, ref.segment))
                break;
            segment.state = MARU_MUTANT(MappedCountsAsProven) ? SegmentState::Proven
                                                              : SegmentState::StillMapped;
            break;
        case Proof::Refused:
            segment.state = SegmentState::Refused;
            drop(*pool, ref.segment);
            break;
    }
    if (segment.forgotten)
        conclude_forgotten(*pool, ref.segment);
    if (pool->proving())
        conclude_proof(*pool);
}

std::string Service::Impl::never_made_anew(uint32_t segment) {
    return "segment " + std::to_string(segment) +
           ": its file of before the restart of marud carries F_SEAL_SEAL, so nobody can prove "
           "that it is unmapped: its bytes stay charged, and it is not made anew";
}

// Whoever waits for a forgotten segment gets it anew once nothing maps the old file any more.
void Service::Impl::conclude_forgotten(Pool &pool, uint32_t number) {
    Segment &segment = pool.segments[number];
    std::vector<Waiter> waiters = std::exchange(segment.waiters, {});
    if (pool.state == PoolState::Open && segment.state == SegmentState::Proven) {
        Quota::PoolCharge charge = std::move(segment.charge);
        segment = Segment{};
        if (waiters.empty()) {
            if (pool.shared())
                (void)save(*pool.owner);
            return;  // a shared pool's charge returns: GrantSegment charges anew
        }
        segment.charge = std::move(charge);
        segment.waiters = std::move(waiters);
        segment.state = SegmentState::Creating;
        effects.create_segment({pool.id, number}, {pool.bytes_of(number), pool.huge_pages});
        return;
    }
    const bool open = pool.state == PoolState::Open;
    const bool never = open && segment.state == SegmentState::Refused;
    const std::string why = never  ? never_made_anew(number)
                            : open ? "the segment's file of before the restart of marud is still "
                                     "mapped or pinned: unmap it everywhere, then ask again"
                                   : "the pool is closing: no segment is granted any more";
    for (const Waiter &waiter : waiters)
        refuse(waiter, never ? wire::Status::Denied : wire::Status::Busy, why);
}

void Service::Impl::drop(Pool &pool, uint32_t segment) {
    if (!std::exchange(pool.segments[segment].held, false))
        return;
    effects.drop_segment({pool.id, segment});
    if (pool.shared())
        tell_gone(pool.owner->uid, {pool.id, segment});
}

// Forgets a pool of which nothing is mapped any more, and returns its charge - all but the bytes
// that were refused a proof. Answers whoever waited for it. `pool` is gone afterwards.
void Service::Impl::remove_pool(Pool &pool) {
    Session &owner = *pool.owner;
    if (pool.proof_since)
        tally.proof_time.observe(now - pool.proof_since);
    uint64_t refused_bytes = 0;
    uint32_t refused_segments = 0;
    for (uint32_t i = 0; i < pool.segments.size(); ++i) {
        drop(pool, i);
        if (pool.segments[i].state == SegmentState::Refused) {
            refused_bytes += pool.bytes_of(i);
            ++refused_segments;
        }
    }
    if (refused_bytes && pool.charged_bytes()) {
        effects.log(4,
                    std::to_string(refused_bytes) + " bytes of " + person(owner) +
                        " carry F_SEAL_SEAL and cannot be proven free: they stay charged to uid " +
                        std::to_string(owner.uid) + " until marud restarts",
                    owner.id);
        if (!pool.shared()) {
            pool.charge.keep_only(refused_bytes, refused_segments);
            unproven.push_back(
                {pool.id, owner.engine, pool.page_bytes, now, std::move(pool.charge)});
        }
    }
    if (refused_bytes && pool.shared())
        for (uint32_t i = 0; i < pool.segments.size(); ++i)
            if (Segment &segment = pool.segments[i]; segment.state == SegmentState::Refused) {
                segment.charge.keep_only(pool.bytes_of(i), 1);
                unproven.push_back(
                    {pool.id, owner.engine, pool.page_bytes, now, std::move(segment.charge)});
            }
    std::erase(owner.pools, pool.index);
    std::erase_if(owner.reclaimable,
                  [&](const auto &entry) { return entry.second.pool == pool.index; });
    directory.remove_pool(pool.index);
    sweep_soon();
    pool.charge.release();
    for (Segment &segment : pool.segments)
        segment.charge.release();
    if (pool.shared())
        record(RecordedEnd{{pool.id, UINT32_MAX}});
    flush_records();
    // Before the reply that promises it; an orphaned session's last pool takes the record with it,
    // unless the session stays for the leases that it holds.
    if (!owner.pools.empty() || pool.state != PoolState::Orphaned || !holds_nothing(owner))
        (void)save(owner);
    if (refused_bytes) {
        for (const Waiter &waiter : std::exchange(pool.finish_waiters, {}))
            refuse(waiter, wire::Status::Denied,
                   "the pool is gone, but " + std::to_string(refused_bytes) +
                       " bytes carry F_SEAL_SEAL: nobody can prove that they are unmapped, so "
                       "they stay charged until marud restarts");
    } else {
        answer_all(pool.finish_waiters, wire::ClosePoolReply{});
    }
    if (!pool.drain_waiters.empty()) {
        --forced_closes;
        answer_all(pool.drain_waiters, wire::ClosePoolReply{});
    }
    pools.remove(pool);
}

// All pools of an orphaned session are gone. `session` is gone afterwards.
void Service::Impl::session_proven(Session &session) {
    uint32_t uid = session.uid;
    effects.log(
        6, "everything of " + person(session) + ", uid " + std::to_string(uid) + ", is proven gone",
        session.id);
    transition(session, SessionEvent::Proven);
    forget(session, session.fenced ? metrics::SessionEnd::Fenced : metrics::SessionEnd::Exited);
}

}  // namespace maru
