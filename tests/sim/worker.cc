// Worker, part 1: what a living session chooses to do next.
//
// It trusts marud: a retire answered Ok is reclaimed even while a local reader is at work, so that a
// wrong answer of marud becomes a wrong byte, which Truth sees.
#include <cassert>

#include "tests/sim/clients.h"
#include "tests/sim/truth.h"

namespace maru::sim {

Worker::Worker(World &world, uint32_t number, uint32_t uid)
    : Endpoint(world, uid), number_(number), engine_("engine-" + std::to_string(number % 3)) {}

void Worker::start_process() {
    process_ = world_.spawn(uid_);
    process_->liar = liar();
    phase_ = Phase::Out;
    for (uint8_t &byte : token_)
        byte = static_cast<uint8_t>(world_.random().next());
    world_.tokens().push_back(token_);
}

void Worker::act() {
    Random &random = world_.random();
    if (!process_) {
        if (!world_.ending() && random.one_in(20))
            start_process();
        return;
    }
    if (!link_) {
        if (world_.ending() && !have_session_) {
            if (left_memory_) {
                world_.kill(process_);
                killed();
            }
            return;
        }
        connect();
        if (link_)
            phase_ = Phase::Greeting;
        return;
    }
    if (world_.settings().cut && !world_.ending() && random.one_in(world_.settings().cut))
        return cut();
    switch (phase_) {
        case Phase::Out:
        case Phase::Opening:
        case Phase::Attaching:
        case Phase::Closing:
            break;
        case Phase::Greeting:  // refused before: ask again
            if (greeted_ && world_.now() >= again_)
                greeted();
            break;
        case Phase::Restoring:
            step_restore();
            break;
        case Phase::Live:
            act_live();
            break;
    }
}

void Worker::act_live() {
    Random &random = world_.random();
    if (world_.ending() || (!leaving_ && random.one_in(3000)))
        leaving_ = true;
    if (keep_alive() || step_names())
        return;
    const uint32_t choice = random.below(20);
    bool did = false;
    if (choice < 6 && !leaving_)
        did = step_store();
    else if (choice < 11)
        did = step_load();
    else if (choice < 13)
        did = step_retire();
    else if (choice < 14)
        did = step_resolve();
    else if (choice < 16)
        did = step_reclaim();
    else if (choice < 18)
        did = step_pools();
    else if (choice < 19)
        did = step_look();
    if (!did)
        step_close() || step_reclaim() || step_resolve();
}

bool Worker::keep_alive() {
    if (world_.now() - last_sent_ < 100'000'000)
        return false;
    std::vector<wire::PoolGauge> gauges;
    for (const Pool &pool : pools_)
        if (pool.state == Pool::Open)
            gauges.push_back({pool.id, 0, 0, 0, 0});
    ask(wire::HeartbeatRequest{gauges});
    return true;
}

// ---- names -------------------------------------------------------------------------------------

wire::Id Worker::name_id(uint32_t text) const {
    auto found = names_.find(text);
    return found == names_.end() ? 0 : found->second;
}

// Now and then a careless caller uses the number of an earlier life of marud.
wire::Id Worker::old_name_id(uint32_t text) const {
    auto found = old_names_.find(text);
    return found == old_names_.end() ? 0 : found->second;
}

bool Worker::step_names() {
    Random &random = world_.random();
    const uint32_t text = random.below(world_.settings().texts);
    if (!name_id(text)) {
        if (asking<wire::RegisterNamespaceRequest>())
            return false;
        const std::string full = text_of(text);
        ask(wire::RegisterNamespaceRequest{full}, {text});
        return true;
    }
    if (described_.count(text) || asking<wire::DescribeRequest>())
        return false;
    ask(wire::DescribeRequest{name_id(text), object_bytes(world_.settings()), "flat"}, {text});
    return true;
}

// ---- pages and objects -------------------------------------------------------------------------

Memfd *Worker::file_of(const Object &object, uint32_t *ret_page) const {
    const Pool &pool = pools_[object.pool];
    const auto per_segment = static_cast<uint32_t>(pool.segment_bytes / pool.page_bytes);
    *ret_page = object.page % per_segment;
    return pool.segments[object.page / per_segment].file;
}

PageValue Worker::value_of(const Object &object) const {
    return {object.name, object.generation, true};
}

wire::CommitItem Worker::item_of(const Object &object) const {
    const Pool &pool = pools_[object.pool];
    wire::CommitItem item;
    item.key = {digest_of(object.name.key), object.name.shard, object.name.part};
    item.pool = pool.id;
    item.offset = static_cast<uint64_t>(object.page) * pool.page_bytes;
    item.length = object_bytes(world_.settings());
    item.generation = object.generation;
    return item;
}

// A contiguous run inside one usable segment, first fit; SIZE_MAX: the pools are full.
size_t Worker::allocate(const ObjectName &name) {
    const uint32_t pages = world_.settings().object_pages;
    for (size_t p = 0; p < pools_.size(); ++p) {
        Pool &pool = pools_[p];
        if (pool.state != Pool::Open)
            continue;
        const auto per_segment = static_cast<uint32_t>(pool.segment_bytes / pool.page_bytes);
        for (size_t s = 0; s < pool.segments.size(); ++s) {
            if (pool.segments[s].state != Segment::Usable)
                continue;
            const auto first = static_cast<uint32_t>(s) * per_segment;
            const uint32_t end =
                std::min<uint32_t>(first + per_segment, static_cast<uint32_t>(pool.used.size()));
            for (uint32_t page = first; page + pages <= end; ++page) {
                bool free = true;
                for (uint32_t i = 0; i < pages; ++i)
                    free &= !pool.used[page + i];
                if (!free)
                    continue;
                for (uint32_t i = 0; i < pages; ++i)
                    pool.used[page + i] = true;
                size_t index = 0;
                while (index < objects_.size() && objects_[index].state != Object::Free)
                    ++index;
                if (index == objects_.size())
                    objects_.emplace_back();
                Object &object = objects_[index];
                object = Object{};
                object.state = Object::Writing;
                object.name = name;
                object.pool = p;
                object.page = page;
                object.pages = pages;
                object.generation = pool.next_generation++;
                return index;
            }
        }
    }
    return SIZE_MAX;
}

void Worker::free_object(size_t index) {
    Object &object = objects_[index];
    for (uint32_t i = 0; i < object.pages; ++i)
        pools_[object.pool].used[object.page + i] = false;
    object.state = Object::Free;
}

size_t Worker::object_at(wire::Id pool, uint64_t offset) const {
    for (size_t i = 0; i < objects_.size(); ++i) {
        const Object &object = objects_[i];
        if (object.state != Object::Free && pools_[object.pool].id == pool &&
            static_cast<uint64_t>(object.page) * pools_[object.pool].page_bytes == offset)
            return i;
    }
    return SIZE_MAX;
}

size_t Worker::object_of(wire::Id replica) const {
    for (size_t i = 0; i < objects_.size(); ++i)
        if (objects_[i].state >= Object::Ready && objects_[i].replica == replica)
            return i;
    return SIZE_MAX;
}

uint32_t Worker::leases_of(size_t object) const {
    uint32_t count = 0;
    for (const Reading &reading : readings_)
        count += reading.object == object && !reading.asked;
    return count;
}

// ---- store -------------------------------------------------------------------------------------

void Worker::commit(const std::vector<size_t> &list, uint64_t first_op) {
    std::vector<wire::CommitItem> items;
    std::vector<uint64_t> about;
    wire::Id ns = name_id(objects_[list[0]].name.text);
    for (size_t i = 0; i < list.size(); ++i) {
        Object &object = objects_[list[i]];
        object.retried = object.state == Object::Unknown;
        object.state = Object::Committing;
        object.op = first_op + i;
        open_ops_.insert(object.op);
        items.push_back(item_of(object));
        about.push_back(list[i]);
    }
    if (world_.random().one_in(60))
        if (const wire::Id old = old_name_id(objects_[list[0]].name.text))
            ns = old;
    ask(wire::CommitRequest{ns, first_op, items}, std::move(about));
}

bool Worker::step_store() {
    Random &random = world_.random();
    const Settings &settings = world_.settings();
    std::vector<size_t> writing, written;
    for (size_t i = 0; i < objects_.size(); ++i) {
        if (pools_.empty() || pools_[objects_[i].pool].state != Pool::Open)
            continue;
        if (objects_[i].state == Object::Writing)
            writing.push_back(i);
        else if (objects_[i].state == Object::Written && described_.count(objects_[i].name.text))
            written.push_back(i);
    }
    if (!written.empty() && random.one_in(2)) {
        std::vector<size_t> list;
        for (const size_t i : written)
            if (objects_[i].name.text == objects_[written[0]].name.text && list.size() < 4)
                list.push_back(i);
        const bool fits = next_op_ + list.size() - 1 <= watermark() + settings.max_ledger;
        if (fits || random.one_in(10)) {
            commit(list, next_op_);
            next_op_ += list.size();
            return true;
        }
    }
    if (!writing.empty() && random.below(4) != 0) {
        // Half a page first: a reader who came now would see it.
        Object &object = objects_[writing[random.below(static_cast<uint32_t>(writing.size()))]];
        uint32_t page;
        Memfd *file = file_of(object, &page);
        const PageValue whole = value_of(object);
        PageValue half = whole;
        half.written = false;
        const uint32_t at = page + object.written / 2;
        world_.write_page(process_, file, at, object.written % 2 == 0 ? half : whole);
        if (++object.written == 2 * object.pages)
            object.state = Object::Written;
        return true;
    }
    if (writing.size() + written.size() > 6)
        return false;
    ObjectName name{random.below(settings.texts), random.below(settings.keys),
                    random.below(settings.shards), random.below(settings.parts)};
    if (!random.one_in(10))
        for (const Object &object : objects_)
            if (object.state != Object::Free && object.name == name)
                return false;
    if (allocate(name) == SIZE_MAX)
        return step_retire();  // full: make room sometimes
    return true;
}

// ---- load --------------------------------------------------------------------------------------

bool Worker::step_load() {
    Random &random = world_.random();
    const Settings &settings = world_.settings();
    std::vector<wire::ReplicaName> names;
    std::vector<uint64_t> about;
    for (Reading &reading : readings_) {
        if (!reading.done && random.one_in(leaving_ ? 2 : 8)) {
            reading.done = true;  // the bytes were right until now, or Truth had spoken
            world_.truth().end_read(reading.number);
        }
        if (reading.done && !reading.asked && names.size() < 8) {
            reading.asked = true;
            names.push_back(reading.name);
            about.push_back(reading.number);
        }
    }
    if (!names.empty()) {
        ask(wire::ReleaseRequest{names}, std::move(about));
        return true;
    }
    if (leaving_ || readings_.size() > 12 || asked_.size() > 16)
        return false;
    const uint32_t text = random.below(settings.texts);
    if (!name_id(text))
        return false;
    wire::Id ns = name_id(text);
    if (random.one_in(60) && old_name_id(text))
        ns = old_name_id(text);
    std::vector<wire::Digest> digests;
    about = {text};
    const uint32_t count = random.between(1, 4);
    for (uint32_t i = 0; i < count; ++i) {
        about.push_back(random.below(settings.keys));
        digests.push_back(digest_of(static_cast<uint32_t>(about.back())));
    }
    const wire::Manifest manifest{0, settings.shards, 0, settings.parts};
    ask(wire::AcquireRequest{ns, digests, manifest, random.one_in(4)}, std::move(about));
    return true;
}

// ---- retire and reclaim ------------------------------------------------------------------------

bool Worker::step_retire() {
    Random &random = world_.random();
    std::vector<wire::ReplicaName> names;
    std::vector<uint64_t> about;
    for (size_t i = 0; i < objects_.size() && names.size() < 3; ++i) {
        Object &object = objects_[i];
        if (object.state != Object::Free && pools_[object.pool].state != Pool::Open)
            continue;
        const bool again = object.state == Object::Retiring && !object.retire_asked;
        if (again || (object.state == Object::Ready && !leaving_ && random.one_in(12))) {
            object.state = Object::Retiring;
            object.retire_asked = true;
            names.push_back({object.replica, object.generation});
            about.push_back(i);
        }
    }
    if (names.empty())
        return false;
    ask(wire::RetireRequest{names}, std::move(about));
    return true;
}

bool Worker::step_reclaim() {
    std::vector<wire::ReplicaName> names;
    std::vector<uint64_t> about;
    for (size_t i = 0; i < objects_.size() && names.size() < 4; ++i) {
        Object &object = objects_[i];
        if (object.state != Object::Reclaimable)
            continue;
        object.state = Object::Acking;
        names.push_back({object.replica, object.generation});
        about.push_back(i);
    }
    if (names.empty())
        return false;
    ask(wire::ReclaimAckRequest{names}, std::move(about));
    return true;
}

bool Worker::step_resolve() {
    if (asking<wire::ResolveRequest>() || asking<wire::CommitRequest>())
        return false;
    for (size_t i = 0; i < objects_.size(); ++i) {
        Object &object = objects_[i];
        if (object.state != Object::Unknown)
            continue;
        if (!object.old_life && described_.count(object.name.text) && world_.random().coin())
            commit({i}, object.op);  // the same operation again
        else
            ask(wire::ResolveRequest{object.op, 1}, {i});
        return true;
    }
    return false;
}

bool Worker::step_look() {
    Random &random = world_.random();
    const Settings &settings = world_.settings();
    if (random.one_in(4)) {
        for (const Pool &pool : pools_)
            if (pool.state == Pool::Open) {
                ask(wire::UsageRequest{pool.id});
                return true;
            }
        return false;
    }
    const uint32_t text = random.below(settings.texts);
    wire::Id ns = random.one_in(20) && old_name_id(text) ? old_name_id(text) : name_id(text);
    if (!ns)
        return false;
    std::vector<wire::Digest> digests;
    for (uint32_t i = 0; i < settings.keys; ++i)
        digests.push_back(digest_of(i));
    ask(wire::ProbeRequest{ns, digests, {0, settings.shards, 0, settings.parts}, random.coin()});
    return true;
}

}  // namespace maru::sim
