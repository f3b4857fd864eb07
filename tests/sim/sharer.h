// Sharer: a worker with a pool that others of its uid read, and a reader of theirs.
//
// A model of libmaru for scope Host: leases on memory of others are held through views, a lost marud
// is told everything again, and a pool is left to marud or given back. Now and then it tells a new
// marud more than is true, which must not make anything a hit.
#pragma once

#include "tests/sim/clients.h"

namespace maru::sim {

class Sharer : public Endpoint {
  public:
    Sharer(World &world, uint32_t number, uint32_t uid);
    void act() override;
    void killed() override;
    bool at_rest() const override { return !link_ && !have_session_ && !opening_; }

  protected:
    void greeted() override;
    void answered(const Asked &asked, const wire::Reply &reply,
                  std::span<Memfd *const> fds) override;
    void happened(const wire::Event &event) override;
    void lost(std::map<uint64_t, Asked> unanswered) override;
    uint64_t watermark() const override;

  private:
    enum class Phase { Out, Greeting, Opening, Attaching, Restoring, Live, Closing };
    struct Segment {
        enum State { None, Asked, Mapped, Sealing, Usable } state = None;
        Memfd *file = nullptr;
        TimeNs again = 0;
    };
    struct Object {
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
        uint32_t page = 0, written = 0;
        uint64_t generation = 0, op = 0;
        wire::Id replica = 0;
        bool retire_asked = false;
        bool old_life = false;
    };
    struct Lease {
        wire::ReplicaName name;
        wire::CommitItem item;
        uint32_t text = 0;
        uint32_t read = 0;    // Truth's number; 0: its segment is not mapped yet
        bool wanted = false;  // MapSegment is asked
        bool done = false, asked = false;
    };
    struct View {
        wire::Id pool = 0;
        uint64_t offset = 0, bytes = 0;
        uint32_t segment = 0;
        Memfd *file = nullptr;
    };

    bool step_names();
    bool step_pool();
    bool step_store();
    bool step_read();
    bool step_release();
    bool step_retire();
    bool step_reclaim();
    bool step_resolve();
    bool step_leave();
    bool step_restore();
    void answered_session(const Asked &asked, const wire::Reply &reply, wire::Status status);
    void answered_name(const Asked &asked, const wire::Reply &reply, wire::Status status);
    void answered_pool(const Asked &asked, const wire::Reply &reply, wire::Status status,
                       std::span<Memfd *const> fds);
    void answered_object(const Asked &asked, const wire::Reply &reply);
    void answered_read(const Asked &asked, const wire::Reply &reply, std::span<Memfd *const> fds);
    void answered_republish(const Asked &asked, const wire::Reply &reply);
    void pause();
    void commit(size_t index);
    void free(Object &object);
    bool allocate(const ObjectName &name);
    Memfd *own_file(uint64_t offset, uint32_t *ret_page);
    void begin_read(Lease &lease);
    void end_reads();
    void drop_pool();
    void forget_session();
    wire::CommitItem item_of(const Object &object) const;
    Object *object_of(wire::Id replica);
    uint32_t leases_of(const wire::ReplicaName &name) const;
    uint32_t text(uint32_t index) const;

    static constexpr TimeNs kPause = 20'000'000;

    uint32_t number_;
    std::string engine_;
    Phase phase_ = Phase::Out;
    wire::Token token_{};
    bool opening_ = false;  // asked for a session, and perhaps it has one
    bool have_session_ = false, same_life_ = false, leaving_ = false, give_back_ = false;
    uint32_t session_epoch_ = 0, stage_ = 0;
    std::map<uint32_t, wire::Id> names_;
    std::set<uint32_t> described_;
    enum class PoolState {
        None,
        Opening,
        Open,
        Left,
        Forcing,
        Finishing
    } pool_state_ = PoolState::None;
    wire::Id pool_ = 0;
    uint64_t request_key_ = 0, capacity_ = 0, segment_bytes_ = 0, next_generation_ = 0;
    bool missing_ = false;
    std::vector<Segment> segments_;
    std::vector<bool> used_;
    std::vector<Object> objects_;
    std::vector<Lease> leases_;
    std::vector<View> views_;
    std::set<uint64_t> open_ops_;
    uint64_t next_op_ = 1;
    TimeNs again_ = 0;
};

}  // namespace maru::sim
