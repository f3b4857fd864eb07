// Commit and republish: how a replica becomes READY. Everything is checked before anything changes.
#include "daemon/directory/impl.h"
#include "daemon/directory/mutant.h"

namespace maru {

using directory::Object;
using directory::ObjectRing;
using directory::PageMap;
using directory::Pool;
using directory::PoolRing;
using directory::Replica;
using directory::ReplicaEvent;
using wire::CommitResult;
using wire::Status;

namespace {

CommitResult refused(Status status, wire::Id replica = 0) { return {replica, status, 0}; }

}  // namespace

// Another size under the same key would be another object.
bool Directory::Impl::fits(NamespaceIndex ns, uint32_t object, uint64_t length) const noexcept {
    const uint64_t described = namespaces[ns].object_bytes;
    return (!described || described == length) &&
           (object == kNone || replicas[objects[object].first_replica].length == length);
}

// A READY replica that makes another one here pointless: in the same placement domain, and one
// that the owner of `pool` could read now. So neither a private copy of somebody else nor one in a
// hidden pool keeps an object out.
uint32_t Directory::Impl::same_placement(const Object &object, PoolIndex pool) const noexcept {
    for (uint32_t slot = object.first_replica; slot != kNone;
         slot = ObjectRing::next(replicas, object.first_replica, slot)) {
        const Replica &replica = replicas[slot];
        if (replica.state != ReplicaState::Ready)
            return kNone;
        const directory::PoolGate &gate = gates[replica.pool];
        if (gate.domain == gates[pool].domain && gate.visible &&
            may_read(gates[pool].owner, replica.pool))
            return slot;
    }
    return kNone;
}

uint32_t Directory::prefetch(NamespaceIndex ns, const wire::Key &key) const {
    const uint32_t hash = impl_->hash_of(ns, key);
    impl_->table.prefetch(hash);
    return hash;
}

CommitResult Directory::commit(NamespaceIndex ns, PoolIndex pool_index,
                               const wire::CommitItem &item) {
    return commit(ns, pool_index, item, impl_->hash_of(ns, item.key));
}

CommitResult Directory::commit(NamespaceIndex ns, PoolIndex pool_index,
                               const wire::CommitItem &item, uint32_t hash) {
    Impl &impl = *impl_;
    if (!impl.namespaces.contains(ns) || !impl.pool_exists(pool_index))
        return refused(Status::NotFound);
    Pool &pool = *impl.pools[pool_index];
    if (!item.length || !item.generation)
        return refused(Status::InvalidArgument);
    if (!pool.visible || pool.closing)
        return refused(Status::Unavailable);
    const std::optional<PageMap::Range> range = pool.locate(item.offset, item.length);
    if (!range)
        return refused(Status::Conflict);
    const uint32_t object = impl.find_object(ns, item.key, hash);
    if (!impl.fits(ns, object, item.length))
        return refused(Status::Incompatible);
    // Before the duplicate check: AlreadyPresent tells the owner that its pages are its own again.
    if (!pool.pages.is_free(*range) && !MARU_MUTANT(OverlapCommit))
        return refused(Status::Conflict);
    if (!pool.pages.is_newer(*range, item.generation) && !MARU_MUTANT(OldGenerationCommit))
        return refused(Status::Conflict);
    if (object != kNone) {
        const uint32_t present = impl.same_placement(impl.objects[object], pool_index);
        if (present != kNone)
            return refused(Status::AlreadyPresent, impl.id_of(present));
    }
    return impl.install(ns, object, hash, pool_index, item, *range, ReplicaEvent::Commit);
}

CommitResult Directory::republish(NamespaceIndex ns, PoolIndex pool_index,
                                  const wire::CommitItem &item, bool retiring) {
    Impl &impl = *impl_;
    if (!impl.namespaces.contains(ns) || !impl.pool_exists(pool_index))
        return refused(Status::NotFound);
    Pool &pool = *impl.pools[pool_index];
    if (!item.length || !item.generation)
        return refused(Status::InvalidArgument);
    const std::optional<PageMap::Range> range = pool.locate(item.offset, item.length);
    if (!range)
        return refused(Status::Conflict);
    const uint32_t hash = impl.hash_of(ns, item.key);
    const uint32_t object = impl.find_object(ns, item.key, hash);
    if (!impl.fits(ns, object, item.length))
        return refused(Status::Incompatible);
    if (!pool.pages.is_free(*range)) {
        const uint32_t same = object == kNone ? kNone : impl.published(object, pool_index, item);
        if (same == kNone)
            return refused(Status::Conflict);
        if (retiring && impl.replicas[same].state == ReplicaState::Ready)
            impl.retire(same);
        impl.queue_if_drained(same);
        return {impl.id_of(same), Status::Ok, 0};
    }
    if (!pool.pages.is_newer(*range, item.generation))
        return refused(Status::Conflict);
    // A second copy in one domain could not have been committed. It is kept for its leases, and
    // never found: nobody can make a probe walk a thousand copies of one object.
    const bool surplus =
        !retiring && object != kNone && impl.ready_in_domain(impl.objects[object], pool_index);
    const CommitResult result =
        impl.install(ns, object, hash, pool_index, item, *range,
                     retiring || surplus ? ReplicaEvent::AdoptRetiring : ReplicaEvent::Commit);
    if (result.status == Status::Ok)
        impl.queue_if_drained(wire::id_number(result.replica) - 1);
    return result;
}

uint32_t Directory::Impl::published(uint32_t object, PoolIndex pool,
                                    const wire::CommitItem &item) const {
    const uint32_t head = objects[object].first_replica;
    for (uint32_t slot = head; slot != kNone; slot = ObjectRing::next(replicas, head, slot)) {
        const Replica &replica = replicas[slot];
        if (replica.pool == pool && replica.offset == item.offset &&
            replica.generation == item.generation)
            return slot;
    }
    return kNone;
}

std::optional<Directory::ReplicaView> Directory::find_at(NamespaceIndex ns, PoolIndex pool_index,
                                                         const wire::CommitItem &item) const {
    const Impl &impl = *impl_;
    if (!impl.namespaces.contains(ns) || !impl.pool_exists(pool_index))
        return std::nullopt;
    const Pool &pool = *impl.pools[pool_index];
    const std::optional<PageMap::Range> range = pool.locate(item.offset, item.length);
    // Most of what is asked for and is not there ends here.
    if (!range || pool.pages.is_free(*range))
        return std::nullopt;
    const uint32_t object = impl.find_object(ns, item.key);
    const uint32_t slot = object == kNone ? kNone : impl.published(object, pool_index, item);
    if (slot == kNone || impl.replicas[slot].length != item.length)
        return std::nullopt;
    return impl.view_of(slot);
}

bool Directory::Impl::ready_in_domain(const Object &object, PoolIndex pool) const {
    const uint32_t head = object.first_replica;
    for (uint32_t slot = head; slot != kNone; slot = ObjectRing::next(replicas, head, slot)) {
        const Replica &replica = replicas[slot];
        if (replica.state != ReplicaState::Ready)
            return false;
        if (gates[replica.pool].domain == gates[pool].domain &&
            gates[replica.pool].owner == gates[pool].owner)
            return true;
    }
    return false;
}

CommitResult Directory::Impl::install(NamespaceIndex ns, uint32_t object, uint32_t hash_of_key,
                                      PoolIndex pool_index, const wire::CommitItem &item,
                                      const PageMap::Range &range, ReplicaEvent event) {
    if (replicas.live() >= config.max_replicas)
        return refused(Status::NoSpace);
    // Also a READY one: it will be retired.
    if (object != kNone && objects[object].retiring >= kMaxRetiringCopies)
        return refused(Status::NoSpace);
    if (object == kNone) {
        object = objects.allocate();
        if (!table.insert(hash_of_key, object)) {
            objects.release(object);
            return refused(Status::NoSpace);
        }
        Object &created = objects[object];
        created.key = item.key;
        created.ns = ns;
        created.first_state =
            event == ReplicaEvent::Commit ? ReplicaState::Ready : ReplicaState::Retiring;
        directory::NamespaceRing::push(objects, namespaces[ns].first_object, object,
                                       event == ReplicaEvent::Commit);
        ++namespaces[ns].objects;
    }
    // Not the slot whose last name would be this one: a name never means two memories.
    const uint32_t slot =
        replicas.allocate([&](const Replica &free) { return free.generation != item.generation; });
    Replica &replica = replicas[slot];
    replica.offset = item.offset;
    replica.length = item.length;
    replica.generation = item.generation;
    replica.object = object;
    replica.pool = pool_index;
    directory::transition(replica.state, event);

    Pool &pool = *pools[pool_index];
    pool.pages.occupy(range, item.generation);
    PoolRing::push(replicas, pool.first_replica[range.segment], slot,
                   replica.state == ReplicaState::Ready);
    ++pool.replicas;
    ++namespaces[objects[object].ns].replicas;
    const uint64_t page_bytes = range.count * pool.page_bytes.value();
    if (replica.state == ReplicaState::Ready) {
        ObjectRing::push_front(replicas, objects[object].first_replica, slot);
        pool.ready_bytes += item.length;
        pool.ready_allocated_bytes += page_bytes;
    } else {
        ObjectRing::push_back(replicas, objects[object].first_replica, slot);
        objects[object].retiring = objects[object].retiring + 1;
        pool.retiring_bytes += page_bytes;
    }
    refresh_first(object);
    return {id_of(slot), Status::Ok, 0};
}

}  // namespace maru
