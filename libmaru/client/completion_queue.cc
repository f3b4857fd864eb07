#include "libmaru/client/completion_queue.h"

#include <sys/eventfd.h>

#include <cerrno>

#include "libmaru/client/fork_guard.h"

namespace maru::client {

CompletionQueue::CompletionQueue(Session &owner, UniqueFd event)
    : session(owner),
      fork_mark(ForkGuard::mark()),
      event_(std::move(event)),
      ring_(kMaxUnfinished) {}

Result<CompletionQueue *> CompletionQueue::create(Session &session) {
    UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!event)
        return Error{errno, "eventfd for a completion queue"};
    return new CompletionQueue(session, std::move(event));
}

bool CompletionQueue::admit() {
    if (unfinished_ + count_ >= kMaxUnfinished)
        return false;
    ++unfinished_;
    return true;
}

void CompletionQueue::push(const Completion &completion) {
    --unfinished_;
    ring_[(first_ + count_++) % ring_.size()] = completion;
    if (count_ == 1) {
        const uint64_t one = 1;
        [[maybe_unused]] ssize_t written = ::write(event_.get(), &one, sizeof one);
    }
}

size_t CompletionQueue::pop(Completion *out, size_t max) {
    size_t taken = 0;
    while (taken < max && count_ > 0) {
        out[taken++] = ring_[first_];
        first_ = (first_ + 1) % ring_.size();
        --count_;
    }
    if (taken > 0 && count_ == 0) {
        uint64_t value;
        [[maybe_unused]] ssize_t got = ::read(event_.get(), &value, sizeof value);
    }
    return taken;
}

}  // namespace maru::client
