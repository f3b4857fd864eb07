#include "libmaru/client/pool.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
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

// Between two questions to a marud that is about to get memory back.
constexpr TimeNs kFirstPause = 10 * kMillisecond;
constexpr TimeNs kLastPause = 500 * kMillisecond;

Outcome refused(int code, std::string message) { return {-int64_t{code}, std::move(message)}; }

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
        auto range = pool->open_segment(i, deadline);
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
                    return pool->shared()
                               ? pool->open_wanted(segment)
                               : pool->open_segment(segment, pool->session_.call_deadline());
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
        case pool::ReserveStatus::Full:  // whatever keeps it small: info() has the errno of that
            return refused(ENOSPC, why_full());
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
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
        // The populator may end without a word here: looked at now and then.
        while (filling()) {
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
        info.populating = filling();
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

}  // namespace maru::client
