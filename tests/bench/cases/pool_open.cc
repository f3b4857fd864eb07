// A pool that opens: what the caller waits for, when it can first store, and how fast the rest of the memory
// comes, beside what the kernel can do.
#include <maru/maru.h>
#include <time.h>

#include "tests/bench/cases/cases.h"
#include "tests/bench/client_worker.h"
#include "tests/bench/marud_process.h"

namespace maru::bench {

namespace {

constexpr size_t kStep = 16 << 20;  // of the background population
constexpr size_t kObject = 1 << 20;

struct PoolOpen {
    MarudProcess marud;
    Worker worker;
    double open_ms = 0, first_us = 0;

    explicit PoolOpen(const Plan &plan)
        : marud({plan.marud, 0, kAnywhere, "64G", ""}),
          worker({marud.socket_path(), "opener", kObject}) {
        maru_schema schema = {};
        schema.size = sizeof schema;
        schema.object_bytes = kObject;
        schema.format = "bench";
        must(maru_client_describe(worker.client(), worker.ns(), &schema), "maru_client_describe");
    }

    // Opens one, asks until a reservation is admitted, and closes it again.
    void open(size_t bytes, bool wait, double *ret_populated_gb_per_s) {
        maru_pool_options options = {};
        options.size = sizeof options;
        options.capacity_bytes = bytes;
        maru_pool *pool = nullptr;
        worker.warm();
        const uint64_t begin = now_ns();
        must(maru_pool_open(worker.client(), &options, &pool), "maru_pool_open");
        open_ms = us_since(begin) / 1e3;
        maru_reservation run = {};
        while (maru_reserve(pool, kObject, 1, &run) != 0) {
            if (us_since(begin) > 30e6)
                throw std::runtime_error("no store is admitted within 30 s");
            const timespec moment = {0, 20000};
            ::nanosleep(&moment, nullptr);
        }
        first_us = us_since(begin);
        must(maru_abort(pool, &run, 1), "maru_abort");
        if (wait) {
            must(maru_pool_wait_populated(pool, 60000), "maru_pool_wait_populated");
            *ret_populated_gb_per_s =
                static_cast<double>(bytes) / static_cast<double>(now_ns() - begin);
        }
        must(maru_pool_close(pool, MARU_CLOSE_FORCED), "maru_pool_close");
    }
};

void fill_group(Group &group, const Plan &plan) {
    const size_t large = plan.quick ? size_t{64} << 20 : size_t{4} << 30;
    const size_t whole = plan.quick ? size_t{64} << 20 : size_t{1} << 30;
    need_memory(plan.quick ? 2 * whole : large + whole);
    auto p = std::make_shared<PoolOpen>(plan);
    group.keep(p);
    const std::string step = "floor: raw population of 16 MiB",
                      raw = "floor: raw population of " + size_text(whole);
    group.add({step, "us", "", [] { return populate_us(kStep); }, {}});
    group.add({"open " + size_text(large),
               "ms",
               "",
               [=] {
                   p->open(large, false, nullptr);
                   return p->open_ms;
               },
               {at_most(5)}});
    group.add({"first store admitted into " + size_text(large),
               "us",
               step,
               [=] { return p->first_us; },
               {at_most(2, step)}});
    group.add({raw, "GB/s", "", [=] { return populate_gb_per_s(whole); }, {}});
    group.add({"all of " + size_text(whole) + " populated",
               "GB/s",
               raw,
               [=] {
                   double figure = 0;
                   p->open(whole, true, &figure);
                   return figure;
               },
               {at_least(0.9, raw)}});
    group.add({"turns of marud's loop over 5 ms",
               "",
               "",
               [=] { return p->marud.turns().slow; },
               {at_most(0)}});
}

}  // namespace

void add_pool_open(Suite &suite, const Plan &plan) {
    suite.add("pool open", [=](Group &group) { fill_group(group, plan); });
}

}  // namespace maru::bench
