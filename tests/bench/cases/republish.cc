// marud is killed and started again, and a worker tells it everything it had committed. Through the library as
// it is, so every replica stands on real memory.
#include <maru/maru.h>
#include <time.h>

#include "tests/bench/cases/cases.h"
#include "tests/bench/client_worker.h"
#include "tests/bench/marud_process.h"

namespace maru::bench {

namespace {

struct Republish {
    MarudProcess marud;
    Worker worker;
    const size_t replicas;

    Republish(const Plan &plan, size_t count)
        : marud({plan.marud, 0, kAnywhere, "64G", ""}),
          worker({marud.socket_path(), "worker", 4096, count}),
          replicas(count) {
        constexpr size_t kTogether = 1024;
        for (size_t first = 0; first < count; first += kTogether) {
            const size_t now = std::min(kTogether, count - first);
            const auto keys = worker.keys(static_cast<uint32_t>(first), now);
            const auto runs = worker.reserve(now);
            worker.commit(keys.data(), runs.data(), now);
        }
    }
    struct maru_client_info info() {
        struct maru_client_info told = {};
        told.size = sizeof told;
        must(maru_client_info(worker.client(), &told), "maru_client_info");
        return told;
    }
    // From the moment at which the new marud serves until everything is a hit again.
    double restart_ms() {
        const auto before = info();
        marud.kill();
        marud.start();
        const uint64_t begin = now_ns();
        while (info().republished < before.republished + replicas ||
               info().state != MARU_STATE_ATTACHED) {
            if (us_since(begin) > 120e6)
                throw std::runtime_error("told again within 120 s: " +
                                         std::to_string(info().republished - before.republished) +
                                         " of " + std::to_string(replicas) + ", state " +
                                         std::to_string(info().state));
            const timespec moment = {0, 1000000};
            ::nanosleep(&moment, nullptr);
        }
        const double ms = us_since(begin) / 1e3;
        const auto last = worker.digests(static_cast<uint32_t>((replicas - 1) / 1024 * 1024),
                                         (replicas - 1) % 1024 + 1);
        must_be(maru_probe(worker.ns(), last.data(), last.size(), nullptr, 0, nullptr), last.size(),
                "maru_probe after a restart");
        return ms;
    }
};

void fill_group(Group &group, const Plan &plan) {
    const size_t replicas = plan.quick ? 4096 : 1000000;
    need_memory(replicas * 4096 + replicas * 600);
    auto r = std::make_shared<Republish>(plan, replicas);
    group.keep(r);
    group.add({"restart of marud, " + (plan.quick ? std::string("4096") : std::string("1 M")) +
                   " replicas told again",
               "ms",
               "",
               [=] { return r->restart_ms(); },
               {at_most(1000)},
               3});
    group.add({"turns of marud's loop over 5 ms",
               "",
               "",
               [=] { return r->marud.turns().slow; },
               {at_most(0)},
               3});
}

}  // namespace

void add_republish(Suite &suite, const Plan &plan) {
    suite.add("restart of marud", [=](Group &group) { fill_group(group, plan); });
}

}  // namespace maru::bench
