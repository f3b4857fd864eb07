// Sharer, part 4: what it stores, until its pages are free again.
#include "tests/sim/sharer.h"
#include "tests/sim/truth.h"

namespace maru::sim {

using wire::Status;

Memfd *Sharer::own_file(uint64_t offset, uint32_t *ret_page) {
    *ret_page = static_cast<uint32_t>(offset % segment_bytes_ / world_.settings().page_bytes);
    return segments_[offset / segment_bytes_].file;
}

wire::CommitItem Sharer::item_of(const Object &object) const {
    wire::CommitItem item;
    item.key = {digest_of(object.name.key), 0, 0};
    item.pool = pool_;
    item.offset = uint64_t{object.page} * world_.settings().page_bytes;
    item.length = object_bytes(world_.settings());
    item.generation = object.generation;
    return item;
}

bool Sharer::allocate(const ObjectName &name) {
    const Settings &settings = world_.settings();
    const auto per_segment = static_cast<uint32_t>(segment_bytes_ / settings.page_bytes);
    for (uint32_t s = 0; s < segments_.size(); ++s) {
        if (segments_[s].state != Segment::Usable)
            continue;
        const uint32_t end = std::min((s + 1) * per_segment, static_cast<uint32_t>(used_.size()));
        for (uint32_t page = s * per_segment; page + settings.object_pages <= end; ++page) {
            bool free = true;
            for (uint32_t i = 0; i < settings.object_pages; ++i)
                free &= !used_[page + i];
            if (!free)
                continue;
            for (uint32_t i = 0; i < settings.object_pages; ++i)
                used_[page + i] = true;
            size_t index = 0;
            while (index < objects_.size() && objects_[index].state != Object::Free)
                ++index;
            if (index == objects_.size())
                objects_.emplace_back();
            objects_[index] = Object{};
            objects_[index].state = Object::Writing;
            objects_[index].name = name;
            objects_[index].page = page;
            objects_[index].generation = next_generation_++;
            return true;
        }
    }
    return false;
}

Sharer::Object *Sharer::object_of(wire::Id replica) {
    for (Object &object : objects_)
        if (object.state >= Object::Ready && object.replica == replica)
            return &object;
    return nullptr;
}

void Sharer::commit(size_t index) {
    Object &object = objects_[index];
    object.state = Object::Committing;
    object.op = next_op_++;
    object.old_life = false;
    open_ops_.insert(object.op);
    const wire::CommitItem item = item_of(object);
    ask(wire::CommitRequest{names_[object.name.text - text(0)], object.op, {&item, 1}}, {index});
}

bool Sharer::step_store() {
    Random &random = world_.random();
    const Settings &settings = world_.settings();
    if (pool_state_ != PoolState::Open || leaving_)
        return false;
    for (size_t i = 0; i < objects_.size(); ++i) {
        Object &object = objects_[i];
        if (object.state == Object::Written && described_.count(object.name.text - text(0)) &&
            next_op_ <= watermark() + settings.max_ledger) {
            commit(i);
            return true;
        }
        if (object.state != Object::Writing)
            continue;
        uint32_t page;
        Memfd *file = own_file(uint64_t{object.page} * settings.page_bytes, &page);
        PageValue value{object.name, object.generation, true};
        if (object.written % 2 == 0)
            value.written = false;
        world_.write_page(process_, file, page + object.written / 2, value);
        if (++object.written == 2 * settings.object_pages)
            object.state = Object::Written;
        return true;
    }
    return allocate({text(random.below(settings.shared_texts)), random.below(settings.keys), 0, 0});
}

bool Sharer::step_retire() {
    Random &random = world_.random();
    if (pool_state_ != PoolState::Open && !random.one_in(8))
        return false;
    if (random.one_in(40) && !leaving_) {  // by hand: a whole segment, or a whole namespace
        if (random.coin() && !views_.empty()) {
            const View &view = views_[random.below(static_cast<uint32_t>(views_.size()))];
            ask(wire::RetireSegmentRequest{view.pool, view.segment});
        } else if (!names_.empty()) {
            ask(wire::AdminRetireRequest{names_.begin()->second, std::nullopt});
        }
        return true;
    }
    for (size_t i = 0; i < objects_.size(); ++i) {
        Object &object = objects_[i];
        const bool again = object.state == Object::Retiring && !object.retire_asked;
        if (!again && !(object.state == Object::Ready && !leaving_ && random.one_in(10)))
            continue;
        object.state = Object::Retiring;
        object.retire_asked = true;
        const wire::ReplicaName name{object.replica, object.generation};
        ask(wire::RetireRequest{{&name, 1}}, {i});
        return true;
    }
    return false;
}

bool Sharer::step_reclaim() {
    for (size_t i = 0; i < objects_.size(); ++i) {
        Object &object = objects_[i];
        if (object.state != Object::Reclaimable)
            continue;
        object.state = Object::Acking;
        const wire::ReplicaName name{object.replica, object.generation};
        ask(wire::ReclaimAckRequest{{&name, 1}}, {i});
        return true;
    }
    return false;
}

bool Sharer::step_resolve() {
    if (asking<wire::ResolveRequest>())
        return false;
    for (size_t i = 0; i < objects_.size(); ++i)
        if (objects_[i].state == Object::Unknown) {
            ask(wire::ResolveRequest{objects_[i].op, 1}, {i});
            return true;
        }
    return false;
}

void Sharer::free(Object &object) {
    for (uint32_t i = 0; i < world_.settings().object_pages; ++i)
        used_[object.page + i] = false;
    object.state = Object::Free;
}

void Sharer::answered_object(const Asked &asked, const wire::Reply &reply) {
    if (asked.about[0] >= objects_.size())  // of a pool that is gone
        return;
    Object &object = objects_[asked.about[0]];
    if (asked.of<wire::CommitRequest>()) {
        const auto *answer = std::get_if<wire::CommitReply>(&reply.body);
        if (object.state != Object::Committing)
            return;
        open_ops_.erase(object.op);
        if (answer && answer->results[0].status == Status::Ok) {
            object.state = Object::Ready;
            object.replica = answer->results[0].replica;
        } else if (!answer) {
            object.state = Object::Written;
        } else {
            const Status result = answer->results[0].status;
            if (result == Status::Conflict || result == Status::Denied)
                violated(Rule::HonestServed, "a correct shared commit was refused: %s",
                         wire::status_name(result));
            free(object);
        }
    } else if (asked.of<wire::ResolveRequest>()) {
        const auto *answer = std::get_if<wire::ResolveReply>(&reply.body);
        if (!answer || object.state != Object::Unknown)
            return;
        const wire::CommitResult &result = answer->results[0];
        if (result.status == Status::Unknown)
            return;
        open_ops_.erase(object.op);
        if (result.status == Status::Committed) {
            object.state = Object::Ready;
            object.replica = result.replica;
        } else if (result.status == Status::Absent) {
            object.state = Object::Written;
        } else {
            free(object);
        }
    } else if (asked.of<wire::RetireRequest>()) {
        const auto *answer = std::get_if<wire::ItemStatusReply>(&reply.body);
        if (object.state != Object::Retiring)
            return;
        if (!answer)
            object.retire_asked = false;
        else if (answer->statuses[0] == Status::Ok)
            object.state = Object::Reclaimable;
    } else if (asked.of<wire::ReclaimAckRequest>()) {
        const auto *answer = std::get_if<wire::ItemStatusReply>(&reply.body);
        if (object.state != Object::Acking)
            return;
        if (!answer || answer->statuses[0] == Status::Busy) {
            object.state = Object::Retiring;  // Reclaim comes again
            object.retire_asked = answer != nullptr;
        } else {
            free(object);
        }
    }
}

}  // namespace maru::sim
