#include "libmaru/client/transport.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "libmaru/client/status.h"

namespace maru::client {

using wire::Status;

Transport::Transport(std::mutex &, Listener &listener, const Config &config)
    : listener_(listener),
      config_(config),
      buffer_(std::make_unique<Buffer>()),
      wake_fd_(UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))),
      alarm_fd_(UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK))) {
    if (wake_fd_.get() < 0 || alarm_fd_.get() < 0)
        throw std::bad_alloc();  // they fail only for want of descriptors or memory
    free_slots_.reserve(kSlots);
    for (uint32_t i = kSlots; i-- > 0;)
        free_slots_.push_back(i);
    waiters_.reserve(64);
}

Transport::~Transport() {
    assert(!connection_ && waiters_.empty());
    // Only what goes on without a caller is left, and nobody will send it any more.
    while (!queue_.empty()) {
        Op *op = queue_.back();
        queue_.pop_back();
        op->queued_ = false;
        if (!op->background && !op->caller_)
            op->recycle();
    }
}

// ---- connection ----------------------------------------------------------------------------------

void Transport::adopt(UniqueFd socket) {
    may_wait_ = wire::allow_waiting(socket.get(), kWait);
    connection_ = std::make_shared<TrackedFd>(std::move(socket));
    open_ = false;
    want_write_ = false;
    peer_ended_ = false;
    retry_send_ = kNever;
    blocked_frame_ = {};
    limits_ = wire::Limits{};
}

void Transport::set_limits(const wire::Limits &limits) {
    // Never trusted to be larger than what this library was built for, nor to be useless.
    limits_ = limits;
    limits_.probe_keys = std::clamp(limits.probe_keys, 1u, wire::kMaxProbeKeys);
    limits_.batch_items = std::clamp(limits.batch_items, 1u, wire::kMaxBatchItems);
    limits_.in_flight = std::clamp(limits.in_flight, 1u, kSlots);
    limits_.ledger_items = std::clamp(limits.ledger_items, 1u, wire::kMaxLedgerItems);
}

void Transport::set_open(bool open) {
    open_ = open;
    pump();
}

inline void Transport::unqueue(Op &op) {
    if (!op.queued_)
        return;
    auto &queue = op.control ? control_queue_ : queue_;
    queue.erase(std::find(queue.begin(), queue.end(), &op));
    op.queued_ = false;
}

void Transport::disconnect(int code, std::string_view why) {
    if (!connection_)
        return;
    // Wakes whoever polls it; closed by its last owner.
    ::shutdown(connection_->get(), SHUT_RDWR);
    connection_.reset();
    open_ = false;
    blocked_frame_ = {};
    want_write_ = false;
    retry_send_ = kNever;
    for (uint32_t i = 0; i < kSlots; ++i) {
        Slot &slot = slots_[i];
        if (slot.id == 0)
            continue;
        Op *op = slot.op;
        const Part part = slot.part;
        slot = Slot{};
        free_slots_.push_back(i);
        --unanswered_;
        --op->in_flight_;
        op->on_lost(part);
        if (op->control)
            op->fail(code, why);
        check(*op);
    }
    while (!control_queue_.empty()) {
        Op *op = control_queue_.front();
        op->fail(code, why);
        unqueue(*op);
        check(*op);
    }
    listener_.on_disconnected(code, why);
    for (Waiter *waiter : waiters_)
        waiter->turn.notify_one();
    wake();
}

// ---- ops -----------------------------------------------------------------------------------------

void Transport::start(Op &op, TimeNs now) {
    enqueue(op);
    if (!op.queued_) {  // nothing to send
        check(op);
        return;
    }
    if (op.queue && !io_reads_ && reader_ == Reader::None)
        wake();
    pump(now);
}

void Transport::enqueue(Op &op) {
    if (op.queued_ || !op.unsent())
        return;
    if (op.control && !connection_) {
        op.fail(ENOTCONN, "no connection to marud");
        return;
    }
    op.queued_ = true;
    (op.control ? control_queue_ : queue_).push_back(&op);
}

// Completes an op when all of it is answered; sends again what was lost.
void Transport::check(Op &op) {
    if (op.unsent())
        enqueue(op);
    else
        unqueue(op);
    if (op.background || op.done_ || op.queued_ || op.in_flight_ > 0)
        return;
    if (!op.caller_) {
        if (op.settled())
            op.recycle();
        return;
    }
    if (!op.settled())
        return;
    op.done_ = true;
    notify(&op);
    if (op.queue)
        listener_.on_done(op);
}

void Transport::start_detached(Op &op) {
    op.caller_ = false;
    start(op);
}

bool Transport::finish(Lock &lock, Op &op, TimeNs deadline, TimeNs now) {
    if (!wait(
            lock, &op, deadline, [&] { return op.done_; }, now)) {
        detach(op, connection_ ? ETIMEDOUT : ENOTCONN);
        return false;
    }
    return true;
}

