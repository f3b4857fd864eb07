#include "daemon/metrics/registry.h"

#include <algorithm>
#include <cassert>
#include <charconv>

namespace maru::metrics {
namespace {

bool ends_with(std::string_view text, std::string_view end) {
    return text.size() > end.size() && text.substr(text.size() - end.size()) == end;
}

bool good_name(std::string_view name) {
    if (name.empty() || name[0] < 'a' || name[0] > 'z')
        return false;
    return std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    });
}

// The name that OpenMetrics gives the family: without what its samples append.
std::string family_name(const Family &family) {
    std::string_view cut = family.type == Type::Counter ? "_total"
                           : family.type == Type::Info  ? "_info"
                                                        : "";
    return family.name.substr(0, family.name.size() - cut.size());
}

void append_number(std::string &out, uint64_t number) {
    char digits[20];
    auto [end, error] = std::to_chars(digits, digits + sizeof digits, number);
    out.append(digits, end);
}

// Exactly: "12", "0.000000512".
void append_seconds(std::string &out, uint64_t ns) {
    append_number(out, ns / 1'000'000'000);
    uint64_t rest = ns % 1'000'000'000;
    if (rest == 0)
        return;
    char digits[10] = ".";
    for (size_t i = 9; i > 0; --i, rest /= 10)
        digits[i] = static_cast<char>('0' + rest % 10);
    size_t length = 10;
    while (digits[length - 1] == '0')
        --length;
    out.append(digits, length);
}

// A bound as Go and OpenMetrics write a float: with a point.
std::string bound_text(uint64_t ns) {
    std::string text;
    append_seconds(text, ns);
    return text.find('.') == text.npos ? text + ".0" : text;
}

}  // namespace

const char *type_name(Type type) {
    switch (type) {
        case Type::Counter:
            return "counter";
        case Type::Histogram:
            return "histogram";
        case Type::Info:
            return "info";
        default:
            return "gauge";
    }
}

const char *unit_name(Unit unit) {
    return unit == Unit::Bytes ? "bytes" : unit == Unit::Seconds ? "seconds" : "";
}

const char *content_type(Format format) {
    return format == Format::OpenMetrics
               ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
               : "text/plain; version=0.0.4; charset=utf-8";
}

std::string problem_of(const Family &family) {
    const std::string &name = family.name;
    if (!good_name(name))
        return "the name '" + name + "' is not of a-z, 0-9 and _";
    bool total = ends_with(name, "_total");
    if (total != (family.type == Type::Counter))
        return name + ": a counter, and nothing else, ends in _total";
    if (ends_with(name, "_info") != (family.type == Type::Info))
        return name + ": an info, and nothing else, ends in _info";
    for (std::string_view suffix : {"_bucket", "_count", "_sum", "_created"})
        if (ends_with(name, suffix))
            return name + ": " + std::string(suffix) + " is what a histogram's samples end in";
    for (Unit unit : {Unit::Bytes, Unit::Seconds})
        if (ends_with(family_name(family), std::string("_") + unit_name(unit)) !=
            (family.unit == unit))
            return name + ": its unit and the end of its name must agree";
    if (family.type == Type::Histogram && family.unit != Unit::Seconds)
        return name + ": a histogram is of seconds";
    if (family.help.empty())
        return name + ": has no help";
    for (size_t i = 0; i < family.labels.size(); ++i) {
        const std::string &label = family.labels[i];
        if (!good_name(label) || label == "le" || label == "quantile")
            return name + ": '" + label + "' cannot be a label";
        if (std::count(family.labels.begin(), family.labels.end(), label) != 1)
            return name + ": label '" + label + "' is named twice";
    }
    return {};
}

std::string escape_help(std::string_view text, Format format) {
    std::string out;
    for (char c : text) {
        if (c == '\n')
            out += "\\n";
        else if (c == '\\' || (c == '"' && format == Format::OpenMetrics))
            (out += '\\') += c;
        else
            out += c;
    }
    return out;
}

