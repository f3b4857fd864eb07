// Truth, part 1: the life of marud, sessions, memory, and the checks after every step.
#include "tests/sim/truth.h"

#include "daemon/directory/mutant.h"
#include "tests/sim/clients.h"
#include "tests/sim/world.h"

namespace maru::sim {

using wire::Status;
using ull = unsigned long long;

void Truth::Statistics::add(const Statistics &other) {
    const auto *from = reinterpret_cast<const uint64_t *>(&other);
    auto *to = reinterpret_cast<uint64_t *>(this);
    for (size_t i = 0; i < sizeof(Statistics) / sizeof(uint64_t); ++i)
        to[i] += from[i];
}

Truth::Truth(World &world) : world_(world), shared_(world) {
    for (uint32_t i = 0; i < world.settings().texts + world.settings().shared_texts; ++i)
        texts_.emplace(text_of(i), i);
}

// ---- the life of marud -------------------------------------------------------------------------

void Truth::on_daemon_start(uint32_t epoch) {
    epoch_ = epoch;
    ++statistics_.lives;
}

void Truth::on_daemon_death() {
    // The next life knows nothing but its records; workers publish again what they hold.
    replicas_.clear();
    for (auto &session : sessions_) {
        session->connection = 0;
        session->this_life = false;
        session->whole = false;
        session->operations.clear();
        session->described.clear();
        session->object_bytes = 0;
        session->watermark = 0;  // attach says it again
        // Proven and forgotten: nothing is left by which its token could be known.
        if (session->ended && !world_.records().count(session->id))
            session->token_known = false;
    }
    for (auto &[id, pool] : pools_) {
        pool.closing = pool.unsure = pool.forced = pool.finishing = false;
        // Pages know their generations, marud only what it is told: a liar may tell it less.
        pool.last_generation.clear();
    }
}

void Truth::on_restore(const SessionRecord &record, bool alive) {
    Session *session = nullptr;
    for (auto &known : sessions_)
        if (known->id == record.session)
            session = known.get();
    if (!session) {  // it died before it could say so
        sessions_.push_back(std::make_unique<Session>());
        session = sessions_.back().get();
        session->id = record.session;
        session->uid = record.uid;
        session->role = record.role;
        session->engine = record.engine;
        session->this_life = session->whole = false;
        for (const auto &process : world_.processes())
            if (process->pid == record.pid && process->start_time == record.start_time) {
                session->process = process->number;
                session->liar = process->liar;
            }
    }
    shared_.on_restore(record);
    for (const auto &known : record.pools) {
        if (known.scope != wire::Scope::Worker)
            continue;
        Pool &pool = pools_[known.pool];
        if (!pool.owner) {
            pool.id = known.pool;
            pool.owner = session;
            pool.capacity = known.capacity_bytes;
            pool.segment_bytes = known.segment_bytes;
            pool.page_bytes = known.page_bytes;
            pool.segments = static_cast<uint32_t>(known.segments.size());
            pool.granted.resize(known.segments.size());
        }
    }
    if (!alive)
        end_session(*session);
}

// Finish may come to its end after the connection that asked for it is gone.
void Truth::on_drop(Memfd &dropped) {
    for (const Read &read : reads_)
        if (read.file == &dropped && shared_.owns(dropped.ref.pool))
            violated(Rule::NoReuseUnderReader,
                     "shared segment %llx/%u is dropped while p%llu reads it under a lease",
                     static_cast<ull>(dropped.ref.pool), dropped.ref.segment,
                     static_cast<ull>(read.process));
    const auto pool = pools_.find(dropped.ref.pool);
    if (pool == pools_.end() || !pool->second.finishing)
        return;
    for (const auto &file : world_.memfds())
        if (file->ref.pool == dropped.ref.pool && file->with_daemon)
            return;
    std::erase_if(replicas_,
                  [&](const auto &entry) { return entry.second.pool == dropped.ref.pool; });
}

// Nobody could speak during the gap, so nobody is late who was not late before.
void Truth::on_stall(TimeNs gap) {
    const TimeNs timeout = world_.settings().service(1).session_timeout;
    for (auto &session : sessions_)
        session->heard =
            world_.now() - gap - session->heard < timeout / 2 ? world_.now() : session->heard;
}

// ---- sessions ----------------------------------------------------------------------------------

Truth::Session *Truth::session_of(const Link &link) {
    for (auto &session : sessions_)
        if (session->connection == link.id && !session->ended)
            return session.get();
    return nullptr;
}

bool Truth::owns_pools(const Session &session) const {
    for (const auto &[id, pool] : pools_)
        if (pool.owner == &session)
            return true;
    return false;
}

void Truth::end_session(Session &session) {
    session.ended = true;
    session.connection = 0;
    std::erase_if(replicas_, [&](const auto &entry) { return entry.second.owner == &session; });
}

void Truth::forget_pool(wire::Id id) {
    std::erase_if(replicas_, [&](const auto &entry) { return entry.second.pool == id; });
    pools_.erase(id);
}

// One attached worker per engine: a detached or silent one loses the engine for good.
void Truth::take_engine(Session &newcomer) {
    if (newcomer.role != wire::Role::Worker)
        return;
    for (auto &other : sessions_) {
        if (other.get() == &newcomer || other->ended || other->role != wire::Role::Worker ||
            other->uid != newcomer.uid || other->engine != newcomer.engine)
            continue;
        if (other->connection != 0 &&
            world_.now() - other->heard < world_.settings().service(1).session_timeout)
            violated(Rule::OneWorker, "engine '%s' of uid %u: session %llx attached beside %llx",
                     newcomer.engine.c_str(), newcomer.uid, static_cast<ull>(newcomer.id),
                     static_cast<ull>(other->id));
        ++statistics_.fenced;
        // Away and without memory it may have been forgotten before, and its token is free again.
        other->fenced = owns_pools(*other);
        other->token_known = other->token_known && other->fenced;
        end_session(*other);
    }
}

void Truth::on_connection_closed(Link &link) {
    if (Session *session = session_of(link))
        session->connection = 0;
}

void Truth::on_exit(Process &process) {
    ++statistics_.exits;
    for (auto &session : sessions_)
        if (session->process == process.number && !session->ended)
            end_session(*session);
}

// ---- memory ------------------------------------------------------------------------------------

void Truth::on_death(Process &process) {
    std::erase_if(reads_, [&](const Read &read) { return read.process == process.number; });
}

void Truth::on_unmap(Process &process, Memfd &file) {
    for (const Read &read : reads_)
        if (read.process == process.number && read.file == &file && !process.liar)
            violated(Rule::NoReuseUnderReader,
                     "p%llu unmaps segment %llx/%u while it reads pages %u+%u",
                     static_cast<ull>(process.number), static_cast<ull>(file.ref.pool),
                     file.ref.segment, read.first, read.pages);
}

void Truth::on_write(Process &process, Memfd &file, uint32_t page, const PageValue &) {
    if (process.liar)
        return;
    for (const Read &read : reads_)
        if (read.file == &file && page >= read.first && page < read.first + read.pages)
            violated(Rule::NoReuseUnderReader,
                     "p%llu rewrites page %u of segment %llx/%u under a reader",
                     static_cast<ull>(process.number), page, static_cast<ull>(file.ref.pool),
                     file.ref.segment);
    const auto pool = pools_.find(file.ref.pool);
    if (pool == pools_.end())
        return;
    const uint64_t at = file.ref.segment * pool->second.segment_bytes +
                        static_cast<uint64_t>(page) * file.page_bytes;
    for (const auto &[id, replica] : replicas_) {
        if (replica.pool != file.ref.pool || at < replica.offset ||
            at >= replica.offset + replica.allocated)
            continue;
        violated(replica.retiring ? Rule::NoReuseUnderReader : Rule::ContentImmutable,
                 "p%llu rewrites offset %llx of pool %llx, which marud holds as %s replica %llx",
                 static_cast<ull>(process.number), static_cast<ull>(at),
                 static_cast<ull>(replica.pool), replica.retiring ? "RETIRING" : "READY",
                 static_cast<ull>(id));
    }
}

uint32_t Truth::begin_read(Process &process, Memfd &file, uint32_t first, uint32_t pages,
                           const PageValue &expected) {
    reads_.push_back({next_read_, process.number, &file, first, pages, expected});
    statistics_.pages_read += pages;
    return next_read_++;
}

void Truth::end_read(uint32_t number) {
    std::erase_if(reads_, [&](const Read &read) { return read.number == number; });
}

// A planted bug has to be seen from outside, so it may not be found here.
void Truth::check_self(const Service &service) {
#ifdef MARU_MUTANTS
    if (chosen_mutant)
        return;
#endif
    const std::string wrong = service.check_invariants();
    if (!wrong.empty())
        violated(Rule::SelfCheck, "%s", wrong.c_str());
}

// ---- after every step --------------------------------------------------------------------------

void Truth::after_step() {
    ++steps_;
    for (const Read &read : reads_)
        for (uint32_t i = 0; i < read.pages; ++i) {
            const PageValue &value = read.file->pages[read.first + i];
            if (value == read.expected)
                continue;
            if (value.object != read.expected.object &&
                value.object.text != read.expected.object.text)
                violated(Rule::NamespaceIsolation, "a reader of text %u key %u sees text %u key %u",
                         read.expected.object.text, read.expected.object.key, value.object.text,
                         value.object.key);
            violated(Rule::NoReuseUnderReader,
                     "a reader of key %u generation %llu sees key %u generation %llu%s",
                     read.expected.object.key, static_cast<ull>(read.expected.generation),
                     value.object.key, static_cast<ull>(value.generation),
                     value.written ? "" : ", half written");
        }
    Service *service = world_.service();
    if (!service)
        return;

    // 6: what may be touched is charged, and never more than the host and each uid may have.
    uint64_t touchable = 0;
    std::map<uint32_t, uint64_t> by_uid;
    for (const auto &file : world_.memfds()) {
        if (file->lost || !file->touchable())
            continue;
        touchable += file->bytes;
        auto pool = pools_.find(file->ref.pool);
        if (pool != pools_.end())
            by_uid[pool->second.owner->uid] += file->bytes;
    }
    const Service::Counters counters = service->counters();
    uint64_t kept = 0;  // also what nobody can touch: marud's descriptor keeps the memory
    for (const auto &file : world_.memfds())
        if (file->with_daemon)
            kept += file->bytes;
    if (counters.reserved_bytes < kept)
        violated(Rule::ChargeUntilProof, "marud keeps %llu bytes, but only %llu are charged",
                 static_cast<ull>(kept), static_cast<ull>(counters.reserved_bytes));
    if (counters.reserved_bytes < touchable)
        violated(Rule::ChargeUntilProof,
                 "%llu bytes may still be touched, but only %llu are charged",
                 static_cast<ull>(touchable), static_cast<ull>(counters.reserved_bytes));
    const ServiceConfig config = world_.settings().service(epoch_);
    if (counters.reserved_bytes > config.host_cpu_bytes || touchable > config.host_cpu_bytes)
        violated(Rule::ChargeUntilProof, "%llu bytes charged, %llu touchable, on a host of %llu",
                 static_cast<ull>(counters.reserved_bytes), static_cast<ull>(touchable),
                 static_cast<ull>(config.host_cpu_bytes));
    for (const auto &[uid, bytes] : by_uid)
        if (bytes > config.uid_cpu_bytes)
            violated(Rule::ChargeUntilProof, "uid %u can touch %llu bytes with a quota of %llu",
                     uid, static_cast<ull>(bytes), static_cast<ull>(config.uid_cpu_bytes));

    // 3, 5: a lease ends by its holder or by its holder's proven end, never by a clock.
    uint64_t leases = 0;
    for (const auto &[id, replica] : replicas_)
        leases += replica.leases;
    if (counters.leases < leases)
        violated(Rule::NoReuseUnderReader, "clients hold %llu leases, marud knows of %llu",
                 static_cast<ull>(leases), static_cast<ull>(counters.leases));

    if (steps_ % 256 == 0)
        check_self(*service);
}

void Truth::at_end(bool processes_gone) {
    Service *service = world_.service();
    check_self(*service);
    const Service::Counters c = service->counters();
    if (c.reserved_bytes || c.replicas || c.leases || c.unproven_bytes || c.objects)
        violated(Rule::NothingLeft,
                 "left%s: %llu bytes charged, %llu unproven, %llu replicas, %llu objects, %llu "
                 "leases, %u sessions",
                 processes_gone ? "" : " after every client closed",
                 static_cast<ull>(c.reserved_bytes), static_cast<ull>(c.unproven_bytes),
                 static_cast<ull>(c.replicas), static_cast<ull>(c.objects),
                 static_cast<ull>(c.leases), c.sessions);
    if (!processes_gone)
        return;
    if (c.sessions || !world_.records().empty())
        violated(Rule::NothingLeft, "left: %u sessions and %zu records", c.sessions,
                 world_.records().size());
    for (const auto &file : world_.memfds())
        if (file->with_daemon || file->in_store)
            violated(Rule::NothingLeft, "marud still holds segment %llx/%u",
                     static_cast<ull>(file->ref.pool), file->ref.segment);
}

}  // namespace maru::sim
