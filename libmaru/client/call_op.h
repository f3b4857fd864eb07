// CallOp: a request of one message with one reply, for everything that is not a batch.
#pragma once

#include <functional>

#include "libmaru/client/op.h"

namespace maru::client {

class CallOp final : public Op {
  public:
    // Called under the lock with a reply that is not a failed StatusOnly. False: it does not fit.
    using Reply =
        std::function<bool(const wire::ReplyBody &, std::vector<UniqueFd> &, bool fds_lost)>;
    // Builds the body at each sending.
    using Build = std::function<void(wire::RequestBody &)>;

    CallOp(Build build, Reply reply) : build_(std::move(build)), reply_(std::move(reply)) {}

    bool unsent() const override { return to_send_ && (code() == 0 || (must_settle && sent_)); }
    void next(wire::RequestBody &body, Part &part) override;
    bool on_reply(const Part &part, const wire::ReplyBody &body, std::vector<UniqueFd> &fds,
                  bool fds_lost) override;
    void on_lost(const Part &) override { to_send_ = !control && (!detached() || must_settle); }
    void on_detach(int code) override;
    void recycle() override { delete this; }
    std::span<const int> fds() const override { return attached_; }

    // The status of a failure, and what came with it.
    wire::Status status() const { return status_; }
    uint64_t detail() const { return detail_; }

    // Goes on after its caller has gone: build and reply own all they use.
    bool must_settle = false;

    void attach(std::span<const int> fds) { attached_.assign(fds.begin(), fds.end()); }

  private:
    Build build_;
    Reply reply_;
    bool to_send_ = true;
    bool sent_ = false;
    bool dropped_ = false;  // the caller's memory is gone
    wire::Status status_ = wire::Status::Ok;
    uint64_t detail_ = 0;
    std::vector<int> attached_;
};

// Accepts StatusOnly Ok.
bool accept_ok(const wire::ReplyBody &body, std::vector<UniqueFd> &fds, bool fds_lost);

}  // namespace maru::client
