#include "libmaru/client/pool.h"

#include <fcntl.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <new>

#include "libmaru/client/clock.h"

namespace maru::client {

using pool::AllocationState;
using wire::Status;

namespace {

uint64_t random_key() {
    uint64_t key = 0;
    while (key == 0)
        if (::getrandom(&key, sizeof key, 0) != sizeof key)
            key = static_cast<uint64_t>(now_ns());  // unique within this session is all it must be
    return key;
}

// Between two questions to a marud that is still proving something free.
constexpr TimeNs kFirstPause = 10 * kMillisecond;
constexpr TimeNs kLastPause = 500 * kMillisecond;

Outcome refused(int code, std::string message) { return {-int64_t{code}, std::move(message)}; }

// A quota that is full may have room again: segments come and go with other workers.
bool may_be_granted_later(int code) { return code == ENOSPC || code == EDQUOT || code == ENOMEM; }
constexpr auto kAskAgain = std::chrono::seconds(1);

}  // namespace

Pool::Pool(Session &session, const PoolOptions &options)
    : session_(session),
      options_(options),
      request_key_(random_key()),
      environment_(pool::system_memory()) {}

Pool::~Pool() {
    {
        std::lock_guard feed(feed_mutex_);
        stop_ = true;
        feed_changed_.notify_all();
    }
    if (populator_)
        populator_->stop();
    for (auto &segment : segments_)
        if (segment)
            ForkGuard::untrack(segment->fd());
}

// ---- open ----------------------------------------------------------------------------------------

// Shared by the waiting caller and the request, which outlives a caller that gives up: the pool that
// marud then has made is closed again.
struct Pool::Opening {
    std::unique_ptr<Pool> pool;
    bool given_up = false;
    bool may_come_back = false;  // refused, and marud is about to get memory back
    Error error;
};

Result<Pool *> Pool::open(Session &session, const PoolOptions &options) {
    auto opening = std::make_shared<Opening>();
    opening->pool.reset(new Pool(session, options));
    Pool *pool = opening->pool.get();
    const TimeNs deadline = session.call_deadline();
    auto lock = session.lock();
    for (TimeNs pause = kFirstPause;; pause = std::min(pause * 2, kLastPause)) {
        if (session.over())
            return Error{session.over(), session.over_why()};
        ask_grant(session, lock, options, opening, deadline);
        if (opening->error.code == 0)
            break;
        // An engine that was killed and started again at once meets its predecessor's charge.
        if (!opening->may_come_back || now_ns() + pause >= deadline)
            return opening->error;
        session.transport().wait(lock, opening.get(), now_ns() + pause, [] { return false; });
    }
    lock.unlock();

    // The first segment in this thread, so that a refusal is the caller's; all of them where all or
    // nothing was asked for.
    const bool all = options.huge_pages == wire::HugePages::Required && !pool->shared();
    Result<void> opened;
    for (uint32_t i = 0; opened && i < (all ? pool->segment_count_ : 1u); ++i) {
        auto range = pool->open_segment(i);
        // No room for a segment now is no failure: what others have left is read all the same.
        if (!range && pool->shared() && may_be_granted_later(range.error().code))
            pool->refused_ = range.error();
        else if (!range)
            opened = range.error();
    }
    if (opened) {
        pool->populator_ = std::make_unique<pool::Populator>(
            pool->segment_count_, pool::PopulateOptions{options.margin_bytes, true},
            pool::Populator::Hooks{
                [pool](uint32_t segment) {
                    return pool->shared() ? pool->open_wanted(segment)
                                          : pool->open_segment(segment);
                },
                [pool](uint32_t segment, uint64_t usable) {
                    const uint64_t start = uint64_t{segment} * pool->segment_bytes_;
                    const uint64_t bytes =
                        std::min(pool->segment_bytes_, pool->capacity_bytes_ - start);
                    (void)pool->allocator_->admit(segment, std::min(usable, bytes));
                    if (pool->shared() && usable >= bytes) {
                        std::lock_guard feed(pool->feed_mutex_);
                        pool->filled_ = segment + 1;
                        pool->feed_changed_.notify_all();
                    }
                }},
            *pool->environment_);
        opened = pool->populator_->start();
    }
    if (!opened) {
        // Best effort: what marud does not hear now it hears when the session ends.
        (void)close(*pool, Close::Forced, session.call_deadline());
        return Error{opened.error().code, "open pool: " + opened.error().message};
    }
    if (options.wait_populated)
        (void)pool->wait_populated(INT32_MAX);
    return pool;
}

void Pool::ask_grant(Session &session, Lock &lock, const PoolOptions &options,
                     const std::shared_ptr<Opening> &opening, TimeNs deadline) {
    opening->error = {};
    auto *op = new CallOp(
        [options, key = opening->pool->request_key_](wire::RequestBody &body) {
            wire::OpenPoolRequest request;
            request.medium = options.medium;
            request.scope = options.scope;
            request.huge_pages = options.huge_pages;
            request.numa = options.numa;
            request.numa_node = options.numa_node;
            request.capacity_bytes = options.capacity_bytes;
            request.page_bytes = static_cast<uint32_t>(options.page_bytes);
            request.request_key = key;
            body = request;
        },
        [opening, &session](const wire::ReplyBody &body, std::vector<UniqueFd> &, bool) {
            const auto *reply = std::get_if<wire::PoolReply>(&body);
            if (!reply)
                return false;
            if (opening->given_up) {
                abandon(session, reply->pool);
                return true;
            }
            try {  // perhaps in another caller's thread, which reads for this one
                session.pools().reserve(session.pools().size() + 1);
                if (opening->pool->take_grant(*reply)) {
                    session.pools().push_back(std::move(opening->pool));
                    return true;
                }
                opening->error =
                    Error{EPROTO, "marud granted a pool whose sizes do not fit together"};
            } catch (const std::bad_alloc &) {
                opening->error = Error{ENOMEM, "open pool: no memory for the pool's tables"};
            }
            abandon(session, reply->pool);
            return true;
        });
    op->must_settle = true;
    session.transport().start(*op);
    if (!session.transport().finish(lock, *op, deadline))
        opening->given_up = true;
    if (op->code() != 0)
        opening->error = Error{op->code(), "open pool: " + op->message()};
    opening->may_come_back =
        (op->status() == Status::Quota || op->status() == Status::NoSpace) && op->detail() > 0;
    session.transport().release(*op);
}

bool Pool::take_grant(const wire::PoolReply &reply) {
    if (reply.segment_bytes == 0 || reply.capacity_bytes == 0 || reply.segment_count == 0 ||
        reply.segment_count != (reply.capacity_bytes - 1) / reply.segment_bytes + 1)
        return false;
    auto allocator = pool::PageAllocator::create(
        {reply.capacity_bytes, reply.segment_bytes, options_.page_bytes, reply.first_generation});
    if (!allocator)
        return false;
    id_ = reply.pool;
    capacity_bytes_ = reply.capacity_bytes;
    segment_bytes_ = reply.segment_bytes;
    segment_count_ = reply.segment_count;
    base_ = std::make_unique<std::byte *[]>(segment_count_);
    segments_.resize(segment_count_);
    allocator_ = std::move(*allocator);
    return true;
}

// A pool that marud has and nobody here: given back, whatever it takes.
void Pool::abandon(Session &session, wire::Id id) {
    auto close_phase = [](wire::Id pool, wire::ClosePhase phase, CallOp::Reply then) {
        auto *op = new CallOp(
            [pool, phase](wire::RequestBody &body) {
                body = wire::ClosePoolRequest{pool, phase};
            },
            std::move(then));
        op->must_settle = true;
        op->patient = true;
        return op;
    };
    session.transport().start_detached(*close_phase(
        id, wire::ClosePhase::Drain,
        [id, close_phase, &session](const wire::ReplyBody &, std::vector<UniqueFd> &, bool) {
            session.transport().start_detached(*close_phase(
                id, wire::ClosePhase::Finish,
                [](const wire::ReplyBody &, std::vector<UniqueFd> &, bool) { return true; }));
            return true;
        }));
}

// On the populator's thread. A refusal is kept for whoever reserves, and asked about again when
// somebody wants the segment still, at most once a second.
Result<pool::PopulateRange> Pool::open_wanted(uint32_t index) {
    for (;;) {
        {
            std::unique_lock feed(feed_mutex_);
            if (refused_.code != 0) {
                feed_changed_.wait_for(feed, kAskAgain, [this] { return stop_.load(); });
                feed_changed_.wait(feed, [this] { return stop_ || asked_again_; });
            }
            feed_changed_.wait(feed, [&] { return stop_ || wanted_ > index; });
            asked_again_ = false;
        }
        if (stop_)
            return Error{ECANCELED, "populate pool memory: stopped"};
        auto range = open_segment(index);
        std::lock_guard feed(feed_mutex_);
        refused_ = range ? Error{} : range.error();
        feed_changed_.notify_all();
        if (range || !may_be_granted_later(refused_.code))
            return range;
    }
}

void Pool::want_more() {
    std::lock_guard feed(feed_mutex_);
    if (wanted_ <= filled_ && wanted_ < segment_count_)
        ++wanted_;
    asked_again_ = true;
    feed_changed_.notify_all();
}

bool Pool::filling() const { return wanted_ > filled_ && refused_.code == 0; }

Result<pool::PopulateRange> Pool::open_segment(uint32_t index) {
    if (const auto &segment = segments_[index]; segment && base_[index])  // by open()
        return pool::PopulateRange{segment->data(), segment->bytes(), node_.load(),
                                   segment->huge()};
    const bool background = populator_ != nullptr;
    const TimeNs deadline = background ? kNever : session_.call_deadline();
    for (TimeNs pause = kFirstPause;; pause = std::min(pause * 2, kLastPause)) {
        bool again = false;
        auto range = try_segment(index, &again);
        if (range || !again || stop_ || now_ns() >= deadline)
            return range;
        if (range.error().code != EBUSY)
            continue;
        // In steps, so that stop() need not wait for all of it.
        for (const TimeNs end = std::min(now_ns() + pause, deadline); !stop_ && now_ns() < end;) {
            const timespec step{0, kFirstPause};
            ::nanosleep(&step, nullptr);
        }
    }
}

// `again`: marud was restarted in between, is busy with it, or is away while nobody waits for us.
Result<pool::PopulateRange> Pool::try_segment(uint32_t index, bool *again) {
    const bool background = populator_ != nullptr;
    UniqueFd fd;
    wire::SegmentReply grant;
    uint32_t grant_epoch = 0;

    auto lock = session_.lock();
    auto granted = session_.call(
        lock,
        [&](wire::RequestBody &body) {
            body = wire::GrantSegmentRequest{id_, index};
        },
        [&](const wire::ReplyBody &body, std::vector<UniqueFd> &fds, bool) {
            const auto *reply = std::get_if<wire::SegmentReply>(&body);
            if (!reply)
                return false;
            grant = *reply;
            grant_epoch = session_.epoch();
            if (!fds.empty())
                fd = std::move(fds.front());
            return true;
        },
        session_.call_deadline(), false, {}, true);
    const std::string which = "segment " + std::to_string(index) + " of the pool";
    if (granted.code != 0) {
        // Busy: a restarted marud still proves that nobody maps the segment it made before.
        *again = granted.code == EBUSY ||
                 (background && (granted.code == ENOTCONN || granted.code == ETIMEDOUT));
        return Error{granted.code, which + ": " + granted.message};
    }
    if (!fd)
        return Error{EMFILE, which + ": its descriptor could not be received; raise RLIMIT_NOFILE"};
    lock.unlock();

    const uint64_t start = uint64_t{index} * segment_bytes_;
    if (grant.bytes < std::min(segment_bytes_, capacity_bytes_ - start))
        return Error{EPROTO, which + " is smaller than its share of the pool"};
    auto segment = pool::Segment::map(std::move(fd), grant.bytes, grant.huge);
    if (!segment)
        return segment.error();
    auto binding =
        pool::bind_memory(segment->data(), segment->bytes(), options_.numa, options_.numa_node);
    if (!binding)
        return binding.error();
    node_ = binding->node;
    if (index == 0)
        warning_ = binding->warning;

    // Before population: marud's seal lets existing mappings go on, and from here on a restarted
    // marud would take this segment back.
    lock.lock();
    ForkGuard::track(segment->fd());
    const pool::PopulateRange range{segment->data(), segment->bytes(), binding->node,
                                    segment->huge()};
    segments_[index] = std::move(*segment);
    auto mapped = session_.call(
        lock,
        [&](wire::RequestBody &body) {
            body = wire::SegmentMappedRequest{id_, index};
        },
        [&](const wire::ReplyBody &body, std::vector<UniqueFd> &, bool) {
            if (!std::holds_alternative<wire::StatusOnly>(body))
                return false;
            confirmed_ = index + 1;
            return true;
        },
        background ? kNever : session_.call_deadline(), false, {}, true);
    if (mapped.code != 0) {
        *again = session_.epoch() != grant_epoch;
        ForkGuard::untrack(segments_[index]->fd());
        std::optional<pool::Segment> dropped = std::move(segments_[index]);
        segments_[index].reset();
        lock.unlock();
        return Error{mapped.code, which + ": " + mapped.message};
    }
    base_[index] = range.data;
    return range;
}

// ---- use -----------------------------------------------------------------------------------------

Outcome Pool::reserve(uint64_t length, std::span<pool::PageRun> runs) {
    const auto status = allocator_->reserve(length, runs);
    if (shared() && (status == pool::ReserveStatus::Ok || status == pool::ReserveStatus::Full)) {
        const wire::Usage usage = allocator_->usage();
        const uint64_t free = usage.populated_bytes - usage.allocated_bytes;
        if (status == pool::ReserveStatus::Full || free < segment_bytes_ / 2)
            want_more();
    }
    switch (status) {
        case pool::ReserveStatus::Ok:
            return {};
        case pool::ReserveStatus::Full: {
            std::lock_guard feed(feed_mutex_);
            if (refused_.code != 0)
                return refused(refused_.code, "the pool is full: " + refused_.message);
            return refused(ENOSPC, filling() ? "the pool is full until its next segment is there"
                                             : "the pool is full");
        }
        case pool::ReserveStatus::TooLong:
            return refused(ENOSPC, "length: longer than a segment of the pool (" +
                                       std::to_string(segment_bytes_) + " bytes)");
        case pool::ReserveStatus::Invalid:
            return refused(EINVAL, "length: must be at least 1");
        case pool::ReserveStatus::Closed:
            return refused(ENOSPC, "the pool is being closed");
    }
    return refused(EINVAL, "length");
}

pool::Populator::Progress Pool::progress() const { return populator_->progress(); }

Outcome Pool::wait_populated(uint32_t timeout_ms) {
    if (shared()) {
        std::unique_lock feed(feed_mutex_);
        const auto settled = [this] { return !filling() || !populator_->progress().running; };
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
        // The populator may end without a word here: looked at now and then.
        while (!settled()) {
            if (std::chrono::steady_clock::now() >= end)
                return refused(ETIMEDOUT, "the pool is still being populated");
            feed_changed_.wait_for(feed, std::chrono::milliseconds(20));
        }
        if (refused_.code != 0)
            return refused(refused_.code, refused_.message);
        const auto state = populator_->progress();
        return state.result.code == 0 ? Outcome{}
                                      : refused(state.result.code, state.result.message);
    }
    if (!populator_->wait(std::chrono::milliseconds(timeout_ms)))
        return refused(ETIMEDOUT, "the pool is still being populated");
    const auto state = populator_->progress();
    return state.result.code == 0 ? Outcome{} : refused(state.result.code, state.result.message);
}

Outcome Pool::register_cuda(const cuda::Driver &driver, uint64_t offset, uint64_t length,
                            uint64_t piece_bytes, int device) {
    const uint64_t stop = offset + length;
    for (uint64_t index = offset / segment_bytes_; index * segment_bytes_ < stop; ++index) {
        const uint64_t start = index * segment_bytes_;
        const uint64_t begin = std::max(offset, start);
        const uint64_t end =
            std::min(stop, start + allocator_->admitted_bytes(static_cast<uint32_t>(index)));
        if (begin >= end)
            continue;  // nothing stands behind it yet
        if (auto added = pins_.add(driver, place(begin), begin, end, piece_bytes, device); !added)
            return failure(added.error());
    }
    return {static_cast<int64_t>(pins_.covered(offset, stop)), {}};
}

uint64_t Pool::unsettled() const {
    return allocator_->count(AllocationState::Committing) +
           allocator_->count(AllocationState::Quarantined);
}

wire::PoolGauge Pool::gauge() const {
    const wire::Usage usage = allocator_->usage();
    return {id_, usage.allocated_bytes, usage.quarantined_bytes, usage.populated_bytes,
            pins_.bytes()};
}

Pool::Info Pool::info() {
    Info info;
    const auto progress = populator_->progress();
    info.usage = allocator_->usage();
    info.usage.populated_bytes = progress.populated_bytes;
    info.usage.pinned_bytes = pins_.bytes();
    info.populating = progress.running;
    info.populate_result = -progress.result.code;
    if (shared()) {
        std::lock_guard feed(feed_mutex_);
        info.populating = filling() && progress.running;
        if (refused_.code != 0)
            info.populate_result = -refused_.code;
    }
    info.numa_node = node_;
    info.segment_count = segment_count_;
    auto lock = session_.lock();
    info.usage.leases = leases;
    const TimeNs now = now_ns();
    if (backing_read_ == 0 || now >= backing_read_ + 1'000 * kMillisecond) {
        backing_read_ = now;
        std::vector<pool::MemoryRange> ranges;
        for (const auto &segment : segments_)
            if (segment)
                ranges.push_back({segment->data(), segment->bytes()});
        lock.unlock();  // it reads the process's whole memory map
        const pool::Backing backing = environment_->backing(ranges);
        lock.lock();
        swapped_bytes_ = backing.swapped_bytes;
        backing_page_bytes_ = backing.page_bytes;
    }
    info.swapped_bytes = swapped_bytes_;
    info.backing_page_bytes = backing_page_bytes_;
    return info;
}

wire::AttachPoolRequest Pool::attach_request(uint32_t first, std::vector<int> &fds) const {
    fds.clear();
    for (uint32_t i = first; i < confirmed_ && fds.size() < wire::kMaxDescriptors; ++i)
        fds.push_back(unmapped_ ? kept_[i]->get() : segments_[i]->fd());
    wire::AttachPoolRequest request;
    request.pool = id_;
    request.capacity_bytes = capacity_bytes_;
    request.segment_bytes = segment_bytes_;
    request.page_bytes = static_cast<uint32_t>(options_.page_bytes);
    request.first_segment = first;
    request.segment_count = static_cast<uint32_t>(fds.size());
    request.next_generation = allocator_->next_generation();
    return request;
}

// ---- close ---------------------------------------------------------------------------------------

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
        closing_ = true;
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
