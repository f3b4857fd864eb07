// World: the simulated machine. Virtual clock, processes, memory files, sockets, and marud's life.
//
// One thread, one Random, no wall clock. World implements Effects, so it plays marud's shell: what
// Service asks for is done later, in any order that the kernel would allow. A connection never
// loses a message silently (SOCK_SEQPACKET); it is cut, before or after delivery.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "daemon/protocol/service.h"
#include "libmaru/wire/codec.h"
#include "tests/sim/model.h"
#include "tests/sim/random.h"
#include "tests/sim/rules.h"
#include "tests/sim/settings.h"
#include "tests/sim/trace.h"

namespace maru::sim {

class Truth;
class World;

struct Frame {
    std::vector<uint64_t> words;
    size_t bytes = 0;
    std::vector<Memfd *> fds;
    std::span<const std::byte> data() const {
        return {reinterpret_cast<const std::byte *>(words.data()), bytes};
    }
};

// Somebody with a process who talks to marud over at most one connection at a time.
class Client {
  public:
    explicit Client(World &world) : world_(world) {}
    virtual ~Client() = default;
    virtual void act() = 0;
    virtual void receive(const wire::ServerMessage &message, std::span<Memfd *const> fds) = 0;
    virtual void link_lost() = 0;
    virtual void killed() = 0;         // its process is gone; it may start another
    virtual bool at_rest() const = 0;  // nothing open, nothing asked: used in the end phase
    Process *process() const { return process_; }

  protected:
    World &world_;
    Process *process_ = nullptr;
};

struct Link {
    ConnectionId id = 0;
    Process *process = nullptr;
    Client *client = nullptr;  // nullptr: the client end is closed
    bool accepted = false;     // marud knows of it
    bool server_open = true;
    bool shell_ended = false;  // closed by the shell itself; Service hears of it soon
    bool server_told = false;  // Service knows that it ended
    uint64_t nonce = 0;
    std::deque<Frame> up, down;
    std::vector<std::pair<uint64_t, Frame>> unanswered;  // by request id
};

class World final : public Effects {
  public:
    World(uint64_t seed, const Settings &settings, Trace &trace);
    ~World() override;

    void run();  // one episode, end phase included; throws Violation
    uint64_t steps() const { return step_; }
    TimeNs now() const { return now_; }
    Random &random() { return random_; }
    Trace &trace() { return trace_; }
    Truth &truth() { return *truth_; }
    const Settings &settings() const { return settings_; }
    bool ending() const { return ending_; }
    uint32_t epoch() const { return epoch_; }
    Service *service() { return service_.get(); }
    // Ids of all lives and kinds that anybody ever saw, for liars to try.
    void remember(wire::Id id);
    wire::Id some_id();
    void remember_name(const wire::ReplicaName &name);
    wire::ReplicaName some_name();

    // ---- for clients
    Process *spawn(uint32_t uid);
    Link *connect(Client *client);  // nullptr: nobody listens
    void send(Link *link, const wire::Request &request, std::span<Memfd *const> fds = {});
    void send_raw(Link *link, std::span<const std::byte> bytes);
    void hang_up(Link *link);  // the client closes; what marud has not read may or may not arrive
    bool map(Process *process, Memfd *memfd);
    void unmap(Process *process, Memfd *memfd);  // also gives up the descriptor
    void write_page(Process *process, Memfd *memfd, uint32_t page, const PageValue &value);
    const PageValue &read_page(Process *process, Memfd *memfd, uint32_t page);
    void kill(Process *process);
    std::vector<wire::Token> &tokens() { return tokens_; }  // every token ever made, for liars

    // ---- for Truth
    const std::vector<std::unique_ptr<Memfd>> &memfds() const { return memfds_; }
    Memfd *memfd(SegmentRef ref) const;
    const std::vector<ObjectRecord> &object_records() const { return object_records_; }
    const std::map<wire::Id, SessionRecord> &records() const { return records_; }
    const std::vector<std::unique_ptr<Process>> &processes() const { return processes_; }

    // ---- Effects
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
    void reload() override {}
    void log(int priority, std::string_view message, wire::Id session) override;

  private:
    struct Job {
        enum Kind { Create, Seal, Prove } kind;
        SegmentRef ref;
        Memfd *memfd = nullptr;
        uint32_t attempts = 0;
        TimeNs due = 0;
    };

    void step();
    void make_clients();
    void pass_time();
    bool deliver();
    void deliver_up(Link &link);
    void deliver_down(Link &link);
    bool finish_job();
    void fault();
    void report_exits();
    void start_daemon();
    void kill_daemon();
    void died_inside();  // after a call into Service: was it the fatal one?
    bool effect();       // false: marud is dead already, the wish is lost
    void drop_links();
    void rewrite_records();
    void end_phase();
    void steps_until(bool (World::*done)() const, const char *what);
    bool all_at_rest() const;
    bool all_proven() const;
    void kill_clients(bool all);
    void retire_adopted();
    bool only_adopted() const;
    Link *find(ConnectionId id);
    std::vector<AttachedDescriptor> descriptors_of(const Frame &frame) const;
    void adopt_descriptors(const Frame &frame);
    void forget_frame(Frame &frame);
    void end_link(Link &link);  // marud's end: what it has not read is dropped

    Random random_;
    Settings settings_;
    Trace &trace_;
    std::unique_ptr<Truth> truth_;
    TimeNs now_ = 1'000'000'000;
    uint64_t step_ = 0;
    bool ending_ = false;

    std::unique_ptr<Service> service_;
    uint32_t epoch_ = 0;
    std::vector<uint32_t> epochs_;
    int effects_left_ = -1;  // -1: marud lives; else it dies after so many more effects
    std::map<wire::Id, SessionRecord> records_;
    std::vector<ObjectRecord> object_records_;
    std::vector<ObjectRecord> fresh_records_;  // to replace them, a part at a time
    uint64_t fresh_cursor_ = 0;
    std::vector<Job> jobs_;

    std::vector<std::unique_ptr<Process>> processes_;
    std::vector<std::unique_ptr<Memfd>> memfds_;
    std::map<SegmentRef, Memfd *> segments_;
    struct Pin {
        Memfd *memfd;
        TimeNs until;
    };
    std::vector<Pin> pins_;
    std::vector<std::unique_ptr<Link>> links_;
    std::vector<std::unique_ptr<Client>> clients_;
    std::vector<wire::Id> ids_;
    std::vector<wire::ReplicaName> names_;
    std::vector<wire::Token> tokens_;
    uint64_t next_connection_ = 1;
    uint64_t next_process_ = 1;

    wire::Encoder encoder_;
    wire::Decoder up_decoder_, again_decoder_, down_decoder_;
    Link *handling_ = nullptr;  // inside Service::handle
    const wire::Request *handled_ = nullptr;
};

}  // namespace maru::sim
