// Copies alone: the kernels of this machine, and whether the library takes the best of them.
//
// A store is timed by itself; a load together with one pass of a reader over what was loaded, since a
// kernel that leaves the bytes outside the caches only moves the cost to the reader. Everything rotates
// through more memory than is cached.
#include <maru/maru.h>

#include <algorithm>

#include "tests/bench/cases/cases.h"
#include "tests/bench/marud_process.h"
#include "tests/bench/pin.h"

namespace maru::bench {

namespace {

using CopyFunction = void (*)(void *, const void *, size_t);

struct Area {
    PinnedClient pinned;
    EngineMemory engine;
    SharedMemory pool;
    size_t at = 0;
    uint64_t seen = 0;

    Area(size_t bytes, Pages pages) : engine(bytes), pool(bytes, pages) {}

    size_t next(size_t size) {
        if (at + size > pool.size())
            at = 0;
        at += size;
        return at - size;
    }
    double in(CopyFunction copy, size_t size, size_t total) {
        std::vector<double> figures;
        for (size_t done = 0; done < total; done += size) {
            const size_t place = next(size);
            const uint64_t begin = now_ns();
            copy(pool.data() + place, engine.data() + place, size);
            figures.push_back(static_cast<double>(size) / static_cast<double>(now_ns() - begin));
        }
        return median(figures);
    }
    double out_and_read(CopyFunction copy, size_t size, size_t total) {
        std::vector<double> figures;
        for (size_t done = 0; done < total; done += size) {
            const size_t place = next(size);
            const uint64_t begin = now_ns();
            copy(engine.data() + place, pool.data() + place, size);
            seen += read_all(engine.data() + place, size);
            figures.push_back(static_cast<double>(size) / static_cast<double>(now_ns() - begin));
        }
        return median(figures);
    }
};

// The best of one round's figures of all kernels.
class Best {
  public:
    double note(double figure) {
        figures_.push_back(figure);
        return figure;
    }
    double take() {
        const double best = *std::max_element(figures_.begin(), figures_.end());
        figures_.clear();
        return best;
    }

  private:
    std::vector<double> figures_;
};

enum class Way { In, OutAndRead };

void add_way(Group &group, const std::shared_ptr<Area> &area, Way way, size_t size, size_t total) {
    const std::string what = (way == Way::In ? "store " : "load + pass ") + size_text(size);
    const std::string best_name = "floor: best kernel, " + what;
    const auto figure = [area, way, size, total](CopyFunction copy) {
        return way == Way::In ? area->in(copy, size, total) : area->out_and_read(copy, size, total);
    };
    auto best = std::make_shared<Best>();
    for (const copy::Kernel &kernel : copy::kernels())
        if (kernel.supported())
            group.add({std::string(kernel.name) + ", " + what,
                       "GB/s",
                       best_name,
                       [=, &kernel] { return best->note(figure(kernel.copy)); },
                       {}});
    const std::string libc_name = std::string(copy::kernels()[0].name) + ", " + what;
    group.add({best_name, "GB/s", "", [=] { return best->take(); }, {}});
    std::vector<Target> targets = {at_least(0.95, best_name)};
    if (way == Way::In)
        targets.push_back(at_least(1, libc_name));
    group.add({(way == Way::In ? "maru_copy_in, " : "maru_copy_out, ") + what, "GB/s", best_name,
               [=] { return figure(way == Way::In ? maru_copy_in : maru_copy_out); }, targets});
}

void fill_group(Group &group, const Plan &plan, Pages pages) {
    const size_t bytes = plan.bytes(size_t{256} << 20);
    need_memory(2 * bytes);
    auto area = std::make_shared<Area>(bytes, pages);
    group.keep(area);
    maru_copy_in(area->pool.data(), area->engine.data(), 1 << 20);  // calibrates
    std::vector<size_t> sizes = {64u << 10, 256u << 10, 1u << 20, 4u << 20};
    if (plan.quick)
        sizes = {64u << 10, 1u << 20};
    for (size_t size : sizes)
        for (Way way : {Way::In, Way::OutAndRead})
            add_way(group, area, way, size, plan.bytes(size_t{64} << 20));
}

}  // namespace

void need_memory(uint64_t bytes) {
    const uint64_t spare = uint64_t{1} << 30;
    if (available_bytes() < bytes + spare)
        throw NotMeasurable("needs " + size_text(static_cast<size_t>(bytes)) + " of free memory");
}

void add_copies(Suite &suite, const Plan &plan) {
    for (Pages pages : {Pages::Base, Pages::Huge})
        suite.add(std::string("copies, ") + pages_text(pages),
                  [=](Group &group) { fill_group(group, plan, pages); });
}

}  // namespace maru::bench
