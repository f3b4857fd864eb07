#include "libmaru/client/batch_ops.h"

#include <algorithm>
#include <cerrno>
#include <new>

#include "libmaru/client/bits.h"
#include "libmaru/client/pool.h"
#include "libmaru/client/status.h"
#include "libmaru/wire/codec.h"

namespace maru::client {

using wire::Status;

void BatchOp::begin(uint32_t count) {
    reset();
    todo_.clear();
    if (count > 0)
        todo_.push_back({0, count});
}

void BatchOp::again(uint32_t first, uint32_t count) {
    if (detached() || count == 0)
        return;
    auto at =
        std::find_if(todo_.begin(), todo_.end(), [&](const Range &r) { return r.first > first; });
    if (at != todo_.begin() && (at - 1)->first + (at - 1)->count == first) {
        (at - 1)->count += count;
        return;
    }
    todo_.insert(at, {first, count});
}

void BatchOp::take(uint32_t most, Part &part) {
    Range &range = todo_.front();
    part.first = range.first;
    part.count = std::min(range.count, most);
    range.first += part.count;
    range.count -= part.count;
    if (range.count == 0)
        todo_.erase(todo_.begin());
}

void BatchOp::drop_after(uint32_t index) {
    while (!todo_.empty() && todo_.back().first >= index)
        todo_.pop_back();
    if (!todo_.empty() && todo_.back().first + todo_.back().count > index)
        todo_.back().count = index - todo_.back().first;
}

bool BatchOp::failed(const wire::ReplyBody &body) {
    const auto *status = std::get_if<wire::StatusOnly>(&body);
    if (!status)
        return false;
    if (status->status == Status::Ok)
        fail(EPROTO, "marud answered a batch without results");
    else if (status->message.empty())
        fail(errno_of(status->status),
             std::string("marud answered ") + wire::status_name(status->status));
    else
        fail(errno_of(status->status), status->message);
    return true;
}

Outcome complete(BatchOp &op) {
    try {
        return op.complete();
    } catch (const std::bad_alloc &) {
        op.fail(ENOMEM, "no memory for the results");
        return op.complete();
    }
}

Outcome run(Session &session, Lock &lock, BatchOp &op) {
    const TimeNs now = now_ns();
    const TimeNs deadline = session.call_deadline(now);
    if (session.over())
        op.fail(session.over(), session.over_why());
    session.transport().start(op, now);
    session.transport().finish(lock, op, deadline, now);
    Outcome outcome = complete(op);
    session.transport().release(op);
    return outcome;
}

void submit(Session &session, BatchOp &op, CompletionQueue &queue, uint64_t user_data) {
    op.queue = &queue;
    op.user_data = user_data;
    op.deadline = session.call_deadline();
    if (session.over())
        op.fail(session.over(), session.over_why());
    session.track_async(op);
    session.transport().start(op);
}

// ---- probe ---------------------------------------------------------------------------------------

void ProbeOp::set(Namespace &ns, const wire::Digest *keys, uint32_t count,
                  const wire::Manifest &manifest, bool prefix_only, uint8_t *ret_bitmap) {
    begin(count);
    ns_ = &ns;
    keys_ = keys;
    count_ = count;
    manifest_ = manifest;
    prefix_only_ = prefix_only;
    ret_bitmap_ = ret_bitmap;
    bits_.assign((count + 7) / 8, 0);
}

void ProbeOp::next(wire::RequestBody &body, Part &part) {
    uint32_t most = std::min(session_.transport().limits().probe_keys,
                             wire::kMaxProbeObjects / manifest_.objects());
    take(std::max(most, 1u), part);
    body = wire::ProbeRequest{ns_->id,
                              {keys_ + part.first, part.count},
                              manifest_,
                              prefix_only_,
                              session_.probed_worker()};
}

bool ProbeOp::on_reply(const Part &part, const wire::ReplyBody &body, std::vector<UniqueFd> &,
                       bool) {
    if (failed(body) || detached())
        return true;
    const auto *reply = std::get_if<wire::ProbeReply>(&body);
    if (!reply || reply->bitmap.size() != (part.count + 7) / 8 || reply->prefix > part.count) {
        fail(EPROTO, "marud answered a probe with another number of keys than asked");
        return true;  // a probe changes nothing: the connection is still good
    }
    set_bits(bits_, part.first, reply->bitmap, part.count);
    if (prefix_only_)
        if (const uint32_t first_miss = leading_ones(reply->bitmap, part.count);
            first_miss < part.count)
            drop_after(part.first + first_miss);
    return true;
}

Outcome ProbeOp::complete() {
    if (code() != 0)
        return failure();
    const uint32_t prefix = leading_ones(bits_, count_);
    if (ret_bitmap_) {
        if (prefix_only_)
            clear_bits_from(bits_, prefix);
        std::copy(bits_.begin(), bits_.end(), ret_bitmap_);
    }
    return {prefix, {}};
}

// ---- commit --------------------------------------------------------------------------------------

void CommitOp::set(Namespace &ns, Pool &pool, const wire::Key *keys,
                   std::span<const pool::PageRun> runs, int *ret_results) {
    begin(static_cast<uint32_t>(runs.size()));
    // Publishing must not fail for want of memory once marud has agreed.
    session_.held().reserve(session_.ledger().unsettled() + session_.acquiring + runs.size());
    ns_ = &ns;
    pool_ = &pool;
    keys_ = keys;
    runs_.assign(runs.begin(), runs.end());
    ret_results_ = ret_results;
    outstanding_ = 0;
    refusal_.clear();
    results_.assign(runs.size(), -EINPROGRESS);
}

namespace {

// In a few messages, so that marud publishes one while the next is being made and an earlier one
// settled: both ends have about as much to do. Not in small ones, which cost more than that saves.
uint32_t message_items(uint32_t all) {
    constexpr uint32_t kMessages = 4, kLeast = 64;
    return std::max(kLeast, all / kMessages + (all % kMessages != 0));
}

}  // namespace

uint32_t CommitOp::window() const {
    // A full ledger pins until the oldest answer comes.
    return session_.ledger().span() < session_.transport().limits().ledger_items ? 8 : 0;
}

void CommitOp::next(wire::RequestBody &body, Part &part) {
    const auto &limits = session_.transport().limits();
    CommitLedger &ledger = session_.ledger();
    take(std::min({message_items(static_cast<uint32_t>(runs_.size())), limits.batch_items,
                   static_cast<uint32_t>(limits.ledger_items - ledger.span())}),
         part);
    items_.clear();
    items_.reserve(part.count);
    part.op_id = ledger.next_id();
    for (uint32_t i = part.first; i < part.first + part.count; ++i) {
        CommitRecord &record = ledger.add();
        record.op = this;
        record.index = i;
        record.ns = ns_;
        record.pool = pool_;
        record.key = keys_[i];
        record.run = runs_[i];
        items_.push_back(
            {keys_[i], pool_->id(), runs_[i].offset, runs_[i].length, runs_[i].generation});
        ++outstanding_;
    }
    body = wire::CommitRequest{ns_->id, part.op_id, items_};
}

bool CommitOp::on_reply(const Part &part, const wire::ReplyBody &body, std::vector<UniqueFd> &,
                        bool) {
    if (const auto *status = std::get_if<wire::StatusOnly>(&body); status && refusal_.empty())
        refusal_ = status->message;
    return take_commit_reply(session_, part, body);
}

// Their fate is not known until marud says so: their pages are nobody's meanwhile.
void CommitOp::on_lost(const Part &part) {
    for (uint32_t i = 0; i < part.count; ++i)
        if (const CommitRecord *record = session_.ledger().find(part.op_id + i))
            record->pool->allocator().apply(pool::AllocationEvent::Lost, record->run);
}

void CommitOp::settled_item(uint32_t index, Status status) {
    --outstanding_;
    results_[index] = -errno_of(status);
    if (results_[index] != 0 && status != Status::AlreadyPresent && refusal_.empty())
        refusal_ = std::string("marud answered ") + wire::status_name(status);
}

void CommitOp::refuse_unsent(int code) {
    Part part;
    while (more()) {
        take(UINT32_MAX, part);
        for (uint32_t i = part.first; i < part.first + part.count; ++i) {
            pool_->allocator().apply(pool::AllocationEvent::Refused, runs_[i]);
            results_[i] = -code;
        }
    }
}

void CommitOp::on_detach(int code) {
    // What was not sent is known not to be published.
    refuse_unsent(code);
    CommitLedger &ledger = session_.ledger();
    const TimeNs ask_at = session_.over() ? kNever : now_ns();
    for (uint64_t id = ledger.lowest_unsettled(); outstanding_ > 0 && id < ledger.next_id(); ++id) {
        CommitRecord *record = ledger.find(id);
        if (!record || record->op != this)
            continue;
        record->op = nullptr;
        record->ask_at = ask_at;
        record->pool->allocator().apply(pool::AllocationEvent::Lost, record->run);
        --outstanding_;
    }
    session_.resolve_at(ask_at);
}

void CommitOp::recycle() { session_.commits.idle.push_back(this); }

Outcome CommitOp::complete() {
    if (code() != 0)
        refuse_unsent(code());
    std::copy(results_.begin(), results_.end(), ret_results_);
    for (size_t i = 0; i < results_.size(); ++i) {
        if (results_[i] == 0 || results_[i] == -EEXIST)
            continue;
        const std::string &text = results_[i] == -EINPROGRESS
                                      ? "its fate is not known yet; the library settles it"
                                  : refusal_.empty() ? message()
                                                     : refusal_;
        return {results_[i], "commit, item " + std::to_string(i) + " of " +
                                 std::to_string(results_.size()) + ": " + text};
    }
    return {};
}

// ---- retire --------------------------------------------------------------------------------------

void RetireOp::set(Namespace &ns, const wire::Key *keys, uint32_t count, int *ret_results) {
    ret_results_ = ret_results;
    results_.assign(count, -ENOENT);
    named_.clear();
    named_.reserve(count);  // before anything is withdrawn
    for (uint32_t i = 0; i < count; ++i) {
        // One key may have a replica in each of several pools.
        for (uint32_t held;
             (held = session_.held().find_ready(&ns, keys[i])) != HeldTable::kNone;) {
            const Held &entry = session_.held()[held];
            named_.push_back({i, held, entry.replica, entry.run.generation});
            session_.withdraw(held);
            results_[i] = 0;
        }
    }
    begin(static_cast<uint32_t>(named_.size()));
}

void RetireOp::next(wire::RequestBody &body, Part &part) {
    take(session_.transport().limits().batch_items, part);
    names_.clear();
    for (uint32_t i = part.first; i < part.first + part.count; ++i) {
        // A new life of marud may have renamed it since.
        const Held &entry = session_.held()[named_[i].held];
        if (entry.state != HeldState::Free && entry.run.generation == named_[i].generation)
            named_[i].replica = entry.replica;
        names_.push_back({named_[i].replica, named_[i].generation});
    }
    body = wire::RetireRequest{names_};
}

bool RetireOp::on_reply(const Part &part, const wire::ReplyBody &body, std::vector<UniqueFd> &,
                        bool) {
    if (failed(body))
        return true;
    const auto *reply = std::get_if<wire::ItemStatusReply>(&body);
    if (!reply || reply->statuses.size() != part.count) {
        fail(EPROTO, "marud answered a retire with another number of items than asked");
        return false;
    }
    for (uint32_t i = 0; i < part.count; ++i) {
        const Named &named = named_[part.first + i];
        const Held &entry = session_.held()[named.held];
        if (entry.state != HeldState::Free && entry.replica == named.replica &&
            entry.run.generation == named.generation)
            session_.retire_answer(named.held, reply->statuses[i]);
    }
    return true;
}

void RetireOp::on_detach(int code) {
    BatchOp::on_detach(code);
    for (const Named &named : named_)
        session_.sweep(named.held);
}

Outcome RetireOp::complete() {
    if (ret_results_)
        std::copy(results_.begin(), results_.end(), ret_results_);
    return {static_cast<int64_t>(std::count(results_.begin(), results_.end(), 0)), {}};
}

}  // namespace maru::client
