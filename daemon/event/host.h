// Host: the world around Service. It owns clients' sockets, processes' pidfds, segments and
// records, turns packets into Service calls and Service's wishes into system calls.
//
// Everything here runs on the loop thread and returns at once; what may block is the reaper's. A
// client gets a bounded number of packets and a bounded time per turn, a bounded queue and a bounded
// number of connections; a uid that has had its share of the loop's time lately is read from when
// nobody else has anything to say. So no client, nor a crowd of them, can delay those of others. Service is never called from inside an Effects
// call: what an Effects call causes happens when the current turn ends.
#pragma once

#include <functional>
#include <unordered_map>
#include <vector>

#include "daemon/event/client_socket.h"
#include "daemon/event/fdstore.h"
#include "daemon/event/journal.h"
#include "daemon/event/object_store.h"
#include "daemon/event/process_watch.h"
#include "daemon/event/reaper.h"
#include "daemon/event/segments.h"
#include "daemon/event/session_store.h"
#include "libmaru/wire/codec.h"
#include "libmaru/wire/packet_socket.h"

namespace maru {

struct HostOptions {
    AdminRule admin;
    uint32_t connections_per_uid = 512;
    uint32_t max_in_flight = wire::kMaxInFlight;
    uint32_t spin_us = 0;
    // While there is anybody to serve the loop turns at least this often, so that twice as long
    // between two turns means that marud itself did not run (SIGSTOP, a suspended machine, a
    // starved host). Well below the sessions' time-out.
    TimeNs pulse = 1'000'000'000;
    bool use_peer_pidfd = true;  // false: as on a kernel without it (tests)
};

class Host final : public Effects, private SegmentFacts {
  public:
    static constexpr int kPacketsPerTurn = 16;
    // Of one client, before others get their turn; the request that passes it is finished. A probe of
    // the most keys and objects takes a few ms, a common request some us.
    static constexpr TimeNs kReadTime = 1'000'000;
    // Of all clients of one uid. A bucket that fills with the processor time that the loop spends on
    // them and loses one part in kShareOf of what it spends at all: above kShare they come after
    // everybody else, until the bucket is half empty. It holds no more than kShareMost. Not by the
    // clock: on a loaded host whoever is served while the loop waits for a processor would pay for it.
    static constexpr TimeNs kShare = 2'000'000, kShareMost = 50'000'000;
    static constexpr int kShareOf = 5;
    // After a packet another one is looked for where the last turn found some, and now and then; else
    // the poll tells of it, as it tells of the next request of a client that waits for each answer.
    static constexpr uint32_t kLookEvery = 16;
    static constexpr int kAsksPerClock = 8;  // of spin()
    // A client whose queue is longer is not read from until it has read.
    static constexpr size_t kPauseBytes = wire::kMaxSendQueueBytes / 4;
    // All clients of a uid together: beyond it none is read from that has anything left to read.
    static constexpr size_t kUidQueueBytes = 4 * kPauseBytes;
    static constexpr TimeNs kCloseGrace = 2'000'000'000;
    // Of the record of shared memory that is begun anew: some 200 KB, every few ms.
    static constexpr uint32_t kRewriteFacts = 2048;

    Host(sd_event *loop, Journal &journal, FdStore &fdstore, SessionStore store,
         ObjectStore objects, HostOptions options, std::function<void()> on_reload);
    ~Host() override;

    // `service` is made with this as its Effects, so it comes second; it must outlive the loop.
    Result<void> start(Service &service);
    void set_options(const HostOptions &options) { options_ = options; }

    // Before the first client. `sessions_lost`: there are records that could not be read.
    // `progress`: after each record.
    // Fails where it cannot tell whether a recorded process lives: taken for dead, its memory would
    // be charged to nobody.
    Result<void> restore(const std::vector<SessionRecord> &records,
                         std::span<const ObjectRecord> objects, bool sessions_lost,
                         std::map<std::string, UniqueFd> stored,
                         const std::function<void()> &progress);

