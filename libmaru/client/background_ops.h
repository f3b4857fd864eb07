// What the library tells marud by itself: releases, reclaims, retirements to be repeated,
// heartbeats, questions about lost commits.
//
// Each is one op for the life of the session. It collects while its message is unanswered and sends
// the next one when it is: many small facts become few messages, and nobody waits for any of them.
// Table slots are queued by number with a mark in the slot; a slot that left the table meanwhile has
// no mark and is passed over.
#pragma once

#include <deque>
#include <vector>

#include "libmaru/client/commit_ledger.h"
#include "libmaru/client/op.h"
#include "libmaru/wire/records.h"

namespace maru::client {

class Session;
struct Held;

class BackgroundOp : public Op {
  public:
    explicit BackgroundOp(Session &session) : session_(session) { background = true; }
    void on_detach(int) override {}
    void recycle() override {}
    uint32_t window() const override { return 1; }

  protected:
    // Sends what is collected, if the connection lets it.
    void kick();
    Session &session_;
};

// Leases that ended here. After a reconnect marud is told the counts instead, so what was on its way
// is forgotten with the connection.
class ReleaseOp final : public BackgroundOp {
  public:
    using BackgroundOp::BackgroundOp;
    void add(uint32_t held, Held &entry);  // the entry of that number
    void add_stray(wire::Id replica, uint64_t generation);
    void forget();  // marud learns the counts another way
    bool unsent() const override { return !queue_.empty() || !stray_.empty(); }
    // A few leases wait for the answer to the message before, so that small releases become few
    // messages. Whole messages do not: acquires that overtake them would meet the limit of leases.
    uint32_t window() const override;
    void next(wire::RequestBody &body, Part &part) override;
    bool on_reply(const Part &part, const wire::ReplyBody &body, std::vector<UniqueFd> &fds,
                  bool fds_lost) override;
    void on_lost(const Part &) override {}

  private:
    std::vector<uint32_t> queue_;
    std::vector<wire::ReplicaName> stray_, names_;
};

// Base of two ops whose items each get an answer.
class HeldBatchOp : public BackgroundOp {
  public:
    using BackgroundOp::BackgroundOp;
    void add(uint32_t held);
    void forget();
    bool unsent() const override { return !queue_.empty(); }
    bool on_reply(const Part &part, const wire::ReplyBody &body, std::vector<UniqueFd> &fds,
                  bool fds_lost) override;
    // The sweep after a reconnect repeats all of it.
    void on_lost(const Part &) override { sent_.clear(); }

  protected:
    virtual bool &mark(Held &held) = 0;
    virtual bool wanted(const Held &held) = 0;
    virtual void answer(uint32_t held, wire::Status status) = 0;
    void collect();
    struct Sent {
        uint32_t held;
        wire::ReplicaName name;
    };
    std::vector<Sent> sent_;
    std::vector<wire::ReplicaName> names_;

  private:
    std::vector<uint32_t> queue_;
};

// Pages that are free of readers. They are reused only after marud's answer: its page map holds them
// until it has read this, and a commit that overtakes it on a later connection would be CONFLICT.
class AckOp final : public HeldBatchOp {
  public:
    using HeldBatchOp::HeldBatchOp;
    void next(wire::RequestBody &body, Part &part) override;

  protected:
    bool &mark(Held &held) override;
    bool wanted(const Held &held) override;
    void answer(uint32_t held, wire::Status status) override;
};

// Retirements that marud may not have heard, or whose Reclaim may have been lost with a connection.
class SweepOp final : public HeldBatchOp {
  public:
    using HeldBatchOp::HeldBatchOp;
    void next(wire::RequestBody &body, Part &part) override;

  protected:
    bool &mark(Held &held) override;
    bool wanted(const Held &held) override;
    void answer(uint32_t held, wire::Status status) override;
};

class HeartbeatOp final : public BackgroundOp {
  public:
    using BackgroundOp::BackgroundOp;
    void beat();
    bool unsent() const override { return due_; }
    void next(wire::RequestBody &body, Part &part) override;
    bool on_reply(const Part &, const wire::ReplyBody &body, std::vector<UniqueFd> &,
                  bool) override {
        return std::holds_alternative<wire::StatusOnly>(body);
    }
    void on_lost(const Part &) override {}

  private:
    bool due_ = false;
    std::vector<wire::PoolGauge> gauges_;
};

// On the open connection: what became of commits whose reply is overdue?
class ResolveOp final : public BackgroundOp {
  public:
    using BackgroundOp::BackgroundOp;
    // Asks about all that are due. The time of the next look.
    TimeNs ask(TimeNs now);
    bool unsent() const override { return count_ > 0; }
    void next(wire::RequestBody &body, Part &part) override;
    bool on_reply(const Part &part, const wire::ReplyBody &body, std::vector<UniqueFd> &fds,
                  bool fds_lost) override;
    void on_lost(const Part &) override { count_ = 0; }

  private:
    uint64_t first_ = 0;
    uint32_t count_ = 0;
};

// Commits that were lost before marud saw them and whose callers have gone: sent again, under new ids.
class RecommitOp final : public BackgroundOp {
  public:
    using BackgroundOp::BackgroundOp;
    void add(const CommitRecord &record);
    bool unsent() const override;
    void next(wire::RequestBody &body, Part &part) override;
    bool on_reply(const Part &part, const wire::ReplyBody &body, std::vector<UniqueFd> &fds,
                  bool fds_lost) override;
    void on_lost(const Part &) override {}  // the records stay unsettled: resolved after attach

  private:
    std::deque<CommitRecord> queue_;
    std::vector<wire::CommitItem> items_;
};

// One commit reply, item by item. False: the number of results is wrong, and none was used.
bool take_commit_reply(Session &session, const Part &part, const wire::ReplyBody &body);

}  // namespace maru::client
