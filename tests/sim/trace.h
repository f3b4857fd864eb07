// What happened last, for the report of a failure; and one number that stands for all of it.
//
// Lines are kept as printf results in a ring. The hash covers every line ever added, so that two
// runs of one seed can be compared by one number.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace maru::sim {

class Trace {
  public:
    static constexpr size_t kKept = 50;

    [[gnu::format(printf, 2, 3)]] void add(const char *format, ...);
    void at(uint64_t step, int64_t now_ns) { step_ = step, now_ns_ = now_ns; }
    uint64_t hash() const { return hash_; }
    std::vector<std::string> last() const;
    void echo(bool on) { echo_ = on; }  // every line to stderr as well

  private:
    struct Line {
        uint64_t step = 0;
        int64_t now_ns = 0;
        std::array<char, 200> text{};
    };
    std::array<Line, kKept> lines_;
    uint64_t count_ = 0;
    uint64_t hash_ = 0xcbf29ce484222325;
    uint64_t step_ = 0;
    int64_t now_ns_ = 0;
    bool echo_ = false;
};

}  // namespace maru::sim
