// Truth, part 3: what becomes READY. Commit, resolve, republish and restored leases.
#include <cstring>

#include "tests/sim/truth.h"
#include "tests/sim/world.h"

namespace maru::sim {

using wire::Status;
using ull = unsigned long long;

// ---- commits -----------------------------------------------------------------------------------

void Truth::check_content(const Replica &replica, const char *when) {
    if (replica.owner->liar)
        return;
    const Pool &pool = pools_.at(replica.pool);
    for (uint64_t at = replica.offset; at < replica.offset + replica.allocated;
         at += pool.page_bytes) {
        const auto segment = static_cast<uint32_t>(at / pool.segment_bytes);
        const Memfd *file = nullptr;
        for (const auto &known : world_.memfds())
            if (known->ref == SegmentRef{replica.pool, segment})
                file = known.get();
        if (!file)
            violated(Rule::ReadyAfterWrite, "%s: segment %u of pool %llx does not exist", when,
                     segment, static_cast<ull>(replica.pool));
        const PageValue &value = file->pages[(at % pool.segment_bytes) / pool.page_bytes];
        if (value.object.text != replica.object.text)
            violated(Rule::NamespaceIsolation, "%s: pages for text %u hold text %u", when,
                     replica.object.text, value.object.text);
        if (!value.written || value.object != replica.object ||
            value.generation != replica.generation)
            violated(Rule::ReadyAfterWrite,
                     "%s: replica %llx (key %u generation %llu) lies on a page with key %u "
                     "generation %llu%s",
                     when, static_cast<ull>(replica.id), replica.object.key,
                     static_cast<ull>(replica.generation), value.object.key,
                     static_cast<ull>(value.generation), value.written ? "" : ", half written");
    }
}

void Truth::new_replica(Session &session, wire::Id ns, const wire::CommitItem &item, wire::Id id) {
    const Namespace *space = own_namespace(session, ns, "a commit");
    if (!space)
        violated(Rule::EpochFences, "namespace id %llx of another life was accepted",
                 static_cast<ull>(ns));
    const auto found = pools_.find(item.pool);
    if (found == pools_.end() || found->second.owner != &session)
        violated(Rule::OwnerIsolation, "a replica was published in a pool of another session");
    Pool &pool = found->second;
    if (wire::id_epoch(id) != epoch_)
        violated(Rule::EpochFences, "replica id %llx does not carry epoch %x", static_cast<ull>(id),
                 epoch_);
    if (pool.closing)
        violated(Rule::RetireBlocks, "a commit was accepted in a closed pool");
    if (item.length == 0 || item.offset % pool.page_bytes || item.offset >= pool.capacity ||
        item.length > pool.capacity - item.offset)
        violated(Rule::ContentImmutable, "a replica leaves its pool or is misaligned: %llx+%llx",
                 static_cast<ull>(item.offset), static_cast<ull>(item.length));
    const uint64_t allocated =
        (item.length + pool.page_bytes - 1) / pool.page_bytes * pool.page_bytes;
    const uint64_t segment = item.offset / pool.segment_bytes;
    if ((item.offset + allocated - 1) / pool.segment_bytes != segment)
        violated(Rule::ContentImmutable, "a replica crosses the end of its segment");
    if (std::find(session.described.begin(), session.described.end(), ns) ==
        session.described.end())
        violated(Rule::NamespaceIsolation,
                 "a replica was published in a namespace that its session has not described");
    if (item.length != session.object_bytes)
        violated(Rule::ContentImmutable,
                 "a replica of another size than the schema's was accepted");
    const Memfd *file = world_.memfd({item.pool, static_cast<uint32_t>(segment)});
    if (!file || !file->future_sealed)
        violated(Rule::ReadyAfterWrite,
                 "a replica was published in segment %llu, which is not mapped and sealed",
                 static_cast<ull>(segment));
    for (const auto &[other_id, other] : replicas_) {
        if (other.pool != item.pool || item.offset >= other.offset + other.allocated ||
            other.offset >= item.offset + allocated)
            continue;
        if (other.retiring)
            violated(other.leases ? Rule::NoReuseUnderReader : Rule::ChargeUntilProof,
                     "a replica was published over RETIRING replica %llx, which its owner has not "
                     "reclaimed",
                     static_cast<ull>(other_id));
        violated(Rule::ContentImmutable, "a replica was published over READY replica %llx",
                 static_cast<ull>(other_id));
    }
    if (replicas_.count(id))
        violated(Rule::GenerationFences, "replica id %llx was given twice", static_cast<ull>(id));
    for (uint64_t at = item.offset; at < item.offset + allocated; at += pool.page_bytes) {
        uint64_t &last = pool.last_generation[at];
        if (item.generation < last)
            violated(Rule::GenerationFences, "generation %llu was accepted on a page that had %llu",
                     static_cast<ull>(item.generation), static_cast<ull>(last));
        last = item.generation;
    }
    Replica replica;
    replica.id = id;
    replica.generation = item.generation;
    replica.pool = item.pool;
    replica.owner = &session;
    replica.object = {space->text, key_of(item.key.digest), item.key.shard, item.key.part};
    replica.offset = item.offset;
    replica.length = item.length;
    replica.allocated = allocated;
    check_content(replica, "commit");
    replicas_.emplace(id, replica);
    world_.remember(id);
    world_.remember_name({id, item.generation});
}

Truth::Replica *Truth::ready_in(const Session &session, const ObjectName &object) {
    for (auto &[id, replica] : replicas_)
        if (replica.owner == &session && replica.object == object && !replica.retiring)
            return &replica;
    return nullptr;
}

void Truth::replied(Session &session, const Request &, const wire::CommitRequest &commit,
                    const wire::Reply &reply) {
    const auto *answer = std::get_if<wire::CommitReply>(&reply.body);
    if (!answer || answer->results.size() != commit.items.size())
        violated(Rule::OneReply, "commit answered without a result per item");
    for (size_t i = 0; i < commit.items.size(); ++i) {
        const uint64_t op = commit.first_op + i;
        const wire::CommitItem &item = commit.items[i];
        const wire::CommitResult &result = answer->results[i];
        const bool applied = result.status == Status::Ok || result.status == Status::AlreadyPresent;
        if (op <= session.watermark && applied)
            violated(Rule::OperationOnce, "operation %llu ran at or below watermark %llu",
                     static_cast<ull>(op), static_cast<ull>(session.watermark));
        const auto known = session.operations.find(op);
        if (known != session.operations.end()) {
            const Operation &first = known->second;
            if (first.absent) {
                if (applied)
                    violated(Rule::OperationOnce, "operation %llu ran after resolve said ABSENT",
                             static_cast<ull>(op));
                continue;
            }
            const bool same =
                first.ns == commit.namespace_id && !std::memcmp(&first.item, &item, sizeof item);
            if (!same && applied)
                violated(Rule::OperationOnce,
                         "operation %llu was accepted again with other content",
                         static_cast<ull>(op));
            if (same &&
                (result.status != first.result.status || result.replica != first.result.replica))
                violated(Rule::LedgerStable, "operation %llu was answered %s, and %s when retried",
                         static_cast<ull>(op), wire::status_name(first.result.status),
                         wire::status_name(result.status));
            continue;
        }
        if (result.status == Status::Ok) {
            const Namespace *space = fresh_namespace(commit.namespace_id);
            if (space) {
                const ObjectName object{space->text, key_of(item.key.digest), item.key.shard,
                                        item.key.part};
                for (const auto &[id, replica] : replicas_)
                    if (replica.pool == item.pool && replica.object == object && !replica.retiring)
                        violated(Rule::ContentImmutable,
                                 "an object got a second READY replica in pool %llx",
                                 static_cast<ull>(item.pool));
            }
            new_replica(session, commit.namespace_id, item, result.replica);
            ++statistics_.commits;
        } else if (result.status == Status::AlreadyPresent) {
            ++statistics_.present;
            const auto present = replicas_.find(result.replica);
            if (present == replicas_.end() || present->second.owner != &session)
                violated(Rule::OwnerIsolation,
                         "ALREADY_PRESENT names a replica that this worker has not");
            const Namespace *space = fresh_namespace(commit.namespace_id);
            if (!space)
                violated(Rule::EpochFences, "ALREADY_PRESENT for a stale namespace");
            if (present->second.object !=
                ObjectName{space->text, key_of(item.key.digest), item.key.shard, item.key.part})
                violated(Rule::NamespaceIsolation, "ALREADY_PRESENT names another object");
            if (present->second.retiring)
                violated(Rule::RetireBlocks, "ALREADY_PRESENT names a RETIRING replica");
        } else if (!session.liar &&
                   (result.status == Status::Conflict || result.status == Status::Denied ||
                    result.status == Status::InvalidArgument ||
                    result.status == Status::StaleGeneration ||
                    result.status == Status::NotFound)) {
            if (fresh_namespace(commit.namespace_id))
                violated(Rule::HonestServed,
                         "a correct commit (op %llu, offset %llx) was refused: %s",
                         static_cast<ull>(op), static_cast<ull>(item.offset),
                         wire::status_name(result.status));
        }
        if (op > session.watermark && result.status != Status::Again)
            session.operations[op] = {commit.namespace_id, item, result, false};
    }
}

void Truth::replied(Session &session, const Request &, const wire::ResolveRequest &resolve,
                    const wire::Reply &reply) {
    const auto *answer = std::get_if<wire::ResolveReply>(&reply.body);
    if (!answer || answer->results.size() != resolve.count)
        violated(Rule::OneReply, "resolve answered without a result per operation");
    ++statistics_.resolved;
    for (uint32_t i = 0; i < resolve.count; ++i) {
        const uint64_t op = resolve.first_op + i;
        if (op <= session.watermark || op == 0)
            continue;
        const wire::CommitResult &result = answer->results[i];
        const auto known = session.operations.find(op);
        const bool applied = known != session.operations.end() && !known->second.absent &&
                             known->second.result.status == Status::Ok;
        if (applied &&
            (result.status != Status::Committed || result.replica != known->second.result.replica))
            violated(Rule::LedgerStable, "operation %llu was applied, and resolve says %s",
                     static_cast<ull>(op), wire::status_name(result.status));
        if (!applied && result.status == Status::Committed &&
            (known == session.operations.end() ||
             known->second.result.status != Status::AlreadyPresent))
            violated(Rule::LedgerStable,
                     "resolve says COMMITTED for operation %llu, which was not applied",
                     static_cast<ull>(op));
        if (result.status == Status::Absent && known == session.operations.end())
            session.operations[op].absent = true;
    }
}

void Truth::replied(Session &session, const Request &, const wire::RepublishRequest &republish,
                    const wire::Reply &reply) {
    const auto *answer = std::get_if<wire::ItemStatusReply>(&reply.body);
    if (!answer || answer->statuses.size() != republish.items.size())
        violated(Rule::OneReply, "republish answered without a result per item");
    for (size_t i = 0; i < republish.items.size(); ++i) {
        const wire::RepublishItem &item = republish.items[i];
        if (answer->statuses[i] != Status::Ok) {
            if (!session.liar && fresh_namespace(item.namespace_id))
                violated(Rule::HonestServed, "a correct republish was refused: %s",
                         wire::status_name(answer->statuses[i]));
            continue;
        }
        if (answer->replicas.size() != republish.items.size())
            violated(Rule::OneReply, "republish answered without an id per item");
        ++statistics_.republished;
        const wire::Id id = answer->replicas[i];
        auto known = replicas_.find(id);
        if (known == replicas_.end()) {
            new_replica(session, item.namespace_id, item.item, id);
            known = replicas_.find(id);
        }
        known->second.leases = item.lease_count;
        known->second.retiring |= item.retiring != 0;
        known->second.named = true;
    }
}

void Truth::replied(Session &session, const Request &, const wire::AttachLeasesRequest &attach,
                    const wire::Reply &reply) {
    const auto *answer = std::get_if<wire::ItemStatusReply>(&reply.body);
    if (!answer || answer->statuses.size() != attach.items.size())
        violated(Rule::OneReply, "attach-leases answered without a result per item");
    for (size_t i = 0; i < attach.items.size(); ++i) {
        const wire::LeaseItem &item = attach.items[i];
        auto found = replicas_.find(item.replica);
        const bool right = found != replicas_.end() && found->second.owner == &session &&
                           found->second.generation == item.generation;
        if (answer->statuses[i] != Status::Ok) {
            if (right && item.count <= found->second.leases && !session.liar)
                violated(Rule::HonestServed, "a held lease was not restored: %s",
                         wire::status_name(answer->statuses[i]));
            continue;
        }
        if (!right || item.count > found->second.leases)
            violated(Rule::GenerationFences, "a lease was restored that this session did not hold");
        found->second.leases = item.count;
        found->second.named = true;
    }
}

}  // namespace maru::sim
