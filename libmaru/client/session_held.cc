// What a session has published and leased: how a commit's fate, a retirement and the last lease change
// it.
//
// Pages go back to the allocator only when no lease of this process is left on them, and marud has
// acknowledged the reclaim or does not know them. Under the session's lock.
#include <utility>

#include "libmaru/client/batch_ops.h"
#include "libmaru/client/pool.h"
#include "libmaru/client/session.h"

namespace maru::client {

using pool::AllocationEvent;
using wire::Status;

// ---- commits -------------------------------------------------------------------------------------

namespace {

bool published(const wire::CommitResult &result) {
    return result.status == Status::Ok || result.status == Status::Committed;
}

}  // namespace

// @moved: the pool in which the pages of what is published are Ready already.
CommitOp *Session::settle_commit(uint64_t op_id, const wire::CommitResult &result,
                                 const Pool *moved) {
    const CommitRecord *record = ledger_.find(op_id);
    if (!record)
        return nullptr;
    const CommitRecord &known =
        *record;  // its place is taken again by the next add() at the earliest
    if (published(result)) {
        // marud would have answered ALREADY_PRESENT if it still counted an earlier one.
        if (const uint32_t old = held_.find_ready(known.ns, known.key); old != HeldTable::kNone) {
            withdraw(old);
            sweep(old);
        }
        if (known.pool != moved)
            known.pool->allocator().apply(AllocationEvent::Committed, known.run);
        held_.add(known.ns, known.pool, known.key, result.replica, known.run);
    } else {
        known.pool->allocator().apply(AllocationEvent::Refused, known.run);
    }
    CommitOp *op = known.op;
    const uint32_t index = known.index;
    ledger_.settle(op_id);
    if (op)
        op->settled_item(index, result.status);
    return op;
}

void Session::settle_commits(uint64_t first_op, std::span<const wire::CommitResult> results) {
    Pool *pool = nullptr;  // nearly always that of all
    settled_runs_.clear();
    for (size_t i = 0; i < results.size(); ++i) {
        const CommitRecord *record = ledger_.find(first_op + i);
        if (!record || !published(results[i]) || (pool && record->pool != pool))
            continue;
        pool = record->pool;
        settled_runs_.push_back(record->run);
    }
    if (pool)
        pool->allocator().apply(AllocationEvent::Committed, settled_runs_);
    for (size_t i = 0; i < results.size(); ++i)
        settle_commit(first_op + i, results[i], pool);
}

CommitOp *Session::renew_commit(uint64_t op_id) {
    const CommitRecord *record = ledger_.find(op_id);
    if (!record)
        return nullptr;
    const CommitRecord known = *record;
    ledger_.settle(op_id);
    if (known.op)
        known.op->renew(known.index);
    else
        recommit_op_.add(known);
    return known.op;
}

void Session::check(CommitOp *op) {
    if (op)
        transport_.check(*op);
}

void Session::resolve_at(TimeNs time) {
    if (time >= next_resolve_)
        return;
    next_resolve_ = time;
    transport_.wake();
}

// ---- leases and retirement -----------------------------------------------------------------------

void Session::take_lease(uint32_t held) {
    Held &entry = held_[held];
    ++entry.told_leases;
    ++entry.leases;
    if (entry.pool)
        ++entry.pool->leases;
}

void Session::drop_lease(uint32_t held, bool told_only) {
    Held &entry = held_[held];
    if (!told_only) {
        --entry.leases;
        if (entry.pool)
            --entry.pool->leases;
        else if (entry.leases == 0)
            leave_view(held);
    }
    if (entry.state == HeldState::Foreign && entry.leases == 0 && over())
        return free_held(held);
    if (entry.state == HeldState::Orphan) {
        if (entry.leases == 0)
            free_held(held);
        return;
    }
    if (entry.told_leases > entry.leases && !over())
        release_op_.add(held, entry);
    if (entry.state == HeldState::Reclaiming && entry.leases == 0 && !over())
        ack_op_.add(held);
}

void Session::withdraw(uint32_t held) {
    if (held_[held].state != HeldState::Ready)
        return;
    held_.withdraw(held, HeldState::Retiring);
    held_[held].pool->allocator().apply(AllocationEvent::Retire, held_[held].run);
}

void Session::retire_answer(uint32_t held, Status status) {
    Held &entry = held_[held];
    if (entry.state != HeldState::Retiring && entry.state != HeldState::Reclaiming)
        return;
    switch (status) {
        case Status::Pending:
            break;  // Reclaim follows
        case Status::Ok:
            entry.state = HeldState::Reclaiming;
            if (entry.leases == 0)  // else when the last one here ends, whatever marud counts
                ack_op_.add(held);
            break;
        default:
            orphan(held);
    }
}

void Session::reclaim_answer(uint32_t held, Status status) {
    Held &entry = held_[held];
    if (entry.state != HeldState::Reclaiming)
        return;
    switch (status) {
        case Status::Busy:  // Reclaim comes again
            entry.state = HeldState::Retiring;
            break;
        case Status::InvalidArgument:  // marud did not hear of the retirement
            entry.state = HeldState::Retiring;
            sweep(held);
            break;
        default:  // acknowledged, now or before
            orphan(held);
    }
}

void Session::orphan(uint32_t held) {
    withdraw(held);
    // Of a segment in which marud does not know a lease it may soon say that another file is there.
    if (held_[held].view)
        views_.retire(*held_[held].view);
    held_.withdraw(held, HeldState::Orphan);
    if (held_[held].leases == 0)
        free_held(held);
}

void Session::leave_view(uint32_t held) {
    if (View *view = std::exchange(held_[held].view, nullptr))
        views_.leave(*view);
}

void Session::free_held(uint32_t held) {
    if (!held_[held].pool) {
        leave_view(held);
        held_.remove(held);
        return;
    }
    if (!held_[held].keep_pages)
        held_[held].pool->allocator().apply(AllocationEvent::Reclaim, held_[held].run);
    held_.remove(held);
}

void Session::forget_pool(Pool &pool) {
    for (uint32_t held = 0; held < held_.slots(); ++held)
        if (held_[held].state != HeldState::Free && held_[held].pool == &pool)
            held_.remove(held);
}

}  // namespace maru::client
