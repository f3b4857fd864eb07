// Listings: by slot, so that a cursor survives any change; a bounded number of slots per call.
#include <algorithm>

#include "daemon/directory/impl.h"

namespace maru {

using directory::Lease;
using directory::ObjectRing;
using directory::Replica;

namespace {

// Slots that one call looks at, rows or not: about half a millisecond.
constexpr uint64_t kScan = 8192;

}  // namespace

Directory::ReplicaView Directory::Impl::view_of(uint32_t slot) const {
    const Replica &replica = replicas[slot];
    const directory::Object &object = objects[replica.object];
    ReplicaView view;
    view.name = name_of(slot);
    view.ns = object.ns;
    view.key = object.key;
    view.pool = replica.pool;
    view.offset = replica.offset;
    view.length = replica.length;
    view.state = replica.state;
    view.leases = static_cast<uint32_t>(std::min<uint64_t>(replica.leases, UINT32_MAX));
    return view;
}

uint64_t Directory::list_replicas(uint64_t cursor, NamespaceIndex ns_or_0, uint32_t max,
                                  std::vector<ReplicaView> &out) const {
    const Impl &impl = *impl_;
    const uint64_t end = impl.replicas.end();
    const uint64_t stop = cursor < end ? std::min(end, cursor + kScan) : end;
    uint32_t rows = 0;
    for (; cursor < stop && rows < max; ++cursor) {
        const auto slot = static_cast<uint32_t>(cursor);
        const Replica &replica = impl.replicas[slot];
        if (replica.state == ReplicaState::Free || impl.gates[replica.pool].leaving)
            continue;
        if (ns_or_0 && impl.objects[replica.object].ns != ns_or_0)
            continue;
        out.push_back(impl.view_of(slot));
        ++rows;
    }
    return cursor < end ? cursor : 0;
}

uint64_t Directory::list_leases(uint64_t cursor, uint32_t max, std::vector<LeaseView> &out) const {
    const Impl &impl = *impl_;
    const uint64_t end = impl.leases.end();
    const uint64_t stop = cursor < end ? std::min(end, cursor + kScan) : end;
    uint32_t rows = 0;
    for (; cursor < stop && rows < max; ++cursor) {
        const Lease &lease = impl.leases.at(static_cast<uint32_t>(cursor));
        if (!lease.count || impl.gates[impl.replicas[lease.replica].pool].leaving)
            continue;
        out.push_back({impl.name_of(lease.replica), lease.holder, impl.replicas[lease.replica].pool,
                       lease.count, lease.since_s});
        ++rows;
    }
    return cursor < end ? cursor : 0;
}

void Directory::find_object(NamespaceIndex ns, const wire::Key &key,
                            std::vector<ReplicaView> &out) const {
    const Impl &impl = *impl_;
    if (!impl.namespaces.contains(ns))
        return;
    const uint32_t object = impl.find_object(ns, key);
    if (object == kNone)
        return;
    const uint32_t head = impl.objects[object].first_replica;
    for (uint32_t slot = head; slot != kNone; slot = ObjectRing::next(impl.replicas, head, slot))
        if (!impl.gates[impl.replicas[slot].pool].leaving)
            out.push_back(impl.view_of(slot));
}

std::optional<Directory::ReplicaView> Directory::find_replica(const wire::ReplicaName &name) const {
    const Impl::Named named = impl_->resolve(name);
    if (named.status != wire::Status::Ok)
        return std::nullopt;
    return impl_->view_of(named.slot);
}

void Directory::each_replica(PoolIndex pool,
                             const std::function<void(const ReplicaView &)> &fn) const {
    const Impl &impl = *impl_;
    if (!impl.pool_exists(pool))
        return;
    for (const uint32_t head : impl.pools[pool]->first_replica)
        for (uint32_t slot = head; slot != kNone;
             slot = directory::PoolRing::next(impl.replicas, head, slot))
            fn(impl.view_of(slot));
}

Directory::NamespaceView Directory::namespace_view(NamespaceIndex index) const {
    NamespaceView view;
    if (!impl_->namespaces.contains(index))
        return view;
    const directory::NamespaceRecord &record = impl_->namespaces[index];
    view.objects = record.objects;
    view.replicas = record.replicas;
    view.object_bytes = record.object_bytes;
    return view;
}

}  // namespace maru
