// Registry: what the numbers are called, and their text for a scraper.
//
// A family is a description and the places of its numbers; the numbers stay where they are counted.
// All families and their series are added before the first scrape and never change: the set of
// series is closed, so neither memory nor text can grow with what clients do. Pure: no I/O.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/metrics/histogram.h"

namespace maru::metrics {

enum class Type : uint8_t { Counter, Gauge, Histogram, Info };
// Base units, as Prometheus wants them. Seconds are kept as nanoseconds and shown as seconds.
enum class Unit : uint8_t { None, Bytes, Seconds };
// Prometheus text exposition 0.0.4, and OpenMetrics 1.0.0.
enum class Format : uint8_t { Text, OpenMetrics };

const char *type_name(Type type);
const char *unit_name(Unit unit);  // "" for None
const char *content_type(Format format);

struct Family {
    std::string name;  // as its samples are called; counters end in _total
    Type type = Type::Gauge;
    Unit unit = Unit::None;
    std::string help;
    std::vector<std::string> labels;  // names
};

struct Series {
    std::vector<std::string> values;  // of the labels, in their order
    const uint64_t *number;           // outlives the registry
};

struct HistogramSeries {
    std::vector<std::string> values;
    HistogramView numbers;
};

// "" or what is wrong with it: a name outside of [a-z0-9_], a suffix that does not fit type and
// unit, no help, a label that is reserved or named twice.
std::string problem_of(const Family &family);
std::string escape_help(std::string_view text, Format format);
std::string escape_label(std::string_view text);

class Registry {
  public:
    // A bug otherwise: the family is well formed, its name new, and each series has one value for
    // each label and is unlike every other.
    void add(const Family &family, const std::vector<Series> &series);
    void add(const Family &family, const std::vector<HistogramSeries> &series);
    void add(const Family &family, const uint64_t *number) { add(family, {Series{{}, number}}); }

    // The whole text into `ret_text`, whose memory is reused. Costs one walk over the series.
    void render(Format format, std::string *ret_text) const;

    size_t samples() const { return samples_.size(); }  // lines that carry a number
    const std::vector<Family> &families() const { return families_; }

  private:
    struct Sample {
        std::string head;                       // name and labels, up to the number
        std::vector<const uint64_t *> numbers;  // their sum: buckets are cumulative
        bool seconds = false;
    };
    struct Block {
        std::string head[2];  // HELP and TYPE, by Format
        size_t first = 0, end = 0;
    };
    Block &begin(const Family &family);
    void add_sample(const Family &family, std::string_view suffix,
                    const std::vector<std::string> &values, std::string_view le,
                    std::vector<const uint64_t *> numbers, bool seconds);

    std::vector<Family> families_;
    std::vector<Block> blocks_;  // one per family
    std::vector<Sample> samples_;
};

}  // namespace maru::metrics