void Transport::detach(Op &op, int code) {
    if (op.done_)
        return;
    unqueue(op);
    op.fail(code, code == ETIMEDOUT ? "marud did not answer within the deadline"
                                    : "no connection to marud within the deadline");
    op.done_ = true;  // first: what follows may end the connection, and this op must not end twice
    op.on_detach(op.code());
    enqueue(op);  // one that must come to an end without its caller
    notify(&op);
    if (op.queue)
        listener_.on_done(op);
}

void Transport::release(Op &op) {
    op.caller_ = false;
    op.done_ = false;  // from here only its messages keep it
    if (op.in_flight_ == 0 && !op.queued_ && op.settled())
        op.recycle();
}

void Transport::fail_all(int code, std::string_view why) {
    // check() changes the queue, and one that must come to an end stays in it.
    for (size_t i = 0; i < queue_.size();) {
        Op *op = queue_[i];
        if (!op->background) {
            op->fail(code, why);
            check(*op);
        }
        i = i < queue_.size() && queue_[i] == op ? i + 1 : 0;
    }
    for (Slot &slot : slots_)
        if (slot.id != 0 && !slot.op->background)
            slot.op->fail(code, why);
}

// ---- sending -------------------------------------------------------------------------------------

inline uint32_t Transport::slot_limit(bool reserve) const {
    return reserve && limits_.in_flight > 2 * kReservedSlots ? limits_.in_flight - kReservedSlots
                                                             : limits_.in_flight;
}

// The next that may send, out of its queue.
inline Op *Transport::take_op() {
    const auto take = [](std::vector<Op *> &queue, size_t place) {
        Op *op = queue[place];
        queue.erase(queue.begin() + static_cast<ptrdiff_t>(place));
        op->queued_ = false;
        return op;
    };
    if (!control_queue_.empty())
        return unanswered_ < slot_limit(false) ? take(control_queue_, 0) : nullptr;
    if (!open_)
        return nullptr;
    // Each op in turn, so that a large batch does not hold up a small one.
    for (size_t i = 0; i < queue_.size(); ++i) {
        const Op *op = queue_[i];
        if (op->in_flight_ < op->window() && unanswered_ < slot_limit(!op->background))
            return take(queue_, i);
    }
    return nullptr;
}

void Transport::send_queued(TimeNs now) {
    if (corked_ > 0)
        return;
    while (connection_ && !want_write_ && !peer_ended_ && retry_send_ == kNever) {
        Op *op = take_op();
        if (!op)
            return;
        Part part;
        op->next(request_.body, part);
        const uint32_t index = free_slots_.back();
        free_slots_.pop_back();
        request_.id = next_sequence_++ * kSlots + index;
        listener_.stamp(request_);
        Slot &slot = slots_[index];
        slot = {request_.id, op, part, now ? now : now_ns()};
        ++unanswered_;
        ++op->in_flight_;
        auto frame = encoder_.request(request_);
        if (!frame) {  // a text that cannot be sent: this request's own fault
            slot = Slot{};
            free_slots_.push_back(index);
            --unanswered_;
            --op->in_flight_;
            op->fail(frame.error().code, frame.error().message);
            op->on_lost(part);
            check(*op);
            continue;
        }
        blocked_frame_ = *frame;
        blocked_fds_.clear();
        if (const auto fds = op->fds(); !fds.empty())
            blocked_fds_.assign(fds.begin(), fds.end());
        enqueue(*op);  // it may have more: behind the others
        if (!send_blocked_frame())
            return;
    }
}

// False: not now, or the connection ended.
bool Transport::send_blocked_frame() {
    const int code = wire::try_send_packet(connection_->get(), blocked_frame_, blocked_fds_);
    if (code == 0) {
        blocked_frame_ = {};
        want_write_ = false;
        retry_send_ = kNever;
        return true;
    }
    if (code == EAGAIN || code == EWOULDBLOCK) {
        want_write_ = true;
        retry_send_ = kNever;
        wake();
    } else if (code == ENOBUFS || code == ENOMEM || code == ETOOMANYREFS) {
        want_write_ = false;
        retry_send_ = now_ns() + kMillisecond;  // no event tells when
        wake();
    } else if (code == EPIPE) {
        // Whoever reads finds the end, and before it what marud may have said of its reason.
        blocked_frame_ = {};
        want_write_ = false;
        retry_send_ = kNever;
        peer_ended_ = true;
        wake();
    } else {
        disconnect(ENOTCONN, "send packet of " + std::to_string(blocked_frame_.size()) + " bytes");
    }
    return false;
}

// ---- receiving -----------------------------------------------------------------------------------

