// AcquireOp: leases on what this process published itself, and on what others of the uid did.
//
// A lease that marud gave is either in a caller's hands afterwards or given back; a key is held with
// all its objects or with none.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "libmaru/client/batch_ops.h"
#include "libmaru/client/pool.h"

namespace maru::client {

using wire::Status;

void AcquireOp::set(Namespace &ns, const wire::Digest *keys, uint32_t count,
                    const wire::Manifest &manifest, bool prefix_only, void **ret_leases) {
    begin(count);
    ns_ = &ns;
    keys_ = keys;
    count_ = count;
    manifest_ = manifest;
    prefix_only_ = prefix_only;
    ret_leases_ = ret_leases;
    views_wanted_ = 0;
    view_failed_ = {};
    expected_ = 0;
    taken_.assign(size_t{count} * manifest.objects(), HeldTable::kNone);
    // The answers may come in a thread that has nobody to tell of a lack of memory.
    const uint64_t acquiring = session_.acquiring + taken_.size();
    session_.held().reserve(session_.ledger().unsettled() + acquiring);
    session_.map_op().reserve(acquiring);
    expected_ = static_cast<uint32_t>(taken_.size());
    session_.acquiring = acquiring;
}

void AcquireOp::recycle() {
    session_.acquiring -= std::exchange(expected_, 0);
    session_.acquires.idle.push_back(this);
}

void AcquireOp::next(wire::RequestBody &body, Part &part) {
    const uint32_t most = session_.transport().limits().batch_items / manifest_.objects();
    take(std::max(most, 1u), part);
    body = wire::AcquireRequest{ns_->id, {keys_ + part.first, part.count}, manifest_, prefix_only_};
}

// A location is believed only where this process itself published that generation.
inline uint32_t AcquireOp::checked(const wire::AcquireResult &result) const {
    const HeldTable &table = session_.held();
    const uint32_t held = table.find_replica(result.replica);
    if (held == HeldTable::kNone)
        return HeldTable::kNone;
    const Held &entry = table[held];
    if (!entry.pool || entry.pool->closing())  // of a pool that is left, unmapped perhaps
        return HeldTable::kNone;
    const bool same = entry.ns == ns_ && entry.pool->id() == result.pool &&
                      entry.run.offset == result.offset && entry.run.length == result.length &&
                      entry.run.generation == result.generation && entry.state == HeldState::Ready;
    return same ? held : HeldTable::kNone;
}

// In somebody else's pool, or one that marud keeps. What marud says of it is believed: there is
// nothing here to compare it with but what the view's own place and seals allow.
uint32_t AcquireOp::take_foreign(const wire::AcquireResult &result, uint32_t index) {
    HeldTable &table = session_.held();
    uint32_t held = table.find_replica(result.replica);
    if (held != HeldTable::kNone) {
        const Held &entry = table[held];
        if (entry.state != HeldState::Foreign || entry.ns != ns_ || entry.pool_id != result.pool ||
            entry.run != pool::PageRun{result.offset, result.length, result.generation})
            return HeldTable::kNone;
    } else {
        const uint32_t objects = manifest_.objects(), object = index % objects;
        const wire::Key key{keys_[index / objects],
                            manifest_.first_shard + object / manifest_.part_count,
                            manifest_.first_part + object % manifest_.part_count};
        held = table.add_foreign(ns_, result.pool, key, result.replica,
                                 {result.offset, result.length, result.generation});
    }
    session_.take_lease(held);
    taken_[index] = held;
    if (!session_.map_op().want(held, *this, index))
        ++views_wanted_;
    return held;
}

void AcquireOp::view_ready(uint32_t index, bool ready, const Error &why) {
    --views_wanted_;
    if (why.code != 0 && view_failed_.code == 0)
        view_failed_ = why;
    const uint32_t objects = manifest_.objects();
    if (ready || taken_[index] == HeldTable::kNone)
        return;
    give_back(index / objects * objects, (index / objects + 1) * objects);
}

bool AcquireOp::on_reply(const Part &part, const wire::ReplyBody &body, std::vector<UniqueFd> &,
                         bool) {
    if (failed(body))
        return true;
    const auto *reply = std::get_if<wire::AcquireReply>(&body);
    const uint32_t objects = manifest_.objects();
    if (!reply || reply->results.size() != size_t{part.count} * objects) {
        fail(EPROTO, "marud answered an acquire with another number of objects than asked");
        return false;  // which leases it gave is not known: attach tells it which we have
    }
    // Nearly always all in the same pool.
    wire::Id pool = 0;
    bool own = session_.find_pool(pool) != nullptr;
    const auto in_own_pool = [&](wire::Id id) {
        if (id != std::exchange(pool, id))
            own = session_.find_pool(id) != nullptr;
        return own;
    };
    uint32_t first_miss = part.count;
    for (uint32_t key = 0; key < part.count; ++key) {
        const auto results = reply->results.subspan(size_t{key} * objects, objects);
        const size_t at = size_t{part.first + key} * objects;
        bool whole = true;
        for (uint32_t i = 0; i < objects; ++i) {
            if (results[i].status == Status::Quota)
                fail(EDQUOT, "the session has all the leases that marud allows it");
            if (results[i].status != Status::Ok) {
                whole = false;
                continue;
            }
            if (!detached() && !in_own_pool(results[i].pool)) {
                const auto index = static_cast<uint32_t>(at + i);
                if (take_foreign(results[i], index) == HeldTable::kNone) {
                    session_.stray_lease(results[i].replica, results[i].generation);
                    whole = false;
                }
                continue;
            }
            const uint32_t held = checked(results[i]);
            if (held == HeldTable::kNone) {
                // Withdrawn here while the answer was on its way, or not ours at all.
                const uint32_t known = session_.held().find_replica(results[i].replica);
                if (known != HeldTable::kNone && session_.held()[known].pool &&
                    session_.held()[known].run.generation == results[i].generation) {
                    ++session_.held()[known].told_leases;
                    session_.drop_lease(known, true);
                } else {
                    session_.stray_lease(results[i].replica, results[i].generation);
                }
                whole = false;
                continue;
            }
            session_.take_lease(held);
            taken_[at + i] = held;
        }
        if (!whole || detached()) {
            give_back(static_cast<uint32_t>(at), static_cast<uint32_t>(at + objects));
            first_miss = std::min(first_miss, key);
        }
    }
    if (prefix_only_ && first_miss < part.count)
        drop_after(part.first + first_miss);
    return true;
}

void AcquireOp::give_back(uint32_t first_object, uint32_t end_object) {
    session_.transport().cork();
    for (uint32_t i = first_object; i < end_object; ++i) {
        if (taken_[i] != HeldTable::kNone)
            session_.drop_lease(taken_[i], false);
        taken_[i] = HeldTable::kNone;
    }
    session_.transport().uncork();
}

void AcquireOp::on_detach(int code) {
    BatchOp::on_detach(code);
    session_.map_op().forget(*this);
    views_wanted_ = 0;
    give_back(0, static_cast<uint32_t>(taken_.size()));
}

Outcome AcquireOp::complete() {
    const uint32_t objects = manifest_.objects();
    const auto end = static_cast<uint32_t>(taken_.size());
    int64_t chunks = 0;
    if (code() != 0) {
        give_back(0, end);
        std::fill(ret_leases_, ret_leases_ + end, nullptr);
        return failure();
    }
    session_.leases().reserve(end);  // before anything is written: may throw
    bool prefix = true;
    for (uint32_t key = 0; key < count_; ++key) {
        const uint32_t at = key * objects;
        const bool whole = taken_[at] != HeldTable::kNone;
        prefix = prefix && whole;
        if (prefix_only_ && !prefix)
            give_back(at, at + objects);
        else if (whole)
            ++chunks;
        for (uint32_t i = at; i < at + objects; ++i) {
            if (taken_[i] == HeldTable::kNone) {
                ret_leases_[i] = nullptr;
                continue;
            }
            const Held &entry = session_.held()[taken_[i]];
            const std::byte *data =
                entry.pool ? entry.pool->at(entry.run.offset) : entry.view->at(entry.run.offset);
            ret_leases_[i] = session_.leases().add(&session_, taken_[i], data, entry.run.length,
                                                   entry.run.generation);
        }
    }
    if (chunks == 0 && view_failed_.code != 0)  // else what is there would look like a miss
        return {-int64_t{view_failed_.code}, "acquire: " + view_failed_.message};
    return {chunks, {}};
}

}  // namespace maru::client
