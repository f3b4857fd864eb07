// CompletionQueue: finished asynchronous calls, with a descriptor that is readable while any wait.
//
// Guarded by the session's lock. Room for a completion is made at the submit, so that finishing
// never fails.
#pragma once

#include <cstdint>
#include <vector>

#include "libmaru/base/result.h"
#include "libmaru/base/unique_fd.h"

namespace maru::client {

class Session;

struct Completion {
    uint64_t user_data = 0;
    int64_t result = 0;
};

class CompletionQueue {
  public:
    static constexpr uint32_t kMaxUnfinished = 1024;

    static Result<CompletionQueue *> create(Session &session);

    // False: too many are submitted and not reaped.
    bool admit();
    void withdraw() { --unfinished_; }  // admitted, and then not submitted
    void push(const Completion &completion);
    size_t pop(Completion *out, size_t max);
    bool empty() const { return count_ == 0; }
    bool idle() const { return count_ == 0 && unfinished_ == 0; }
    int fd() const { return event_.get(); }

    Session &session;
    const uint64_t fork_mark;

  private:
    CompletionQueue(Session &owner, UniqueFd event);
    UniqueFd event_;
    std::vector<Completion> ring_;
    size_t first_ = 0, count_ = 0;
    uint32_t unfinished_ = 0;
};

}  // namespace maru::client
