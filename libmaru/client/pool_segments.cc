// How a pool gets its memory: segments asked for, mapped, bound and confirmed, one after the other.
//
// In the thread that opens the pool for the first one, then in the populator's. Nothing here waits
// for longer than a call's deadline without looking whether the pool is being closed: whoever closes
// it joins this thread. Of a pool of scope host no refusal that marud may take back ends the growth.
#include <algorithm>
#include <cerrno>
#include <ctime>

#include "libmaru/client/clock.h"
#include "libmaru/client/pool.h"

namespace maru::client {
namespace {

// Between two questions to a marud that is still proving something free.
constexpr TimeNs kFirstPause = 10 * kMillisecond;
constexpr TimeNs kLastPause = 500 * kMillisecond;
constexpr auto kAskAgain = std::chrono::seconds(1);

}  // namespace

// Room comes and goes with other workers, a drain ends, descriptors are closed: only what says that
// this pool can never have the segment is final.
bool Pool::may_be_granted_later(int code) {
    switch (code) {
        case ENOSPC:
        case EDQUOT:
        case ENOMEM:
        case ENODEV:
        case EMFILE:
        case EIO:
        case EAGAIN:
            return true;
        default:
            return false;
    }
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
        auto range = open_segment(index, session_.call_deadline());
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

bool Pool::filling() const {
    if (!populator_->progress().running)
        return false;
    return !shared() || (wanted_ > filled_ && refused_.code == 0);
}

std::string Pool::why_full() const {
    std::lock_guard feed(feed_mutex_);
    if (filling())
        return shared() ? "the pool is full until its next segment is there"
                        : "the pool is full until more of it is populated";
    const Error why = refused_.code != 0 ? refused_ : populator_->progress().result;
    return why.code != 0 ? "the pool is full: " + why.message : "the pool is full";
}

Result<pool::PopulateRange> Pool::open_segment(uint32_t index, TimeNs patience) {
    if (const auto &segment = segments_[index]; segment && base_[index])  // by open()
        return pool::PopulateRange{segment->data(), segment->bytes(), node_.load(),
                                   segment->huge()};
    const TimeNs deadline = populator_ ? kNever : patience;
    for (TimeNs pause = kFirstPause;; pause = std::min(pause * 2, kLastPause)) {
        bool again = false;
        auto range = try_segment(index, &again);
        if (range || !again || stop_ || now_ns() >= deadline)
            return range;
        const int code = range.error().code;
        // Memory that is about to come back may take longer than anybody waits here: then it is a
        // refusal like others.
        if ((code == EDQUOT || code == ENOSPC) && now_ns() + pause >= patience)
            return range;
        if (code == ENOTCONN || code == ETIMEDOUT)
            continue;  // it has waited already
        // In steps, so that stop() need not wait for all of it.
        for (const TimeNs end = std::min(now_ns() + pause, deadline); !stop_ && now_ns() < end;) {
            const timespec step{0, kFirstPause};
            ::nanosleep(&step, nullptr);
        }
    }
}

// `again`: marud was restarted in between, is busy with it, is about to get the memory back, or is
// away while nobody waits for us.
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
    const auto away = [background](const Session::CallResult &result) {
        return background && (result.code == ENOTCONN || result.code == ETIMEDOUT);
    };
    if (granted.code != 0) {
        // Busy: a restarted marud still proves that nobody maps the segment it made before. With a
        // detail: so many bytes of engines that ended are being proven free.
        *again = granted.code == EBUSY || away(granted) ||
                 (granted.detail > 0 && (granted.code == EDQUOT || granted.code == ENOSPC));
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
    Session::CallResult mapped;
    do {  // again after each deadline, since close() waits for this thread: it changes nothing
        mapped = session_.call(
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
            session_.call_deadline(), false, {}, true);
    } while (away(mapped) && !stop_ && session_.epoch() == grant_epoch);
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

}  // namespace maru::client