Transport::Received Transport::receive_one(Lock &lock, const std::shared_ptr<TrackedFd> &connection,
                                           wire::Wait wait, int tries) {
    lock.unlock();
    auto packet = wire::receive_packet(connection->get(), buffer_->bytes, wait);
    while (!packet && packet.error().code == EAGAIN && --tries > 0)
        packet = wire::receive_packet(connection->get(), buffer_->bytes, wait);
    const wire::ServerMessage *message = nullptr;
    if (packet && !packet->truncated)
        message = decoder_.server_message(packet->bytes);
    lock.lock();
    if (!packet) {
        const int code = packet.error().code;
        if (code == EAGAIN || code == EWOULDBLOCK || code == EINTR || code == ENOBUFS ||
            code == ENOMEM)
            return Received::Nothing;
        if (connection_ == connection)
            disconnect(ENOTCONN, "marud closed the connection");
        return Received::Gone;
    }
    if (connection_ != connection)
        return Received::Gone;  // what an ended connection still delivers is nobody's
    if (!message) {
        disconnect(EPROTO, packet->truncated
                               ? "marud sent a packet over the limit"
                               : "marud sent what is not a message: " + decoder_.error().message);
        return Received::Gone;
    }
    dispatch(*message, packet->fds, packet->fds_lost);
    return Received::Packet;
}

void Transport::dispatch(const wire::ServerMessage &message, std::vector<UniqueFd> &fds,
                         bool fds_lost) {
    ++corked_;  // a send may fail and end the connection in the middle of an op's reply
    if (const auto *event = std::get_if<wire::Event>(&message)) {
        listener_.on_event(*event);
    } else {
        const auto &reply = std::get<wire::Reply>(message);
        Slot &slot = slots_[reply.id % kSlots];
        // Another id: answered already, or of a call that was given up with an earlier connection.
        if (reply.id != 0 && slot.id == reply.id)
            answered(slot, reply, fds, fds_lost);
    }
    --corked_;
    pump();
}

void Transport::answered(Slot &slot, const wire::Reply &reply, std::vector<UniqueFd> &fds,
                         bool fds_lost) {
    Op *op = slot.op;
    const Part part = slot.part;
    free_slots_.push_back(static_cast<uint32_t>(&slot - slots_.data()));
    slot = Slot{};
    --unanswered_;
    --op->in_flight_;
    const auto *status = std::get_if<wire::StatusOnly>(&reply.body);
    const bool fenced = status && status->status == Status::Fenced;
    if (status && status->status == Status::StaleEpoch && !op->control) {
        // This life of marud is not the one that greeted us.
        op->on_lost(part);
        check(*op);
        disconnect(ENOTCONN, "marud answered that the epoch has passed");
        return;
    }
    const bool fits = op->on_reply(part, reply.body, fds, fds_lost);
    check(*op);  // the last use of op: it may be another call's from here
    if (fenced)
        listener_.on_fenced(status->message);
    else if (!fits)
        disconnect(EPROTO, "marud's answer does not fit the request");
}

// Somebody must read: the next caller if there is one, the I/O thread after a while if not.
inline void Transport::hand_over() {
    if (!connection_ || reader_ != Reader::None)
        return;
    if (!waiters_.empty())
        waiters_.front()->turn.notify_one();
    else if (async_ > 0 && !io_reads_)
        wake();
}

bool Transport::wait_for(Lock &lock, const void *channel, TimeNs deadline, Condition ready,
                         TimeNs now) {
    if (ready())
        return true;
    if (!now)
        now = now_ns();
    // Nearly always nobody reads, and who does is not to be woken: it sees its own answer.
    if (connection_ && reader_ == Reader::None && now < deadline) {
        read_for_all(lock, ready, deadline, now);
        if (ready()) {
            hand_over();
            return true;
        }
    }
    return wait_in_turn(lock, channel, deadline, ready);
}

// Among others, of whom one reads.
bool Transport::wait_in_turn(Lock &lock, const void *channel, TimeNs deadline, Condition ready) {
    Waiter self;
    self.channel = channel;
    waiters_.push_back(&self);
    bool holds = false;
    TimeNs now;
    while (!(holds = ready()) && (now = now_ns()) < deadline) {
        if (connection_ && reader_ == Reader::None)
            read_for_all(lock, ready, deadline, now);
        else
            self.turn.wait_until(lock, time_point(deadline));
    }
    waiters_.erase(std::find(waiters_.begin(), waiters_.end(), &self));
    hand_over();
    return holds;
}