    void accept_client(UniqueFd socket);
    void refuse_client(UniqueFd socket);  // accepted only to be closed
    // A turn of the loop: serves one client, or one source of sd_event. 0: nothing was due within
    // `timeout_ms`, -1 being for ever; below 0: -errno, no loop works any more.
    int turn(int timeout_ms);
    // sd_event has been told to exit, or was given a timer, by somebody who is not called by it.
    void loop_touched() { poll_.touched(); }
    // Polls clients that were active a moment ago, for up to spin_us after the last packet.
    void spin();
    // Sends what is queued and closes everything. `on_done` once, when all is sent or too late.
    void shutdown(TimeNs deadline, std::function<void()> on_done);
    bool stop_reaper(int timeout_ms) { return reaper_.stop(timeout_ms); }
    size_t connections() const { return connections_.size(); }
    void reload_requested() { reload_wanted_ = true; }

    Reaper &reaper() { return reaper_; }
    metrics::HostTally &tally() { return tally_; }
    void measure(metrics::HostGauges &ret_gauges) const;

    // Effects
    void reply(ConnectionId to, const wire::Reply &reply,
               std::span<const SegmentRef> segments) override;
    void event(ConnectionId to, const wire::Event &event) override;
    void close_connection(ConnectionId connection, std::string_view why) override;
    void create_segment(SegmentRef segment, const SegmentSpec &spec) override;
    void seal_segment(SegmentRef segment) override;
    void prove_segment(SegmentRef segment) override;
    void drop_segment(SegmentRef segment) override;
    Result<void> save_session(const SessionRecord &record) override;
    void remove_session(wire::Id session) override;
    void record_objects(std::span<const ObjectRecord> records) override;
    void reload() override;
    void log(int priority, std::string_view message, wire::Id session) override;

  private:
    // Every entry from the loop is one: it looks for a stall first and settles what is due last.
    class Turn;

    void segment_created(SegmentRef segment,
                         const Result<Service::CreatedSegment> &result) override;
    void segment_sealed(SegmentRef segment, const Result<void> &result) override;
    void segment_proven(SegmentRef segment, Service::Proof proof) override;

    struct Share {  // of a uid with connections
        uint32_t connections = 0;
        size_t queued = 0;           // bytes in the queues of its clients
        bool late = false;           // over its share: read when nobody else waits
        bool served = false;         // since the last pulse
        TimeNs since = 0, used = 0;  // when the bucket was looked at, and what was in it
    };

    // host.cc
    void begin_turn();
    void end_turn();
    void set_timers();
    void begin_object_record();
    void rewrite_objects();
    void say_objects(const Result<void> &written, bool again);
    void restore_objects(std::span<const ObjectRecord> records, bool sessions_lost,
                         std::map<std::string, UniqueFd> &stored);
    void process_exited(ProcessId64 process);
    void save_again();
    void log_record(int priority, const std::string &message, const SessionRecord &record);
    static int on_timer(sd_event_source *, uint64_t, void *userdata);
    static int on_pulse(sd_event_source *, uint64_t, void *userdata);
    static int on_retry(sd_event_source *, uint64_t, void *userdata);
    static int on_reaper(sd_event_source *, int, uint32_t, void *userdata);

    // host_shares.cc
    Share *over_share(uint32_t uid);
    // The poll included: whose client is ready pays for the asking, too.
    void begin_charge();
    void charge_share(uint32_t uid);         // since then
    void set_late(uint32_t uid, bool late);  // all of its clients at once
    void forgive();                          // at every pulse
    void poll_active(bool &ret_found);

