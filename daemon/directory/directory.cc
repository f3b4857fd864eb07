// Namespaces, pools and totals; the rest of Directory is split by concern, see impl.h.
#include "daemon/directory/directory.h"

#include <cassert>

#include "daemon/directory/impl.h"

namespace maru {

using directory::Pool;
using wire::Status;

Directory::Directory(const Config &config) : impl_(std::make_unique<Impl>(config)) {
    assert(config.epoch);
    assert(config.max_replicas < UINT32_MAX);
}
Directory::~Directory() = default;

Status Directory::register_namespace(uint32_t uid, std::string_view text,
                                     NamespaceIndex *ret_index) {
    return impl_->namespaces.add(uid, text, ret_index);
}

void Directory::set_max_namespaces_per_uid(uint32_t limit) {
    impl_->namespaces.set_limit_per_uid(limit);
}

uint32_t Directory::namespace_uid(NamespaceIndex index) const {
    return namespace_exists(index) ? impl_->namespaces[index].uid : UINT32_MAX;
}

bool Directory::namespace_exists(NamespaceIndex index) const {
    return impl_->namespaces.contains(index);
}

std::string_view Directory::namespace_text(NamespaceIndex index) const {
    return namespace_exists(index) ? impl_->namespaces[index].text : std::string_view();
}

std::string_view Directory::namespace_format(NamespaceIndex index) const {
    return namespace_exists(index) ? std::string_view(impl_->namespaces[index].format)
                                   : std::string_view();
}

Status Directory::describe_namespace(NamespaceIndex index, uint64_t object_bytes,
                                     std::string_view format) {
    return impl_->namespaces.describe(index, object_bytes, format);
}

void Directory::Impl::set_gate(PoolIndex index) {
    const Pool &pool = *pools[index];
    directory::PoolGate &gate = gates[index];
    if (pool.leaving) {
        gate = {};
        gate.leaving = true;
        return;
    }
    gate.owner = pool.spec.owner;
    gate.domain = pool.spec.domain;
    gate.visible = pool.visible && !pool.closing;
    // What lies on an L2 pool must be restored before anybody can read it.
    gate.open = gate.visible && pool.spec.tier == wire::Tier::L1;
    gate.shared = pool.spec.scope != wire::Scope::Worker;
}

PoolIndex Directory::add_pool(const PoolSpec &spec) {
    PoolIndex index;
    if (impl_->free_pools.empty()) {
        index = static_cast<PoolIndex>(impl_->pools.size());
        impl_->pools.emplace_back(spec);
        impl_->gates.emplace_back();
    } else {
        index = impl_->free_pools.back();
        impl_->pools[index].emplace(spec);
        impl_->free_pools.pop_back();
    }
    impl_->set_gate(index);
    return index;
}

void Directory::grant_segment(PoolIndex pool, uint32_t segment) {
    assert(impl_->pool_exists(pool));
    impl_->pools[pool]->pages.grant(segment);
}

void Directory::set_visible(PoolIndex pool, bool visible) {
    assert(impl_->pool_exists(pool));
    impl_->pools[pool]->visible = visible;
    impl_->set_gate(pool);
}

void Directory::set_closing(PoolIndex pool, bool closing) {
    assert(impl_->pool_exists(pool));
    impl_->pools[pool]->closing = closing;
    impl_->set_gate(pool);
}

wire::Usage Directory::pool_usage(PoolIndex index) const {
    wire::Usage usage;
    if (!impl_->pool_exists(index))
        return usage;
    const Pool &pool = *impl_->pools[index];
    usage.capacity_bytes = pool.spec.capacity_bytes;
    usage.allocated_bytes = pool.ready_allocated_bytes + pool.retiring_bytes;
    usage.ready_bytes = pool.ready_bytes;
    usage.ready_allocated_bytes = pool.ready_allocated_bytes;
    usage.retiring_bytes = pool.retiring_bytes;
    usage.replicas = pool.replicas;
    usage.leases = pool.leases;
    return usage;
}

uint64_t Directory::pool_leases(PoolIndex pool) const {
    return impl_->pool_exists(pool) ? impl_->pools[pool]->leases : 0;
}

Directory::Totals Directory::totals() const {
    Totals totals;
    totals.objects = impl_->objects.live();
    totals.replicas = impl_->replicas.live();
    totals.leases = impl_->leases.total();
    totals.namespaces = impl_->namespaces.size();
    totals.pools = static_cast<uint32_t>(impl_->pools.size() - impl_->free_pools.size() -
                                         impl_->to_remove.size());
    return totals;
}

uint64_t Directory::memory_bytes() const {
    uint64_t bytes = sizeof(Impl) + impl_->blocks.memory_bytes() + impl_->objects.memory_bytes() +
                     impl_->replicas.memory_bytes() + impl_->table.memory_bytes() +
                     impl_->leases.memory_bytes() + impl_->namespaces.memory_bytes() +
                     impl_->pools.capacity() * sizeof(impl_->pools[0]) +
                     impl_->gates.capacity() * sizeof(impl_->gates[0]) +
                     impl_->drained.capacity() * sizeof(uint32_t);
    for (const std::optional<Pool> &pool : impl_->pools)
        bytes += pool ? pool->pages.memory_bytes() : 0;
    return bytes;
}

}  // namespace maru
