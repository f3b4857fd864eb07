// Sharer, part 5: leases on what anybody of its uid keeps, and views of other segments than its own.
#include "tests/sim/sharer.h"
#include "tests/sim/truth.h"

namespace maru::sim {

using wire::Status;

void Sharer::begin_read(Lease &lease) {
    const Settings &settings = world_.settings();
    Memfd *file = nullptr;
    uint32_t page = 0;
    if (pool_ && lease.item.pool == pool_) {
        file = own_file(lease.item.offset, &page);
    } else {
        for (const View &view : views_)
            if (view.pool == lease.item.pool && lease.item.offset >= view.offset &&
                lease.item.offset - view.offset < view.bytes) {
                file = view.file;
                page =
                    static_cast<uint32_t>((lease.item.offset - view.offset) / settings.page_bytes);
            }
    }
    if (!file)
        return;
    const ObjectName name{lease.text, key_of(lease.item.key.digest), 0, 0};
    lease.read = world_.truth().begin_read(*process_, *file, page, settings.object_pages,
                                           {name, lease.item.generation, true});
}

bool Sharer::step_read() {
    Random &random = world_.random();
    const Settings &settings = world_.settings();
    for (Lease &lease : leases_)
        if (!lease.read && !lease.done && !lease.wanted) {
            begin_read(lease);
            if (lease.read)
                return true;
            lease.wanted = true;
            ask(wire::MapSegmentRequest{lease.name}, {lease.name.replica, lease.name.generation});
            return true;
        }
    if (leaving_ || leases_.size() > 10 || asked_.size() > 12)
        return false;
    const uint32_t index = random.below(settings.shared_texts);
    std::vector<wire::Digest> digests;
    std::vector<uint64_t> about{index};
    for (uint32_t i = random.between(1, 3); i; --i) {
        about.push_back(random.below(settings.keys));
        digests.push_back(digest_of(static_cast<uint32_t>(about.back())));
    }
    if (random.one_in(4))
        ask(wire::ProbeRequest{names_[index], digests, {}, random.coin()});
    else
        ask(wire::AcquireRequest{names_[index], digests, {}, random.one_in(4)}, std::move(about));
    return true;
}

bool Sharer::step_release() {
    std::vector<wire::ReplicaName> names;
    for (Lease &lease : leases_) {
        if (lease.wanted && !lease.read)
            continue;
        if (!lease.done && world_.random().one_in(leaving_ ? 2 : 6)) {
            if (lease.read)
                world_.truth().end_read(lease.read);
            lease.done = true;
        }
        if (lease.done && !lease.asked && names.size() < 4) {
            lease.asked = true;
            names.push_back(lease.name);
        }
    }
    if (names.empty())
        return false;
    ask(wire::ReleaseRequest{names});
    std::erase_if(leases_, [](const Lease &lease) { return lease.asked; });
    return true;
}

void Sharer::answered_read(const Asked &asked, const wire::Reply &reply,
                           std::span<Memfd *const> fds) {
    if (const auto *acquired = std::get_if<wire::AcquireReply>(&reply.body)) {
        for (size_t i = 0; i < acquired->results.size(); ++i) {
            const wire::AcquireResult &result = acquired->results[i];
            if (result.status != Status::Ok)
                continue;
            Lease lease;
            lease.name = {result.replica, result.generation};
            lease.item = {{digest_of(static_cast<uint32_t>(asked.about[1 + i])), 0, 0},
                          result.pool,
                          result.offset,
                          result.length,
                          result.generation};
            lease.text = text(static_cast<uint32_t>(asked.about[0]));
            leases_.push_back(lease);
        }
    } else if (asked.of<wire::MapSegmentRequest>()) {
        const auto *view = std::get_if<wire::ViewReply>(&reply.body);
        if (view && !fds.empty()) {
            std::erase_if(views_, [&](const View &old) {
                return old.pool == view->pool && old.offset == view->offset;
            });
            views_.push_back({view->pool, view->offset, view->bytes, view->segment, fds[0]});
        }
        for (Lease &lease : leases_) {
            if (!lease.wanted || lease.read)
                continue;
            begin_read(lease);
            if (lease.read || lease.name.replica == asked.about[0]) {
                lease.wanted = false;
                lease.done = lease.done || !lease.read;  // no descriptor: it is given back
            }
        }
    }
}

}  // namespace maru::sim
