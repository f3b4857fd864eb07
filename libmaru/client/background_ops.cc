#include "libmaru/client/background_ops.h"

#include <algorithm>

#include "libmaru/client/pool.h"
#include "libmaru/client/session.h"
#include "libmaru/client/status.h"

namespace maru::client {

using wire::Status;

void BackgroundOp::kick() { session_.transport().start(*this); }

// ---- leases that ended ---------------------------------------------------------------------------

void ReleaseOp::add(uint32_t held, Held &entry) {
    if (entry.release_queued)
        return;  // and so is the op
    entry.release_queued = true;
    queue_.push_back(held);
    // The first, and the one that fills a message. What cannot go then goes with the next reply.
    const size_t collected = queue_.size();
    if (collected == 1 || collected == session_.transport().limits().batch_items)
        kick();
}

void ReleaseOp::add_stray(wire::Id replica, uint64_t generation) {
    stray_.push_back({replica, generation});
    kick();
}

uint32_t ReleaseOp::window() const {
    constexpr uint32_t kWholeMessages = 16;
    const size_t collected = queue_.size() + stray_.size();
    return collected >= session_.transport().limits().batch_items ? kWholeMessages : 1;
}

void ReleaseOp::forget() {
    for (uint32_t held : queue_) {
        Held &entry = session_.held()[held];
        entry.release_queued = false;
        if (entry.state == HeldState::Foreign && entry.leases == 0)
            session_.free_held(held);
    }
    queue_.clear();
    stray_.clear();
}

void ReleaseOp::next(wire::RequestBody &body, Part &part) {
    const size_t limit = session_.transport().limits().batch_items;
    names_.clear();
    while (!stray_.empty() && names_.size() < limit) {
        names_.push_back(stray_.back());
        stray_.pop_back();
    }
    HeldTable &table = session_.held();
    size_t left = queue_.size();
    while (left > 0 && names_.size() < limit) {
        const uint32_t held = queue_[left - 1];
        Held &entry = table[held];
        if (entry.release_queued && entry.told_leases > entry.leases) {
            names_.push_back({entry.replica, entry.run.generation});
            if (--entry.told_leases > entry.leases)
                continue;
        }
        entry.release_queued = false;
        --left;
        if (entry.state == HeldState::Foreign && entry.leases == 0 && entry.told_leases == 0)
            session_.free_held(held);
    }
    queue_.resize(left);
    part.count = static_cast<uint32_t>(names_.size());
    body = wire::ReleaseRequest{names_};
}

bool ReleaseOp::on_reply(const Part &part, const wire::ReplyBody &body, std::vector<UniqueFd> &,
                         bool) {
    // A refusal of the whole means that marud counts leases we no longer have: attach sets it right.
    const auto *reply = std::get_if<wire::ItemStatusReply>(&body);
    return reply && reply->statuses.size() == part.count;
}

// ---- retirements and reclaims --------------------------------------------------------------------

void HeldBatchOp::add(uint32_t held) {
    Held &entry = session_.held()[held];
    if (!mark(entry)) {
        mark(entry) = true;
        queue_.push_back(held);
    }
    kick();
}

void HeldBatchOp::forget() {
    for (uint32_t held : queue_)
        mark(session_.held()[held]) = false;
    queue_.clear();
    sent_.clear();
}

void HeldBatchOp::collect() {
    const size_t limit = session_.transport().limits().batch_items;
    sent_.clear();
    names_.clear();
    while (!queue_.empty() && sent_.size() < limit) {
        const uint32_t held = queue_.back();
        queue_.pop_back();
        Held &entry = session_.held()[held];
        if (!mark(entry))
            continue;
        mark(entry) = false;
        if (!wanted(entry))
            continue;
        sent_.push_back({held, {entry.replica, entry.run.generation}});
        names_.push_back(sent_.back().name);
    }
}

bool HeldBatchOp::on_reply(const Part &part, const wire::ReplyBody &body, std::vector<UniqueFd> &,
                           bool) {
    const auto *reply = std::get_if<wire::ItemStatusReply>(&body);
    if (!reply || reply->statuses.size() != part.count || sent_.size() != part.count)
        return false;
    for (size_t i = 0; i < sent_.size(); ++i) {
        const Held &entry = session_.held()[sent_[i].held];
        // It may have left the table, and the slot be another's.
        if (entry.state != HeldState::Free && entry.replica == sent_[i].name.replica &&
            entry.run.generation == sent_[i].name.generation)
            answer(sent_[i].held, reply->statuses[i]);
    }
    sent_.clear();
    return true;
}

void AckOp::next(wire::RequestBody &body, Part &part) {
    collect();
    part.count = static_cast<uint32_t>(names_.size());
    body = wire::ReclaimAckRequest{names_};
}
bool &AckOp::mark(Held &held) { return held.ack_queued; }
bool AckOp::wanted(const Held &held) {
    return held.state == HeldState::Reclaiming && held.leases == 0;
}
void AckOp::answer(uint32_t held, Status status) { session_.reclaim_answer(held, status); }

void SweepOp::next(wire::RequestBody &body, Part &part) {
    collect();
    part.count = static_cast<uint32_t>(names_.size());
    body = wire::RetireRequest{names_};
}
bool &SweepOp::mark(Held &held) { return held.sweep_queued; }
bool SweepOp::wanted(const Held &held) { return held.state == HeldState::Retiring; }
void SweepOp::answer(uint32_t held, Status status) { session_.retire_answer(held, status); }

// ---- heartbeat -----------------------------------------------------------------------------------

void HeartbeatOp::beat() {
    due_ = true;
    kick();
}

void HeartbeatOp::next(wire::RequestBody &body, Part &) {
    due_ = false;
    gauges_ = session_.gauges();
    if (gauges_.size() > session_.transport().limits().batch_items)
        gauges_.resize(session_.transport().limits().batch_items);
    body = wire::HeartbeatRequest{gauges_};
}

// ---- commits without an answer -------------------------------------------------------------------

bool take_commit_reply(Session &session, const Part &part, const wire::ReplyBody &body) {
    if (const auto *status = std::get_if<wire::StatusOnly>(&body)) {
        if (status->status == Status::Ok)
            return false;
        // Refused as a whole: nothing of it was run. Only an error inside marud leaves that open.
        if (status->status == Status::Internal)
            return true;
        for (uint32_t i = 0; i < part.count; ++i)
            session.settle_commit(part.op_id + i, {0, status->status, 0});
        return true;
    }
    const auto *reply = std::get_if<wire::CommitReply>(&body);
    if (!reply || reply->results.size() != part.count)
        return false;
    const auto absent = [](const auto &result) { return result.status == Status::Absent; };
    if (std::none_of(reply->results.begin(), reply->results.end(), absent)) {
        session.settle_commits(part.op_id, reply->results);
        return true;
    }
    for (uint32_t i = 0; i < part.count; ++i) {
        const wire::CommitResult &result = reply->results[i];
        if (absent(result))
            session.renew_commit(part.op_id + i);
        else
            session.settle_commit(part.op_id + i, result);
    }
    return true;
}

TimeNs ResolveOp::ask(TimeNs now) {
    CommitLedger &ledger = session_.ledger();
    TimeNs next = kNever;
    if (ledger.unsettled() == 0)
        return next;
    if (count_ > 0)  // not sent yet
        return now + 10 * kMillisecond;
    const uint32_t limit = session_.transport().limits().batch_items;
    for (uint64_t id = ledger.lowest_unsettled(); id < ledger.next_id(); ++id) {
        CommitRecord *record = ledger.find(id);
        if (!record)
            continue;
        if (record->ask_at > now) {
            next = std::min(next, record->ask_at);
            continue;
        }
        if (count_ == 0)
            first_ = id;
        if (id - first_ >= limit)
            return kick(), now + 10 * kMillisecond;
        count_ = static_cast<uint32_t>(id - first_) + 1;
        record->ask_at = now + session_.commit_patience();
        next = std::min(next, record->ask_at);
    }
    if (count_ > 0)
        kick();
    return next;
}

void ResolveOp::next(wire::RequestBody &body, Part &part) {
    part.count = count_;
    part.op_id = first_;
    body = wire::ResolveRequest{first_, count_};
    count_ = 0;
}

bool ResolveOp::on_reply(const Part &part, const wire::ReplyBody &body, std::vector<UniqueFd> &,
                         bool) {
    if (std::holds_alternative<wire::StatusOnly>(body))
        return true;  // asked again later
    const auto *reply = std::get_if<wire::ResolveReply>(&body);
    if (!reply || reply->results.size() != part.count)
        return false;
    for (uint32_t i = 0; i < part.count; ++i) {
        const wire::CommitResult &result = reply->results[i];
        if (!session_.ledger().find(part.op_id + i) || result.status == Status::Unknown)
            continue;
        session_.check(result.status == Status::Absent
                           ? session_.renew_commit(part.op_id + i)
                           : session_.settle_commit(part.op_id + i, result));
    }
    return true;
}

void RecommitOp::add(const CommitRecord &record) {
    queue_.push_back(record);
    kick();
}

bool RecommitOp::unsent() const { return !queue_.empty(); }

void RecommitOp::next(wire::RequestBody &body, Part &part) {
    const auto &limits = session_.transport().limits();
    Namespace *ns = queue_.front().ns;
    items_.clear();
    while (!queue_.empty() && queue_.front().ns == ns && items_.size() < limits.batch_items &&
           (items_.empty() || session_.ledger().span() < limits.ledger_items)) {
        CommitRecord record = queue_.front();
        queue_.pop_front();
        record.settled = false;
        record.ask_at = now_ns() + session_.commit_patience();
        session_.resolve_at(record.ask_at);
        const uint64_t id = session_.ledger().add(record);
        if (items_.empty())
            part.op_id = id;
        items_.push_back({record.key, record.pool->id(), record.run.offset, record.run.length,
                          record.run.generation});
    }
    part.count = static_cast<uint32_t>(items_.size());
    body = wire::CommitRequest{ns->id, part.op_id, items_};
}

bool RecommitOp::on_reply(const Part &part, const wire::ReplyBody &body, std::vector<UniqueFd> &,
                          bool) {
    return take_commit_reply(session_, part, body);
}

}  // namespace maru::client
