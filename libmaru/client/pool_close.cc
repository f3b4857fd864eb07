// The end of a pool: no new use, unmapped here, and given back or left to others.
//
// Memory is never unmapped under a lease or a reservation of this process. What marud must prove or
// adopt, it is asked for until it answers; the pool is gone from the session only then, so that a
// marud that is restarted in between is passed the segments again, and of a pool that is left told
// all that is in it.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "libmaru/client/clock.h"
#include "libmaru/client/pool.h"

namespace maru::client {

using pool::AllocationState;
using wire::Status;

namespace {

Outcome refused(int code, std::string message) { return {-int64_t{code}, std::move(message)}; }

}  // namespace

Outcome Pool::busy_with() const {
    if (leases > 0)
        return refused(EBUSY,
                       std::to_string(leases) + " leases on objects of the pool are held here");
    if (const uint64_t n = allocator_->count(AllocationState::Reserved))
        return refused(
            EBUSY, std::to_string(n) + " reservations of the pool are not committed or aborted");
    if (const uint64_t n = unsettled(); n > 0 && !session_.over())
        return refused(EBUSY, "the fate of " + std::to_string(n) + " commits is not known yet");
    return {};
}

Outcome Pool::close(Pool &pool, Close mode, TimeNs deadline) {
    Session &session = pool.session_;
    std::unique_ptr<Pool> gone;
    auto lock = session.lock();
    if (pool.close_running_)
        return refused(EBUSY, "another close of the pool is running");
    pool.close_running_ = true;
    Outcome outcome;
    if (!pool.drained_)
        outcome = pool.drain(lock, mode, deadline);
    if (outcome.value == 0) {
        pool.drained_ = true;
        pool.unmap(lock);
        outcome = pool.finish(lock, mode, deadline);
    }
    pool.close_running_ = false;
    if (outcome.value != 0)
        return outcome;
    if (pool.left_)
        session.forget_pool(pool);
    auto &pools = session.pools();
    auto it =
        std::find_if(pools.begin(), pools.end(), [&](const auto &p) { return p.get() == &pool; });
    gone = std::move(*it);
    pools.erase(it);
    lock.unlock();  // before the pool is destroyed
    return {};
}

Outcome Pool::drain(Lock &lock, Close mode, TimeNs deadline) {
    const bool forced = mode == Close::Forced;
    allocator_->set_closed(true);
    auto reopen = [&] {
        if (!closing_)
            allocator_->set_closed(false);
    };
    if (mode == Close::Left) {
        // Leases of this client go on: they are on what marud keeps from now on, but this process
        // unmaps its own view of it.
        if (Outcome busy = busy_with(); busy.value != 0) {
            reopen();
            return busy;
        }
        closing_ = left_ = true;
        return {};
    }
    if (!forced) {
        if (Outcome busy = busy_with(); busy.value != 0) {
            reopen();
            return busy;
        }
    } else {
        closing_ = true;
        // Writers first: memory under a reservation must stay until it is committed or aborted.
        auto quiet = [&] {
            return allocator_->count(AllocationState::Reserved) == 0 &&
                   (unsettled() == 0 || session_.over());
        };
        while (!quiet()) {
            if (now_ns() >= deadline)
                return refused(ETIMEDOUT, "forced close: " + busy_with().message);
            session_.transport().wait(lock, this, std::min(deadline, now_ns() + 10 * kMillisecond),
                                      quiet);
        }
        for (uint32_t held = 0; held < session_.held().slots(); ++held)
            if (session_.held()[held].pool == this &&
                session_.held()[held].state == HeldState::Ready)
                session_.withdraw(held);
    }
    if (session_.over()) {  // nobody to ask: the mappings are all that is left
        if (leases > 0) {
            reopen();
            return busy_with();
        }
        return {};
    }
    // A release waits for the answer to the one before it. marud must hear all of them before it is
    // asked who still reads; on one connection, sent before is heard before.
    auto told = [&] { return session_.releases_sent(); };
    while (!told() && now_ns() < deadline)
        session_.transport().wait(lock, this, std::min(deadline, now_ns() + 10 * kMillisecond),
                                  told);
    uint64_t marud_leases = 0;
    std::string who;
    bool busy = false;
    auto asked = session_.call(
        lock,
        [&](wire::RequestBody &body) {
            body = wire::ClosePoolRequest{
                id_, forced ? wire::ClosePhase::Force : wire::ClosePhase::Drain};
        },
        [&](const wire::ReplyBody &body, std::vector<UniqueFd> &, bool) {
            const auto *reply = std::get_if<wire::ClosePoolReply>(&body);
            if (!reply)
                return false;
            busy = reply->status != Status::Ok;
            marud_leases = reply->leases;
            who = reply->message;
            return true;
        },
        deadline, false, {}, true);
    if (asked.status == Status::NotFound)
        return {};
    if (asked.code == ETIMEDOUT)  // marud may have begun: it stays closed here too
        return refused(asked.code, forced ? "forced close: readers are left: " + busy_with().message
                                          : asked.message);
    if (asked.code != 0) {
        reopen();
        return refused(asked.code, asked.message);
    }
    if (busy) {
        reopen();
        return refused(EBUSY, who.empty() ? std::to_string(marud_leases) + " leases" : who);
    }
    if (leases > 0)  // never unmapped under a reader, whatever marud counts
        return refused(EBUSY, busy_with().message);
    return {};
}

void Pool::unmap(Lock &lock) {
    closing_ = true;
    if (unmapped_)
        return;
    {
        std::lock_guard feed(feed_mutex_);
        stop_ = true;
        feed_changed_.notify_all();
    }
    lock.unlock();
    if (populator_)
        populator_->stop();
    pins_.clear();
    lock.lock();
    if (!left_)  // else a marud that is restarted meanwhile must be told what to keep
        session_.forget_pool(*this);
    kept_.clear();
    for (uint32_t i = 0; i < confirmed_; ++i)
        kept_.push_back(
            std::make_unique<TrackedFd>(UniqueFd(::fcntl(segments_[i]->fd(), F_DUPFD_CLOEXEC, 0))));
    if (std::any_of(kept_.begin(), kept_.end(), [](const auto &fd) { return fd->get() < 0; }))
        confirmed_ = 0;  // no descriptors to spare: a new marud must do without
    unmapped_ = true;
    auto segments = std::move(segments_);
    segments_.clear();
    for (auto &segment : segments)
        if (segment)
            ForkGuard::untrack(segment->fd());
    lock.unlock();
    segments.clear();  // freeing gigabytes takes a while
    lock.lock();
}

Outcome Pool::finish(Lock &lock, Close mode, TimeNs deadline) {
    if (session_.over())
        return {};
    TimeNs pause = 5 * kMillisecond;
    const auto last = mode == Close::Left ? wire::ClosePhase::Leave : wire::ClosePhase::Finish;
    wire::ClosePhase phase = last;
    for (;;) {
        bool busy = false;
        std::string who;
        auto asked = session_.call(
            lock,
            [&](wire::RequestBody &body) {
                body = wire::ClosePoolRequest{id_, phase};
            },
            [&](const wire::ReplyBody &body, std::vector<UniqueFd> &, bool) {
                const auto *reply = std::get_if<wire::ClosePoolReply>(&body);
                if (!reply)
                    return false;
                busy = reply->status != Status::Ok;
                who = reply->message;
                return true;
            },
            deadline, false, {}, true);
        // Denied: the pool is gone; marud keeps the charge of what it cannot prove.
        if (asked.status == Status::NotFound || asked.status == Status::Denied)
            return {};
        if (asked.status == Status::InvalidArgument && phase == wire::ClosePhase::Finish) {
            phase = wire::ClosePhase::Force;  // a new marud, which did not hear of the drain
            continue;
        }
        if (asked.code != 0)
            return refused(asked.code, "close pool: " + asked.message);
        if (!busy && phase == last)
            return {};
        if (!busy) {
            phase = wire::ClosePhase::Finish;
            continue;
        }
        if (now_ns() + pause >= deadline)
            return refused(EBUSY,
                           "close pool: " + (who.empty() ? "a mapping or a pin is left" : who));
        session_.transport().wait(lock, this, now_ns() + pause, [] { return false; });
        pause = std::min(pause * 2, 200 * kMillisecond);
    }
}

}  // namespace maru::client
