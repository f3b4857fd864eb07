// Worker, part 3: opening, losing and restoring a session.
#include "tests/sim/clients.h"
#include "tests/sim/truth.h"

namespace maru::sim {

using wire::Status;

uint64_t Worker::watermark() const {
    return open_ops_.empty() ? next_op_ - 1 : *open_ops_.begin() - 1;
}

bool Worker::at_rest() const { return !link_ && !have_session_; }

void Worker::greeted() {
    if (have_session_) {
        phase_ = Phase::Attaching;
        ask(wire::AttachRequest{token_, wire::Role::Worker, engine_, session_epoch_,
                                watermark() + 1});
    } else if (!world_.ending()) {
        phase_ = Phase::Opening;
        ask(wire::OpenSessionRequest{token_, wire::Role::Worker, engine_});
    } else {
        cut();
    }
}

void Worker::killed() {
    process_ = nullptr;
    link_ = nullptr;
    asked_.clear();
    readings_.clear();
    objects_.clear();
    pools_.clear();
    forget_session();
    left_memory_ = false;
}

void Worker::forget_session() {
    for (const Pool &pool : pools_)
        left_memory_ |= pool.state != Pool::Finished && pool.id != 0;
    for (const Reading &reading : readings_)
        world_.truth().end_read(reading.number);
    readings_.clear();
    for (size_t p = 0; p < pools_.size(); ++p)
        drop_pool(p);
    objects_.clear();
    pools_.clear();
    open_ops_.clear();
    next_op_ = 1;
    described_.clear();
    for (const auto &[text, id] : names_)
        old_names_[text] = id;
    names_.clear();
    have_session_ = leaving_ = false;
    phase_ = link_ ? Phase::Greeting : Phase::Out;
    for (uint8_t &byte : token_)
        byte = static_cast<uint8_t>(world_.random().next());
    world_.tokens().push_back(token_);
}

bool Worker::commit_in_doubt() const {
    return std::any_of(objects_.begin(), objects_.end(), [](const Object &object) {
        return object.state == Object::Committing || object.state == Object::Unknown;
    });
}

void Worker::happened(const wire::Event &event) {
    switch (event.kind) {
        case wire::EventKind::Reclaim:
            for (const wire::ReplicaName &name : event.items) {
                const size_t index = object_of(name.replica);
                if (index == SIZE_MAX) {
                    // Acknowledged before, and the acknowledgement was lost; or, while a commit is
                    // in doubt, its replica, which an admin retired: then its pages are ours still.
                    if (commit_in_doubt())
                        continue;
                    ask(wire::ReclaimAckRequest{{&name, 1}}, {UINT64_MAX});
                    continue;
                }
                Object &object = objects_[index];
                if (object.state == Object::Ready || object.state == Object::Retiring)
                    object.state = Object::Reclaimable;
            }
            break;
        case wire::EventKind::Retired:
            for (const wire::ReplicaName &name : event.items) {
                const size_t index = object_of(name.replica);
                if (index != SIZE_MAX && objects_[index].state == Object::Ready) {
                    objects_[index].state = Object::Retiring;
                    objects_[index].retire_asked = true;
                }
            }
            break;
        case wire::EventKind::Fenced:
        case wire::EventKind::Draining:
        case wire::EventKind::Shutdown:
        case wire::EventKind::Refused:
        case wire::EventKind::SegmentGone:
            break;  // the next answer, or the end of the connection, says what to do
    }
}

// The connection ended. What was asked and not answered may or may not have been done.
void Worker::lost(std::map<uint64_t, Asked> unanswered) {
    phase_ = Phase::Out;
    for (const auto &[id, asked] : unanswered) {
        if (asked.kind == wire::RequestBody(wire::CommitRequest{}).index()) {
            for (const uint64_t index : asked.about)
                objects_[index].state = Object::Unknown;
        } else if (asked.kind == wire::RequestBody(wire::RetireRequest{}).index()) {
            for (const uint64_t index : asked.about)
                if (objects_[index].state == Object::Retiring)
                    objects_[index].retire_asked = false;
        } else if (asked.kind == wire::RequestBody(wire::GrantSegmentRequest{}).index()) {
            Segment &segment = pools_[asked.about[0]].segments[asked.about[1]];
            if (segment.state == Segment::Asked)
                segment.state = Segment::None;
        } else if (asked.kind == wire::RequestBody(wire::SegmentMappedRequest{}).index()) {
            Segment &segment = pools_[asked.about[0]].segments[asked.about[1]];
            if (segment.state == Segment::Sealing)
                segment.state = Segment::Mapped;
        }
    }
    // Which events were lost is not known either.
    for (Object &object : objects_) {
        if (object.state == Object::Retiring)
            object.retire_asked = false;
        else if (object.state == Object::Acking)
            object.state = Object::Reclaimable;
    }
    for (Pool &pool : pools_)
        if (pool.state == Pool::Finishing)
            pool.state = Pool::Drained;
    // Readers that are done need no lease; attach does not name theirs.
    std::erase_if(readings_, [](const Reading &reading) { return reading.done; });
}

void Worker::answered_session(const Asked &asked, const wire::Reply &reply) {
    if (const auto *opened = std::get_if<wire::SessionReply>(&reply.body)) {
        have_session_ = true;
        session_ = opened->session;
        session_epoch_ = epoch_;
        phase_ = Phase::Live;
        return;
    }
    if (const auto *attached = std::get_if<wire::AttachReply>(&reply.body)) {
        begin_restore(*attached);
        return;
    }
    const Status status = std::get<wire::StatusOnly>(reply.body).status;
    phase_ = Phase::Greeting;
    again_ = world_.now() + world_.random().below(200'000'000);
    const bool attach = asked.kind == wire::RequestBody(wire::AttachRequest{}).index();
    if (attach &&
        (status == Status::NotFound || status == Status::Fenced || status == Status::Denied)) {
        forget_session();
    } else if (attach && !liar() && status != Status::Busy && status != Status::Again) {
        violated(Rule::HonestServed, "a correct attach was refused: %s", wire::status_name(status));
    } else if (!attach && (status == Status::Fenced ||
                           (status == Status::Denied && world_.settings().liars))) {
        forget_session();  // fenced, or a liar has used our token before us
    } else if (!attach && !liar() && status != Status::Busy && status != Status::Quota &&
               status != Status::Unavailable && status != Status::Again) {
        violated(Rule::HonestServed, "a correct open was refused: %s", wire::status_name(status));
    }
}

void Worker::begin_restore(const wire::AttachReply &reply) {
    phase_ = Phase::Restoring;
    stage_ = 0;
    same_life_ = reply.same_life;
    if (same_life_)
        return;
    session_epoch_ = epoch_;
    for (const auto &[text, id] : names_)
        old_names_[text] = id;
    names_.clear();
    described_.clear();
    for (size_t p = 0; p < pools_.size(); ++p) {
        Pool &pool = pools_[p];
        pool.missing = std::find(reply.missing_pools.begin(), reply.missing_pools.end(), pool.id) !=
                       reply.missing_pools.end();
        if (pool.state == Pool::Drained)
            pool.state = Pool::Draining;  // a new marud knows nothing of it
        for (Segment &segment : pool.segments) {
            if (segment.state == Segment::Asked)
                segment = Segment{};
            // A mapped one that was not answered for may have been sealed: ask again, then forget it.
        }
    }
    if (told_epoch_ != epoch_)
        for (Object &object : objects_)
            object.told = false;
    told_epoch_ = epoch_;
    for (size_t i = 0; i < objects_.size(); ++i) {
        Object &object = objects_[i];
        if (object.state == Object::Unknown)
            object.old_life = true;
        else if (!object.told && (object.state == Object::Reclaimable ||
                                  (object.state == Object::Retiring && leases_of(i) == 0 &&
                                   world_.random().coin())))
            free_object(i);  // nobody reads it, and the new marud does not know it
    }
}

// Each stage asks for its things and waits for all answers.
bool Worker::step_restore() {
    Random &random = world_.random();
    const Settings &settings = world_.settings();
    if (!asked_.empty())
        return false;
    ++stage_;
    if (same_life_) {
        if (stage_ == 1) {
            std::map<wire::Id, wire::LeaseItem> held;
            for (const Reading &reading : readings_) {
                wire::LeaseItem &item = held[reading.name.replica];
                item = {reading.name.replica, reading.name.generation, item.count + 1};
            }
            std::vector<wire::LeaseItem> items;
            for (const auto &[replica, item] : held)
                items.push_back(item);
            if (!items.empty())
                ask(wire::AttachLeasesRequest{items});
        } else {
            stage_ = 100;
            ask(wire::AttachDoneRequest{});
        }
        return true;
    }
    switch (stage_) {
        case 1: {  // in another order than last time
            std::vector<uint32_t> order;
            for (uint32_t i = 0; i < settings.texts; ++i)
                order.insert(order.begin() + random.below(i + 1), i);
            for (const uint32_t text : order) {
                const std::string full = text_of(text);
                ask(wire::RegisterNamespaceRequest{full}, {text});
            }
            return true;
        }
        case 2:
            for (const auto &[text, id] : names_)
                ask(wire::DescribeRequest{id, object_bytes(settings), "flat"}, {text});
            return true;
        case 3:
            for (size_t p = 0; p < pools_.size(); ++p) {
                const Pool &pool = pools_[p];
                for (uint32_t s = 0; pool.missing && s < pool.segments.size(); ++s) {
                    if (pool.segments[s].state != Segment::Usable)
                        continue;
                    Memfd *file = pool.segments[s].file;
                    ask(wire::AttachPoolRequest{pool.id, pool.capacity, pool.segment_bytes,
                                                pool.page_bytes, s, 1, pool.next_generation},
                        {p}, {&file, 1});
                }
            }
            return true;
        case 4: {
            std::vector<wire::RepublishItem> items;
            std::vector<uint64_t> about;
            for (size_t i = 0; i < objects_.size(); ++i) {
                Object &object = objects_[i];
                if (object.state == Object::Reclaimable)
                    object.state = Object::Retiring;  // told before: marud asks for it again
                if (object.state != Object::Ready && object.state != Object::Retiring)
                    continue;
                object.told = true;
                items.push_back({item_of(object), name_id(object.name.text), leases_of(i),
                                 object.state == Object::Retiring});
                about.push_back(i);
            }
            if (!items.empty())
                ask(wire::RepublishRequest{items}, std::move(about));
            return true;
        }
        case 5:
            stage_ = 100;
            ask(wire::AttachDoneRequest{});
            return true;
        default:
            return false;
    }
}

}  // namespace maru::sim
