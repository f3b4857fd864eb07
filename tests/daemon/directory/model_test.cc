// The directory against a model of maps and loops, over random requests.
//
// MARU_TEST_SEED=N runs that seed alone; a failure prints the seed that it came from.
#include "tests/daemon/directory/model.h"

#include <cstdlib>
#include <random>

#include "tests/daemon/directory/fixture.h"

namespace maru {
namespace {

using wire::Status;

constexpr uint32_t kHolders = 8;  // more than the few that a replica's ring is searched for
constexpr uint64_t kKeys = 12;

class Comparison {
  public:
    explicit Comparison(uint64_t seed)
        : random_(seed), directory_({.epoch = kEpoch, .hash_seed = seed}) {
        for (const char *text : {"a", "b", "c"}) {
            NamespaceIndex ns = 0;
            EXPECT_EQ(directory_.register_namespace(1000, text, &ns), Status::Ok);
            model_.object_bytes[ns] = 0;
            namespaces_.push_back(ns);
        }
        // The third is described: every object in it has three pages less a byte.
        EXPECT_EQ(directory_.describe_namespace(namespaces_[2], 3 * kPage - 1, "x"), Status::Ok);
        model_.object_bytes[namespaces_[2]] = 3 * kPage - 1;
    }

    void run(int steps) {
        for (int step = 0; step < steps && !testing::Test::HasFailure(); ++step) {
            one_step();
            if (step % 64 == 0)
                compare_everything();
        }
        compare_everything();
    }

  private:
    uint64_t below(uint64_t n) { return random_() % n; }
    HolderIndex some_holder() { return static_cast<HolderIndex>(below(kHolders)); }
    NamespaceIndex some_namespace() { return namespaces_[below(namespaces_.size())]; }
    wire::Key some_key() {
        return key_of(below(kKeys), static_cast<uint32_t>(below(2)),
                      static_cast<uint32_t>(below(2)));
    }
    PoolIndex some_pool() {
        if (model_.pools.empty())
            return 0;
        return std::next(model_.pools.begin(), static_cast<long>(below(model_.pools.size())))
            ->first;
    }
    wire::ReplicaName some_name() {
        wire::ReplicaName name{};
        if (!model_.gone.empty() && below(8) == 0)
            name = model_.gone[below(model_.gone.size())];
        else if (!model_.replicas.empty())
            name = model_.replicas[below(model_.replicas.size())].name;
        if (below(64) == 0)
            name.replica ^= uint64_t{1} << 40;  // another epoch
        if (below(64) == 0)
            ++name.generation;
        return name;
    }
    // What every operation on a name answers before anything else; Ok: it is alive.
    Status status_of(const wire::ReplicaName &name) {
        if (wire::id_epoch(name.replica) != kEpoch)
            return Status::StaleEpoch;
        if (model_.find(name))
            return Status::Ok;
        return wire::id_number(name.replica) && wire::id_number(name.replica) <= highest_
                   ? Status::StaleGeneration
                   : Status::NotFound;
    }

    void one_step() {
        switch (below(24)) {
            case 0:
                return pools();
            case 1:
                if (below(4) == 0) {
                    const HolderIndex holder = some_holder();
                    const auto domain = static_cast<uint32_t>(below(3));
                    directory_.set_host_domain(holder, model_.host_domains[holder] = domain);
                    return;
                }
                return gates();
            case 2:
                return retire_many();
            case 3:
                return holders();
            case 4:
                return set_lease();
            case 5:
                return take_drained();
            case 6:
                return publish(true);
            case 7:
            case 8:
            case 9:
            case 10:
            case 11:
                return publish(false);
            case 12:
            case 13:
            case 14:
                return acquire();
            case 15:
            case 16:
            case 17:
                return probe();
            case 18:
            case 19:
                return release();
            case 20:
            case 21:
                return retire();
            default:
                return reclaim();
        }
    }