    // host_connection.cc
    void say_why(int socket, std::string_view why);
    void serve_client(ClientSocket &client, uint32_t events);
    bool bind_peer(ClientSocket &client, UniqueFd pidfd);
    void client_ready(ClientSocket &client, uint32_t events);
    // `packet`: what the socket gave when it was asked. Settles what the client is polled for.
    void read_packets(ClientSocket &client, Result<wire::Packet> &&packet);
    metrics::RequestClass handle_packet(ClientSocket &client, wire::Packet &packet);
    bool paused(const ClientSocket &client) const;                        // it has too much to read
    void count_queue(ClientSocket &client);                               // after each change of it
    bool check_sender(ClientSocket &client, const wire::Packet &packet);  // one by_credentials
    void handle_request(ClientSocket &client, const wire::Request &request, wire::Packet &packet);
    // Takes out of `fds` what was adopted.
    void handle_with_descriptors(ClientSocket &client, const wire::Request &request,
                                 std::vector<UniqueFd> &fds);
    void send(ClientSocket &client, std::span<const std::byte> frame, std::vector<UniqueFd> &&fds,
              uint64_t reply_id);
    void after_send(ClientSocket &client, SendOutcome outcome);
    void begin_close(ClientSocket &client, metrics::Closed reason, std::string_view why);
    // No more sending: dead at the end of the turn.
    void kill(ClientSocket &client, metrics::Closed reason);
    void bury(ConnectionId id);  // end of turn
    void update_interest(ClientSocket &client);
    void want_retry(ClientSocket &client);
    void arm_retry();
    void close_fds(uint32_t uid, std::vector<UniqueFd> &fds);
    void log_client(const ClientSocket &client, int priority, std::string_view message);
    ClientSocket *find(ConnectionId id);
    uint32_t segment_uid(SegmentRef segment) const;

    sd_event *loop_;
    Journal &journal_;
    FdStore &fdstore_;  // these three are Daemon's and outlive this
    SessionStore store_;
    ObjectStore objects_;
    uint64_t rewritten_ = 0;  // how far its rewrite is
    HostOptions options_;
    std::function<void()> on_reload_;
    Service *service_ = nullptr;

    ClientPoll poll_;
    void arm(const EventSource &timer, uint64_t at_usec);
    void disarm(const EventSource &timer);
    Reaper reaper_;
    Segments segments_;
    ProcessWatch processes_;
    wire::Decoder decoder_;
    wire::Encoder encoder_;
    std::vector<std::byte> frame_;  // one for all: a packet is handled before the next is read

    std::unordered_map<ConnectionId, std::unique_ptr<ClientSocket>> connections_;
    std::unordered_map<uint32_t, Share> shares_;
    TimeNs loop_cpu_ = 0;       // processor time of this thread, as it was last asked for
    bool charge_anew_ = false;  // what was done since is no client's
    ConnectionId next_connection_ = 1;
    std::vector<ConnectionId> dying_;    // buried at the end of the turn
    std::vector<ConnectionId> closing_;  // with something left to send
    std::vector<ConnectionId> retries_;
    bool retry_on_ = false;
    std::vector<ConnectionId> active_;                     // for spin()
    std::vector<ClientSocket *> polled_;                   // those of them that it may read from
    ClientSocket *asking_ = nullptr;                       // whose packet is being handled
    uint32_t acting_uid_ = 0;                              // whose request Service is handling
    std::unordered_map<wire::Id, uint32_t> session_uids_;  // for the journal
    std::unordered_map<wire::Id, SessionRecord> unsaved_;  // the store would not have: tried again

    EventSource timer_, pulse_, retry_timer_, reaper_source_;
    TimeNs now_ = 0;    // of the current turn
    TimeNs clock_ = 0;  // as it was last read
    TimeNs last_turn_ = 0;
    TimeNs timer_at_ = INT64_MAX;
    bool pulse_on_ = false;
    int depth_ = 0;
    bool sweep_wanted_ = false;
    bool reload_wanted_ = false;
    std::vector<UniqueFd> spent_;
    std::function<void()> on_shutdown_;
    TimeNs shutdown_deadline_ = INT64_MAX;
    int64_t spin_ns_ = 0;  // adapted between an eighth of spin_us and all of it
    // A client must not be able to fill the journal: a bucket of lines that refills with time.
    static constexpr double kLogBurst = 20, kLogPerSecond = 2;
    double log_tokens_ = kLogBurst;
    TimeNs log_refilled_ = 0;
    uint64_t log_suppressed_ = 0;
    metrics::HostTally tally_;
};

class Host::Turn {
  public:
    explicit Turn(Host &host) : host_(host) {
        if (host_.depth_++ == 0)
            host_.begin_turn();
    }
    ~Turn() {
        if (host_.depth_ == 1)
            host_.end_turn();
        --host_.depth_;
    }
    Turn(const Turn &) = delete;
    Turn &operator=(const Turn &) = delete;

  private:
    Host &host_;
};

}  // namespace maru
