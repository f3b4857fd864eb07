// Two engines at once, on two processors that marud has to share with them: what they reach together beside
// two plain copies of the same bytes between the same memories.
#include <algorithm>

#include "tests/bench/cases/cases.h"
#include "tests/bench/client_worker.h"
#include "tests/bench/marud_process.h"
#include "tests/bench/other_process.h"

namespace maru::bench {

namespace {

struct Pair {
    MarudProcess marud;
    OtherProcess first, second;
    const size_t object_bytes, batches;

    Pair(const Plan &plan, size_t bytes, size_t count)
        : marud({plan.marud, 0, kAnywhere, "64G", ""}),
          first({plan.bench, Role::Client, marud.socket_path(), "first", bytes, 2 * count * kBatch,
                 client_cpu()}),
          second({plan.bench, Role::Client, marud.socket_path(), "second", bytes,
                  2 * count * kBatch, server_cpu()}),
          object_bytes(bytes),
          batches(count) {}

    double together(Order::Kind kind) {
        Order order;
        order.kind = kind;
        order.batches = static_cast<uint32_t>(batches);
        order.at_ns = now_ns() + 20'000'000;
        first.send(order);
        second.send(order);
        const Answer a = first.receive(), b = second.receive();
        const uint64_t begin = std::min(a.begin_ns, b.begin_ns), end = std::max(a.end_ns, b.end_ns);
        return static_cast<double>(2 * batches * kBatch * object_bytes) /
               static_cast<double>(end - begin);
    }
};

void fill_group(Group &group, const Plan &plan, size_t bytes) {
    if (client_cpu() == kAnywhere)
        throw NotMeasurable("one processor only: two clients do not run at once");
    const size_t batches =
        plan.quick ? 2 : std::max<size_t>(4, (size_t{256} << 20) / (kBatch * bytes));
    need_memory(8 * batches * kBatch * bytes);
    auto pair = std::make_shared<Pair>(plan, bytes, batches);
    group.keep(pair);
    const std::string in = "floor: two copies in at once", out = "floor: two copies out at once";
    const auto add = [&](const std::string &name, const std::string &floor, Order::Kind kind,
                         std::vector<Target> targets) {
        group.add({name, "GB/s", floor, [=] { return pair->together(kind); }, std::move(targets)});
    };
    add(in, "", Order::CopyIn, {});
    add("two stores at once", in, Order::Store, {at_least(0.9, in)});
    add(out, "", Order::CopyOut, {});
    add("two loads at once", out, Order::Load, {at_least(0.9, out)});
}

}  // namespace

void add_two_clients(Suite &suite, const Plan &plan) {
    std::vector<size_t> sizes = {1u << 20, 2u << 20};
    if (plan.quick)
        sizes = {64u << 10};
    for (size_t size : sizes)
        suite.add("two clients, 32 x " + size_text(size),
                  [=](Group &group) { fill_group(group, plan, size); });
}

}  // namespace maru::bench
