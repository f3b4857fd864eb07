#include "tests/bench/suite.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstdio>

namespace maru::bench {

uint64_t now_ns() {
    timespec t;
    ::clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

double us_since(uint64_t begin_ns) { return static_cast<double>(now_ns() - begin_ns) / 1e3; }

double median(std::vector<double> values) {
    assert(!values.empty());
    std::sort(values.begin(), values.end());
    const size_t middle = values.size() / 2;
    return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

namespace {

// One line on a terminal, which the next one overwrites.
class Progress {
  public:
    void show(const std::string &group, const std::string &what, int round) {
        if (terminal_)
            std::fprintf(stderr, "\r\033[K%s, round %d: %s", group.c_str(), round, what.c_str());
    }
    void clear() {
        if (terminal_)
            std::fputs("\r\033[K", stderr);
    }

  private:
    const bool terminal_ = ::isatty(STDERR_FILENO) != 0;
};

}  // namespace

void Group::add(Case item) {
    assert(!find(item.name) && "two cases of one name would be one figure");
    outcomes.push_back({std::move(item), {}, "", false});
}

void Group::add_missing(const std::string &case_name, const std::string &unit,
                        const std::string &why, std::vector<Target> targets) {
    Case item;
    item.name = case_name;
    item.unit = unit;
    item.targets = std::move(targets);
    add(std::move(item));
    outcomes.back().reason = why;
}

const Outcome *Group::find(const std::string &case_name) const {
    for (const Outcome &outcome : outcomes)
        if (outcome.item.name == case_name)
            return &outcome;
    return nullptr;
}

void Group::run(int rounds, bool warm) {
    Progress progress;
    for (int round = warm ? -1 : 0; round < rounds; ++round)
        for (Outcome &outcome : outcomes) {
            const int most = outcome.item.rounds;
            if (!outcome.reason.empty() || (most > 0 && (round < 0 || round >= most)))
                continue;
            progress.show(name, outcome.item.name, round + 1);
            try {
                const double figure = outcome.item.run();
                if (round >= 0)
                    outcome.figures.push_back(figure);
            } catch (const NotMeasurable &why) {
                outcome.reason = why.what();
            } catch (const std::exception &error) {
                progress.clear();
                std::fprintf(stderr, "bench: %s: %s: %s\n", name.c_str(), outcome.item.name.c_str(),
                             error.what());
                outcome.reason = error.what();
                outcome.failed = true;
            }
        }
    progress.clear();
}

void Group::end() {
    // A case may own what it runs on, and a fixture what the case before it needs.
    for (Outcome &outcome : outcomes)
        outcome.item.run = nullptr;
    while (!fixtures_.empty())
        fixtures_.pop_back();
}

void Suite::add(const std::string &name, std::function<void(Group &)> make) {
    makers_.emplace_back(name, std::move(make));
}

std::vector<std::string> Suite::names() const {
    std::vector<std::string> all;
    for (const auto &maker : makers_)
        all.push_back(maker.first);
    return all;
}

bool Suite::run(int rounds, bool warm) {
    rounds_ = rounds;
    bool all = true;
    for (const auto &[name, make] : makers_) {
        if (name.find(only_) == std::string::npos)
            continue;
        Group &group = done_.emplace_back(name);
        try {
            make(group);
        } catch (const NotMeasurable &why) {
            group.add_missing(name, "", why.what(), {Target{}});
        } catch (const std::exception &error) {
            std::fprintf(stderr, "bench: %s: %s\n", name.c_str(), error.what());
            group.add_missing(name, "", error.what(), {Target{}});
            group.outcomes.back().failed = true;
        }
        group.run(rounds, warm);
        group.end();
        for (const Outcome &outcome : group.outcomes)
            all = all && !outcome.failed;
    }
    return all;
}

}  // namespace maru::bench
