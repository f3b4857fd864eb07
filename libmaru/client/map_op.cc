#include "libmaru/client/map_op.h"

#include <algorithm>
#include <cerrno>
#include <new>

#include "libmaru/client/batch_ops.h"
#include "libmaru/client/session.h"
#include "libmaru/client/status.h"

namespace maru::client {

using wire::Status;

namespace {

// A refusal that says only that the object is not to be had any more.
bool is_miss(Status status) {
    return status == Status::NotFound || status == Status::Unavailable ||
           status == Status::InvalidArgument || status == Status::StaleGeneration ||
           status == Status::StaleEpoch;
}

}  // namespace

bool MapOp::use_view(uint32_t held) {
    Held &entry = session_.held()[held];
    if (entry.view)
        return true;
    entry.view = session_.views().find(entry.pool_id, entry.run.offset, entry.run.length);
    if (entry.view)
        session_.views().use(*entry.view);
    return entry.view != nullptr;
}

bool MapOp::want(uint32_t held, AcquireOp &op, uint32_t index) {
    if (use_view(held))
        return true;
    waiting_.push_back({held, session_.held()[held].run.generation, &op, index});
    kick();
    return false;
}

void MapOp::forget(const AcquireOp &op) {
    std::erase_if(waiting_, [&](const Waiting &waiting) { return waiting.op == &op; });
}

void MapOp::fail_all() {
    while (!waiting_.empty()) {
        const Waiting waiting = waiting_.front();
        waiting_.erase(waiting_.begin());
        settle(waiting, false, {});
    }
}

void MapOp::settle(const Waiting &waiting, bool ready, const Error &why) {
    waiting.op->view_ready(waiting.index, ready, why);
    session_.transport().check(*waiting.op);
}

void MapOp::next(wire::RequestBody &body, Part &) {
    sent_ = true;
    asked_held_ = waiting_.front().held;
    const Held &entry = session_.held()[asked_held_];
    body = wire::MapSegmentRequest{{entry.replica, entry.run.generation}};
}

Result<void> MapOp::map(const wire::ViewReply &view, std::vector<UniqueFd> &fds) {
    if (fds.empty())
        return Error{EMFILE,
                     "the descriptor of a segment could not be received; raise RLIMIT_NOFILE"};
    UniqueFd fd = std::move(fds.front());
    fds.erase(fds.begin());
    try {
        if (auto mapped = session_.views().map(view, std::move(fd)); !mapped)
            return mapped.error();
    } catch (const std::bad_alloc &) {
        return Error{ENOMEM, "no memory to keep a view of a segment"};
    }
    session_.transport().wake();  // the I/O thread populates it
    return {};
}

bool MapOp::on_reply(const Part &, const wire::ReplyBody &body, std::vector<UniqueFd> &fds, bool) {
    sent_ = false;
    const auto *view = std::get_if<wire::ViewReply>(&body);
    const auto *refusal = std::get_if<wire::StatusOnly>(&body);
    if (!view && !refusal)
        return false;
    Error why;
    if (view) {
        if (auto mapped = map(*view, fds); !mapped)
            why = mapped.error();
    } else if (!is_miss(refusal->status)) {
        why = Error{errno_of(refusal->status), std::string(refusal->message)};
    }
    // Everybody in it is served, or will not be; whoever it was asked for is not served again.
    for (size_t i = 0; i < waiting_.size();) {
        const Waiting waiting = waiting_[i];
        const Held &entry = session_.held()[waiting.held];
        const bool same = entry.state == HeldState::Foreign && entry.leases > 0 &&
                          entry.run.generation == waiting.generation;
        const bool inside = view && entry.pool_id == view->pool &&
                            entry.run.offset >= view->offset &&
                            entry.run.offset - view->offset < view->bytes;
        const bool ready = same && inside && why.code == 0 && use_view(waiting.held);
        if (!ready && same && waiting.held != asked_held_ && !(inside && why.code != 0)) {
            ++i;
            continue;
        }
        waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(i));
        settle(waiting, ready, why);
        i = 0;  // settling may change the list
    }
    kick();
    return true;
}

}  // namespace maru::client
