// Sharer, part 3: its namespaces, and its pool from the first segment to the last.
#include "tests/sim/sharer.h"
#include "tests/sim/truth.h"

namespace maru::sim {

using wire::Status;

bool Sharer::step_names() {
    const uint32_t index = world_.random().below(world_.settings().shared_texts);
    if (!names_.count(index)) {
        if (asking<wire::RegisterNamespaceRequest>())
            return false;
        const std::string full = text_of(text(index));
        ask(wire::RegisterNamespaceRequest{full}, {index});
        return true;
    }
    if (described_.count(index) || asking<wire::DescribeRequest>())
        return false;
    ask(wire::DescribeRequest{names_[index], object_bytes(world_.settings()), "flat"}, {index});
    return true;
}

bool Sharer::step_pool() {
    Random &random = world_.random();
    const Settings &settings = world_.settings();
    if (leaving_)
        return false;
    if (pool_state_ == PoolState::None && world_.now() >= again_) {
        if (!request_key_ || random.coin())
            request_key_ = random.next() | 1;
        wire::OpenPoolRequest open;
        open.scope = wire::Scope::Host;
        open.capacity_bytes = uint64_t{settings.pool_pages} * settings.page_bytes;
        open.page_bytes = settings.page_bytes;
        open.request_key = request_key_;
        pool_state_ = PoolState::Opening;
        ask(open);
        return true;
    }
    if (pool_state_ != PoolState::Open)
        return false;
    for (uint32_t s = 0; s < segments_.size(); ++s) {
        Segment &segment = segments_[s];
        if (segment.state == Segment::None && world_.now() >= segment.again) {
            segment.state = Segment::Asked;
            ask(wire::GrantSegmentRequest{pool_, s}, {s});
            return true;
        }
        if (segment.state == Segment::Mapped) {
            segment.state = Segment::Sealing;
            ask(wire::SegmentMappedRequest{pool_, s}, {s});
            return true;
        }
        if (segment.state != Segment::Usable)
            return false;  // the next one is asked for when this one is there
    }
    return false;
}

bool Sharer::step_leave() {
    if (!leaving_ || !leases_.empty() || asking<wire::ClosePoolRequest>() || world_.now() < again_)
        return false;
    if (pool_state_ == PoolState::Open) {
        if (!asked_.empty())
            return false;
        for (const Object &object : objects_)
            if (object.state == Object::Committing || object.state == Object::Unknown)
                return false;
        if (give_back_) {
            pool_state_ = PoolState::Forcing;
        } else {
            pool_state_ = PoolState::Left;
            drop_pool();
        }
    }
    if (pool_state_ == PoolState::Left)
        ask(wire::ClosePoolRequest{pool_, wire::ClosePhase::Leave});
    else if (pool_state_ == PoolState::Forcing)
        ask(wire::ClosePoolRequest{pool_, wire::ClosePhase::Force});
    else if (pool_state_ == PoolState::Finishing)
        ask(wire::ClosePoolRequest{pool_, wire::ClosePhase::Finish});
    else if (pool_state_ == PoolState::None && asked_.empty()) {
        phase_ = Phase::Closing;
        ask(wire::CloseSessionRequest{});
    }
    return true;
}

void Sharer::answered_name(const Asked &asked, const wire::Reply &reply, Status status) {
    const auto index = static_cast<uint32_t>(asked.about[0]);
    if (const auto *name = std::get_if<wire::NamespaceReply>(&reply.body))
        names_[index] = name->namespace_id;
    else if (asked.of<wire::DescribeRequest>() && status == Status::Ok)
        described_.insert(index);
}

void Sharer::answered_pool(const Asked &asked, const wire::Reply &reply, Status status,
                           std::span<Memfd *const> fds) {
    const Settings &settings = world_.settings();
    if (asked.of<wire::OpenPoolRequest>()) {
        const auto *opened = std::get_if<wire::PoolReply>(&reply.body);
        pool_state_ = opened ? PoolState::Open : PoolState::None;
        pause();
        if (opened) {
            pool_ = opened->pool;
            capacity_ = opened->capacity_bytes;
            segment_bytes_ = opened->segment_bytes;
            next_generation_ = opened->first_generation;
            segments_.assign(opened->segment_count, Segment{});
            used_.assign(opened->capacity_bytes / settings.page_bytes, false);
        }
    } else if (asked.of<wire::GrantSegmentRequest>()) {
        if (asked.about[0] >= segments_.size())
            return;
        Segment &segment = segments_[asked.about[0]];
        segment.again = world_.now() + kPause;
        if (fds.empty()) {
            segment.state = Segment::None;
        } else {
            segment.file = fds[0];
            if (!world_.map(process_, fds[0]))
                violated(Rule::HonestServed, "a shared segment cannot be mapped by its worker");
            segment.state = Segment::Mapped;
        }
    } else if (asked.of<wire::SegmentMappedRequest>()) {
        if (asked.about[0] >= segments_.size())
            return;
        Segment &segment = segments_[asked.about[0]];
        if (status == Status::InvalidArgument) {
            world_.unmap(process_, segment.file);
            segment = Segment{};
        } else {
            segment.state = status == Status::Ok ? Segment::Usable : Segment::Mapped;
        }
    } else if (asked.of<wire::ClosePoolRequest>()) {
        const auto *closed = std::get_if<wire::ClosePoolReply>(&reply.body);
        const Status how = closed ? closed->status : status;
        pause();
        if (how == Status::NotFound ||
            (how == Status::Ok &&
             (pool_state_ == PoolState::Left || pool_state_ == PoolState::Finishing))) {
            drop_pool();
            pool_state_ = PoolState::None;
            pool_ = 0;
            request_key_ = 0;
        } else if (how == Status::Ok && pool_state_ == PoolState::Forcing) {
            drop_pool();
            pool_state_ = PoolState::Finishing;
        } else if (pool_state_ == PoolState::Finishing && how == Status::InvalidArgument) {
            pool_state_ = PoolState::Forcing;
        }
    }
}

}  // namespace maru::sim
