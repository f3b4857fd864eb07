// The control path: probe, acquire + release and commit, both ends asleep or both spinning.
#include <maru/maru.h>

#include "tests/bench/cases/cases.h"
#include "tests/bench/client_worker.h"
#include "tests/bench/marud_process.h"
#include "tests/bench/redis.h"

namespace maru::bench {

namespace {

constexpr size_t kCommit = 256;
constexpr char kPingPong[] = "floor: socket ping-pong";

struct Control {
    PinnedClient pinned;
    MarudProcess marud;
    Worker worker;
    PingPong ping;
    LookupTable table;
    std::vector<maru_digest> digests;  // of all objects, in an order of no meaning
    size_t next = 0;

    Control(const Plan &plan, Wait wait, size_t objects, size_t commits)
        : marud({plan.marud, spin_us(wait), server_cpu(), "64G", ""}),
          worker({marud.socket_path(), "control", 4096, objects + commits, spin_us(wait)}),
          ping(wait),
          table(objects) {
        const std::vector<uint8_t> bytes(kBatch * 4096, 3);
        worker.fill(0, objects, bytes.data());
        for (uint32_t first = 0; first < objects; first += kBatch)
            for (const maru_digest &digest : worker.digests(first, kBatch))
                digests.push_back(digest);
    }
    // Other keys each time, as the floor's table does.
    const maru_digest *some(size_t count) {
        if (next + count > digests.size())
            next = 0;
        next += count;
        return &digests[next - count];
    }
};

std::string lookup_name(size_t keys) {
    return "floor: raw lookup, " + std::to_string(keys) + " keys";
}
std::string sum_name(size_t keys) {
    return "floor: ping-pong + lookup, " + std::to_string(keys) + " keys";
}
std::string redis_name(size_t keys) {
    return "peer: Redis EXISTS, " + std::to_string(keys) + " keys";
}

double rate(size_t items, uint64_t begin) {  // millions a second
    return static_cast<double>(items) / us_since(begin);
}

void add_floors(Group &group, const std::shared_ptr<Control> &c, int turns) {
    group.add({kPingPong, "us", "", [=] { return c->ping.round_us(turns); }, {}});
    for (size_t keys : {1u, 32u, 256u, 4096u}) {
        group.add(
            {lookup_name(keys), "us", "", [=] { return c->table.round_us(keys, turns); }, {}});
        // Measured in one case, so that both halves see the same moment.
        group.add({sum_name(keys),
                   "us",
                   "",
                   [=] { return c->ping.round_us(turns) + c->table.round_us(keys, turns); },
                   {}});
    }
}

void add_redis(Group &group, size_t objects, int turns, int few) {
    std::shared_ptr<Redis> redis;
    std::string why;
    try {
        redis = std::make_shared<Redis>();
        redis->fill(objects, 32);
        group.keep(redis);
    } catch (const NotMeasurable &reason) {
        why = reason.what();
    }
    for (size_t keys : {1u, 32u, 256u, 4096u}) {
        if (!redis) {
            group.add_missing(redis_name(keys), "us", why, {});
            continue;
        }
        auto next = std::make_shared<size_t>(0);
        group.add({redis_name(keys),
                   "us",
                   "",
                   [=] {
                       std::vector<double> times;
                       for (int i = 0; i < (keys > 1000 ? few : turns); ++i) {
                           const size_t first = *next + keys > objects ? 0 : *next;
                           *next = first + keys;
                           const std::string command = redis->exists_command(first, keys);
                           const uint64_t begin = now_ns();
                           const int64_t found = redis->exists(command);
                           times.push_back(us_since(begin));
                           must_be(found, keys, "EXISTS");
                       }
                       return median(times);
                   },
                   {}});
    }
}

double probe_us(Control &c, size_t keys, int turns) {
    c.worker.warm();
    std::vector<double> times;
    for (int i = 0; i < turns; ++i) {
        const maru_digest *digests = c.some(keys);
        const uint64_t begin = now_ns();
        const int64_t hits = maru_probe(c.worker.ns(), digests, keys, nullptr, 0, nullptr);
        times.push_back(us_since(begin));
        must_be(hits, keys, "maru_probe");
    }
    return median(times);
}

double probe_rate(Control &c, size_t keys, int turns) {
    c.worker.warm();
    const uint64_t begin = now_ns();
    for (int i = 0; i < turns; ++i)
        must_be(maru_probe(c.worker.ns(), c.some(keys), keys, nullptr, 0, nullptr), keys,
                "maru_probe");
    return rate(keys * static_cast<size_t>(turns), begin);
}

double lease_rate(Control &c, size_t keys, int turns) {
    std::vector<maru_lease *> leases(keys);
    c.worker.warm();
    const uint64_t begin = now_ns();
    for (int i = 0; i < turns; ++i) {
        must_be(maru_acquire(c.worker.ns(), c.some(keys), keys, nullptr, 0, leases.data()), keys,
                "maru_acquire");
        must(maru_lease_release(leases.data(), keys), "maru_lease_release");
    }
    return rate(keys * static_cast<size_t>(turns), begin);
}

// Batch after batch, and all of it retired when the clock has stopped.
double commit_rate(Control &c, size_t batches) {
    const auto keys = c.worker.new_keys(batches * kCommit);
    const auto runs = c.worker.reserve(batches * kCommit);
    std::vector<int> results(kCommit);
    c.worker.warm();
    const uint64_t begin = now_ns();
    for (size_t at = 0; at < keys.size(); at += kCommit)
        must(maru_commit(c.worker.ns(), c.worker.pool(), &keys[at], &runs[at], kCommit,
                         results.data()),
             "maru_commit");
    const double figure = rate(keys.size(), begin);
    c.worker.retire(keys);
    return figure;
}

void fill_group(Group &group, const Plan &plan, Wait wait) {
    const size_t objects = plan.quick ? 4096 : 65536;
    const size_t batches = plan.quick ? 4 : 64;
    const int turns = plan.turns(400), few = plan.turns(60);
    const bool spin = wait == Wait::Spin;
    if (spin && client_cpu() == kAnywhere)
        throw NotMeasurable("one processor only: two ends cannot spin");
    auto c = std::make_shared<Control>(plan, wait, objects, batches * kCommit);
    group.keep(c);
    add_floors(group, c, turns);
    if (!spin)
        add_redis(group, objects, turns, few);

    std::vector<Target> one = {at_most(spin ? 1.6 : 1.1, kPingPong)};
    if (!spin)
        one.push_back(at_most(1, redis_name(1)));
    group.add({"probe, 1 key", "us", kPingPong, [=] { return probe_us(*c, 1, turns); }, one});
    for (size_t keys : {32u, 256u})
        group.add({"probe, " + std::to_string(keys) + " keys",
                   "us",
                   sum_name(keys),
                   [=] { return probe_us(*c, keys, turns); },
                   {}});
    group.add({"probe, 4096 keys", "us", sum_name(4096), [=] { return probe_us(*c, 4096, few); },
               spin ? std::vector<Target>{at_most(3, lookup_name(4096))} : std::vector<Target>{}});
    group.add({"probe in batches of 4096", "M/s", "", [=] { return probe_rate(*c, 4096, few); },
               spin ? std::vector<Target>{} : std::vector<Target>{at_least(20)}});
    group.add({"acquire + release in batches of 4096",
               "M/s",
               "",
               [=] { return lease_rate(*c, 4096, few); },
               {at_least(spin ? 10 : 5)}});
    group.add({"commit in batches of 256",
               "M/s",
               "",
               [=] { return commit_rate(*c, batches); },
               {at_least(spin ? 4 : 1.5)}});
    group.add({"turns of marud's loop over 5 ms",
               "",
               "",
               [=] { return c->marud.turns().slow; },
               {at_most(0)}});
}

}  // namespace

void add_control(Suite &suite, const Plan &plan) {
    suite.add("control path, blocking",
              [=](Group &group) { fill_group(group, plan, Wait::Block); });
    suite.add("control path, spinning", [=](Group &group) { fill_group(group, plan, Wait::Spin); });
}

}  // namespace maru::bench
