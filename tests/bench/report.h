// What a benchmark says: a name, a figure, and the floor of the same machine in the same run.
//
// Figures of different machines, or of one machine at different times, do not compare; ratios to a
// floor measured next to them do. So nothing here judges an absolute figure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace maru::bench {

uint64_t now_ns();
double median(std::vector<double> values);

struct Case {
    std::string name;
    std::string unit;             // us, GB/s, ns/key
    std::string floor;            // name of the case that is its floor; empty: it is one
    std::function<double()> run;  // one round's figure
    double floor_times = 1;       // e.g. two round trips
};

// Runs every case once per round, one after the other, so that a disturbance of the machine hits all;
// figures are medians over the rounds. Progress goes to stderr when that is a terminal.
class Suite {
  public:
    void add(Case item) { cases_.push_back(std::move(item)); }
    // A case that throws is told on stderr and left out from then on; false if there was one.
    bool run(int rounds);
    std::string table() const;
    std::string json() const;

  private:
    struct Row {
        double value = 0, floor = 0;
        double ratio() const { return floor > 0 ? value / floor : 0; }
    };
    Row row(const Case &item) const;

    std::vector<Case> cases_;
    std::map<std::string, std::vector<double>> figures_;
    int rounds_ = 0;
};

}  // namespace maru::bench
