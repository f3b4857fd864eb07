// A hostile worker: it bends its own requests, asks for what belongs to others, and writes where it
// likes in memory that is its own.
#include "tests/sim/clients.h"
#include "tests/sim/truth.h"

namespace maru::sim {

void Liar::act() {
    Random &random = world_.random();
    if (process_ && link_ && greeted_ && random.one_in(4)) {
        if (random.one_in(40)) {  // not a message at all
            std::byte junk[64];
            for (std::byte &byte : junk)
                byte = static_cast<std::byte>(random.next());
            world_.send_raw(link_, {junk, random.below(8) * 8ull});
            return;
        }
        random.one_in(3) ? ask_anything() : ask_nearly_true();
        return;
    }
    if (process_ && random.one_in(10))
        for (const Pool &pool : pools_)
            for (const Segment &segment : pool.segments)
                if (segment.file && segment.file->mapped_by(process_->number))
                    world_.write_page(
                        process_, segment.file,
                        random.below(static_cast<uint32_t>(segment.file->pages.size())),
                        {{9, 9, 9, 9}, random.next(), true});
    Worker::act();
}

void Liar::lie(wire::RequestBody body, std::span<Memfd *const> fds) {
    ask(std::move(body), {kLie}, fds);
}

// It does not care what its lies are answered; its honest half goes on.
void Liar::answered(const Asked &asked, const wire::Reply &reply, std::span<Memfd *const> fds) {
    if (asked.about.empty() || asked.about[0] != kLie)
        Worker::answered(asked, reply, fds);
}

void Liar::lost(std::map<uint64_t, Asked> unanswered) {
    std::erase_if(unanswered, [](const auto &entry) {
        return !entry.second.about.empty() && entry.second.about[0] == kLie;
    });
    Worker::lost(std::move(unanswered));
}

// Lies in one point only: right ids at the wrong time, in the wrong order, or once too often.
void Liar::ask_nearly_true() {
    Random &random = world_.random();
    replicas_.clear();
    const bool retiring_only = random.coin();
    for (const Object &object : objects_)
        if (object.state >= Object::Ready && (!retiring_only || object.state == Object::Retiring) &&
            random.coin() && replicas_.size() < 6)
            replicas_.push_back({object.replica, object.generation - random.one_in(8)});
    if (replicas_.empty() || random.one_in(3))
        replicas_.push_back(world_.some_name());
    switch (random.below(8)) {
        case 0:
        case 1:
            lie(wire::ReleaseRequest{replicas_});
            break;  // perhaps held, perhaps twice
        case 2:
            lie(wire::ReclaimAckRequest{replicas_});
            break;  // readers left, or never retired
        case 3:
            lie(wire::RetireRequest{replicas_});
            break;
        default:
            forge_commit();
    }
}

// A commit of its own pool with one thing wrong: an overlap, an old generation, a segment that is not
// mapped, an operation id that was used or acknowledged.
void Liar::forge_commit() {
    Random &random = world_.random();
    const Settings &settings = world_.settings();
    if (pools_.empty() || pools_[0].id == 0 || described_.empty())
        return ask_anything();
    Pool &pool = pools_[random.below(static_cast<uint32_t>(pools_.size()))];
    if (pool.id == 0 || pool.used.empty())
        return;
    wire::CommitItem item;
    item.key = {digest_of(random.below(settings.keys)), random.below(settings.shards),
                random.below(settings.parts)};
    item.pool = pool.id;
    item.offset = random.below(static_cast<uint32_t>(pool.used.size())) *
                  static_cast<uint64_t>(pool.page_bytes);
    for (const Object &object : objects_)  // exactly on, or beside, something of its own
        if (object.state != Object::Free && &pools_[object.pool] == &pool && random.one_in(4))
            item.offset = (object.page + random.below(2)) * static_cast<uint64_t>(pool.page_bytes);
    item.length = object_bytes(settings);
    item.generation =
        random.coin() ? pool.next_generation++ : pool.next_generation - random.below(12);
    commits_ = {item};
    uint64_t op = next_op_ + random.below(3);
    if (random.one_in(3))
        op = next_op_ - std::min<uint64_t>(next_op_ - 1, random.below(6));
    lie(wire::CommitRequest{name_id(*described_.begin()), std::max<uint64_t>(op, 1), commits_});
    next_op_ = std::max(next_op_, op + 1);
}

// Requests with ids of everybody and of every life.
void Liar::ask_anything() {
    Random &random = world_.random();
    const Settings &settings = world_.settings();
    const auto stolen = [&] {
        auto &tokens = world_.tokens();
        return tokens[random.below(static_cast<uint32_t>(tokens.size()))];
    };
    const std::string engine = "engine-" + std::to_string(random.below(3));
    replicas_.clear();
    for (uint32_t i = random.between(1, 4); i > 0; --i)
        replicas_.push_back(world_.some_name());
    // Names of its own too, so that some lies are nearly true.
    for (const Object &object : objects_)
        if (object.state >= Object::Ready && random.coin() && replicas_.size() < 8)
            replicas_.push_back({object.replica, object.generation + random.below(2)});
    digests_.clear();
    for (uint32_t i = random.between(1, 6); i > 0; --i)
        digests_.push_back(digest_of(random.below(settings.keys)));
    const wire::Manifest manifest{random.below(2), random.between(1, 2), 0, random.between(1, 2)};
    commits_.clear();
    for (uint32_t i = random.between(1, 3); i > 0; --i) {
        wire::CommitItem item;
        item.key = {digest_of(random.below(settings.keys)), random.below(2), random.below(2)};
        item.pool = !pools_.empty() && random.coin() ? pools_[0].id : world_.some_id();
        item.offset =
            random.below(settings.pool_pages + 4) * static_cast<uint64_t>(settings.page_bytes) +
            (random.one_in(6) ? 64 : 0);
        item.length = random.one_in(6) ? random.below(100000) : object_bytes(settings);
        item.generation = random.below(40);
        if (!pools_.empty() && random.coin())
            item.generation += pools_[0].next_generation;
        commits_.push_back(item);
    }
    switch (random.below(24)) {
        case 0:
            lie(wire::ReleaseRequest{replicas_});
            break;
        case 1:
            lie(wire::ReleaseRequest{replicas_});
            break;
        case 2:
            lie(wire::RetireRequest{replicas_});
            break;
        case 3:
            lie(wire::ReclaimAckRequest{replicas_});
            break;
        case 4:
            lie(wire::AcquireRequest{world_.some_id(), digests_, manifest, random.coin()});
            break;
        case 5:
            lie(wire::ProbeRequest{world_.some_id(), digests_, manifest, random.coin()});
            break;
        case 6:
        case 7:
        case 8:
            lie(wire::CommitRequest{
                names_.empty() || random.one_in(3) ? world_.some_id() : names_.begin()->second,
                random.one_in(3) ? 1 + random.below(40) : next_op_ + random.below(6), commits_});
            break;
        case 9:
            lie(wire::ResolveRequest{1 + random.below(60), random.between(1, 8)});
            break;
        case 10:
            lie(wire::AttachRequest{stolen(), wire::Role::Worker, engine, world_.epoch(),
                                    random.below(9)});
            break;
        case 11:
            lie(wire::OpenSessionRequest{stolen(), wire::Role::Worker, engine});
            break;
        case 12:
            lie(wire::GrantSegmentRequest{world_.some_id(), random.below(4)});
            break;
        case 13:
            lie(wire::SegmentMappedRequest{world_.some_id(), random.below(4)});
            break;
        case 14:
            lie(wire::ClosePoolRequest{world_.some_id(),
                                       static_cast<wire::ClosePhase>(random.below(3))});
            break;
        case 15:
            lie(wire::UsageRequest{world_.some_id()});
            break;
        case 16:
            republished_.clear();
            for (const wire::CommitItem &item : commits_)
                republished_.push_back({item, world_.some_id(), random.below(3), random.below(2)});
            lie(wire::RepublishRequest{republished_});
            break;
        case 17:
            lease_items_.clear();
            for (const wire::ReplicaName &held : replicas_)
                lease_items_.push_back({held.replica, held.generation, random.between(1, 3)});
            lie(wire::AttachLeasesRequest{lease_items_});
            break;
        case 18:
            lie(wire::AttachDoneRequest{});
            break;
        case 19:
            // Whoever describes a namespace first decides its size for all of its uid, so this one is
            // rare: it locks others out.
            lie(wire::DescribeRequest{
                world_.some_id(),
                random.one_in(30) ? 1 + random.below(9000) : object_bytes(settings), "flat"});
            break;
        case 21:
            if (random.coin())
                lie(wire::MapSegmentRequest{replicas_[0]});
            else
                lie(wire::RetireSegmentRequest{world_.some_id(), random.below(3)});
            break;
        case 22:
            lie(wire::EngineWorkerRequest{});
            break;
        case 20: {
            std::vector<Memfd *> fds;
            for (const auto &file : world_.memfds())
                if (file->held_by(process_->number) && fds.size() < 3)
                    fds.push_back(file.get());
            const uint64_t pool =
                fds.empty() || random.coin() ? world_.some_id() : fds[0]->ref.pool;
            lie(
                wire::AttachPoolRequest{
                    pool, static_cast<uint64_t>(settings.pool_pages) * settings.page_bytes,
                    static_cast<uint64_t>(settings.segment_pages) * settings.page_bytes,
                    settings.page_bytes, random.below(2), static_cast<uint32_t>(fds.size()), 1},
                fds);
            break;
        }
        default: {
            wire::OpenPoolRequest open;
            open.capacity_bytes = random.one_in(3) ? random.next() : random.below(1 << 20);
            open.page_bytes = random.one_in(3) ? 5000 : settings.page_bytes;
            open.scope = static_cast<wire::Scope>(random.below(3));
            open.medium = static_cast<wire::Medium>(random.below(3));
            open.request_key = 1 + random.below(4);
            lie(open);
        }
    }
}

void Liar::tamper(wire::Request &request) {
    Random &random = world_.random();
    if (random.below(12) != 0)
        return;
    switch (random.below(4)) {
        case 0:
            request.epoch = random.coin() ? static_cast<uint32_t>(random.next())
                                          : wire::id_epoch(world_.some_id());
            break;
        case 1:
            request.acknowledged_op += random.below(5);
            break;
        case 2:
            request.acknowledged_op = random.below(4);
            break;
        default:
            if (auto *commit = std::get_if<wire::CommitRequest>(&request.body)) {
                bent_.assign(commit->items.begin(), commit->items.end());
                wire::CommitItem &item = bent_[random.below(static_cast<uint32_t>(bent_.size()))];
                switch (random.below(5)) {
                    case 0:
                        item.offset += world_.settings().page_bytes;
                        break;
                    case 1:
                        item.generation -= std::min<uint64_t>(item.generation, random.below(9));
                        break;
                    case 2:
                        item.key.digest = digest_of(random.below(world_.settings().keys));
                        break;
                    case 3:
                        item.pool = world_.some_id();
                        break;
                    default:
                        commit->first_op -=
                            std::min<uint64_t>(commit->first_op - 1, random.below(6));
                }
                commit->items = bent_;
            }
    }
}

}  // namespace maru::sim
