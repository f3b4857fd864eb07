// What a large directory costs: latency and memory at ten thousand, a million and ten million replicas, and
// with 254 sessions that only live.
//
// The raw lookup of the same population grows too when its table leaves the caches: that is the floor. Both
// ends spin here, so that a wake-up does not hide what is looked for.
#include <maru/maru.h>

#include <algorithm>

#include "tests/bench/cases/cases.h"
#include "tests/bench/client_worker.h"
#include "tests/bench/marud_process.h"
#include "tests/bench/wire_worker.h"

namespace maru::bench {

namespace {

constexpr char kQuiet[] =
    "[sessions]\ntimeout = \"3600s\"\nheartbeat = \"1800s\"\nmax_per_uid = 1000\n";

std::string count_text(size_t count) {
    return count >= 1000000 ? std::to_string(count / 1000000) + " M"
                            : std::to_string(count / 1000) + " k";
}

struct Population {
    PinnedClient pinned;
    const size_t replicas;
    MarudProcess marud;
    uint64_t before;
    double most_bytes = 0;    // per replica, while it grew
    double steady_bytes = 0;  // when it had grown
    WireWorker owner;
    Worker asker;
    LookupTable table;
    size_t at = 0;

    Population(const Plan &plan, size_t count)
        : replicas(count),
          marud({plan.marud, kSpinUs, kAnywhere, "256G", kQuiet}),
          before(marud.resident_bytes()),
          owner(marud.socket_path(), "owner", "growth", count),
          asker({marud.socket_path(), "owner", 4096, 0, kSpinUs, MARU_ROLE_SCHEDULER,
                 MARU_SCOPE_WORKER, "growth"}),
          table(count) {
        size_t sampled = 0;
        owner.commit_all([&](size_t done) {
            if (done - sampled < 32768)
                return;
            sampled = done;
            if (done >= 65536)
                most_bytes = std::max(most_bytes, bytes_each(done));
        });
        steady_bytes = bytes_each(replicas);
    }
    double bytes_each(size_t count) const {
        return static_cast<double>(marud.resident_bytes() - before) / static_cast<double>(count);
    }
    // Keys from all over the population, in an order that no prefetcher guesses; the digests are made
    // before the clock starts.
    double probe_us(size_t keys, int turns) {
        std::vector<maru_digest> digests(keys);
        std::vector<double> times;
        asker.warm();
        for (int i = 0; i < turns; ++i) {
            for (maru_digest &digest : digests) {
                at = (at + 7919 * 131) % replicas;
                digest = WireWorker::digest(at);
            }
            // What making them did to the caches and to the spinning ends is not what is measured.
            must_be(maru_probe(asker.ns(), digests.data(), 1, nullptr, 0, nullptr), 1,
                    "maru_probe");
            const uint64_t begin = now_ns();
            const int64_t hits = maru_probe(asker.ns(), digests.data(), keys, nullptr, 0, nullptr);
            times.push_back(us_since(begin));
            must_be(hits, keys, "maru_probe");
        }
        return median(times);
    }
};

std::string one_key(size_t replicas) { return "probe, 1 key among " + count_text(replicas); }

void add_population(Group &group, const Plan &plan, size_t replicas, size_t smallest) {
    const std::string many = "probe, 4096 keys among " + count_text(replicas);
    const std::string floor = "floor: raw lookup, 4096 keys among " + count_text(replicas);
    std::vector<Target> one_target;
    if (replicas != smallest)
        one_target.push_back(at_most(1.1, one_key(smallest)));
    std::shared_ptr<Population> p;
    try {
        need_memory(LookupTable::bytes_of(replicas) + 300 * replicas);
        p = std::make_shared<Population>(plan, replicas);
    } catch (const NotMeasurable &why) {
        group.add_missing(one_key(replicas), "us", why.what(), one_target);
        group.add_missing(many, "us", why.what(), {at_most(3)});
        return;
    }
    group.keep(p);
    const int turns = plan.turns(200), few = plan.turns(40);
    group.add({one_key(replicas), "us", replicas == smallest ? "" : one_key(smallest),
               [=] { return p->probe_us(1, turns); }, one_target});
    group.add({floor, "us", "", [=] { return p->table.round_us(4096, few); }, {}});
    group.add({many, "us", floor, [=] { return p->probe_us(4096, few); }, {at_most(3, floor)}});
    const bool steady = replicas >= 1000000;
    const std::string at = " at " + count_text(replicas);
    group.add({"memory of marud per replica" + at, "B", "", [=] { return p->steady_bytes; },
               steady ? std::vector<Target>{at_most(160)} : std::vector<Target>{}, 1});
    if (p->most_bytes > 0)
        group.add({"the most per replica while it grew to " + count_text(replicas), "B", "",
                   [=] { return p->most_bytes; },
                   steady ? std::vector<Target>{at_most(320)} : std::vector<Target>{}, 1});
    group.add({"turns of marud's loop over 5 ms" + at,
               "",
               "",
               [=] { return p->marud.turns().slow; },
               {at_most(0)}});
}

struct Crowd {
    PinnedClient pinned;
    MarudProcess marud;
    WireWorker owner;
    Worker asker;
    std::vector<std::unique_ptr<Worker>> idle;

    Crowd(const Plan &plan, size_t sessions)
        : marud({plan.marud, 0, server_cpu(), "64G", kQuiet}),
          owner(marud.socket_path(), "owner", "growth", 4096),
          asker({marud.socket_path(), "owner", 4096, 0, 0, MARU_ROLE_SCHEDULER, MARU_SCOPE_WORKER,
                 "growth"}) {
        owner.commit_all([](size_t) {});
        while (idle.size() + 2 < sessions)
            idle.push_back(std::make_unique<Worker>(WorkerSetup{marud.socket_path(), "owner", 4096,
                                                                0, 0, MARU_ROLE_SCHEDULER,
                                                                MARU_SCOPE_WORKER, "growth"}));
    }
    double probe_us(int turns) {
        std::vector<double> times;
        asker.warm();
        for (int i = 0; i < turns; ++i) {
            const maru_digest digest = WireWorker::digest(static_cast<uint64_t>(i) % 4096);
            const uint64_t begin = now_ns();
            const int64_t hits = maru_probe(asker.ns(), &digest, 1, nullptr, 0, nullptr);
            times.push_back(us_since(begin));
            must_be(hits, 1, "maru_probe");
        }
        return median(times);
    }
};

void fill_sessions(Group &group, const Plan &plan) {
    const size_t many = plan.quick ? 16 : 256;
    auto two = std::make_shared<Crowd>(plan, 2), crowd = std::make_shared<Crowd>(plan, many);
    group.keep(two);
    group.keep(crowd);
    const int turns = plan.turns(400);
    const std::string floor = "probe, 1 key, 2 sessions";
    group.add({floor, "us", "", [=] { return two->probe_us(turns); }, {}});
    group.add({"probe, 1 key, " + std::to_string(many) + " sessions",
               "us",
               floor,
               [=] { return crowd->probe_us(turns); },
               {at_most(1.2, floor)}});
}

}  // namespace

void add_growth(Suite &suite, const Plan &plan) {
    suite.add("growth and memory", [=](Group &group) {
        std::vector<size_t> sizes = {10000, 1000000, 10000000};
        if (plan.quick)
            sizes = {10000, 100000};
        for (size_t replicas : sizes)
            add_population(group, plan, replicas, sizes[0]);
    });
    suite.add("sessions", [=](Group &group) { fill_sessions(group, plan); });
}

}  // namespace maru::bench
