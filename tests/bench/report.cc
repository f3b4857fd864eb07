#include "tests/bench/report.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <exception>

namespace maru::bench {

uint64_t now_ns() {
    timespec t;
    ::clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

double median(std::vector<double> values) {
    assert(!values.empty());
    std::sort(values.begin(), values.end());
    const size_t middle = values.size() / 2;
    return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

bool Suite::run(int rounds) {
    const bool terminal = ::isatty(STDERR_FILENO);
    rounds_ = rounds;
    bool all = true;
    for (int round = 0; round < rounds; ++round)
        for (size_t i = 0; i < cases_.size();) {
            if (terminal)
                std::fprintf(stderr, "\r\033[Kround %d/%d  %3zu %%  %s", round + 1, rounds,
                             100 * i / cases_.size(), cases_[i].name.c_str());
            try {
                const double figure = cases_[i].run();
                figures_[cases_[i].name].push_back(figure);
                ++i;
            } catch (const std::exception &error) {
                std::fprintf(stderr, "%sbench: %s: %s\n", terminal ? "\r\033[K" : "",
                             cases_[i].name.c_str(), error.what());
                cases_.erase(cases_.begin() + static_cast<long>(i));
                all = false;
            }
        }
    if (terminal)
        std::fprintf(stderr, "\r\033[K");
    return all;
}

Suite::Row Suite::row(const Case &item) const {
    const double value = median(figures_.at(item.name));
    const double floor =
        item.floor.empty() ? value : item.floor_times * median(figures_.at(item.floor));
    return {value, floor};
}

std::string Suite::table() const {
    std::string text;
    char line[160];
    std::snprintf(line, sizeof line, "%-36s %12s %12s %8s\n", "", "median", "floor", "ratio");
    text += line;
    for (const Case &item : cases_) {
        const Row r = row(item);
        if (item.floor.empty())
            std::snprintf(line, sizeof line, "%-36s %9.2f %-5s\n", item.name.c_str(), r.value,
                          item.unit.c_str());
        else
            std::snprintf(line, sizeof line, "%-36s %9.2f %-5s %9.2f %8.2f\n", item.name.c_str(),
                          r.value, item.unit.c_str(), r.floor, r.ratio());
        text += line;
    }
    return text;
}

std::string Suite::json() const {
    std::string text = "{\n  \"rounds\": " + std::to_string(rounds_) + ",\n  \"entries\": [";
    const char *separator = "\n";
    for (const Case &item : cases_) {
        const Row r = row(item);
        char line[320];  // names are ours: nothing in them needs escaping
        std::snprintf(
            line, sizeof line,
            "%s    {\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", \"floor\": %.6g, "
            "\"ratio\": %.6g}",
            separator, item.name.c_str(), r.value, item.unit.c_str(), r.floor, r.ratio());
        text += line;
        separator = ",\n";
    }
    return text + "\n  ]\n}\n";
}

}  // namespace maru::bench