std::string escape_label(std::string_view text) { return escape_help(text, Format::OpenMetrics); }

Registry::Block &Registry::begin(const Family &family) {
    assert(problem_of(family).empty());
    const std::string open = family_name(family);
    for (const Family &other : families_)
        assert(family_name(other) != open && other.name != family.name);
    families_.push_back(family);
    Block &block = blocks_.emplace_back();
    block.first = block.end = samples_.size();
    // The older format knows no info.
    const char *text_type = family.type == Type::Info ? "gauge" : type_name(family.type);
    block.head[static_cast<size_t>(Format::Text)] =
        "# HELP " + family.name + " " + escape_help(family.help, Format::Text) + "\n# TYPE " +
        family.name + " " + text_type + "\n";
    std::string &head = block.head[static_cast<size_t>(Format::OpenMetrics)];
    head = "# TYPE " + open + " " + type_name(family.type) + "\n";
    if (family.unit != Unit::None)
        head += "# UNIT " + open + " " + unit_name(family.unit) + "\n";
    head += "# HELP " + open + " " + escape_help(family.help, Format::OpenMetrics) + "\n";
    return block;
}

void Registry::add_sample(const Family &family, std::string_view suffix,
                          const std::vector<std::string> &values, std::string_view le,
                          std::vector<const uint64_t *> numbers, bool seconds) {
    assert(values.size() == family.labels.size());
    std::string labels;
    for (size_t i = 0; i < values.size(); ++i)
        labels += (i ? "," : "") + family.labels[i] + "=\"" + escape_label(values[i]) + "\"";
    if (!le.empty())
        labels += (labels.empty() ? "le=\"" : ",le=\"") + std::string(le) + "\"";
    Sample sample;
    sample.head = family.name + std::string(suffix);
    if (!labels.empty())
        sample.head += "{" + labels + "}";
    sample.head += ' ';
    sample.numbers = std::move(numbers);
    sample.seconds = seconds;
    for (size_t i = blocks_.back().first; i < samples_.size(); ++i)
        assert(samples_[i].head != sample.head);
    samples_.push_back(std::move(sample));
    blocks_.back().end = samples_.size();
}

void Registry::add(const Family &family, const std::vector<Series> &series) {
    assert(family.type != Type::Histogram && !series.empty());
    begin(family);
    for (const Series &one : series)
        add_sample(family, "", one.values, "", {one.number}, family.unit == Unit::Seconds);
}

void Registry::add(const Family &family, const std::vector<HistogramSeries> &series) {
    assert(family.type == Type::Histogram && !series.empty());
    begin(family);
    for (const HistogramSeries &one : series) {
        std::vector<const uint64_t *> up_to;
        for (size_t i = 0; i <= one.numbers.bounds.size(); ++i) {
            up_to.push_back(&one.numbers.counts[i]);
            bool last = i == one.numbers.bounds.size();
            add_sample(family, "_bucket", one.values,
                       last ? "+Inf" : bound_text(one.numbers.bounds[i]), up_to, false);
        }
        add_sample(family, "_sum", one.values, "", {one.numbers.sum}, true);
        add_sample(family, "_count", one.values, "", up_to, false);
    }
}

void Registry::render(Format format, std::string *ret_text) const {
    std::string &out = *ret_text;
    out.clear();
    for (const Block &block : blocks_) {
        out += block.head[static_cast<size_t>(format)];
        for (size_t i = block.first; i < block.end; ++i) {
            const Sample &sample = samples_[i];
            out += sample.head;
            uint64_t number = 0;
            for (const uint64_t *part : sample.numbers)
                number += *part;
            if (sample.seconds)
                append_seconds(out, number);
            else
                append_number(out, number);
            out += '\n';
        }
    }
    if (format == Format::OpenMetrics)
        out += "# EOF\n";
}

}  // namespace maru::metrics
