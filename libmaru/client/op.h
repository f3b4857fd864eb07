// Op: one call of this library as it travels: some messages out, their replies back.
//
// Everything here is called under the session's lock. A message is built only when it is sent, so a
// message sent again after a restart of marud carries the numbers of the new life. The caller's
// memory is touched only while the caller is there: after on_detach() an op lives on just long
// enough to settle what it began (leases to give back, commits whose answer is late).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libmaru/base/result.h"
#include "libmaru/base/unique_fd.h"
#include "libmaru/client/clock.h"
#include "libmaru/wire/messages.h"

namespace maru::client {

class CompletionQueue;

// What a message was about, kept until its reply: items [first, first + count) of the call.
struct Part {
    uint32_t first = 0;
    uint32_t count = 0;
    uint64_t op_id = 0;  // commits: operation id of its first item
};

class Op {
  public:
    virtual ~Op() = default;
    Op(const Op &) = delete;
    Op &operator=(const Op &) = delete;

    // Is there a message to send (or to send again)?
    virtual bool unsent() const = 0;
    // Builds the next message. Views in it live until the next call of next() at least.
    virtual void next(wire::RequestBody &body, Part &part) = 0;
    // The reply to one message. A StatusOnly other than Ok may answer any request. False: the reply
    // does not fit the request, and what marud did is not known: the connection must end.
    virtual bool on_reply(const Part &part, const wire::ReplyBody &body, std::vector<UniqueFd> &fds,
                          bool fds_lost) = 0;
    // The connection ended before the reply: forget the message, or make it unsent() again.
    virtual void on_lost(const Part &part) = 0;
    // Besides its replies, what else must happen before the call is done?
    virtual bool settled() const { return true; }
    // The caller goes (deadline, or the end of the session), with `code` as its result.
    virtual void on_detach(int code) = 0;
    // Nobody refers to it any more: goes back to where it came from.
    virtual void recycle() = 0;
    // Descriptors for the message built last.
    virtual std::span<const int> fds() const { return {}; }
    // At most so many messages unanswered at a time.
    virtual uint32_t window() const { return 8; }

    // The first failure wins: later ones are mostly its consequences.
    void fail(int code, std::string_view text) {
        if (code_ == 0) {
            code_ = code;
            message_.assign(text);
        }
    }
    int code() const { return code_; }  // positive errno, 0 = no failure
    const std::string &message() const { return message_; }
    bool done() const { return done_; }
    bool detached() const { return !caller_; }

    // Set before start().
    bool control = false;     // part of connecting: goes first, and dies with the connection
    bool background = false;  // no caller; may be started again and again
    bool patient = false;     // marud may answer late, for example when the last reader is gone
    CompletionQueue *queue = nullptr;  // asynchronous: where the completion goes
    uint64_t user_data = 0;
    TimeNs deadline = kNever;  // asynchronous

  protected:
    Op() = default;
    void reset() {
        control = background = patient = false;
        queue = nullptr;
        user_data = 0;
        deadline = kNever;
        done_ = queued_ = false;
        caller_ = true;
        in_flight_ = 0;
        code_ = 0;
        message_.clear();
    }

  private:
    friend class Transport;
    bool done_ = false;
    bool queued_ = false;  // in a send queue
    bool caller_ = true;   // somebody waits for it or will reap it
    uint32_t in_flight_ = 0;
    int code_ = 0;
    std::string message_;
};

}  // namespace maru::client
