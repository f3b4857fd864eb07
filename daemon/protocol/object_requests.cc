// Objects: commit, resolve, probe, acquire, release, retire, reclaim.
//
// The frequent requests. Nothing here allocates per key: results go into buffers of Service, and
// the directory allocates nothing on a probe.
#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

#include "daemon/protocol/service_impl.h"

namespace maru {
namespace {

uint64_t count_bits(std::span<const uint8_t> bits) {
    uint64_t count = 0;
    size_t at = 0;
    for (; at + 8 <= bits.size(); at += 8) {
        uint64_t word;
        std::memcpy(&word, &bits[at], sizeof word);
        count += static_cast<uint64_t>(std::popcount(word));
    }
    for (; at < bits.size(); ++at)
        count += static_cast<uint64_t>(std::popcount(bits[at]));
    return count;
}

}  // namespace

// ---- operations
// ----------------------------------------------------------------------------------

// A whole batch is within the ledger's reach, or the request is refused and nothing of it was run.
bool Service::Impl::operations_fit(const Call &call, uint64_t first, size_t count) {
    const Ledger &ledger = call.session()->ledger;
    if (!batch_fits(call, count, "operations"))
        return false;
    if (first == 0 || first > UINT64_MAX - wire::kMaxBatchItems) {
        refuse(call, wire::Status::InvalidArgument,
               "first_op is " + std::to_string(first) + "; operation ids count from 1");
        return false;
    }
    if (count == 0)
        return true;
    if (ledger.acknowledged(first) && !MARU_MUTANT(WatermarkRunsAgain)) {
        refuse(call, wire::Status::InvalidArgument,
               "operation " + std::to_string(first) + " was acknowledged (the watermark is " +
                   std::to_string(ledger.watermark()) + "): it is never run again");
        return false;
    }
    uint64_t last = first + count - 1;
    if (!ledger.acknowledged(last) && !ledger.in_reach(last)) {
        refuse(call, wire::Status::Again,
               "operation " + std::to_string(last) + " has no place in the ledger of " +
                   std::to_string(config.max_ledger_items) + ": operation " +
                   std::to_string(ledger.pinned_by()) + " is not acknowledged yet",
               ledger.pinned_by());
        return false;
    }
    return true;
}

void Service::Impl::on(Call &call, const wire::CommitRequest &request) {
    Session &session = *call.session();
    if (!operations_fit(call, request.first_op, request.items.size()))
        return;
    NamespaceIndex ns = 0;
    if (!namespace_or_refuse(call, request.namespace_id, false, &ns))
        return;
    if (!session.has_described(ns)) {
        refuse(call, wire::Status::InvalidArgument,
               "this session has not described that namespace: Describe comes before Commit");
        return;
    }
    if (draining) {
        for (size_t i = 0; i < request.items.size(); ++i) {
            if (!session.ledger.find(request.first_op + i)) {
                refuse(call, wire::Status::Unavailable, "marud is draining: no new commits");
                return;
            }
        }
    }
    constexpr size_t kAhead = 8;  // items: long enough for the memory to answer
    std::array<uint32_t, kAhead> hashes;
    const size_t count = request.items.size();
    for (size_t i = 0; i < std::min(kAhead, count); ++i)
        hashes[i] = directory.prefetch(ns, request.items[i].key);
    const Pool *pool = nullptr;  // nearly always the same one
    for (size_t i = 0; i < count; ++i) {
        if (!pool || pool->id != request.items[i].pool)
            pool = pools.find(request.items[i].pool);
        const uint32_t hash = hashes[i % kAhead];
        if (i + kAhead < count)
            hashes[i % kAhead] = directory.prefetch(ns, request.items[i + kAhead].key);
        commit_results[i] = commit_one(session, ns, request.namespace_id, request.first_op + i,
                                       request.items[i], pool, hash);
    }
    reply(call, wire::CommitReply{std::span(commit_results).first(request.items.size())});
}

wire::CommitResult Service::Impl::commit_one(Session &session, NamespaceIndex ns, wire::Id ns_id,
                                             uint64_t op, const wire::CommitItem &item,
                                             const Pool *pool, uint32_t prefetched) {
    uint64_t content = commit_content(ns_id, item);
    if (const Ledger::Entry *first = session.ledger.find(op)) {
        ++tally.commit_retries;
        if (first->status == wire::Status::Absent)
            return {0, wire::Status::Absent, 0};
        if (first->content != content)
            return {0, wire::Status::Conflict, 0};
        return {first->replica, first->status, 0};
    }
    wire::CommitResult result{0, wire::Status::Internal, 0};
    if (!pool)
        result.status = wire::Status::NotFound;
    else if (pool->owner != &session && !MARU_MUTANT(ForeignCommit))
        result.status = wire::Status::Denied;
    else if (item.length != session.object_bytes)
        result.status = wire::Status::Incompatible;
    else
        result = directory.commit(ns, pool->index, item, prefetched);
    if (result.status == wire::Status::Ok && pool->shared())
        record_commit(ns, pool->owner->uid, item);
    session.ledger.record(op, content, result);
    tally.commits.add(result.status);
    if (result.status == wire::Status::Ok)
        tally.committed_bytes += item.length;
    return result;
}

void Service::Impl::on(Call &call, const wire::ResolveRequest &request) {
    Session &session = *call.session();
    if (!operations_fit(call, request.first_op, request.count))
        return;
    for (uint32_t i = 0; i < request.count; ++i) {
        uint64_t op = request.first_op + i;
        const Ledger::Entry *entry = session.ledger.find(op);
        if (entry) {
            bool done = entry->status == wire::Status::Ok;
            commit_results[i] = {entry->replica, done ? wire::Status::Committed : entry->status, 0};
        } else if (!session.reattached) {
            // It may still be on its way, over the connection that this session was opened over.
            commit_results[i] = {0, wire::Status::Unknown, 0};
        } else {
            // Its connection is closed, and what that had not delivered is dropped: from now on this
            // id is refused, so that the answer stays true.
            if (!MARU_MUTANT(AbsentNotKept))
                session.ledger.record_absent(op);
            commit_results[i] = {0, wire::Status::Absent, 0};
        }
    }
    reply(call, wire::ResolveReply{std::span(commit_results).first(request.count)});
}

// ---- lookup
// --------------------------------------------------------------------------------------

bool Service::Impl::too_many_objects(const Call &call, size_t keys, uint64_t per_key,
                                     uint64_t max_objects) {
    refuse(call, wire::Status::TooLarge,
           std::to_string(keys) + " keys of " + std::to_string(per_key) +
               " objects each; at most " + std::to_string(max_objects) + " objects in one request");
    return false;
}

bool Service::Impl::manifest_fits(const Call &call, size_t keys, const wire::Manifest &manifest,
                                  uint64_t max_objects) {
    uint64_t shards = manifest.shard_count, parts = manifest.part_count;
    if (shards == 0 || parts == 0 || shards > UINT32_MAX - uint64_t{manifest.first_shard} + 1 ||
        parts > UINT32_MAX - uint64_t{manifest.first_part} + 1) {
        refuse(call, wire::Status::InvalidArgument,
               "manifest: shard_count and part_count must be at least 1 and end within 32 bits");
        return false;
    }
    // shards * parts fits in 64 bits; compared before it is multiplied by the keys.
    if (shards * parts > max_objects || shards * parts * keys > max_objects)
        return too_many_objects(call, keys, shards * parts, max_objects);
    return true;
}

const Session *Service::Impl::engine_worker(const Session &session) const {
    const Session *holder = sessions.at(engines.holder(session.uid, session.engine));
    return holder && holder->state == SessionState::Attached ? holder : nullptr;
}

void Service::Impl::on(Call &call, const wire::EngineWorkerRequest &) {
    wire::EngineWorkerReply answer;
    if (const Session *worker = engine_worker(*call.session())) {
        answer.session = worker->id;
        if (!worker->described.empty())
            answer.namespace_text = directory.namespace_text(worker->described.back());
    }
    reply(call, answer);
}

void Service::Impl::on(Call &call, const wire::ProbeRequest &request) {
    Session &session = *call.session();
    if (request.keys.size() > wire::kMaxProbeKeys) {
        refuse(call, wire::Status::TooLarge,
               std::to_string(request.keys.size()) + " keys in one request; at most " +
                   std::to_string(wire::kMaxProbeKeys));
        return;
    }
    if (!manifest_fits(call, request.keys.size(), request.manifest, wire::kMaxProbeObjects))
        return;
    NamespaceIndex ns = 0;
    if (!namespace_or_refuse(call, request.namespace_id, false, &ns))
        return;
    std::span<uint8_t> bits = std::span(bitmap).first((request.keys.size() + 7) / 8);
    tally.probe_keys += request.keys.size();
    const Session *reader = session.worker() ? &session : engine_worker(session);
    // A scheduler that knows its worker is not told what another one could read.
    if (!reader || (request.worker && request.worker != reader->id)) {
        std::fill(bits.begin(), bits.end(), uint8_t{0});
        ++tally.probes_without_worker;
        reply(call, wire::ProbeReply{0, bits, wire::ProbeReason::NoWorkerAttached});
        return;
    }
    uint32_t prefix = directory.probe(reader->holder, ns, request.keys, request.manifest,
                                      request.stop_at_miss, bits);
    tally.probe_hits += prefix == request.keys.size() ? prefix : count_bits(bits);
    tally.probe_prefix_keys += prefix;
    reply(call, wire::ProbeReply{prefix, bits, wire::ProbeReason::None});
}

void Service::Impl::on(Call &call, const wire::AcquireRequest &request) {
    Session &session = *call.session();
    if (!manifest_fits(call, request.keys.size(), request.manifest, wire::kMaxBatchItems))
        return;
    NamespaceIndex ns = 0;
    if (!namespace_or_refuse(call, request.namespace_id, false, &ns))
        return;
    size_t count = request.keys.size() * request.manifest.objects();
    std::span<wire::AcquireResult> results = std::span(acquire_results).first(count);
    uint64_t room = std::min<uint64_t>(leases_left(session), UINT32_MAX);
    directory.acquire(session.holder, ns, request.keys, request.manifest, request.stop_at_miss,
                      static_cast<uint32_t>(room), static_cast<uint32_t>(now / kSecond), results);
    for (const wire::AcquireResult &one : results) {
        tally.acquires.add(one.status);
        tally.acquired_bytes += one.length;  // 0 unless Ok
    }
    reply(call, wire::AcquireReply{results});
}

// ---- the end of leases and replicas
// --------------------------------------------------------------

void Service::Impl::on(Call &call, const wire::ReleaseRequest &request) {
    Session &session = *call.session();
    if (!batch_fits(call, request.items.size(), "leases"))
        return;
    for (size_t i = 0; i < request.items.size(); ++i) {
        statuses[i] = directory.release(session.holder, request.items[i]);
        if (MARU_MUTANT(ReleaseOthersLease))
            for (HolderIndex other = 1; other < sessions.end(); ++other)
                if (statuses[i] == wire::Status::NotFound)
                    statuses[i] = directory.release(other, request.items[i]);
        tally.releases.add(statuses[i]);
    }
    reply_statuses(call, request.items.size());
    distribute_drained();
    answer_forced_closes();
}

void Service::Impl::on(Call &call, const wire::RetireRequest &request) {
    Session &session = *call.session();
    if (!batch_fits(call, request.items.size(), "replicas"))
        return;
    for (size_t i = 0; i < request.items.size(); ++i) {
        auto view = directory.find_replica(request.items[i]);
        statuses[i] = directory.retire(request.items[i], session.holder);
        const Pool *pool = view ? pools.at(view->pool) : nullptr;
        if (pool && pool->owner == &session && pool->shared()) {
            if (view->state == ReplicaState::Ready)
                record_retirement(*view, pool->id);
            if (statuses[i] == wire::Status::Ok && unknown_readers(session.uid, pool->id))
                statuses[i] = wire::Status::Pending;
        }
        tally.retires.add(statuses[i]);
    }
    reply_statuses(call, request.items.size());
}

void Service::Impl::on(Call &call, const wire::ReclaimAckRequest &request) {
    Session &session = *call.session();
    if (!batch_fits(call, request.items.size(), "replicas"))
        return;
    for (size_t i = 0; i < request.items.size(); ++i) {
        const wire::ReplicaName &name = request.items[i];
        auto view = directory.find_replica(name);
        const Pool *pool = view ? pools.at(view->pool) : nullptr;
        if (pool && pool->owner == &session && pool->shared() &&
            view->state == ReplicaState::Retiring && unknown_readers(session.uid, pool->id))
            statuses[i] = wire::Status::Busy;
        else
            statuses[i] = directory.reclaim(name, session.holder);
        tally.reclaims.add(statuses[i]);
        auto waiting = session.reclaimable.find(name.replica);
        if (waiting != session.reclaimable.end() && waiting->second.generation == name.generation)
            session.reclaimable.erase(waiting);
    }
    reply_statuses(call, request.items.size());
}

// Replicas that lost their last reader: their owners may free them. An owner that is not there is
// told when it is back.
void Service::Impl::distribute_drained() {
    std::vector<DrainedReplica> drained = directory.take_drained();
    size_t i = 0;
    while (i < drained.size()) {
        if (AdoptedSegment *kept = adopted_segments.at(drained[i].pool)) {
            PoolIndex same = drained[i].pool;
            const bool wait = unknown_readers(kept->uid, kept->ref.pool);
            for (; i < drained.size() && drained[i].pool == same; ++i)
                if (!wait)
                    directory.reclaim(drained[i].name, UINT32_MAX);
            drop_if_over(*kept);
            continue;
        }
        const Pool *pool = pools.at(drained[i].pool);
        // Queued again when everybody who may be reading is back, as above.
        if (pool && pool->shared() && unknown_readers(pool->owner->uid, pool->id)) {
            ++i;
            continue;
        }
        Session *owner = pool && pool->state == PoolState::Open ? pool->owner : nullptr;
        names.clear();
        PoolIndex index = drained[i].pool;
        for (;
             i < drained.size() && drained[i].pool == index && names.size() < wire::kMaxBatchItems;
             ++i) {
            const wire::ReplicaName &name = drained[i].name;
            const auto unnamed =
                owner ? owner->unnamed.find(name.replica) : decltype(owner->unnamed)::iterator();
            if (!owner || unnamed == owner->unnamed.end() || unnamed->second != name.generation) {
                names.push_back(name);
                continue;
            }
            owner->unnamed.erase(unnamed);
            directory.reclaim(name, UINT32_MAX);
        }
        if (!owner || owner->state == SessionState::Exiting || owner->fenced || names.empty())
            continue;  // its pages go with the pool, not one by one
        for (const wire::ReplicaName &name : names)
            owner->reclaimable[name.replica] = {name.generation, index};
        bool there = owner->state == SessionState::Attached || owner->state == SessionState::Silent;
        if (there && owner->connection)
            event(owner->connection, {wire::EventKind::Reclaim, names, {}});
    }
}

}  // namespace maru
