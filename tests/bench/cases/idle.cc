// What marud costs while nobody asks anything: one worker and one scheduler are attached.
#include <time.h>

#include "tests/bench/cases/cases.h"
#include "tests/bench/client_worker.h"
#include "tests/bench/marud_process.h"

namespace maru::bench {

namespace {

struct Idle {
    MarudProcess marud;
    Worker worker, asker;

    explicit Idle(const Plan &plan)
        : marud({plan.marud, kSpinUs, kAnywhere, "64G", ""}),
          worker({marud.socket_path(), "idle", 4096, 256}),
          asker({marud.socket_path(), "idle", 4096, 0, 0, MARU_ROLE_SCHEDULER}) {
        worker.warm();
        asker.warm();
    }
    double percent(long seconds) {
        const timespec moment = {1, 0};
        ::nanosleep(&moment, nullptr);  // what was asked before is over
        const uint64_t begin = now_ns(), used = marud.cpu_ns();
        const timespec pause = {seconds, 0};
        ::nanosleep(&pause, nullptr);
        return 100 * static_cast<double>(marud.cpu_ns() - used) /
               static_cast<double>(now_ns() - begin);
    }
};

}  // namespace

void add_idle(Suite &suite, const Plan &plan) {
    suite.add("idle", [=](Group &group) {
        auto idle = std::make_shared<Idle>(plan);
        group.keep(idle);
        const long seconds = plan.quick ? 1 : 5;
        group.add({"processor time of an idle marud",
                   "%",
                   "",
                   [=] { return idle->percent(seconds); },
                   {at_most(0.1)},
                   3});
        group.add({"turns of marud's loop over 5 ms",
                   "",
                   "",
                   [=] { return idle->marud.turns().slow; },
                   {at_most(0)},
                   1});
    });
}

}  // namespace maru::bench
