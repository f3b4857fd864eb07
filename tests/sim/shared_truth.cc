#include "tests/sim/shared_truth.h"

#include "tests/sim/truth.h"
#include "tests/sim/world.h"

namespace maru::sim {

using wire::Status;
using ull = unsigned long long;

Memfd *SharedTruth::file_of(const Place &place) const {
    auto pool = pools_.find(place.pool);
    if (pool == pools_.end())
        return nullptr;
    return world_.memfd(
        {place.pool, static_cast<uint32_t>(place.offset / pool->second.segment_bytes)});
}

void SharedTruth::check_pages(const Place &place, const Copy &copy, const char *when) const {
    const Memfd *file = file_of(place);
    if (!file || !file->future_sealed)
        violated(Rule::ReadyAfterWrite,
                 "%s: shared offset %llx of pool %llx is not in a sealed file", when,
                 static_cast<ull>(place.offset), static_cast<ull>(place.pool));
    const uint64_t start = place.offset % pools_.at(place.pool).segment_bytes;
    for (uint64_t at = start; at < start + copy.length; at += file->page_bytes) {
        const PageValue &value = file->pages.at(at / file->page_bytes);
        if (!value.written || value.object != copy.name || value.generation != copy.generation)
            violated(Rule::ReadyAfterWrite,
                     "%s: shared key %u generation %llu lies on a page with key %u generation "
                     "%llu%s",
                     when, copy.name.key, static_cast<ull>(copy.generation), value.object.key,
                     static_cast<ull>(value.generation), value.written ? "" : ", half written");
    }
}

// ---- the record --------------------------------------------------------------------------------

void SharedTruth::recorded(const ObjectRecord &fact) {
    if (const auto *ns = std::get_if<RecordedNamespace>(&fact)) {
        texts_[ns->number] = {world_.truth().text_index(ns->text), ns->uid};
    } else if (const auto *object = std::get_if<RecordedObject>(&fact)) {
        auto text = texts_.find(object->ns);
        auto pool = pools_.find(object->item.pool);
        if (text == texts_.end() || pool == pools_.end())
            violated(Rule::NamespaceIsolation, "an object of no namespace or pool is recorded");
        const Place place{object->item.pool, object->item.offset};
        const Copy copy{object->item.generation,
                        object->item.length,
                        {text->second.text, key_of(object->item.key.digest), object->item.key.shard,
                         object->item.key.part},
                        pool->second.uid};
        check_pages(place, copy, "record");
        copies_[place] = copy;
        ++statistics_.stored;
    } else if (const auto *retired = std::get_if<RecordedRetirement>(&fact)) {
        auto found = copies_.find({retired->pool, retired->offset});
        if (found != copies_.end() && found->second.generation == retired->generation)
            copies_.erase(found);
        ++statistics_.retired;
    } else if (const auto *adopted = std::get_if<RecordedAdoption>(&fact)) {
        Memfd *file = world_.memfd(adopted->segment);
        if (!file || !file->with_daemon || !file->write_sealed)
            violated(Rule::ContentImmutable,
                     "segment %llx/%u is adopted while somebody may write it",
                     static_cast<ull>(adopted->segment.pool), adopted->segment.segment);
        file->adopted = true;
        ++statistics_.adopted;
    } else if (const auto *end = std::get_if<RecordedEnd>(&fact)) {
        const bool whole = end->segment.segment == UINT32_MAX;
        std::erase_if(copies_, [&](const auto &entry) {
            if (entry.first.pool != end->segment.pool)
                return false;
            const Memfd *file = file_of(entry.first);
            if (whole)
                return !file || !file->adopted;
            return entry.first.offset / pools_.at(entry.first.pool).segment_bytes ==
                   end->segment.segment;
        });
    }
}

// What the new life believes: no more than was true, and all of it that marud can still show.
void SharedTruth::restarted(std::span<const ObjectRecord> kept) {
    std::map<Place, Copy> believed;
    texts_.clear();
    for (const ObjectRecord &fact : kept) {
        if (const auto *ns = std::get_if<RecordedNamespace>(&fact)) {
            texts_[ns->number] = {world_.truth().text_index(ns->text), ns->uid};
            // marud registers it by itself, before any client does.
            world_.truth().namespace_known(wire::make_id(world_.epoch(), ns->number),
                                           texts_[ns->number].text, ns->uid);
        }
        const auto *object = std::get_if<RecordedObject>(&fact);
        if (!object)
            continue;
        auto found = copies_.find({object->item.pool, object->item.offset});
        if (found == copies_.end() || found->second.generation != object->item.generation ||
            found->second.name.text != texts_[object->ns].text)
            violated(Rule::RetireBlocks,
                     "after a restart offset %llx of pool %llx is READY, which it was not before",
                     static_cast<ull>(object->item.offset), static_cast<ull>(object->item.pool));
        believed.insert(*found);
    }
    copies_.swap(believed);
    for (const auto &[place, copy] : believed) {
        const Memfd *file = file_of(place);
        if (!file || !file->adopted || !file->with_daemon)
            continue;
        if (!any(copy.uid, copy.name, false))
            violated(Rule::HitKept, "key %u is in adopted memory, and is forgotten over a restart",
                     copy.name.key);
        ++statistics_.kept_over_restart;
    }
}

void SharedTruth::on_restore(const SessionRecord &record) {
    for (const auto &pool : record.pools)
        if (pool.scope == wire::Scope::Host && !pools_.count(pool.pool)) {
            Pool &known = pools_[pool.pool];
            known.uid = record.uid;
            known.segment_bytes = pool.segment_bytes;
            for (const auto &process : world_.processes())
                if (process->pid == record.pid && process->start_time == record.start_time)
                    known.process = process->number;
        }
}

// ---- replies -----------------------------------------------------------------------------------

bool SharedTruth::any(uint32_t uid, const ObjectName &name, bool adopted_only) const {
    for (const auto &[place, copy] : copies_) {
        if (copy.uid != uid || copy.name != name)
            continue;
        const Memfd *file = file_of(place);
        if (!adopted_only || (file && file->adopted && file->with_daemon))
            return true;
    }
    return false;
}

void SharedTruth::hit(uint32_t uid, const ObjectName &name, const wire::AcquireResult &result,
                      ProcessId64 reader) {
    auto found = copies_.find({result.pool, result.offset});
    if (found == copies_.end() || found->second.generation != result.generation)
        violated(Rule::RetireBlocks, "acquire gives shared offset %llx of pool %llx, not READY",
                 static_cast<ull>(result.offset), static_cast<ull>(result.pool));
    const Copy &copy = found->second;
    if (copy.uid != uid)
        violated(Rule::OwnerIsolation, "uid %u reads shared memory of uid %u", uid, copy.uid);
    if (copy.name.text != name.text)
        violated(Rule::NamespaceIsolation, "acquire of shared text %u gives text %u", name.text,
                 copy.name.text);
    if (copy.name != name || copy.length != result.length)
        violated(Rule::AcquireProtects, "acquire of shared key %u gives key %u", name.key,
                 copy.name.key);
    check_pages(found->first, copy, "acquire");
    const Memfd *file = file_of(found->first);
    const Pool &pool = pools_.at(result.pool);
    for (const auto &process : world_.processes())
        if (process->number == pool.process && !process->alive && process->reported &&
            !file->adopted)
            violated(Rule::OwnerIsolation,
                     "memory of an exited worker is a hit before it is proven and adopted");
    ++(file->adopted            ? statistics_.adopted_hits
       : pool.process == reader ? statistics_.own_hits
                                : statistics_.foreign_hits);
}

void SharedTruth::segment_retired(const Link &link,
                                  const wire::RetireSegmentRequest &request) const {
    const auto pool = pools_.find(request.pool);
    if (pool != pools_.end() && pool->second.uid != link.process->uid && !link.process->admin)
        violated(Rule::OwnerIsolation, "uid %u retires a shared segment of uid %u",
                 link.process->uid, pool->second.uid);
}

void SharedTruth::viewed(const Link &link, const wire::Reply &reply, std::span<Memfd *const> fds) {
    const auto *view = std::get_if<wire::ViewReply>(&reply.body);
    const auto pool = view ? pools_.find(view->pool) : pools_.end();
    if (pool != pools_.end() && pool->second.uid != link.process->uid)
        violated(Rule::OwnerIsolation, "uid %u is given a view of memory of uid %u",
                 link.process->uid, pool->second.uid);
    if (fds.size() != 1 || !(fds[0]->future_sealed || fds[0]->write_sealed))
        violated(Rule::OwnerIsolation, "a reader is given a file that could be mapped writable");
    ++statistics_.views;
}

void SharedTruth::on_reply(const Link &link, const wire::Request &request,
                           const wire::Reply &reply) {
    const uint32_t uid = link.process->uid;
    if (const auto *opened = std::get_if<wire::PoolReply>(&reply.body)) {
        pools_[opened->pool] = {link.process->number, uid, opened->segment_bytes};
    } else if (std::holds_alternative<wire::SegmentReply>(reply.body)) {
        const auto &grant = std::get<wire::GrantSegmentRequest>(request.body);
        auto pool = pools_.find(grant.pool);
        if (pool == pools_.end() || pool->second.process != link.process->number)
            violated(Rule::OwnerIsolation, "a writable descriptor of a shared pool for a stranger");
    } else if (const auto *answer = std::get_if<wire::CommitReply>(&reply.body)) {
        const auto &commit = std::get<wire::CommitRequest>(request.body);
        for (size_t i = 0; i < answer->results.size(); ++i) {
            const wire::CommitItem &item = commit.items[i];
            const uint32_t text = world_.truth().text_of_id(commit.namespace_id);
            const ObjectName name{text, key_of(item.key.digest), item.key.shard, item.key.part};
            if (answer->results[i].status == Status::AlreadyPresent && !any(uid, name, false))
                violated(Rule::AcquireProtects, "ALREADY_PRESENT for shared key %u, which is not",
                         name.key);
        }
    } else if (const auto *acquired = std::get_if<wire::AcquireReply>(&reply.body)) {
        const auto &acquire = std::get<wire::AcquireRequest>(request.body);
        const uint32_t text = world_.truth().text_of_id(acquire.namespace_id);
        bool missed = false;
        for (size_t i = 0; i < acquired->results.size(); ++i) {
            const wire::AcquireResult &result = acquired->results[i];
            const ObjectName name{text, key_of(acquire.keys[i]), 0, 0};
            if (result.status == Status::Ok)
                hit(uid, name, result, link.process->number);
            else if (result.status == Status::Miss && !(missed && acquire.stop_at_miss) &&
                     any(uid, name, true))
                violated(Rule::HitKept, "shared key %u is adopted, and acquire misses", name.key);
            missed |= result.status != Status::Ok;
        }
    } else if (const auto *probed = std::get_if<wire::ProbeReply>(&reply.body)) {
        const auto &probe = std::get<wire::ProbeRequest>(request.body);
        const uint32_t text = world_.truth().text_of_id(probe.namespace_id);
        for (size_t i = 0; i < probe.keys.size(); ++i)
            if (probed->bitmap[i / 8] >> (i % 8) & 1)
                if (const ObjectName name{text, key_of(probe.keys[i]), 0, 0};
                    !any(uid, name, false))
                    violated(Rule::OwnerIsolation,
                             "a probe of uid %u hits shared key %u, which it "
                             "has not",
                             uid, name.key);
    }
}

}  // namespace maru::sim
