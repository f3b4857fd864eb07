// Sharer, part 1: its session, and which of its parts an answer is for.
#include "tests/sim/sharer.h"
#include "tests/sim/truth.h"

namespace maru::sim {

using wire::Status;

Sharer::Sharer(World &world, uint32_t number, uint32_t uid)
    : Endpoint(world, uid), number_(number), engine_("sharer-" + std::to_string(number % 3)) {}

// Behind the texts of private memory.
uint32_t Sharer::text(uint32_t index) const { return world_.settings().texts + index; }

uint64_t Sharer::watermark() const {
    return open_ops_.empty() ? next_op_ - 1 : *open_ops_.begin() - 1;
}

void Sharer::killed() {
    process_ = nullptr;
    link_ = nullptr;
    asked_.clear();
    leases_.clear();
    views_.clear();
    for (Segment &segment : segments_)
        segment.file = nullptr;
    forget_session();
}

void Sharer::end_reads() {
    for (const Lease &lease : leases_)
        if (lease.read && !lease.done)
            world_.truth().end_read(lease.read);
    leases_.clear();
}

void Sharer::drop_pool() {
    for (Segment &segment : segments_)
        if (segment.file && process_)
            world_.unmap(process_, segment.file);
    segments_.clear();
    objects_.clear();
    used_.clear();
    open_ops_.clear();
}

void Sharer::forget_session() {
    end_reads();
    views_.clear();
    drop_pool();
    pool_state_ = PoolState::None;
    pool_ = 0;
    next_op_ = 1;
    names_.clear();
    described_.clear();
    have_session_ = opening_ = leaving_ = give_back_ = false;
    phase_ = link_ ? Phase::Greeting : Phase::Out;
    for (uint8_t &byte : token_)
        byte = static_cast<uint8_t>(world_.random().next());
}

// ---- the session -------------------------------------------------------------------------------

void Sharer::greeted() {
    if (have_session_) {
        phase_ = Phase::Attaching;
        ask(wire::AttachRequest{token_, wire::Role::Worker, engine_, session_epoch_,
                                watermark() + 1});
    } else if (!world_.ending() || opening_) {
        phase_ = Phase::Opening;
        opening_ = true;
        ask(wire::OpenSessionRequest{token_, wire::Role::Worker, engine_});
    } else {
        cut();
    }
}

void Sharer::act() {
    Random &random = world_.random();
    if (!process_) {
        if (world_.ending() || !random.one_in(20))
            return;
        process_ = world_.spawn(uid_);
        process_->sharer = true;
        for (uint8_t &byte : token_)
            byte = static_cast<uint8_t>(random.next());
    }
    if (!link_) {
        if (world_.ending() && !have_session_ && !opening_)
            return;
        connect();
        if (link_)
            phase_ = Phase::Greeting;
        return;
    }
    if (world_.settings().cut && !world_.ending() && random.one_in(world_.settings().cut))
        return cut();
    if (phase_ == Phase::Greeting && greeted_ && world_.now() >= again_)
        return greeted();
    if (phase_ == Phase::Restoring) {
        step_restore();
        return;
    }
    if (phase_ != Phase::Live)
        return;
    if (world_.ending() || random.one_in(2000)) {
        if (!leaving_)
            give_back_ = random.one_in(3);
        leaving_ = true;
    }
    if (world_.now() - last_sent_ > 100'000'000)
        return ask(wire::HeartbeatRequest{});
    if (!leaving_ && step_names())
        return;
    bool did = false;
    switch (random.below(8)) {
        case 0:
        case 1:
            did = step_store();
            break;
        case 2:
        case 3:
            did = step_read();
            break;
        case 4:
            did = step_retire();
            break;
        case 5:
            did = step_pool();
            break;
        default:
            did = step_release();
    }
    if (!did)
        step_reclaim() || step_resolve() || step_leave();
}

void Sharer::lost(std::map<uint64_t, Asked> unanswered) {
    phase_ = Phase::Out;
    for (const auto &[id, asked] : unanswered)
        if (asked.of<wire::CommitRequest>())
            for (const uint64_t index : asked.about)
                if (index < objects_.size() && objects_[index].state == Object::Committing)
                    objects_[index].state = Object::Unknown;
    for (Object &object : objects_) {
        if (object.state == Object::Retiring)
            object.retire_asked = false;
        else if (object.state == Object::Acking)
            object.state = Object::Reclaimable;
    }
    for (Segment &segment : segments_) {
        if (segment.state == Segment::Asked)
            segment.state = Segment::None;
        else if (segment.state == Segment::Sealing)
            segment.state = Segment::Mapped;
    }
    for (Lease &lease : leases_)
        lease.wanted = false;
    std::erase_if(leases_, [](const Lease &lease) { return lease.done; });
    views_.clear();  // what marud said of them meanwhile was not heard
    if (pool_state_ == PoolState::Opening)
        pool_state_ = PoolState::None;
    if (pool_state_ == PoolState::Finishing)
        pool_state_ = PoolState::Forcing;
}

void Sharer::happened(const wire::Event &event) {
    for (const wire::ReplicaName &item : event.items) {
        if (event.kind == wire::EventKind::SegmentGone) {
            std::erase_if(views_, [&](const View &view) {
                return view.pool == item.replica && view.segment == item.generation;
            });
            continue;
        }
        if (event.kind != wire::EventKind::Reclaim && event.kind != wire::EventKind::Retired)
            continue;
        Object *object = object_of(item.replica);
        if (!object) {
            if (event.kind == wire::EventKind::Reclaim)
                ask(wire::ReclaimAckRequest{{&item, 1}}, {UINT64_MAX});
            continue;
        }
        if (event.kind == wire::EventKind::Reclaim) {
            if (object->state == Object::Ready || object->state == Object::Retiring)
                object->state = Object::Reclaimable;
        } else if (object->state == Object::Ready) {
            object->state = Object::Retiring;
            object->retire_asked = true;
        }
    }
}

// ---- answers -----------------------------------------------------------------------------------

void Sharer::answered(const Asked &asked, const wire::Reply &reply, std::span<Memfd *const> fds) {
    const auto *only = std::get_if<wire::StatusOnly>(&reply.body);
    const Status status = only ? only->status : Status::Ok;
    if (asked.of<wire::OpenSessionRequest>() || asked.of<wire::AttachRequest>() ||
        asked.of<wire::AttachDoneRequest>() || asked.of<wire::CloseSessionRequest>())
        answered_session(asked, reply, status);
    else if (asked.of<wire::RegisterNamespaceRequest>() || asked.of<wire::DescribeRequest>())
        answered_name(asked, reply, status);
    else if (asked.of<wire::OpenPoolRequest>() || asked.of<wire::GrantSegmentRequest>() ||
             asked.of<wire::SegmentMappedRequest>() || asked.of<wire::ClosePoolRequest>())
        answered_pool(asked, reply, status, fds);
    else if (asked.of<wire::CommitRequest>() || asked.of<wire::ResolveRequest>() ||
             asked.of<wire::RetireRequest>() || asked.of<wire::ReclaimAckRequest>())
        answered_object(asked, reply);
    else if (asked.of<wire::AcquireRequest>() || asked.of<wire::MapSegmentRequest>())
        answered_read(asked, reply, fds);
    else if (asked.of<wire::RepublishRequest>())
        answered_republish(asked, reply);
    if (link_ && (status == Status::Fenced || status == Status::Protocol))
        cut();
}

void Sharer::answered_session(const Asked &asked, const wire::Reply &reply, Status status) {
    Random &random = world_.random();
    if (std::get_if<wire::SessionReply>(&reply.body)) {
        have_session_ = true;
        opening_ = false;
        session_epoch_ = epoch_;
        phase_ = Phase::Live;
    } else if (const auto *attached = std::get_if<wire::AttachReply>(&reply.body)) {
        phase_ = Phase::Restoring;
        stage_ = 0;
        same_life_ = attached->same_life;
        if (same_life_)
            return;
        session_epoch_ = epoch_;
        names_.clear();
        described_.clear();
        missing_ = std::find(attached->missing_pools.begin(), attached->missing_pools.end(),
                             pool_) != attached->missing_pools.end();
        if (pool_state_ == PoolState::Finishing)
            pool_state_ = PoolState::Forcing;
        for (Object &object : objects_)
            object.old_life = object.state == Object::Unknown;
    } else if (asked.of<wire::OpenSessionRequest>() || asked.of<wire::AttachRequest>()) {
        if (phase_ == Phase::Attaching && status != Status::Busy && status != Status::Again)
            forget_session();
        else if (status == Status::Fenced || status == Status::Denied)
            forget_session();
        opening_ = false;  // refused: a token that is known would not be
        phase_ = Phase::Greeting;
        again_ = world_.now() + random.below(200'000'000);
    } else if (asked.of<wire::AttachDoneRequest>()) {
        if (status == Status::Ok)
            phase_ = Phase::Live;
    } else {
        if (status == Status::Ok) {
            forget_session();
            if (world_.ending())
                cut();
            return;
        }
        phase_ = Phase::Live;
        pause();
    }
}

void Sharer::pause() { again_ = world_.now() + world_.random().below(2 * kPause); }

}  // namespace maru::sim