    void pools() {
        if (model_.pools.size() < 5) {
            PoolSpec spec;
            spec.id = wire::make_id(kEpoch, static_cast<uint32_t>(below(1000)));
            spec.owner = some_holder();
            spec.domain = static_cast<uint32_t>(below(3));
            spec.scope = below(2) ? wire::Scope::Worker : wire::Scope::Host;
            spec.tier = below(8) ? wire::Tier::L1 : wire::Tier::L2;
            spec.page_bytes = kPage;
            spec.segment_bytes = (70 + below(100)) * kPage;
            spec.capacity_bytes = spec.segment_bytes + below(100) * kPage;
            const PoolIndex pool = directory_.add_pool(spec);
            EXPECT_FALSE(model_.pools.count(pool));
            model_.pools[pool].spec = spec;
        } else if (below(8) == 0) {
            const PoolIndex pool = some_pool();
            directory_.remove_pool(pool);
            std::vector<wire::ReplicaName> names;
            for (const Model::Replica &replica : model_.replicas)
                if (replica.pool == pool)
                    names.push_back(replica.name);
            for (const wire::ReplicaName &name : names)
                model_.remove(name);
            model_.pools.erase(pool);
        }
    }

    void gates() {
        if (model_.pools.empty())
            return;
        const PoolIndex index = some_pool();
        Model::Pool &pool = model_.pools.at(index);
        const bool on = below(2);
        switch (below(4)) {
            case 0:
                directory_.set_visible(index, pool.visible = on);
                break;
            case 1:
                directory_.set_closing(index, pool.closing = on && below(2));
                break;
            default: {
                const auto segment = static_cast<uint32_t>(
                    below((pool.spec.capacity_bytes - 1) / pool.spec.segment_bytes + 1));
                directory_.grant_segment(index, segment);
                pool.granted.insert(segment);
            }
        }
    }

    void publish(bool republish) {
        const NamespaceIndex ns = below(64) ? some_namespace() : 99;
        const PoolIndex pool = below(64) ? some_pool() : 77;
        wire::CommitItem item{some_key(), 0, below(180) * kPage, 0, 0};
        item.length = ns == namespaces_[2] && below(16) ? 3 * kPage - 1 : (1 + below(2)) * kPage;
        item.generation = below(6) ? ++generation_ : 1 + below(generation_ + 1);
        if (below(100) == 0)
            item.length = below(2) ? 0 : ~uint64_t{0} - below(kPage);
        if (below(100) == 0)
            item.offset = below(2) ? random_() : item.offset + 1;
        if (below(24) == 0)
            item.length = (64 + below(64)) * kPage;
        if (republish && below(2) && !model_.replicas.empty()) {
            const Model::Replica &twin = model_.replicas[below(model_.replicas.size())];
            item = {twin.key, 0, twin.offset, twin.length, twin.name.generation};
        }
        const bool retiring = republish && below(4) == 0;
        const Model::Verdict verdict = model_.judge(ns, pool, item, republish);
        const wire::CommitResult result = republish ? directory_.republish(ns, pool, item, retiring)
                                                    : directory_.commit(ns, pool, item);
        ASSERT_EQ(result.status, verdict.status) << (republish ? "republish" : "commit");
        if (!verdict.any_of.empty()) {
            ASSERT_TRUE(std::count(verdict.any_of.begin(), verdict.any_of.end(), result.replica));
        }
        if (result.status != Status::Ok)
            return;
        if (verdict.any_of.empty()) {
            ASSERT_EQ(wire::id_epoch(result.replica), kEpoch);
            for (const Model::Replica &other : model_.replicas)
                ASSERT_NE(other.name.replica, result.replica);
            highest_ = std::max(highest_, wire::id_number(result.replica));
            const bool surplus = republish && model_.surplus(ns, pool, item.key);
            model_.add(ns, pool, item, result.replica, !retiring && !surplus);
        }
        Model::Replica &replica = *model_.find({result.replica, item.generation});
        if (retiring)
            model_.retire(replica);
        if (republish)
            model_.drain_if_unread(replica);
    }

