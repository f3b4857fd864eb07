// A worker that is killed with -9: from the moment at which the kernel first says so (its socket hangs up, or
// its pidfd is readable) until its objects are no hits any more, and until its memory is credited.
//
// The kernel tears the mappings down before it says anything: the time of that is printed beside, and in no
// target. Memory may only be credited when sealing has proven that nobody writes, so a raw seal is allowed on top.
#include <maru/maru.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libmaru/base/unique_fd.h"
#include "tests/bench/cases/cases.h"
#include "tests/bench/client_worker.h"
#include "tests/bench/marud_process.h"
#include "tests/bench/other_process.h"
#include "tests/integration/wire_client.h"

namespace maru::bench {

namespace {

constexpr size_t kObject = 1 << 20;
constexpr double kLimitUs = 60e6;

struct Kill {
    MarudProcess marud;
    const std::string bench;
    const size_t objects;
    Worker asker;  // a scheduler of the victim's engine
    test::WireClient admin;
    double teardown_ms = 0, hits_us = 0, credit_us = 0;

    Kill(const Plan &plan, size_t count)
        : marud({plan.marud, 0, kAnywhere, "64G", ""}),
          bench(plan.bench),
          objects(count),
          asker({marud.socket_path(), "victim", kObject, 0, 0, MARU_ROLE_SCHEDULER,
                 MARU_SCOPE_WORKER, "other"}),
          admin(marud.socket_path()) {
        if (!admin.hello())
            throw std::runtime_error("marud refused hello: " + admin.message());
    }

    bool is_hit(const maru_digest &digest) {
        return must(maru_probe(asker.ns(), &digest, 1, nullptr, 0, nullptr), "maru_probe") == 1;
    }
    bool is_credited() {
        const auto *status = admin.ask<wire::StatusReply>(wire::StatusRequest{});
        if (!status)
            throw std::runtime_error("marud told no status: " + admin.message());
        return status->host_reserved_bytes == 0 && status->unproven_bytes == 0;
    }

    void run() {
        OtherProcess victim(
            {bench, Role::Victim, marud.socket_path(), "victim", kObject, objects, kAnywhere});
        const maru_digest digest = asker.digests(0, 1)[0];
        if (!is_hit(digest))
            throw std::runtime_error("the victim's object is no hit before it is killed");
        const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, victim.pid(), 0)));
        pollfd ends[] = {{process.get(), POLLIN, 0}, {victim.socket(), POLLRDHUP, 0}};
        const uint64_t killed = now_ns();
        ::kill(victim.pid(), SIGKILL);
        // Asleep until the kernel speaks: tearing down and asking would share the processors.
        if (::poll(ends, 2, 60000) <= 0)
            throw std::runtime_error("a killed process did not end within 60 s");
        const uint64_t told = now_ns();
        teardown_ms = static_cast<double>(told - killed) / 1e6;
        hits_us = credit_us = 0;
        while (hits_us == 0 || credit_us == 0) {
            if (hits_us == 0 && !is_hit(digest))
                hits_us = us_since(told);
            if (credit_us == 0 && is_credited())
                credit_us = us_since(told);
            if (us_since(told) > kLimitUs)
                throw std::runtime_error("a killed worker's memory is not credited within 60 s");
        }
        victim.reap();
    }
};

void fill_group(Group &group, const Plan &plan, size_t bytes) {
    need_memory(2 * bytes);
    auto k = std::make_shared<Kill>(plan, bytes / kObject);
    group.keep(k);
    const std::string seal = "floor: seal of " + size_text(bytes);
    const std::string raw = "floor: end of a process with " + size_text(bytes);
    group.add({raw, "ms", "", [=] { return teardown_ms(bytes); }, {}, 3});
    group.add({seal, "us", "", [=] { return seal_us(bytes); }, {}, 3});
    group.add({"kill to the first sign of it",
               "ms",
               raw,
               [=] {
                   k->run();
                   return k->teardown_ms;
               },
               {},
               3});
    group.add({"sign to no hits", "us", "", [=] { return k->hits_us; }, {at_most(10000)}, 3});
    group.add({"sign to memory credited",
               "us",
               seal,
               [=] { return k->credit_us; },
               {at_most(1, seal, 10000)},
               3});
    group.add({"turns of marud's loop over 5 ms",
               "",
               "",
               [=] { return k->marud.turns().slow; },
               {at_most(0)},
               3});
}

}  // namespace

void add_kill(Suite &suite, const Plan &plan) {
    std::vector<size_t> sizes = {size_t{256} << 20, size_t{4} << 30};
    if (plan.quick)
        sizes = {size_t{16} << 20};
    for (size_t bytes : sizes)
        suite.add("worker with " + size_text(bytes) + " killed",
                  [=](Group &group) { fill_group(group, plan, bytes); });
}

}  // namespace maru::bench
