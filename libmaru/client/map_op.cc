#include "libmaru/client/map_op.h"

#include <algorithm>

#include "libmaru/client/batch_ops.h"
#include "libmaru/client/session.h"

namespace maru::client {

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
        waiting_.pop_front();
        settle(waiting, false);
    }
}

void MapOp::settle(const Waiting &waiting, bool ready) {
    waiting.op->view_ready(waiting.index, ready);
    session_.transport().check(*waiting.op);
}

void MapOp::next(wire::RequestBody &body, Part &) {
    sent_ = true;
    asked_held_ = waiting_.front().held;
    const Held &entry = session_.held()[asked_held_];
    body = wire::MapSegmentRequest{{entry.replica, entry.run.generation}};
}

bool MapOp::on_reply(const Part &, const wire::ReplyBody &body, std::vector<UniqueFd> &fds, bool) {
    sent_ = false;
    const auto *view = std::get_if<wire::ViewReply>(&body);
    const bool refused = std::holds_alternative<wire::StatusOnly>(body);
    if (!view && !refused)
        return false;
    bool mapped = false;
    if (view && !fds.empty()) {
        mapped = static_cast<bool>(session_.views().map(*view, std::move(fds.front())));
        fds.erase(fds.begin());
        session_.transport().wake();  // the I/O thread populates it
    }
    // Everybody in it is served; whoever it was asked for is not served again.
    for (size_t i = 0; i < waiting_.size();) {
        const Waiting waiting = waiting_[i];
        const Held &entry = session_.held()[waiting.held];
        const bool same = entry.state == HeldState::Foreign && entry.leases > 0 &&
                          entry.run.generation == waiting.generation;
        const bool ready = same && mapped && use_view(waiting.held);
        if (!ready && same && waiting.held != asked_held_) {
            ++i;
            continue;
        }
        waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(i));
        settle(waiting, ready);
        i = 0;  // settling may change the list
    }
    kick();
    return true;
}

}  // namespace maru::client
