// Store and load in batches of 32, beside the same copies without marud: same memory, same kernel, same
// order. Back to back, without a pause between batches; what a round stored is retired after the clock has
// stopped.
//
// Three ways: blocking, one batch after the other (no target: each batch waits for a wake-up of two
// processes); pipelined, with the message of one batch in flight while another is copied; spinning.
#include <maru/maru.h>

#include <algorithm>

#include "tests/bench/cases/cases.h"
#include "tests/bench/client_worker.h"
#include "tests/bench/marud_process.h"

namespace maru::bench {

namespace {

struct Data {
    PinnedClient pinned;
    MarudProcess marud;
    Worker worker;
    const size_t batches;
    EngineMemory source, target;
    std::vector<std::vector<maru_digest>> resident;

    Data(const Plan &plan, Wait wait, size_t object_bytes, size_t count)
        : marud({plan.marud, spin_us(wait), server_cpu(), "64G", ""}),
          worker({marud.socket_path(), "data", object_bytes, 2 * count * kBatch, spin_us(wait)}),
          batches(count),
          source(count * kBatch * object_bytes),
          target(count * kBatch * object_bytes) {
        for (size_t batch = 0; batch < batches; ++batch) {
            const auto first = static_cast<uint32_t>(batch * kBatch);
            worker.fill(first, kBatch, from(batch));
            resident.push_back(worker.digests(first, kBatch));
        }
    }
    const uint8_t *from(size_t batch) const { return source.data() + batch * worker.batch_bytes(); }
    uint8_t *to(size_t batch) const { return target.data() + batch * worker.batch_bytes(); }
    double gb_per_s(uint64_t begin) const {
        return static_cast<double>(batches * worker.batch_bytes()) /
               static_cast<double>(now_ns() - begin);
    }
    void copy_out(maru_lease *const *leases, size_t batch) const {
        for (size_t i = 0; i < kBatch; ++i)
            maru_copy_out(to(batch) + i * worker.object_bytes(), maru_lease_data(leases[i]),
                          worker.object_bytes());
    }
};

double copy_alone_in(Data &d) {
    std::vector<std::vector<maru_reservation>> runs;
    for (size_t batch = 0; batch < d.batches; ++batch)
        runs.push_back(d.worker.reserve(kBatch));
    d.worker.warm();
    const uint64_t begin = now_ns();
    for (size_t batch = 0; batch < d.batches; ++batch)
        d.worker.copy_in(runs[batch], d.from(batch));
    const double figure = d.gb_per_s(begin);
    for (const auto &some : runs)
        d.worker.abort(some);
    return figure;
}

double store(Data &d) {
    const auto keys = d.worker.new_keys(d.batches * kBatch);
    d.worker.warm();
    const uint64_t begin = now_ns();
    for (size_t batch = 0; batch < d.batches; ++batch) {
        const auto runs = d.worker.reserve(kBatch);
        d.worker.copy_in(runs, d.from(batch));
        d.worker.commit(&keys[batch * kBatch], runs.data(), kBatch);
    }
    const double figure = d.gb_per_s(begin);
    d.worker.retire(keys);
    return figure;
}

double store_pipelined(Data &d) {
    Pipeline pipeline(d.worker);
    const auto keys = d.worker.new_keys(d.batches * kBatch);
    std::vector<maru_reservation> runs[2];
    int results[2][kBatch];
    d.worker.warm();
    const uint64_t begin = now_ns();
    for (size_t batch = 0; batch < d.batches; ++batch) {
        auto &mine = runs[batch % 2];
        mine = d.worker.reserve(kBatch);
        d.worker.copy_in(mine, d.from(batch));
        if (batch > 0)
            must(pipeline.reap(), "maru_commit_submit");
        must(maru_commit_submit(pipeline.queue(), d.worker.ns(), d.worker.pool(),
                                &keys[batch * kBatch], mine.data(), kBatch, results[batch % 2], 0),
             "maru_commit_submit");
    }
    must(pipeline.reap(), "maru_commit_submit");
    const double figure = d.gb_per_s(begin);
    d.worker.retire(keys);
    return figure;
}

double copy_alone_out(Data &d) {
    std::vector<maru_lease *> leases(d.batches * kBatch);
    for (size_t batch = 0; batch < d.batches; ++batch)
        must_be(maru_acquire(d.worker.ns(), d.resident[batch].data(), kBatch, nullptr, 0,
                             &leases[batch * kBatch]),
                kBatch, "maru_acquire");
    d.worker.warm();
    const uint64_t begin = now_ns();
    for (size_t batch = 0; batch < d.batches; ++batch)
        d.copy_out(&leases[batch * kBatch], batch);
    const double figure = d.gb_per_s(begin);
    must(maru_lease_release(leases.data(), leases.size()), "maru_lease_release");
    return figure;
}

double load(Data &d) {
    void *buffers[kBatch];
    d.worker.warm();
    const uint64_t begin = now_ns();
    for (size_t batch = 0; batch < d.batches; ++batch) {
        for (size_t i = 0; i < kBatch; ++i)
            buffers[i] = d.to(batch) + i * d.worker.object_bytes();
        must_be(maru_load(d.worker.ns(), d.resident[batch].data(), kBatch, nullptr, 0, buffers,
                          d.worker.object_bytes(), nullptr),
                kBatch, "maru_load");
    }
    return d.gb_per_s(begin);
}

double load_pipelined(Data &d) {
    Pipeline pipeline(d.worker);
    maru_lease *leases[2][kBatch];
    const auto submit = [&](size_t batch) {
        must(maru_acquire_submit(pipeline.queue(), d.worker.ns(), d.resident[batch].data(), kBatch,
                                 nullptr, 0, leases[batch % 2], 0),
             "maru_acquire_submit");
    };
    d.worker.warm();
    const uint64_t begin = now_ns();
    submit(0);
    for (size_t batch = 0; batch < d.batches; ++batch) {
        must_be(pipeline.reap(), kBatch, "maru_acquire_submit");
        if (batch + 1 < d.batches)
            submit(batch + 1);
        d.copy_out(leases[batch % 2], batch);
        must(maru_lease_release(leases[batch % 2], kBatch), "maru_lease_release");
    }
    return d.gb_per_s(begin);
}

// A load without a copy: the caller reads in place.
double acquire_us(Data &d, int turns) {
    maru_lease *leases[kBatch];
    std::vector<double> times;
    d.worker.warm();
    for (int i = 0; i < turns; ++i) {
        const auto &digests = d.resident[static_cast<size_t>(i) % d.batches];
        const uint64_t begin = now_ns();
        const int64_t got = maru_acquire(d.worker.ns(), digests.data(), kBatch, nullptr, 0, leases);
        must(maru_lease_release(leases, kBatch), "maru_lease_release");
        times.push_back(us_since(begin));
        must_be(got, kBatch, "maru_acquire");
    }
    return median(times);
}

void fill_group(Group &group, const Plan &plan, Wait wait, size_t object_bytes) {
    if (wait == Wait::Spin && client_cpu() == kAnywhere)
        throw NotMeasurable("one processor only: two ends cannot spin");
    const size_t batches =
        plan.quick ? 3 : std::max<size_t>(4, (size_t{192} << 20) / (kBatch * object_bytes));
    need_memory(4 * batches * kBatch * object_bytes);
    auto d = std::make_shared<Data>(plan, wait, object_bytes, batches);
    group.keep(d);
    auto ping = std::make_shared<PingPong>(wait);
    group.keep(ping);

    const std::string in = "floor: copy in alone", out = "floor: copy out alone";
    const std::vector<Target> store_target = {at_least(object_bytes < 1 << 20 ? 0.8 : 0.9, in)};
    const std::vector<Target> load_target = {at_least(object_bytes < 1 << 20 ? 0.8 : 0.9, out)};
    const bool spin = wait == Wait::Spin;
    const int turns = plan.turns(200);
    group.add({in, "GB/s", "", [=] { return copy_alone_in(*d); }, {}});
    group.add({spin ? "store, spinning" : "store, one after the other", "GB/s", in,
               [=] { return store(*d); }, spin ? store_target : std::vector<Target>{}});
    if (!spin)
        group.add(
            {"store, pipelined", "GB/s", in, [=] { return store_pipelined(*d); }, store_target});
    group.add({out, "GB/s", "", [=] { return copy_alone_out(*d); }, {}});
    group.add({spin ? "load, spinning" : "load, one after the other", "GB/s", out,
               [=] { return load(*d); }, spin ? load_target : std::vector<Target>{}});
    if (!spin)
        group.add(
            {"load, pipelined", "GB/s", out, [=] { return load_pipelined(*d); }, load_target});
    group.add({"floor: socket ping-pong", "us", "", [=] { return ping->round_us(turns); }, {}});
    group.add({"load without a copy: acquire + release",
               "us",
               "floor: socket ping-pong",
               [=] { return acquire_us(*d, turns); },
               {}});
    group.add({"turns of marud's loop over 5 ms",
               "",
               "",
               [=] { return d->marud.turns().slow; },
               {at_most(0)}});
}

}  // namespace

void add_data(Suite &suite, const Plan &plan) {
    std::vector<size_t> sizes = {64u << 10, 1u << 20, 2u << 20};
    if (plan.quick)
        sizes = {64u << 10};
    for (size_t size : sizes)
        for (Wait wait : {Wait::Block, Wait::Spin})
            suite.add("store and load, 32 x " + size_text(size) +
                          (wait == Wait::Block ? ", blocking" : ", spinning"),
                      [=](Group &group) { fill_group(group, plan, wait, size); });
}

}  // namespace maru::bench
