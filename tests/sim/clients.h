// The simulated clients: correct workers and schedulers, an administrator, and liars.
//
// A worker is a model of libmaru and its caller: it keeps exactly the promises that the protocol asks
// of a correct client and believes what marud says, so that a wrong answer has its consequence.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "tests/sim/world.h"

namespace maru::sim {

std::string text_of(uint32_t index);
uint64_t object_bytes(const Settings &settings);

// The connection of one client: hello, request ids, what each outstanding request was about.
class Endpoint : public Client {
  public:
    Endpoint(World &world, uint32_t uid) : Client(world), uid_(uid) {}
    void receive(const wire::ServerMessage &message, std::span<Memfd *const> fds) override;
    void link_lost() override;

  protected:
    struct Asked {
        size_t kind = 0;              // index in wire::RequestBody
        std::vector<uint64_t> about;  // indices or ids, as its sender needs them
        template <typename T>
        bool of() const {
            static const size_t index = wire::RequestBody(T{}).index();
            return kind == index;
        }
    };
    virtual void greeted() = 0;  // hello is done, the epoch known
    virtual void answered(const Asked &asked, const wire::Reply &reply,
                          std::span<Memfd *const> fds) = 0;
    virtual void happened(const wire::Event &event) = 0;
    virtual void lost(std::map<uint64_t, Asked> unanswered) = 0;
    virtual uint64_t watermark() const { return 0; }
    virtual void tamper(wire::Request &) {}

    void connect();
    void ask(wire::RequestBody body, std::vector<uint64_t> about = {},
             std::span<Memfd *const> fds = {});
    void cut();  // gives up on the connection, as after a time-out
    bool greeted_yet() const { return link_ && greeted_; }
    template <typename T>
    bool asking() const {
        const size_t kind = wire::RequestBody(T{}).index();
        for (const auto &[id, asked] : asked_)
            if (asked.kind == kind)
                return true;
        return false;
    }

    uint32_t uid_;
    Link *link_ = nullptr;
    bool greeted_ = false;
    uint32_t epoch_ = 0;
    uint64_t next_request_ = 1;
    std::map<uint64_t, Asked> asked_;
    TimeNs last_sent_ = 0;
};

// A correct worker, until its process is killed; then a new process with the same engine.
class Worker : public Endpoint {
  public:
    Worker(World &world, uint32_t number, uint32_t uid);
    void act() override;
    void killed() override;
    bool at_rest() const override;

  protected:
    void greeted() override;
    void answered(const Asked &asked, const wire::Reply &reply,
                  std::span<Memfd *const> fds) override;
    void happened(const wire::Event &event) override;
    void lost(std::map<uint64_t, Asked> unanswered) override;
    uint64_t watermark() const override;

    enum class Phase { Out, Greeting, Opening, Attaching, Restoring, Live, Closing };
    struct Segment {
        enum State { None, Asked, Mapped, Sealing, Usable, Gone } state = None;
        Memfd *file = nullptr;
    };
    struct Pool {
        enum State { Opening, Open, Draining, Drained, Finishing, Finished } state = Opening;
        wire::Id id = 0;
        uint64_t request_key = 0;
        uint64_t capacity = 0, segment_bytes = 0;
        uint32_t page_bytes = 0;
        uint64_t next_generation = 0;
        std::vector<Segment> segments;
        std::vector<bool> used;  // pages handed out
        bool forced = false;
        bool missing = false;  // marud lost its segments and wants them again
        TimeNs again = 0;      // do not ask before
    };
    struct Object {  // an allocation and its life
        enum State {
            Free,
            Writing,
            Written,
            Committing,
            Unknown,
            Ready,
            Retiring,
            Reclaimable,
            Acking
        } state = Free;
        ObjectName name;
        size_t pool = 0;
        uint32_t page = 0, pages = 0, written = 0;
        uint64_t generation = 0;
        uint64_t op = 0;
        wire::Id replica = 0;
        bool retire_asked = false;  // and not to be asked again on this connection
        bool retried = false;       // its operation was sent before
        bool told = false;          // republished to this life of marud
        bool old_life = false;      // its commit was sent to an earlier life of marud
    };
    struct Reading {
        size_t object = 0;
        wire::ReplicaName name;
        uint32_t number = 0;  // Truth's
        bool done = false;    // the bytes are used; release is due
        bool asked = false;   // the release was sent
    };

