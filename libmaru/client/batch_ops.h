// The four batch calls on objects, as ops. Blocking and asynchronous forms are the same op.
//
// A batch of any size goes out as messages of the protocol's limits, several unanswered at a time,
// and its results come back in request order. Caller's arrays are read when a message is built and
// written once, by complete(), when everything is answered.
#pragma once

#include <cstdint>
#include <vector>

#include "libmaru/client/held_table.h"
#include "libmaru/client/op.h"
#include "libmaru/client/session.h"
#include "libmaru/pool/page_allocator.h"
#include "libmaru/wire/messages.h"

namespace maru::client {

class BatchOp : public Op {
  public:
    explicit BatchOp(Session &session) : session_(session) {}

    bool unsent() const override { return !todo_.empty() && code() == 0; }
    void on_lost(const Part &part) override { again(part.first, part.count); }
    void on_detach(int) override { todo_.clear(); }

    // Once, when done, with the caller's memory in place: writes the results and returns what the
    // blocking form returns.
    virtual Outcome complete() = 0;

  protected:
    void begin(uint32_t count);
    void again(uint32_t first, uint32_t count);
    void take(uint32_t most, Part &part);
    bool more() const { return !todo_.empty(); }
    void drop_after(uint32_t index);  // nothing from here on needs to be asked
    // What a failed StatusOnly says; true when the body is one.
    bool failed(const wire::ReplyBody &body);
    Outcome failure() const { return {-int64_t{code()}, message()}; }
    Session &session_;

  private:
    struct Range {
        uint32_t first, count;
    };
    std::vector<Range> todo_;  // in order
};

// An op with its arguments set; given back if they cannot be.
template <typename T, typename... Arguments>
T *prepare(Session &session, Session::Idle<T> &idle, Arguments &&...arguments) {
    T *op = session.take(idle);
    try {
        op->set(std::forward<Arguments>(arguments)...);
    } catch (...) {
        op->recycle();
        throw;
    }
    return op;
}
// The results, or that there is no memory for them.
Outcome complete(BatchOp &op);
// The blocking form: until everything is answered or the deadline.
Outcome run(Session &session, Lock &lock, BatchOp &op);
// The asynchronous form. The queue has admitted it.
void submit(Session &session, BatchOp &op, CompletionQueue &queue, uint64_t user_data);

class ProbeOp final : public BatchOp {
  public:
    using BatchOp::BatchOp;
    void set(Namespace &ns, const wire::Digest *keys, uint32_t count,
             const wire::Manifest &manifest, bool prefix_only, uint8_t *ret_bitmap);
    void next(wire::RequestBody &body, Part &part) override;
    bool on_reply(const Part &part, const wire::ReplyBody &body, std::vector<UniqueFd> &fds,
                  bool fds_lost) override;
    void recycle() override { session_.probes.idle.push_back(this); }
    Outcome complete() override;

  private:
    Namespace *ns_ = nullptr;
    const wire::Digest *keys_ = nullptr;
    uint32_t count_ = 0;
    wire::Manifest manifest_;
    bool prefix_only_ = false;
    uint8_t *ret_bitmap_ = nullptr;
    std::vector<uint8_t> bits_;
};

class AcquireOp final : public BatchOp {
  public:
    using BatchOp::BatchOp;
    void set(Namespace &ns, const wire::Digest *keys, uint32_t count,
             const wire::Manifest &manifest, bool prefix_only, void **ret_leases);
    void next(wire::RequestBody &body, Part &part) override;
    bool on_reply(const Part &part, const wire::ReplyBody &body, std::vector<UniqueFd> &fds,
                  bool fds_lost) override;
    void on_detach(int code) override;
    void recycle() override;
    uint32_t window() const override { return prefix_only_ ? 2 : 8; }
    bool settled() const override { return views_wanted_ == 0; }
    Outcome complete() override;

    // From MapOp: the object at `index` can be read now, or never will be. `why`: it is there.
    void view_ready(uint32_t index, bool ready, const Error &why);

  private:
    uint32_t checked(const wire::AcquireResult &result) const;
    uint32_t take_foreign(const wire::AcquireResult &result, uint32_t index);
    void give_back(uint32_t first_object, uint32_t end_object);
    Namespace *ns_ = nullptr;
    const wire::Digest *keys_ = nullptr;
    uint32_t count_ = 0;
    wire::Manifest manifest_;
    bool prefix_only_ = false;
    void **ret_leases_ = nullptr;
    std::vector<uint32_t> taken_;  // per object: slot in HeldTable, or none
    uint32_t views_wanted_ = 0;    // objects whose segment is not mapped yet
    Error view_failed_;            // the first that could not be mapped
    uint32_t expected_ = 0;        // counted in Session::acquiring
};

class CommitOp final : public BatchOp {
  public:
    using BatchOp::BatchOp;
    // The runs are Committing already.
    void set(Namespace &ns, Pool &pool, const wire::Key *keys, std::span<const pool::PageRun> runs,
             int *ret_results);
    void next(wire::RequestBody &body, Part &part) override;
    bool on_reply(const Part &part, const wire::ReplyBody &body, std::vector<UniqueFd> &fds,
                  bool fds_lost) override;
    void on_lost(const Part &part) override;
    void on_detach(int code) override;
    bool settled() const override { return outstanding_ == 0; }
    void recycle() override;
    uint32_t window() const override;
    Outcome complete() override;

    // From the ledger.
    void settled_item(uint32_t index, wire::Status status);
    void renew(uint32_t index) {
        --outstanding_;
        again(index, 1);
    }

  private:
    void refuse_unsent(int code);
    Namespace *ns_ = nullptr;
    Pool *pool_ = nullptr;
    const wire::Key *keys_ = nullptr;
    std::vector<pool::PageRun> runs_;
    int *ret_results_ = nullptr;
    uint32_t outstanding_ = 0;  // sent, fate unknown
    std::string refusal_;       // what marud said of a whole message
    std::vector<int> results_;
    std::vector<wire::CommitItem> items_;
};

class RetireOp final : public BatchOp {
  public:
    using BatchOp::BatchOp;
    void set(Namespace &ns, const wire::Key *keys, uint32_t count, int *ret_results);
    void next(wire::RequestBody &body, Part &part) override;
    bool on_reply(const Part &part, const wire::ReplyBody &body, std::vector<UniqueFd> &fds,
                  bool fds_lost) override;
    void on_lost(const Part &) override {}  // withdrawn here already: the sweep tells marud
    void on_detach(int code) override;
    void recycle() override { session_.retires.idle.push_back(this); }
    Outcome complete() override;

  private:
    struct Named {
        uint32_t index;  // in the caller's arrays
        uint32_t held;
        wire::Id replica;
        uint64_t generation;
    };
    int *ret_results_ = nullptr;
    std::vector<Named> named_;
    std::vector<int> results_;
    std::vector<wire::ReplicaName> names_;
};

}  // namespace maru::client