    std::vector<wire::Digest> some_keys(std::vector<uint64_t> &numbers) {
        std::vector<wire::Digest> keys;
        for (uint64_t i = below(100); i > 0; --i) {
            numbers.push_back(below(kKeys));
            keys.push_back(digest_of(numbers.back()));
        }
        return keys;
    }
    wire::Manifest some_manifest() {
        if (below(2))
            return {static_cast<uint32_t>(below(2)), 1, static_cast<uint32_t>(below(2)), 1};
        return {0, static_cast<uint32_t>(1 + below(2)), 0, static_cast<uint32_t>(1 + below(3))};
    }
    std::vector<wire::Key> objects(uint64_t number, const wire::Manifest &manifest) {
        std::vector<wire::Key> keys;
        for (uint32_t shard = 0; shard < manifest.shard_count; ++shard)
            for (uint32_t part = 0; part < manifest.part_count; ++part)
                keys.push_back(
                    key_of(number, manifest.first_shard + shard, manifest.first_part + part));
        return keys;
    }
    bool readable(HolderIndex reader, NamespaceIndex ns, uint64_t number,
                  const wire::Manifest &manifest) {
        for (const wire::Key &key : objects(number, manifest))
            if (model_.readable_of(reader, ns, key).empty())
                return false;
        return true;
    }

    void probe() {
        std::vector<uint64_t> numbers;
        const std::vector<wire::Digest> keys = some_keys(numbers);
        const HolderIndex reader = some_holder();
        const NamespaceIndex ns = some_namespace();
        const wire::Manifest manifest = some_manifest();
        const bool stop = below(2);
        std::vector<uint8_t> bitmap((keys.size() + 7) / 8 + 1, 0xaa);
        const uint32_t prefix =
            directory_.probe(reader, ns, keys, manifest, stop, {bitmap.data(), bitmap.size() - 1});
        ASSERT_EQ(bitmap.back(), 0xaa);
        uint32_t expected = 0;
        for (size_t i = 0; i < keys.size(); ++i) {
            const bool hit = readable(reader, ns, numbers[i], manifest) && (!stop || expected == i);
            expected += hit && expected == i;
            ASSERT_EQ(bitmap[i / 8] >> i % 8 & 1, hit) << "key " << i;
        }
        for (size_t i = keys.size(); i < (bitmap.size() - 1) * 8; ++i)
            ASSERT_EQ(bitmap[i / 8] >> i % 8 & 1, 0);
        ASSERT_EQ(prefix, expected);
    }

    void acquire() {
        std::vector<uint64_t> numbers;
        const std::vector<wire::Digest> keys = some_keys(numbers);
        const HolderIndex reader = some_holder();
        const NamespaceIndex ns = some_namespace();
        const wire::Manifest manifest = some_manifest();
        const bool stop = below(2);
        const auto room = static_cast<uint32_t>(below(3) ? 1000 : below(20));
        const uint32_t per_key = manifest.objects();
        std::vector<wire::AcquireResult> results(keys.size() * per_key);
        const uint32_t taken =
            directory_.acquire(reader, ns, keys, manifest, stop, room, 7, results);
        uint32_t expected = 0;
        bool ended = false;
        Status rest = Status::Miss;
        for (size_t i = 0; i < keys.size(); ++i) {
            Status status = Status::Ok;
            if (ended)
                status = rest;
            else if (!readable(reader, ns, numbers[i], manifest))
                status = Status::Miss;
            else if (expected + per_key > room)
                status = Status::Quota;
            if (status != Status::Ok && stop && !ended) {
                ended = true;
                rest = status;
            }
            const std::vector<wire::Key> of_key = objects(numbers[i], manifest);
            for (size_t j = 0; j < per_key; ++j) {
                const wire::AcquireResult &result = results[i * per_key + j];
                ASSERT_EQ(result.status, status) << "key " << i << ", object " << j;
                if (status != Status::Ok) {
                    ASSERT_EQ(result.replica, 0u);
                    continue;
                }
                Model::Replica *replica = model_.find({result.replica, result.generation});
                ASSERT_TRUE(replica);
                ASSERT_TRUE(replica->ns == ns && replica->key == of_key[j]);
                ASSERT_TRUE(model_.readable(reader, *replica));
                ASSERT_EQ(result.pool, model_.pools.at(replica->pool).spec.id);
                ASSERT_EQ(result.offset, replica->offset);
                ASSERT_EQ(result.length, replica->length);
                ++replica->leases[reader];
                model_.unconfirmed[reader].erase(result.replica);
                ++expected;
            }
        }
        ASSERT_EQ(taken, expected);
    }