    // worker.cc: choices of a living session
    void act_live();
    bool keep_alive();
    bool step_store();
    bool step_load();
    bool step_retire();
    bool step_pools();
    bool step_close();
    bool step_names();
    bool step_resolve();
    bool step_reclaim();
    bool step_look();
    size_t allocate(const ObjectName &name);
    void free_object(size_t index);
    void map_segment(size_t pool, uint32_t segment, Memfd *file);
    void commit(const std::vector<size_t> &objects, uint64_t first_op);
    Memfd *file_of(const Object &object, uint32_t *ret_page) const;
    wire::CommitItem item_of(const Object &object) const;
    PageValue value_of(const Object &object) const;
    size_t object_at(wire::Id pool, uint64_t offset) const;
    size_t object_of(wire::Id replica) const;
    wire::Id name_id(uint32_t text) const;
    wire::Id old_name_id(uint32_t text) const;
    bool reading(size_t object) const;
    void drop_pool(size_t pool);    // unmaps, forgets its objects
    bool quiet(size_t pool) const;  // nothing of it is in doubt: it may be closed
    uint32_t leases_of(size_t object) const;
    virtual bool liar() const { return false; }
    void start_process();

    // worker_session.cc: opening, losing and restoring a session
    void answered_session(const Asked &asked, const wire::Reply &reply);
    void begin_restore(const wire::AttachReply &reply);
    bool step_restore();
    bool commit_in_doubt() const;
    void forget_session();  // it is over: nothing of it may be touched again

    // worker_replies.cc
    void answered_commit(const Asked &asked, const wire::Reply &reply);
    void answered_resolve(const Asked &asked, const wire::Reply &reply);
    void answered_acquire(const Asked &asked, const wire::Reply &reply);
    void answered_items(const Asked &asked, const wire::Reply &reply);
    void answered_pool(const Asked &asked, const wire::Reply &reply, std::span<Memfd *const> fds);

    uint32_t number_;
    std::string engine_;
    Phase phase_ = Phase::Out;
    wire::Token token_{};
    bool have_session_ = false;  // opened once: attach from now on
    bool same_life_ = false;
    uint32_t told_epoch_ = 0;
    uint32_t session_epoch_ = 0;
    wire::Id session_ = 0;
    std::set<uint32_t> described_;
    uint32_t stage_ = 0;        // of a restore
    bool left_memory_ = false;  // a lost session's pools may only be proven by our exit
    bool leaving_ = false;      // closes its session in good order
    std::map<uint32_t, wire::Id> names_, old_names_;
    std::vector<Pool> pools_;
    std::vector<Object> objects_;
    std::vector<Reading> readings_;
    std::set<uint64_t> open_ops_;  // sent and not answered
    uint64_t next_op_ = 1;
    TimeNs again_ = 0;  // a refused open or attach is not repeated before
};

// A metadata-only client of one engine.
class Scheduler : public Endpoint {
  public:
    Scheduler(World &world, uint32_t number, uint32_t uid);
    void act() override;
    void killed() override;
    bool at_rest() const override { return !link_; }

  protected:
    void greeted() override;
    void answered(const Asked &asked, const wire::Reply &reply,
                  std::span<Memfd *const> fds) override;
    void happened(const wire::Event &) override {}
    void lost(std::map<uint64_t, Asked> unanswered) override;

  private:
    uint32_t number_;
    wire::Token token_{};
    bool open_ = false, had_session_ = false;
    uint32_t session_epoch_ = 0;
    std::map<uint32_t, wire::Id> names_;
};

// maructl.
class Admin : public Endpoint {
  public:
    explicit Admin(World &world) : Endpoint(world, 0) {}
    void act() override;
    void killed() override;
    bool at_rest() const override { return !link_; }

  protected:
    void greeted() override {}
    void answered(const Asked &asked, const wire::Reply &reply,
                  std::span<Memfd *const> fds) override;
    void happened(const wire::Event &) override {}
    void lost(std::map<uint64_t, Asked>) override { names_.clear(); }

  private:
    std::vector<wire::Id> names_;  // of all users, as the last listing had them
    bool draining_ = false;
};

// A worker whose requests are bent on the way out, and who asks for what is not its own.
class Liar : public Worker {
  public:
    Liar(World &world, uint32_t number, uint32_t uid) : Worker(world, number, uid) {}
    void act() override;

  protected:
    bool liar() const override { return true; }
    void tamper(wire::Request &request) override;

  private:
    static constexpr uint64_t kLie = UINT64_MAX - 1;  // what its lies are about
    void answered(const Asked &asked, const wire::Reply &reply,
                  std::span<Memfd *const> fds) override;
    void lost(std::map<uint64_t, Asked> unanswered) override;
    void lie(wire::RequestBody body, std::span<Memfd *const> fds = {});
    void ask_anything();
    void ask_nearly_true();
    void forge_commit();
    std::vector<wire::CommitItem> commits_, bent_;
    std::vector<wire::ReplicaName> replicas_;
    std::vector<wire::RepublishItem> republished_;
    std::vector<wire::LeaseItem> lease_items_;
    std::vector<wire::Digest> digests_;
};

}  // namespace maru::sim
