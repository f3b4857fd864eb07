// Truth, part 4: probe, acquire, release, retire, reclaim and usage.
#include "tests/sim/truth.h"
#include "tests/sim/world.h"

namespace maru::sim {

using wire::Status;
using ull = unsigned long long;

Truth::Session *Truth::worker_of(uint32_t uid, const std::string &engine) {
    for (auto &session : sessions_)
        if (!session->ended && session->role == wire::Role::Worker && session->uid == uid &&
            session->engine == engine)
            return session.get();
    return nullptr;
}

// Beyond all doubt a hit: its worker is attached, whole and heard of lately, its pool open.
bool Truth::surely_visible(const Session &session, const Replica &replica) const {
    const auto pool = pools_.find(replica.pool);
    return session.connection != 0 && session.whole && session.this_life && !session.ended &&
           world_.now() - session.heard < world_.settings().service(1).session_timeout / 2 &&
           pool != pools_.end() && !pool->second.closing && !pool->second.unsure &&
           !replica.retiring;
}

void Truth::replied(Session &session, const Request &, const wire::ProbeRequest &probe,
                    const wire::Reply &reply) {
    const auto *answer = std::get_if<wire::ProbeReply>(&reply.body);
    if (!answer || answer->bitmap.size() != (probe.keys.size() + 7) / 8)
        violated(Rule::OneReply, "probe answered without a bit per key");
    const Session *worker =
        session.role == wire::Role::Worker ? &session : worker_of(session.uid, session.engine);
    const Namespace *space = own_namespace(session, probe.namespace_id, "a probe");
    uint32_t leading = 0;
    bool gap = false;
    for (size_t i = 0; i < probe.keys.size(); ++i) {
        const bool hit = answer->bitmap[i / 8] >> (i % 8) & 1;
        ++statistics_.probes;
        statistics_.probe_hits += hit;
        bool complete = worker && space, surely = complete;
        for (uint32_t s = 0; complete && s < probe.manifest.shard_count; ++s)
            for (uint32_t p = 0; complete && p < probe.manifest.part_count; ++p) {
                const ObjectName object{space->text, key_of(probe.keys[i]),
                                        probe.manifest.first_shard + s,
                                        probe.manifest.first_part + p};
                const Replica *replica = ready_in(*worker, object);
                complete = replica != nullptr;
                surely = surely && replica && surely_visible(*worker, *replica);
            }
        if (hit && !space)
            violated(Rule::EpochFences, "a probe of namespace id %llx, not of this life, hits",
                     static_cast<ull>(probe.namespace_id));
        if (hit && !complete) {
            const uint32_t key = key_of(probe.keys[i]);
            for (const auto &[id, other] : replicas_)
                if (other.object.key == key && other.object.text == space->text && worker &&
                    other.owner == worker && other.retiring)
                    violated(Rule::RetireBlocks, "a probe hits RETIRING replica %llx",
                             static_cast<ull>(id));
            for (const auto &[id, other] : replicas_)
                if (other.object.key == key && other.owner != worker &&
                    other.object.text == space->text)
                    violated(Rule::OwnerIsolation,
                             "a probe hits another engine's private copy %llx",
                             static_cast<ull>(id));
            for (const auto &[id, other] : replicas_)
                if (other.object.key == key && other.object.text != space->text)
                    violated(Rule::NamespaceIsolation,
                             "a probe of text %u hits an object of text %u", space->text,
                             other.object.text);
            violated(Rule::AcquireProtects,
                     "a probe hits key %u, of which no complete READY copy exists", key);
        }
        const bool counts = !(probe.stop_at_miss && gap);
        if (!hit && complete && surely && counts)
            violated(Rule::HitKept,
                     "key %u of text %u is READY at the attached worker %llx, and the probe misses",
                     key_of(probe.keys[i]), space->text, static_cast<ull>(worker->id));
        if (hit && !gap)
            ++leading;
        gap |= !hit;
    }
    if (answer->prefix != leading)
        violated(Rule::AcquireProtects, "prefix %u, but the bitmap begins with %u hits",
                 answer->prefix, leading);
}

void Truth::replied(Session &session, const Request &, const wire::EngineWorkerRequest &,
                    const wire::Reply &reply) {
    const auto *answer = std::get_if<wire::EngineWorkerReply>(&reply.body);
    if (!answer)
        violated(Rule::OneReply, "engine-worker answered by another kind");
    if (!answer->session) {
        if (!answer->namespace_text.empty())
            violated(Rule::OwnerIsolation, "the namespace of no worker is told");
        return;
    }
    const Session *worker = worker_of(session.uid, session.engine);
    if (!worker || worker->id != answer->session)
        violated(Rule::OneWorker, "session %llx is told as the worker of '%s' of uid %u",
                 static_cast<ull>(answer->session), session.engine.c_str(), session.uid);
    if (answer->namespace_text.empty())
        return;
    const uint32_t text = text_index(answer->namespace_text);
    for (const auto &[id, space] : namespaces_)
        if (space.epoch == epoch_ && space.uid == session.uid && space.text == text)
            return;
    violated(Rule::NamespaceIsolation, "uid %u is told text %u, which none of its sessions named",
             session.uid, text);
}

void Truth::replied(Session &session, const Request &, const wire::AcquireRequest &acquire,
                    const wire::Reply &reply) {
    const auto *answer = std::get_if<wire::AcquireReply>(&reply.body);
    const uint32_t parts = acquire.manifest.objects();
    if (!answer || answer->results.size() != acquire.keys.size() * parts)
        violated(Rule::OneReply, "acquire answered without a result per part");
    const Namespace *space = own_namespace(session, acquire.namespace_id, "an acquire");
    bool missed = false;
    for (size_t k = 0; k < acquire.keys.size(); ++k) {
        uint32_t ok = 0, quota = 0;
        bool surely = space != nullptr;
        for (uint32_t j = 0; j < parts; ++j) {
            const wire::AcquireResult &result = answer->results[k * parts + j];
            ObjectName object;
            if (space)
                object = {space->text, key_of(acquire.keys[k]),
                          acquire.manifest.first_shard + j / acquire.manifest.part_count,
                          acquire.manifest.first_part + j % acquire.manifest.part_count};
            const Replica *there = space ? ready_in(session, object) : nullptr;
            surely = surely && there && surely_visible(session, *there);
            if (result.status == Status::Quota)
                ++quota;
            if (result.status != Status::Ok)
                continue;
            ++ok;
            ++statistics_.acquired;
            if (!space)
                violated(Rule::EpochFences,
                         "an acquire with namespace id %llx, not of this life, hits",
                         static_cast<ull>(acquire.namespace_id));
            auto found = replicas_.find(result.replica);
            if (found == replicas_.end())
                violated(Rule::RetireBlocks,
                         "acquire gives replica %llx, which is not READY anywhere",
                         static_cast<ull>(result.replica));
            Replica &replica = found->second;
            if (replica.owner != &session)
                violated(Rule::OwnerIsolation, "acquire gives another engine's private copy");
            if (replica.object.text != object.text)
                violated(Rule::NamespaceIsolation, "acquire of text %u gives text %u", object.text,
                         replica.object.text);
            if (replica.object != object)
                violated(Rule::AcquireProtects, "acquire of key %u shard %u gives key %u shard %u",
                         object.key, object.shard, replica.object.key, replica.object.shard);
            if (replica.retiring)
                violated(Rule::RetireBlocks, "acquire gives RETIRING replica %llx",
                         static_cast<ull>(replica.id));
            if (pools_.at(replica.pool).closing)
                violated(Rule::RetireBlocks, "acquire gives a replica of a closed pool");
            if (result.pool != replica.pool || result.offset != replica.offset ||
                result.length != replica.length || result.generation != replica.generation)
                violated(Rule::AcquireProtects, "acquire describes replica %llx wrongly",
                         static_cast<ull>(replica.id));
            check_content(replica, "acquire");
            ++replica.leases;
        }
        if (ok != 0 && ok != parts)
            violated(Rule::AcquireProtects, "a manifest of %u parts was acquired with %u", parts,
                     ok);
        const bool counts = !(acquire.stop_at_miss && missed);
        if (ok == 0 && surely && counts && quota == 0)
            violated(Rule::HitKept, "key %u is READY at this attached worker, and acquire misses",
                     key_of(acquire.keys[k]));
        statistics_.missed += ok == 0;
        missed |= ok == 0;
        if (acquire.stop_at_miss && missed && ok)
            violated(Rule::AcquireProtects, "a key after the first miss was acquired");
    }
    uint64_t held = 0;
    for (const auto &[id, replica] : replicas_)
        if (replica.owner == &session)
            held += replica.leases;
    if (held > world_.settings().max_leases && !session.liar)
        violated(Rule::AcquireProtects, "%llu leases with a limit of %u", static_cast<ull>(held),
                 world_.settings().max_leases);
}

namespace {
std::span<const Status> item_statuses(const wire::Reply &reply, size_t items) {
    const auto *answer = std::get_if<wire::ItemStatusReply>(&reply.body);
    if (!answer || answer->statuses.size() != items)
        violated(Rule::OneReply, "a batch answered without a result per item");
    return answer->statuses;
}
}  // namespace

void Truth::replied(Session &session, const Request &, const wire::ReleaseRequest &release,
                    const wire::Reply &reply) {
    const auto statuses = item_statuses(reply, release.items.size());
    for (size_t i = 0; i < statuses.size(); ++i) {
        const wire::ReplicaName &name = release.items[i];
        auto found = replicas_.find(name.replica);
        const bool right = found != replicas_.end() && found->second.owner == &session &&
                           found->second.generation == name.generation && found->second.leases > 0;
        if (statuses[i] == Status::Ok) {
            if (!right)
                violated(Rule::GenerationFences,
                         "a release of %llx generation %llu was accepted; this session holds no "
                         "such lease",
                         static_cast<ull>(name.replica), static_cast<ull>(name.generation));
            --found->second.leases;
            ++statistics_.released;
        } else if (right) {
            violated(Rule::HonestServed, "the release of a held lease was refused: %s",
                     wire::status_name(statuses[i]));
        }
    }
}

void Truth::replied(Session &session, const Request &, const wire::RetireRequest &retire,
                    const wire::Reply &reply) {
    const auto statuses = item_statuses(reply, retire.items.size());
    for (size_t i = 0; i < statuses.size(); ++i) {
        if (statuses[i] != Status::Ok && statuses[i] != Status::Pending)
            continue;
        auto found = replicas_.find(retire.items[i].replica);
        if (found == replicas_.end() || found->second.generation != retire.items[i].generation)
            violated(Rule::GenerationFences, "a retire of a stale name was accepted");
        if (found->second.owner != &session)
            violated(Rule::OwnerIsolation, "another's replica was retired");
        if (statuses[i] == Status::Ok && found->second.leases)
            violated(Rule::NoReuseUnderReader,
                     "retire says free to reclaim with %llu leases on replica %llx",
                     static_cast<ull>(found->second.leases), static_cast<ull>(found->first));
        found->second.retiring = true;
        ++statistics_.retired;
    }
}

void Truth::replied(Session &session, const Request &, const wire::ReclaimAckRequest &ack,
                    const wire::Reply &reply) {
    const auto statuses = item_statuses(reply, ack.items.size());
    for (size_t i = 0; i < statuses.size(); ++i) {
        if (statuses[i] != Status::Ok)
            continue;
        auto found = replicas_.find(ack.items[i].replica);
        if (found == replicas_.end() || found->second.generation != ack.items[i].generation)
            violated(Rule::GenerationFences, "a reclaim of a stale name was accepted");
        if (found->second.owner != &session)
            violated(Rule::ChargeUntilProof, "a replica was reclaimed by another than its owner");
        if (found->second.leases)
            violated(Rule::NoReuseUnderReader, "a replica was reclaimed with %llu leases on it",
                     static_cast<ull>(found->second.leases));
        const Pool &pool = pools_.at(found->second.pool);
        if (!found->second.retiring && !pool.closing && !pool.unsure)  // a forced close retires all
            violated(Rule::RetireBlocks, "a READY replica was reclaimed");
        replicas_.erase(found);
        ++statistics_.reclaimed;
    }
}

void Truth::replied(Session &session, const Request &, const wire::UsageRequest &request,
                    const wire::Reply &reply) {
    const auto *answer = std::get_if<wire::UsageReply>(&reply.body);
    if (!answer)
        violated(Rule::OneReply, "usage answered by another kind");
    const auto pool = pools_.find(request.pool);
    if (pool == pools_.end() || pool->second.owner != &session || pool->second.unsure ||
        pool->second.closing || !session.whole)
        return;
    uint64_t ready = 0, ready_pages = 0, retiring = 0, leases = 0, count = 0;
    for (const auto &[id, replica] : replicas_) {
        if (replica.pool != request.pool)
            continue;
        ++count;
        leases += replica.leases;
        if (replica.retiring) {
            retiring += replica.allocated;
        } else {
            ready += replica.length;
            ready_pages += replica.allocated;
        }
    }
    const wire::Usage &usage = answer->usage;
    if (usage.ready_bytes != ready || usage.ready_allocated_bytes != ready_pages ||
        usage.retiring_bytes != retiring || usage.leases != leases || usage.replicas != count)
        violated(Rule::ChargeUntilProof,
                 "usage says ready %llu/%llu, retiring %llu, %llu replicas, %llu leases; it is "
                 "%llu/%llu, %llu, %llu, %llu",
                 static_cast<ull>(usage.ready_bytes), static_cast<ull>(usage.ready_allocated_bytes),
                 static_cast<ull>(usage.retiring_bytes), static_cast<ull>(usage.replicas),
                 static_cast<ull>(usage.leases), static_cast<ull>(ready),
                 static_cast<ull>(ready_pages), static_cast<ull>(retiring), static_cast<ull>(count),
                 static_cast<ull>(leases));
}

void Truth::admin_retired(const Link &link, const wire::AdminRetireRequest &request,
                          const wire::Reply &reply) {
    const auto *answer = std::get_if<wire::CountReply>(&reply.body);
    if (!answer)
        violated(Rule::OneReply, "admin-retire answered by another kind");
    const Namespace *space = fresh_namespace(request.namespace_id);
    if (!space && answer->count)
        violated(Rule::EpochFences, "an admin retired objects of a stale namespace");
    for (auto &[id, replica] : replicas_)
        if (space && replica.object.text == space->text && replica.owner->uid == space->uid &&
            (link.process->admin || link.process->uid == replica.owner->uid) &&
            (!request.key || (replica.object.key == key_of(request.key->digest) &&
                              replica.object.shard == request.key->shard &&
                              replica.object.part == request.key->part)))
            replica.retiring = true;
}

void Truth::on_event(Link &link, const wire::Event &event) {
    if (event.kind != wire::EventKind::Reclaim && event.kind != wire::EventKind::Retired)
        return;
    if (link.process->sharer)
        return;
    const Session *session = session_of(link);
    for (const wire::ReplicaName &name : event.items) {
        auto found = replicas_.find(name.replica);
        if (found == replicas_.end() || found->second.generation != name.generation)
            violated(Rule::RetireBlocks, "an event names replica %llx, which is not there",
                     static_cast<ull>(name.replica));
        if (found->second.owner != session)
            violated(Rule::OwnerIsolation, "an event names a replica of another session");
        if (event.kind == wire::EventKind::Reclaim && found->second.leases)
            violated(Rule::NoReuseUnderReader,
                     "marud asks to reclaim replica %llx with %llu leases on it",
                     static_cast<ull>(name.replica), static_cast<ull>(found->second.leases));
        found->second.retiring = true;
    }
}

}  // namespace maru::sim
