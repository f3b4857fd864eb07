// Pools: granted by number, made segment by segment, given back by proof.
//
// Everything a pool will ever need is charged when it is opened, so that no later step can fail for
// want of budget. A segment is committed into only after its worker has mapped it and marud has
// sealed it against new writers.
#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <utility>

#include "daemon/protocol/service_impl.h"
#include "libmaru/wire/capabilities.h"

namespace maru {
namespace {

constexpr uint64_t kHugePage = 2ull << 20;
constexpr uint32_t kMinPage = 4096;
constexpr uint32_t kMaxPage = 1u << 30;
constexpr int32_t kMaxNumaNode = 1023;  // of the kernel's CONFIG_NODES_SHIFT
// Above any memory, so that rounding up cannot wrap.
constexpr uint64_t kMaxCapacity = 1ull << 60;

uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

// The first of 2^40 generations that are this pool's alone: 24 bits say which pool, counted on from
// a place that the (random) epoch gives, so that neither another pool of this life nor, but for one
// chance in 2^24, one of another life hands out the same generation. A worker that allocates a
// million times a second needs 12 days to leave its range, and then only loses that distinction: in
// its own pool generations still only grow.
uint64_t first_generation(uint32_t epoch, uint32_t number) {
    uint64_t base = (epoch * 0x9e3779b97f4a7c15ull) >> 40;
    return (((base + number) & 0xffffff) << 40) | 1;
}

wire::PoolReply pool_reply(const Pool &pool) {
    return {pool.id, pool.capacity_bytes, pool.segment_bytes,
            static_cast<uint32_t>(pool.segments.size()), pool.first_generation};
}

bool same_request(const Pool &pool, const wire::OpenPoolRequest &request) {
    return pool.medium == request.medium && pool.tier == request.tier &&
           pool.scope == request.scope && pool.huge_pages == request.huge_pages &&
           pool.numa == request.numa && pool.numa_node == request.numa_node &&
           pool.asked_bytes == request.capacity_bytes && pool.page_bytes == request.page_bytes;
}

// The capability that would be needed; empty: this marud has all of it.
std::string_view missing_capability(const wire::OpenPoolRequest &request) {
    if (request.tier == wire::Tier::L2 || request.medium == wire::Medium::Ssd)
        return wire::kL2Storage;
    if (request.medium == wire::Medium::Cxl)
        return wire::kMixedStorage;
    if (request.scope == wire::Scope::Domain)
        return wire::kMixedStorage;
    return {};
}

std::string bad_field(const wire::OpenPoolRequest &request) {
    if (request.capacity_bytes == 0 || request.capacity_bytes > kMaxCapacity)
        return "capacity_bytes is " + std::to_string(request.capacity_bytes) + "; 1 to " +
               std::to_string(kMaxCapacity) + " are allowed";
    if (!std::has_single_bit(request.page_bytes) || request.page_bytes < kMinPage ||
        request.page_bytes > kMaxPage)
        return "page_bytes is " + std::to_string(request.page_bytes) +
               "; a power of two from 4096 to 1073741824 is allowed";
    if (request.numa_node < -1 || request.numa_node > kMaxNumaNode)
        return "numa_node is " + std::to_string(request.numa_node) + "; -1 to " +
               std::to_string(kMaxNumaNode) + " are allowed";
    if (request.request_key == 0)
        return "request_key must not be 0";
    return {};
}

wire::Status status_of(const Error &error) {
    switch (error.code) {
        case ENOMEM:
        case ENOSPC:
            return wire::Status::NoMemory;
        case EMFILE:
        case ENFILE:
            return wire::Status::FdLimit;
        default:
            return wire::Status::Internal;
    }
}

}  // namespace

void Service::Impl::on(Call &call, const wire::OpenPoolRequest &request) {
    Session &session = *call.session();
    if (std::string problem = bad_field(request); !problem.empty()) {
        refuse(call, wire::Status::InvalidArgument, problem);
        return;
    }
    if (std::string_view missing = missing_capability(request); !missing.empty()) {
        refuse(call, wire::Status::Unsupported,
               "this marud has CPU pools of tier L1, of scope worker or host; that one needs the "
               "capability " +
                   std::string(missing));
        return;
    }
    for (PoolIndex index : session.pools) {
        const Pool &pool = *pools.at(index);
        if (pool.request_key != request.request_key)
            continue;
        if (same_request(pool, request))
            reply(call, pool_reply(pool));
        else
            refuse(call, wire::Status::Conflict,
                   "request_key was used for another pool of this session");
        return;
    }
    if (draining) {
        refuse(call, wire::Status::Unavailable, "marud is draining: no new pools");
        return;
    }
    uint64_t page = request.page_bytes;
    uint64_t unit = request.huge_pages == wire::HugePages::Off ? page : std::max(page, kHugePage);
    uint64_t capacity = round_up(request.capacity_bytes, unit);
    bool shared = request.scope != wire::Scope::Worker;
    uint64_t of_config = shared ? config.host_segment_bytes : config.segment_bytes;
    uint64_t segment = std::min(round_up(std::max<uint64_t>(of_config, 1), unit), capacity);
    uint64_t segments = (capacity + segment - 1) / segment;
    // A shared pool is charged as it fills; how large it may ever become is bounded all the same.
    if (shared && !shared_pool_fits(call, capacity, segments))
        return;
    auto charge = shared ? std::variant<Quota::PoolCharge, QuotaRefusal>(Quota::PoolCharge())
                         : quota.charge_pool(session.uid, session.account, capacity, segments);
    if (auto *refusal = std::get_if<QuotaRefusal>(&charge)) {
        refuse_pool(call, *refusal, capacity);
        return;
    }

    auto pool = std::make_unique<Pool>();
    uint32_t number = ++next_pool;
    pool->id = wire::make_id(config.epoch, number);
    pool->owner = &session;
    pool->medium = request.medium;
    pool->tier = request.tier;
    pool->scope = request.scope;
    pool->huge_pages = request.huge_pages;
    pool->numa = request.numa;
    pool->numa_node = request.numa_node;
    pool->asked_bytes = request.capacity_bytes;
    pool->capacity_bytes = capacity;
    pool->segment_bytes = segment;
    pool->page_bytes = request.page_bytes;
    pool->request_key = request.request_key;
    pool->first_generation = first_generation(config.epoch, number);
    pool->opened = now;
    pool->segments.resize(segments);
    pool->charge = std::move(std::get<Quota::PoolCharge>(charge));
    PoolIndex index = directory.add_pool({.id = pool->id,
                                          .owner = session.holder,
                                          .domain = shared ? session.host_domain : session.domain,
                                          .medium = pool->medium,
                                          .tier = pool->tier,
                                          .scope = pool->scope,
                                          .capacity_bytes = capacity,
                                          .segment_bytes = segment,
                                          .page_bytes = request.page_bytes});
    directory.set_visible(index, true);
    pool->visible = true;
    session.pools.push_back(index);
    Pool &added = pools.add(index, std::move(pool));
    if (auto saved = save(session); !saved) {
        remove_pool(added);
        refuse(call, unrecorded_status(saved.error()), not_recorded(saved.error()));
        return;
    }
    reply(call, pool_reply(added));
}

// Says how much is about to come back: the memory of an engine that was killed and started again at
// once is charged until the proof, a moment later.
// Whoever asks for a segment of a shared pool asks often and can do without: it is not told of what
// a fenced worker has, which may live on for days.
void Service::Impl::refuse_pool(const Call &call, const QuotaRefusal &refusal, uint64_t bytes,
                                bool shared) {
    const Session &session = *call.session();
    uint64_t returning = 0;
    pools.each([&](const Pool &pool) {
        bool ended = pool.owner->state == SessionState::Exiting ||
                     (!shared && pool.owner->state == SessionState::Fenced);
        if (ended && (refusal.status == wire::Status::NoSpace || pool.owner->uid == session.uid))
            returning += pool.charged_bytes();
    });
    // The grant of this worker alone does not grow by that.
    if (session.account.bytes + bytes > config.worker_cpu_bytes)
        returning = 0;
    std::string message = refusal.message;
    if (returning)
        message += "; " + std::to_string(returning) +
                   " bytes of engines that ended are still being proven free";
    refuse(call, refusal.status, message, returning);
}

void Service::Impl::on(Call &call, const wire::GrantSegmentRequest &request) {
    Pool *pool = own_pool_or_refuse(call, request.pool);
    if (!pool)
        return;
    if (request.segment >= pool->segments.size()) {
        refuse(call, wire::Status::InvalidArgument,
               "segment " + std::to_string(request.segment) + ": the pool has 0 to " +
                   std::to_string(pool->segments.size() - 1));
        return;
    }
    if (pool->state != PoolState::Open) {
        refuse(call, wire::Status::Busy, "the pool is closing: no segment is granted any more");
        return;
    }
    Segment &segment = pool->segments[request.segment];
    SegmentRef ref{pool->id, request.segment};
    if (segment.state == SegmentState::Adopted) {
        refuse(call, wire::Status::InvalidArgument,
               "segment " + std::to_string(request.segment) +
                   " was adopted when the pool was left: nobody writes to it any more");
        return;
    }
    if (segment.state == SegmentState::None || segment.state == SegmentState::Creating) {
        if (segment.state == SegmentState::None && !charge_segment(call, *pool, request.segment))
            return;
        if (!defer(call, segment.waiters)) {
            if (segment.state == SegmentState::None)
                segment.charge.release();
            return;
        }
        if (std::exchange(segment.state, SegmentState::Creating) == SegmentState::None)
            effects.create_segment(ref, {pool->bytes_of(request.segment), pool->huge_pages});
        return;
    }
    if (segment.state == SegmentState::Refused) {
        refuse(call, wire::Status::Denied, never_made_anew(request.segment));
        return;
    }
    if (segment.forgotten) {
        if (defer(call, segment.waiters) &&
            std::exchange(segment.state, SegmentState::Proving) != SegmentState::Proving)
            ask_proof(ref);
        return;
    }
    reply(call, wire::SegmentReply{pool->bytes_of(request.segment), segment.huge},
          std::span(&ref, 1));
}

bool Service::Impl::shared_pool_fits(const Call &call, uint64_t capacity, uint64_t segments) {
    const Session &session = *call.session();
    uint64_t of_session = 0;
    uint32_t shared_pools = 0;
    for (PoolIndex index : session.pools)
        if (const Pool &pool = *pools.at(index); pool.shared()) {
            of_session += pool.capacity_bytes;
            ++shared_pools;
        }
    const QuotaLimits &limits = quota.limits();
    if (shared_pools >= kMaxSharedPools)
        refuse(call, wire::Status::Quota,
               "this session has " + std::to_string(shared_pools) +
                   " pools of scope host, which is the limit");
    else if (of_session > limits.worker_bytes || capacity > limits.worker_bytes - of_session)
        refuse(call, wire::Status::Quota,
               "worker grant in bytes: asked " + std::to_string(capacity) + ", used " +
                   std::to_string(of_session) + ", limit " + std::to_string(limits.worker_bytes));
    else if (segments > limits.max_segments_per_uid)
        refuse(call, wire::Status::Quota,
               "uid quota in segments (one descriptor each): asked " + std::to_string(segments) +
                   ", limit " + std::to_string(limits.max_segments_per_uid));
    else
        return true;
    return false;
}

bool Service::Impl::charge_segment(const Call &call, Pool &pool, uint32_t segment) {
    if (!pool.shared())
        return true;
    if (draining) {
        refuse(call, wire::Status::Unavailable, "marud is draining: no new segments");
        return false;
    }
    auto charge =
        quota.charge_pool(pool.owner->uid, pool.owner->account, pool.bytes_of(segment), 1);
    if (auto *refusal = std::get_if<QuotaRefusal>(&charge)) {
        refuse_pool(call, *refusal, pool.bytes_of(segment), true);
        return false;
    }
    pool.segments[segment].charge = std::move(std::get<Quota::PoolCharge>(charge));
    return true;
}

void Service::Impl::on_segment_created(SegmentRef ref, const Result<CreatedSegment> &result) {
    Pool *pool = pools.find(ref.pool);
    if (!pool || ref.segment >= pool->segments.size() ||
        pool->segments[ref.segment].state != SegmentState::Creating) {
        if (result)
            effects.drop_segment(ref);  // nobody wants it any more
        return;
    }
    Segment &segment = pool->segments[ref.segment];
    std::vector<Waiter> waiters = std::exchange(segment.waiters, {});
    if (!result) {
        segment.state = SegmentState::None;
        if (pool->shared())  // made anew: the record may name the one before, whose charge this is
            (void)save(*pool->owner);
        segment.charge.release();
        std::string message = "segment " + std::to_string(ref.segment) + " of " +
                              std::to_string(pool->bytes_of(ref.segment)) +
                              " bytes: " + describe(result.error());
        for (const Waiter &waiter : waiters)
            refuse(waiter, status_of(result.error()), message);
    } else {
        segment.state = SegmentState::Created;
        segment.held = true;
        segment.huge = result->huge;
        segment.identity = result->identity;
        if (MARU_MUTANT(CommitBeforeMapped))
            directory.grant_segment(pool->index, ref.segment);
        auto saved = save(*pool->owner);
        if (!saved) {
            drop(*pool, ref.segment);
            segment = Segment{};
            (void)save(*pool->owner);  // what is tried again must not name it
            for (const Waiter &waiter : waiters)
                refuse(waiter, unrecorded_status(saved.error()), not_recorded(saved.error()));
        } else if (pool->state == PoolState::Open)
            answer_all(waiters, wire::SegmentReply{pool->bytes_of(ref.segment), segment.huge},
                       std::span(&ref, 1));
        else
            for (const Waiter &waiter : waiters)
                refuse(waiter, wire::Status::Busy, "the pool is closing");
    }
    if (pool->proving())
        conclude_proof(*pool);
}

void Service::Impl::on(Call &call, const wire::SegmentMappedRequest &request) {
    Pool *pool = own_pool_or_refuse(call, request.pool);
    if (!pool)
        return;
    if (request.segment >= pool->segments.size()) {
        refuse(call, wire::Status::InvalidArgument,
               "segment " + std::to_string(request.segment) + ": the pool has 0 to " +
                   std::to_string(pool->segments.size() - 1));
        return;
    }
    if (pool->state != PoolState::Open) {
        refuse(call, wire::Status::Busy, "the pool is closing: nothing can be committed any more");
        return;
    }
    Segment &segment = pool->segments[request.segment];
    switch (segment.state) {
        case SegmentState::Granted:
            ok(call);
            break;
        case SegmentState::Created:
            if (!defer(call, segment.waiters))
                return;
            segment.state = SegmentState::Sealing;
            effects.seal_segment({pool->id, request.segment});
            break;
        case SegmentState::Sealing:
            defer(call, segment.waiters);
            break;
        default:
            refuse(call, wire::Status::InvalidArgument,
                   "segment " + std::to_string(request.segment) +
                       " was not granted: ask GrantSegment for it first");
            break;
    }
}

void Service::Impl::on_segment_sealed(SegmentRef ref, const Result<void> &result) {
    Pool *pool = pools.find(ref.pool);
    if (!pool || ref.segment >= pool->segments.size() ||
        pool->segments[ref.segment].state != SegmentState::Sealing)
        return;
    Segment &segment = pool->segments[ref.segment];
    std::vector<Waiter> waiters = std::exchange(segment.waiters, {});
    if (!result) {
        segment.state = SegmentState::Created;
        std::string message = "segment " + std::to_string(ref.segment) +
                              " could not be sealed: " + describe(result.error());
        for (const Waiter &waiter : waiters)
            refuse(waiter, wire::Status::Internal, message);
    } else {
        segment.state = SegmentState::Granted;
        segment.sealed = true;
        if (auto saved = save(*pool->owner); !saved) {
            // Sealed for good, but its worker will hear that it is not granted, and unmap it. Then
            // the next GrantSegment makes another.
            segment.state = SegmentState::Created;
            segment.sealed = false;
            segment.forgotten = true;
            (void)save(*pool->owner);
            for (const Waiter &waiter : waiters)
                refuse(waiter, unrecorded_status(saved.error()), not_recorded(saved.error()));
        } else {
            if (!MARU_MUTANT(CommitBeforeMapped))
                directory.grant_segment(pool->index, ref.segment);
            answer_all(waiters, wire::StatusOnly{});
        }
    }
    if (pool->proving())
        conclude_proof(*pool);
}

// ---- close
// ---------------------------------------------------------------------------------------

void Service::Impl::on(Call &call, const wire::ClosePoolRequest &request) {
    Pool *pool = own_pool_or_refuse(call, request.pool);
    if (!pool)
        return;
    switch (request.phase) {
        case wire::ClosePhase::Drain:
            drain_pool(call, *pool);
            return;
        case wire::ClosePhase::Force:
            force_pool(call, *pool);
            return;
        case wire::ClosePhase::Finish:
            finish_pool(call, *pool);
            return;
        case wire::ClosePhase::Leave:
            leave_pool(call, *pool);
            return;
    }
    refuse(call, wire::Status::InvalidArgument,
           "phase is " + std::to_string(static_cast<unsigned>(request.phase)) +
               "; drain, force, finish and leave are allowed");
}

std::string Service::Impl::lease_holders(const Pool &pool, uint64_t leases) const {
    if (pool.shared())
        return leases ? std::to_string(leases) + " leases are held on it by sessions of uid " +
                            std::to_string(pool.owner->uid)
                      : "sessions of uid " + std::to_string(pool.owner->uid) +
                            " that are not back after the restart of marud may be reading it";
    // Its owner is the only reader there can be.
    return std::to_string(leases) + " leases are held on it by " + person(*pool.owner);
}

void Service::Impl::drain_pool(Call &call, Pool &pool) {
    uint64_t leases = directory.pool_leases(pool.index);
    if (has_readers(pool)) {
        std::string who = lease_holders(pool, leases);
        reply(call, wire::ClosePoolReply{wire::Status::Busy, leases, who});
        return;
    }
    if (pool.state == PoolState::Open) {
        pool.state = PoolState::Closing;
        directory.set_closing(pool.index, true);
    }
    reply(call, wire::ClosePoolReply{});
}

void Service::Impl::force_pool(Call &call, Pool &pool) {
    bool wait = has_readers(pool);
    bool first = pool.drain_waiters.empty();
    if (wait && !defer(call, pool.drain_waiters))
        return;
    if (wait && first)
        ++forced_closes;
    if (pool.state == PoolState::Open) {
        pool.state = PoolState::Closing;
        directory.set_closing(pool.index, true);
    }
    directory.retire_pool(pool.index);
    sweep_soon();
    if (pool.shared()) {
        record(RecordedEnd{{pool.id, UINT32_MAX}});
        flush_records();  // the answer may be long in coming
    }
    // Its pages go with the pool, not one by one.
    std::erase_if(pool.owner->reclaimable,
                  [&](const auto &entry) { return entry.second.pool == pool.index; });
    if (!wait)
        reply(call, wire::ClosePoolReply{});
}

// After leases have ended: whoever forced a pool closed may have waited for that.
void Service::Impl::answer_forced_closes() {
    if (!forced_closes || MARU_MUTANT(ForcedCloseUnanswered))
        return;
    pools.each([&](Pool &pool) {
        if (pool.drain_waiters.empty() || has_readers(pool))
            return;
        --forced_closes;
        answer_all(pool.drain_waiters, wire::ClosePoolReply{});
    });
}

bool Service::Impl::has_readers(const Pool &pool) const {
    return directory.pool_leases(pool.index) != 0 ||
           (pool.shared() && unknown_readers(pool.owner->uid, pool.id));
}

// Its worker goes in good order. What it leaves becomes marud's like that of one that was killed.
void Service::Impl::leave_pool(Call &call, Pool &pool) {
    if (!pool.shared()) {
        refuse(call, wire::Status::InvalidArgument,
               "Leave: a pool of scope worker ends with Drain or Force, then Finish");
        return;
    }
    if (!defer(call, pool.finish_waiters))
        return;
    if (pool.state == PoolState::Finishing)
        return;
    directory.set_closing(pool.index, true);
    pool.state = PoolState::Finishing;
    pool.leaving = true;
    advance_proof(pool);
}

void Service::Impl::finish_pool(Call &call, Pool &pool) {
    if (pool.state == PoolState::Open) {
        refuse(call, wire::Status::InvalidArgument,
               "Finish: the pool is open; Drain or Force it first, then unmap it");
        return;
    }
    if (has_readers(pool)) {
        uint64_t leases = directory.pool_leases(pool.index);
        std::string who = lease_holders(pool, leases);
        reply(call, wire::ClosePoolReply{wire::Status::Busy, leases, who});
        return;
    }
    if (!defer(call, pool.finish_waiters))
        return;
    if (pool.state == PoolState::Finishing)
        return;  // asked already: one answer for both
    pool.state = PoolState::Finishing;
    // Asked again after Busy: the wait is counted from the first time.
    pool.proof_since = pool.proof_since ? pool.proof_since : now;
    pool.leaving = false;
    if (MARU_MUTANT(BudgetBeforeAck))
        pool.charge.release();
    advance_proof(pool);
}

}  // namespace maru