void Transport::read_for_all(Lock &lock, Condition ready, TimeNs deadline, TimeNs now) {
    reader_ = Reader::Caller;
    const auto connection = connection_;
    const TimeNs spin_until =
        config_.spin_us ? now + static_cast<TimeNs>(config_.spin_us) * 1000 : now;
    while (connection_ == connection && !ready()) {
        // One system call that sleeps, where asking, polling and asking again would be three. The
        // end of a connection wakes it as a packet does.
        const bool spins = now < spin_until;
        const bool waits = may_wait_ && !spins && deadline - now > kWait;
        const Received received =
            receive_one(lock, connection, waits ? wire::Wait::Bounded : wire::Wait::Never,
                        spins ? kSpinTries : 1);
        now = now_ns();
        if (received == Received::Gone)
            break;
        if (received == Received::Packet || waits || spins) {
            if (now >= deadline)
                break;
            continue;
        }
        lock.unlock();
        auto waited = wire::wait_socket(connection->get(), POLLIN, deadline);
        lock.lock();
        now = now_ns();
        if (!waited)
            break;
    }
    reader_ = Reader::None;
    last_lead_ = now;
}

void Transport::notify(const void *channel) {
    for (Waiter *waiter : waiters_)
        if (waiter->channel == channel)
            waiter->turn.notify_one();
}

// ---- the I/O thread ------------------------------------------------------------------------------

void Transport::wake() {
    if (woken_.exchange(true))
        return;
    const uint64_t one = 1;
    // Full is impossible: one write at most between two reads.
    [[maybe_unused]] ssize_t written = ::write(wake_fd_.get(), &one, sizeof one);
}

void Transport::wake_by(TimeNs when) {
    if (when >= asleep_until_ || (alarm_ != 0 && alarm_ <= when))
        return;
    alarm_ = when;
    itimerspec alarm{};
    alarm.it_value = {when / 1'000'000'000, when % 1'000'000'000};
    ::timerfd_settime(alarm_fd_.get(), TFD_TIMER_ABSTIME, &alarm, nullptr);
}

void Transport::serve(Lock &lock, TimeNs until) {
    const TimeNs now = now_ns();
    const auto connection = connection_;
    const bool callers_read = reader_ == Reader::Caller;
    const bool lingering = async_ == 0 && now < last_lead_ + kLinger;
    pollfd fds[3] = {{wake_fd_.get(), POLLIN, 0}, {-1, 0, 0}, {alarm_fd_.get(), POLLIN, 0}};
    if (connection) {
        fds[1].fd = connection->get();
        if (!callers_read && !lingering)
            fds[1].events |= POLLIN;
        if (want_write_)
            fds[1].events |= POLLOUT;
        if (fds[1].events == 0)
            fds[1].fd = -1;  // else a hang-up would be reported again and again
        // Callers may leave at any time without telling: that is their fast path.
        if (callers_read || lingering)
            until = std::min(until, now + kLinger);
        until = std::min(until, retry_send_);
    }
    timespec timeout{};
    if (until > now) {
        const TimeNs left = std::min(until - now, TimeNs{3'600'000} * kMillisecond);
        timeout = {left / 1'000'000'000, left % 1'000'000'000};
    }
    io_reads_ = (fds[1].events & POLLIN) != 0;
    asleep_until_ = until;
    lock.unlock();
    const int ready = ::ppoll(fds, 3, &timeout, nullptr);
    if (ready > 0 && fds[0].revents) {
        // In this order: a wake() that comes between the two is seen below, by its cause.
        woken_.store(false);
        uint64_t count;
        [[maybe_unused]] ssize_t got = ::read(wake_fd_.get(), &count, sizeof count);
    }
    lock.lock();
    io_reads_ = false;
    asleep_until_ = 0;
    if (ready > 0 && fds[2].revents) {
        uint64_t times;
        [[maybe_unused]] ssize_t got = ::read(alarm_fd_.get(), &times, sizeof times);
        alarm_ = 0;
    }
    if (connection_ != connection || !connection)
        return;
    if ((want_write_ && (fds[1].revents & (POLLOUT | POLLERR | POLLHUP))) ||
        now_ns() >= retry_send_)
        if (send_blocked_frame())
            pump();
    if (!(fds[1].revents & ~POLLOUT) || reader_ != Reader::None)
        return;
    reader_ = Reader::Io;
    while (connection_ == connection && receive_one(lock, connection) == Received::Packet) {
    }
    reader_ = Reader::None;
    hand_over();
}

TimeNs Transport::check_silence(TimeNs now) {
    TimeNs next = kNever;
    if (!connection_ || unanswered_ == 0)
        return next;
    for (const Slot &slot : slots_) {
        if (slot.id == 0 || slot.op->patient)
            continue;
        if (now >= slot.sent + config_.silence) {
            disconnect(ENOTCONN, "marud did not answer for " +
                                     std::to_string(config_.silence / kMillisecond) + " ms");
            return kNever;
        }
        next = std::min(next, slot.sent + config_.silence);
    }
    return next;
}

}  // namespace maru::client
