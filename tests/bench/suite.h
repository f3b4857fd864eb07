// What a benchmark says: a figure, the floor of the same machine in the same run, and the target.
//
// Figures of different machines, or of one machine at different times, do not compare; ratios to a floor
// measured next to them do. So cases of one group run interleaved, round after round, and a figure is
// the median over the rounds. A group makes its own processes and memory and gives them back at its end.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace maru::bench {

uint64_t now_ns();
double us_since(uint64_t begin_ns);
double median(std::vector<double> values);

// Thrown by a case, or by the making of a group, that this machine cannot run: no failure, but told.
struct NotMeasurable : std::runtime_error {
    using std::runtime_error::runtime_error;
};

enum class Sense { AtMost, AtLeast };

// Met when the figure is at most, or at least, times x the figure of the case `against` + plus.
struct Target {
    Sense sense = Sense::AtMost;
    double times = 1;     // the bound itself where `against` is empty
    std::string against;  // a case of the same group: a floor or a peer
    double plus = 0;
};
inline Target at_most(double times, std::string against = "", double plus = 0) {
    return {Sense::AtMost, times, std::move(against), plus};
}
inline Target at_least(double times, std::string against = "", double plus = 0) {
    return {Sense::AtLeast, times, std::move(against), plus};
}

struct Case {
    std::string name;             // unique in its group
    std::string unit;             // us, GB/s, M/s ...
    std::string floor;            // the case whose figure is printed beside; empty: it is one
    std::function<double()> run;  // one round's figure
    std::vector<Target> targets;  // none: printed without a target
    int rounds = 0;               // at most so many, the first included; 0: as many as the run has
};

struct Outcome {
    Case item;
    std::vector<double> figures;
    std::string reason;  // why there is no figure
    bool failed = false;
    double value() const { return median(figures); }
};

class Group {
  public:
    explicit Group(std::string group_name) : name(std::move(group_name)) {}
    void add(Case item);
    // What this machine lacks, for cases that are not even made.
    void add_missing(const std::string &case_name, const std::string &unit, const std::string &why,
                     std::vector<Target> targets);
    // Ends with the group, after every case: processes, memory, pinning.
    void keep(std::shared_ptr<void> fixture) { fixtures_.push_back(std::move(fixture)); }
    const Outcome *find(const std::string &case_name) const;

    const std::string name;
    std::deque<Outcome> outcomes;

  private:
    friend class Suite;
    void run(int rounds, bool warm);
    void end();
    std::vector<std::shared_ptr<void>> fixtures_;
};

class Suite {
  public:
    // `make` fills the group when its turn has come.
    void add(const std::string &name, std::function<void(Group &)> make);
    // Only groups whose name contains `text`.
    void only(const std::string &text) { only_ = text; }
    // warm: a round more, whose figures are not used. False: something failed, and stderr says what.
    bool run(int rounds, bool warm);
    const std::deque<Group> &groups() const { return done_; }
    std::vector<std::string> names() const;
    int rounds() const { return rounds_; }

  private:
    std::vector<std::pair<std::string, std::function<void(Group &)>>> makers_;
    std::deque<Group> done_;
    std::string only_;
    int rounds_ = 0;
};

}  // namespace maru::bench
