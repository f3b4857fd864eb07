// Transport: one SEQPACKET connection, shared by all threads of a client.
//
// Requests carry ids and pipeline; replies find their op by id, so a late reply to a call that gave
// up can never be taken for the answer to another. A calling thread that finds nobody reading reads
// for all until its own answer is there, then passes the reading on; the I/O thread reads only while
// no caller does. One lock (the session's) guards everything here; it is never held while waiting.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "libmaru/client/fork_guard.h"
#include "libmaru/client/op.h"
#include "libmaru/wire/codec.h"
#include "libmaru/wire/packet_socket.h"

namespace maru::client {

using Lock = std::unique_lock<std::mutex>;

class Transport {
  public:
    // What the session hears, under the lock.
    class Listener {
      public:
        virtual ~Listener() = default;
        virtual void on_event(const wire::Event &event) = 0;
        virtual void on_disconnected(int code, std::string_view why) = 0;
        virtual void on_fenced(std::string_view why) = 0;
        virtual void on_done(Op &op) = 0;  // an op with a queue
        // The epoch and the watermark that go with the next request.
        virtual void stamp(wire::Request &request) = 0;
    };

    struct Config {
        uint32_t spin_us = 0;
        // An answer that takes longer than this ends the connection: only then are the fates of its
        // requests final, and a new one may work.
        TimeNs silence = 10'000 * kMillisecond;
    };

    Transport(std::mutex &mutex, Listener &listener, const Config &config);
    ~Transport();

    // ---- connection
    void adopt(UniqueFd socket);                      // connected; only control ops go yet
    void set_limits(const wire::Limits &limits);      // from hello
    void set_open(bool open);                         // all ops may go
    void disconnect(int code, std::string_view why);  // every unanswered message is lost
    bool connected() const { return connection_ != nullptr; }
    const wire::Limits &limits() const { return limits_; }

    // ---- ops
    // `now`: the time, where the caller knows it already; else 0.
    void start(Op &op, TimeNs now = 0);
    void start_detached(Op &op);  // nobody waits for it; it recycles itself
    // Waits, reading for everybody when nobody else does. False: `deadline` passed; the op is
    // detached then. Afterwards the caller takes what it needs and calls release().
    bool finish(Lock &lock, Op &op, TimeNs deadline, TimeNs now = 0);
    void release(Op &op);
    void detach(Op &op, int code);
    void check(Op &op);  // something outside its replies may have completed it
    void fail_all(int code, std::string_view why);  // every op that is not in background
    uint32_t unanswered() const { return unanswered_; }
    // An asynchronous op may wait for a reply: the I/O thread must read at once.
    void add_async(int change) { async_ += change; }
    // What is started in between goes out together afterwards.
    void cork() { ++corked_; }
    void uncork() {
        if (--corked_ == 0)
            pump();
    }

    // ---- waiting for anything else (a completion, the last lease, the session to be whole)
    template <typename Ready>
    bool wait(Lock &lock, const void *channel, TimeNs deadline, Ready ready, TimeNs now = 0) {
        const Condition condition{[](void *context) { return (*static_cast<Ready *>(context))(); },
                                  &ready};
        return wait_for(lock, channel, deadline, condition, now);
    }
    void notify(const void *channel);

    // ---- for the I/O thread
    // Waits for a wake(), `until`, or what nobody else receives or sends; handles it.
    void serve(Lock &lock, TimeNs until);
    void wake();
    // The I/O thread is to look at its timers at `when`, which it may not have known as it went to sleep.
    void wake_by(TimeNs when);
    // Ends a connection whose answers are overdue. The time of the next look.
    TimeNs check_silence(TimeNs now);

  private:
    struct Condition {
        bool (*holds)(void *);
        void *context;
        bool operator()() const { return holds(context); }
    };
    struct Waiter {
        const void *channel;
        std::condition_variable turn;
    };
    struct Slot {
        uint64_t id = 0;  // 0: free
        Op *op = nullptr;
        Part part;
        TimeNs sent = 0;
    };
    enum class Reader : uint8_t { None, Caller, Io };
    enum class Received : uint8_t { Nothing, Packet, Gone };

    bool wait_for(Lock &lock, const void *channel, TimeNs deadline, Condition ready, TimeNs now);
    bool wait_in_turn(Lock &lock, const void *channel, TimeNs deadline, Condition ready);
    void read_for_all(Lock &lock, Condition ready, TimeNs deadline, TimeNs now);
    Received receive_one(Lock &lock, const std::shared_ptr<TrackedFd> &connection,
                         wire::Wait wait = wire::Wait::Never, int tries = 1);
    void dispatch(const wire::ServerMessage &message, std::vector<UniqueFd> &fds, bool fds_lost);
    void hand_over();
    void enqueue(Op &op);
    void unqueue(Op &op);
    Op *take_op();
    void pump(TimeNs now = 0) {
        if (!queue_.empty() || !control_queue_.empty())
            send_queued(now);
    }
    void send_queued(TimeNs now);
    bool send_blocked_frame();
    void answered(Slot &slot, const wire::Reply &reply, std::vector<UniqueFd> &fds, bool fds_lost);
    uint32_t slot_limit(bool reserve) const;

    static constexpr uint32_t kSlots = wire::kMaxInFlight;
    static constexpr uint32_t kReservedSlots = 4;  // for heartbeat, release and reclaim
    // Between two calls of a busy thread the I/O thread does not take over the reading: waking it
    // for each reply would cost more than the reply.
    static constexpr TimeNs kLinger = 5 * kMillisecond;
    // A reader that sleeps in the socket looks at its deadline this often.
    static constexpr TimeNs kWait = 20 * kMillisecond;
    // One that spins asks so often before it takes the lock and looks at the clock.
    static constexpr int kSpinTries = 16;

    Listener &listener_;
    const Config config_;
    // Owners: this, and whoever is receiving from it without the lock; the last one closes it.
    std::shared_ptr<TrackedFd> connection_;
    wire::Limits limits_;
    bool open_ = false;

    std::vector<Op *> control_queue_, queue_;  // few: one of each thread that calls
    std::array<Slot, kSlots> slots_;
    std::vector<uint32_t> free_slots_;
    uint64_t next_sequence_ = 1;
    uint32_t unanswered_ = 0;
    int async_ = 0;
    int corked_ = 0;

    wire::Encoder encoder_;
    wire::Request request_;
    std::span<const std::byte> blocked_frame_;  // encoded, not taken by the socket yet
    std::vector<int> blocked_fds_;
    TimeNs retry_send_ = kNever;  // ENOBUFS: no event tells when
    bool may_wait_ = false;
    bool want_write_ = false;
    bool peer_ended_ = false;  // nothing more can be sent; what it sent before is still to be read

    Reader reader_ = Reader::None;
    bool io_reads_ = false;    // the I/O thread polls for input
    TimeNs asleep_until_ = 0;  // it sleeps, at the longest
    TimeNs last_lead_ = 0;
    std::vector<Waiter *> waiters_;  // all that wait but the one that reads without having slept
    // Of the reader's role.
    wire::Decoder decoder_;
    struct alignas(8) Buffer {
        std::array<std::byte, wire::kMaxFrameBytes> bytes;
    };
    std::unique_ptr<Buffer> buffer_;

    TrackedFd wake_fd_;
    std::atomic<bool> woken_{false};
    // Most calls are answered long before their deadline: to set a timer wakes nobody.
    TrackedFd alarm_fd_;
    TimeNs alarm_ = 0;  // it goes off then; 0: it has, and was seen
};

}  // namespace maru::client
