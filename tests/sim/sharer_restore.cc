// Sharer, part 2: everything told again to a marud that lost it, and sometimes more than is true.
#include "tests/sim/sharer.h"
#include "tests/sim/truth.h"

namespace maru::sim {

using wire::Status;

bool Sharer::step_restore() {
    if (!asked_.empty())
        return false;
    const Settings &settings = world_.settings();
    ++stage_;
    if (same_life_) {
        if (stage_ == 1) {
            std::map<wire::Id, wire::LeaseItem> held;
            for (const Lease &lease : leases_) {
                wire::LeaseItem &item = held[lease.name.replica];
                item = {lease.name.replica, lease.name.generation, item.count + 1};
            }
            std::vector<wire::LeaseItem> items;
            for (const auto &[replica, item] : held)
                items.push_back(item);
            if (!items.empty())
                ask(wire::AttachLeasesRequest{items});
        } else if (stage_ == 2) {
            ask(wire::AttachDoneRequest{});
        }
        return true;
    }
    switch (stage_) {
        case 1:
            for (uint32_t i = 0; i < settings.shared_texts; ++i) {
                const std::string full = text_of(text(i));
                ask(wire::RegisterNamespaceRequest{full}, {i});
            }
            return true;
        case 2:
            for (const auto &[index, id] : names_)
                ask(wire::DescribeRequest{id, object_bytes(settings), "flat"}, {index});
            return true;
        case 3:
            for (uint32_t s = 0; missing_ && s < segments_.size(); ++s)
                if (segments_[s].state == Segment::Usable)
                    ask(wire::AttachPoolRequest{pool_, capacity_, segment_bytes_,
                                                settings.page_bytes, s, 1, next_generation_},
                        {}, {&segments_[s].file, 1});
            return true;
        case 4: {
            std::vector<wire::RepublishItem> items;
            std::vector<uint64_t> about;
            const bool boasts = world_.random().one_in(3);
            for (size_t i = 0; i < objects_.size(); ++i) {
                Object &object = objects_[i];
                if (object.state == Object::Reclaimable)
                    object.state = Object::Retiring;
                if (object.state == Object::Written && boasts)
                    object.state = Object::Ready;  // it never was: only the record makes it so
                if (object.state != Object::Ready && object.state != Object::Retiring &&
                    object.state != Object::Unknown)
                    continue;
                const bool flips = boasts && object.state == Object::Retiring;
                items.push_back({item_of(object), names_[object.name.text - text(0)],
                                 leases_of({object.replica, object.generation}),
                                 object.state == Object::Unknown              ? 2u
                                 : object.state == Object::Retiring && !flips ? 1u
                                                                              : 0u});
                about.push_back(i);
            }
            // Leases on what others keep.
            std::map<wire::Id, size_t> foreign;
            for (size_t i = 0; i < leases_.size(); ++i) {
                const Lease &lease = leases_[i];
                if (lease.item.pool == pool_ && pool_)
                    continue;
                auto [known, added] = foreign.try_emplace(lease.name.replica, items.size());
                if (!added) {
                    ++items[known->second].lease_count;
                    continue;
                }
                items.push_back({lease.item, names_[lease.text - text(0)], 1, 0});
                about.push_back(UINT32_MAX + uint64_t{1} + i);
            }
            if (!items.empty())
                ask(wire::RepublishRequest{items}, std::move(about));
            return true;
        }
        case 5:
            ask(wire::AttachDoneRequest{});
            return true;
        default:
            return false;
    }
}

uint32_t Sharer::leases_of(const wire::ReplicaName &name) const {
    uint32_t count = 0;
    for (const Lease &lease : leases_)
        count += lease.name.replica == name.replica && lease.name.generation == name.generation;
    return count;
}

void Sharer::answered_republish(const Asked &asked, const wire::Reply &reply) {
    const auto *answer = std::get_if<wire::ItemStatusReply>(&reply.body);
    if (!answer)
        return;
    const std::vector<Lease> before = leases_;
    for (size_t i = 0; i < asked.about.size(); ++i) {
        const Status item = answer->statuses[i];
        if (asked.about[i] > UINT32_MAX) {
            const wire::ReplicaName old = before[asked.about[i] - UINT32_MAX - 1].name;
            for (size_t j = 0; j < leases_.size(); ++j) {
                if (before[j].name.replica != old.replica || before[j].item.pool == pool_)
                    continue;
                if (item == Status::Ok)
                    leases_[j].name.replica = answer->replicas[i];
                else
                    leases_[j].done = leases_[j].asked = true;  // the bytes are used no more
            }
            continue;
        }
        Object &object = objects_[asked.about[i]];
        if (item == Status::Ok) {
            for (size_t j = 0; j < leases_.size(); ++j)
                if (before[j].item.pool == pool_ &&
                    before[j].item.offset == item_of(object).offset &&
                    before[j].name.generation == object.generation)
                    leases_[j].name.replica = answer->replicas[i];
            object.replica = answer->replicas[i];
            if (object.state == Object::Unknown) {
                open_ops_.erase(object.op);
                object.state = Object::Ready;
            }
            if (object.state == Object::Retiring)
                object.retire_asked = true;
        } else if (object.state == Object::Unknown && item == Status::Absent) {
            // resolve says it again, and is final
        } else {
            violated(Rule::HonestServed, "a shared replica told again is refused: %s",
                     wire::status_name(item));
        }
    }
    for (const Lease &lease : leases_)
        if (lease.done && lease.asked && lease.read)
            world_.truth().end_read(lease.read);
    std::erase_if(leases_, [](const Lease &lease) { return lease.done && lease.asked; });
}

}  // namespace maru::sim