    void release() {
        const wire::ReplicaName name = some_name();
        HolderIndex holder = some_holder();
        Model::Replica *replica = model_.find(name);
        if (replica && !replica->leases.empty() && below(4))
            holder = replica->leases.begin()->first;
        Status expected = status_of(name);
        if (expected == Status::Ok && !replica->leases.count(holder))
            expected = Status::NotFound;
        ASSERT_EQ(directory_.release(holder, name), expected);
        if (expected != Status::Ok)
            return;
        if (replica->leases[holder] == 1)
            model_.end_lease(*replica, holder);
        else
            --replica->leases[holder];
    }

    void set_lease() {
        const wire::ReplicaName name = some_name();
        const HolderIndex holder = some_holder();
        const auto count = static_cast<uint32_t>(below(3));
        Model::Replica *replica = model_.find(name);
        Status expected = status_of(name);
        if (expected == Status::Ok && !model_.may_read(holder, replica->pool))
            expected = Status::Denied;
        ASSERT_EQ(directory_.set_lease(holder, name, count, 3), expected);
        if (expected != Status::Ok)
            return;
        if (!count)
            return model_.end_lease(*replica, holder);
        replica->leases[holder] = count;
        model_.unconfirmed[holder].erase(name.replica);
    }

    void holders() {
        const HolderIndex holder = some_holder();
        switch (below(4)) {
            case 0:
                directory_.drop_holder(holder);
                return model_.drop_holder(holder, false);
            case 1:
                directory_.end_lease_restore(holder);
                return model_.drop_holder(holder, true);
            default:
                directory_.begin_lease_restore(holder);
                for (const Model::Replica &replica : model_.replicas)
                    if (replica.leases.count(holder))
                        model_.unconfirmed[holder].insert(replica.name.replica);
        }
    }

    void retire() {
        const wire::ReplicaName name = some_name();
        Model::Replica *replica = model_.find(name);
        const HolderIndex owner = replica && below(4) ? model_.pools.at(replica->pool).spec.owner
                                  : below(2)          ? UINT32_MAX
                                                      : some_holder();
        Status expected = status_of(name);
        if (expected == Status::Ok && owner != UINT32_MAX &&
            owner != model_.pools.at(replica->pool).spec.owner)
            expected = Status::Denied;
        if (expected == Status::Ok) {
            model_.retire(*replica);
            expected = replica->leases.empty() ? Status::Ok : Status::Pending;
        }
        ASSERT_EQ(directory_.retire(name, owner), expected);
    }

    void retire_many() {
        if (below(4) == 0) {
            if (model_.pools.empty())
                return;
            const PoolIndex pool = some_pool();
            for (Model::Replica &replica : model_.replicas)
                if (replica.pool == pool)
                    model_.retire(replica);
            directory_.retire_pool(pool);
            ASSERT_FALSE(directory_.sweeping());  // so few go at once
            return;
        }
        const NamespaceIndex ns = some_namespace();
        const wire::Key key = some_key();
        const bool whole = below(16) == 0;
        std::map<wire::Id, bool> expected, told;
        for (Model::Replica &replica : model_.replicas) {
            if (!replica.ready || replica.ns != ns || (!whole && replica.key != key))
                continue;
            model_.retire(replica);
            expected[replica.name.replica] = !replica.leases.empty();
        }
        const uint64_t count =
            directory_.retire_object(ns, whole ? nullptr : &key,
                                     [&](PoolIndex pool, const wire::ReplicaName &name, bool read) {
                                         ASSERT_TRUE(model_.find(name));
                                         ASSERT_EQ(model_.find(name)->pool, pool);
                                         told[name.replica] = read;
                                     });
        ASSERT_EQ(count, expected.size());
        ASSERT_EQ(told, expected);
    }

    void reclaim() {
        const wire::ReplicaName name = some_name();
        Model::Replica *replica = model_.find(name);
        const HolderIndex owner =
            replica && below(8) ? model_.pools.at(replica->pool).spec.owner : some_holder();
        Status expected = status_of(name);
        if (expected == Status::Ok) {
            if (owner != model_.pools.at(replica->pool).spec.owner)
                expected = Status::Denied;
            else if (replica->ready)
                expected = Status::InvalidArgument;
            else if (!replica->leases.empty())
                expected = Status::Busy;
        }
        ASSERT_EQ(directory_.reclaim(name, owner), expected);
        if (expected == Status::Ok)
            model_.remove(name);
    }

