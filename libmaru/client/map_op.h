// MapOp: asks for the segments that acquired objects of others lie in, one after the other.
//
// Part of an acquire that meets a segment for the first time: the lease is there already, and is
// what marud is asked by. After a lost connection it asks again, by the lease's name of then. An
// acquire that gives up meanwhile is forgotten; the view is kept for the next one. A lease that marud
// does not know any more is a miss; memory that is there and cannot be mapped here is an error.
#pragma once

#include <vector>

#include "libmaru/client/background_ops.h"

namespace maru::client {

class AcquireOp;

class MapOp final : public BackgroundOp {
  public:
    using BackgroundOp::BackgroundOp;
    // So that want() cannot fail, for so many objects that are being acquired.
    void reserve(size_t objects) { waiting_.reserve(objects); }
    // True: readable now. False: op.view_ready(index) follows, from another reply.
    bool want(uint32_t held, AcquireOp &op, uint32_t index);
    void forget(const AcquireOp &op);
    void fail_all();  // marud will not answer any more

    bool unsent() const override { return !sent_ && !waiting_.empty(); }
    void next(wire::RequestBody &body, Part &part) override;
    bool on_reply(const Part &part, const wire::ReplyBody &body, std::vector<UniqueFd> &fds,
                  bool fds_lost) override;
    void on_lost(const Part &) override { sent_ = false; }

  private:
    struct Waiting {
        uint32_t held;
        uint64_t generation;
        AcquireOp *op;
        uint32_t index;
    };
    bool use_view(uint32_t held);
    void settle(const Waiting &waiting, bool ready, const Error &why);
    Result<void> map(const wire::ViewReply &view, std::vector<UniqueFd> &fds);

    std::vector<Waiting> waiting_;
    bool sent_ = false;
    uint32_t asked_held_ = 0;
};

}  // namespace maru::client