    void take_drained() {
        std::map<uint64_t, PoolIndex> told;
        for (const DrainedReplica &drained : directory_.take_drained()) {
            ASSERT_TRUE(model_.find(drained.name));
            ASSERT_TRUE(told.emplace(drained.name.replica, drained.pool).second);
        }
        // One that was leased again after it drained is not told now.
        std::map<uint64_t, PoolIndex> expected;
        for (const Model::Replica &replica : model_.replicas)
            if (model_.drained.count(replica.name.replica) && replica.leases.empty())
                expected[replica.name.replica] = replica.pool;
        ASSERT_EQ(told, expected);
        model_.drained.clear();
    }

    void compare_everything() {
        ASSERT_EQ(directory_.check_invariants(), "");
        uint64_t leases = 0;
        std::set<std::pair<NamespaceIndex, wire::Key>> objects;
        for (const Model::Replica &replica : model_.replicas) {
            leases += replica.sum();
            objects.emplace(replica.ns, replica.key);
            for (HolderIndex holder = 0; holder < kHolders; ++holder)
                ASSERT_EQ(directory_.lease_count(holder, replica.name),
                          replica.leases.count(holder) ? replica.leases.at(holder) : 0);
        }
        const Directory::Totals totals = directory_.totals();
        ASSERT_EQ(totals.replicas, model_.replicas.size());
        ASSERT_EQ(totals.objects, objects.size());
        ASSERT_EQ(totals.leases, leases);
        ASSERT_EQ(totals.pools, model_.pools.size());
        for (HolderIndex holder = 0; holder < kHolders; ++holder)
            ASSERT_EQ(directory_.holder_leases(holder), model_.held_by(holder));
        for (const auto &[index, pool] : model_.pools) {
            uint64_t ready = 0, ready_pages = 0, retiring = 0, count = 0, held = 0;
            for (const Model::Replica &replica : model_.replicas) {
                if (replica.pool != index)
                    continue;
                const uint64_t pages = (replica.length + kPage - 1) / kPage * kPage;
                ++count;
                held += replica.sum();
                ready += replica.ready ? replica.length : 0;
                (replica.ready ? ready_pages : retiring) += pages;
            }
            const wire::Usage usage = directory_.pool_usage(index);
            ASSERT_EQ(usage.ready_bytes, ready);
            ASSERT_EQ(usage.ready_allocated_bytes, ready_pages);
            ASSERT_EQ(usage.retiring_bytes, retiring);
            ASSERT_EQ(usage.replicas, count);
            ASSERT_EQ(usage.leases, held);
            ASSERT_EQ(directory_.pool_leases(index), held);
        }
        std::set<wire::Id> listed;
        uint64_t cursor = 0;
        do {
            std::vector<Directory::ReplicaView> page;
            cursor = directory_.list_replicas(cursor, 0, 3, page);
            ASSERT_LE(page.size(), 3u);
            for (const Directory::ReplicaView &view : page) {
                const Model::Replica *replica = model_.find(view.name);
                ASSERT_TRUE(replica);
                ASSERT_TRUE(listed.insert(view.name.replica).second);
                ASSERT_EQ(view.state == ReplicaState::Ready, replica->ready);
                ASSERT_EQ(view.leases, replica->sum());
                ASSERT_TRUE(view.ns == replica->ns && view.key == replica->key);
            }
        } while (cursor);
        ASSERT_EQ(listed.size(), model_.replicas.size());
    }

    std::mt19937_64 random_;
    Directory directory_;
    Model model_;
    std::vector<NamespaceIndex> namespaces_;
    uint64_t generation_ = 0;
    uint32_t highest_ = 0;  // number of any replica so far
};

class ModelTest : public testing::TestWithParam<uint64_t> {};

TEST_P(ModelTest, DirectoryAnswersAsTheModelDoes) {
    const char *chosen = std::getenv("MARU_TEST_SEED");
    const uint64_t seed = chosen ? std::strtoull(chosen, nullptr, 0) : GetParam();
    SCOPED_TRACE("MARU_TEST_SEED=" + std::to_string(seed));
    Comparison(seed).run(8000);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ModelTest, testing::Range<uint64_t>(1, 7));

}  // namespace
}  // namespace maru
