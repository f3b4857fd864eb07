#include "tests/bench/report.h"

#include <cmath>
#include <cstdio>
#include <optional>
#include <set>

namespace maru::bench {

namespace {

// One line: a case beside one of its targets, or beside its floor.
struct Row {
    std::string group, name, unit, against, reason;
    std::optional<double> value, floor, bound;
    std::optional<bool> met;
    bool failed = false;
    const Target *target = nullptr;
    std::optional<double> ratio() const {
        if (value && floor && *floor > 0)
            return *value / *floor;
        return std::nullopt;
    }
    std::string target_text() const {
        if (!target)
            return "";
        char text[64];
        const char *sense = target->sense == Sense::AtMost ? "<=" : ">=";
        if (target->against.empty())
            std::snprintf(text, sizeof text, "%s %.4g", sense, target->times);
        else if (target->plus != 0)
            std::snprintf(text, sizeof text, "%s %.4gx + %.4g", sense, target->times, target->plus);
        else
            std::snprintf(text, sizeof text, "%s %.4gx", sense, target->times);
        return text;
    }
};

Row row_of(const Group &group, const Outcome &outcome, const Target *target) {
    Row row;
    row.group = group.name;
    row.name = outcome.item.name;
    row.unit = outcome.item.unit;
    row.reason = outcome.reason;
    row.failed = outcome.failed;
    row.target = target;
    if (!outcome.figures.empty())
        row.value = outcome.value();
    row.against = target && !target->against.empty() ? target->against : outcome.item.floor;
    if (!row.against.empty()) {
        const Outcome *floor = group.find(row.against);
        if (floor && !floor->figures.empty())
            row.floor = floor->value();
        else if (row.reason.empty())
            row.reason = floor ? floor->reason : "no case '" + row.against + "'";
    }
    if (target) {
        if (target->against.empty())
            row.bound = target->times;
        else if (row.floor)
            row.bound = target->times * *row.floor + target->plus;
        if (row.bound && row.value)
            row.met = target->sense == Sense::AtMost ? *row.value <= *row.bound
                                                     : *row.value >= *row.bound;
    }
    return row;
}

std::vector<Row> rows_of(const Suite &suite) {
    std::vector<Row> rows;
    for (const Group &group : suite.groups())
        for (const Outcome &outcome : group.outcomes) {
            if (outcome.item.targets.empty())
                rows.push_back(row_of(group, outcome, nullptr));
            for (const Target &target : outcome.item.targets)
                rows.push_back(row_of(group, outcome, &target));
        }
    return rows;
}

std::string number(const std::optional<double> &value, const char *format) {
    if (!value)
        return "-";
    char text[48];
    std::snprintf(text, sizeof text, format, *value);
    return text;
}

std::string json_number(const std::optional<double> &value) {
    return value && std::isfinite(*value) ? number(value, "%.6g") : "null";
}

std::string json_text(const std::string &text) {
    std::string quoted = "\"";
    for (char c : text) {
        if (c == '"' || c == '\\')
            quoted += '\\';
        quoted += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    return quoted + "\"";
}

std::string summary(const std::vector<Row> &rows) {
    size_t targets = 0, met = 0, without = 0, failed = 0;
    std::set<std::string> reasons;
    for (const Row &row : rows) {
        if (!row.target)
            continue;
        ++targets;
        met += row.met.value_or(false);
        failed += row.failed;
        if (!row.met && !row.failed) {
            ++without;
            reasons.insert(row.reason.empty() ? "no figure" : row.reason);
        }
    }
    std::string text = std::to_string(met) + " of " + std::to_string(targets) + " targets met, " +
                       std::to_string(without) + " not measurable here";
    const char *separator = " (";
    for (const std::string &reason : reasons) {
        text += separator + reason;
        separator = "; ";
    }
    text += reasons.empty() ? "" : ")";
    return failed ? text + ", " + std::to_string(failed) + " failed" : text;
}

const char *met_text(const Row &row) {
    if (!row.target)
        return "";
    return row.met ? *row.met ? "met" : "MISSED" : "?";
}

}  // namespace

std::string table(const Suite &suite, const std::string &notes) {
    const std::vector<Row> rows = rows_of(suite);
    std::string text = notes, group;
    for (const Row &row : rows) {
        char line[256];
        if (row.group != group) {
            group = row.group;
            std::snprintf(line, sizeof line, "\n%-52s %10s %-6s %10s %8s  %s\n",
                          (group + ":").c_str(), "median", "", "beside", "ratio", "target");
            text += line;
        }
        std::snprintf(line, sizeof line, "  %-50s %10s %-6s %10s %8s  %-14s %s", row.name.c_str(),
                      number(row.value, "%.2f").c_str(), row.unit.c_str(),
                      row.against.empty() ? "" : number(row.floor, "%.2f").c_str(),
                      row.against.empty() ? "" : number(row.ratio(), "%.2f").c_str(),
                      row.target_text().c_str(), met_text(row));
        text += line;
        if (!row.reason.empty())
            text += " (" + row.reason + ")";
        else if (row.target && !row.against.empty())
            text += " against " + row.against;
        text += "\n";
    }
    return text + "\n" + summary(rows) + "\n";
}

std::string json(const Suite &suite, const std::string &notes) {
    const std::vector<Row> rows = rows_of(suite);
    std::string text = "{\n  \"rounds\": " + std::to_string(suite.rounds()) +
                       ",\n  \"notes\": " + json_text(notes) +
                       ",\n  \"summary\": " + json_text(summary(rows)) + ",\n  \"entries\": [";
    const char *separator = "\n";
    for (const Row &row : rows) {
        text += std::string(separator) + "    {\"group\": " + json_text(row.group) +
                ", \"name\": " + json_text(row.name) + ", \"value\": " + json_number(row.value) +
                ", \"unit\": " + json_text(row.unit) + ", \"floor\": " + json_number(row.floor) +
                ", \"against\": " + (row.against.empty() ? "null" : json_text(row.against)) +
                ", \"ratio\": " + json_number(row.ratio()) +
                ", \"target\": " + json_number(row.bound) + ", \"sense\": " +
                (row.target ? row.target->sense == Sense::AtMost ? "\"at most\"" : "\"at least\""
                            : "null") +
                ", \"target_text\": " + json_text(row.target_text()) +
                ", \"met\": " + (row.met ? *row.met ? "true" : "false" : "null") +
                ", \"reason\": " + (row.reason.empty() ? "null" : json_text(row.reason)) + "}";
        separator = ",\n";
    }
    return text + "\n  ]\n}\n";
}

std::string readme(const Suite &suite) {
    std::string text =
        "| what | median | floor or peer in the same run | ratio | target "
        "|\n|---|---|---|---|---|\n";
    for (const Row &row : rows_of(suite)) {
        if (!row.target || !row.value)
            continue;
        char line[512];
        std::snprintf(
            line, sizeof line, "| %s: %s | %.4g %s | %s | %s | %s%s |\n", row.group.c_str(),
            row.name.c_str(), *row.value, row.unit.c_str(),
            row.floor ? (number(row.floor, "%.4g") + " (" + row.against + ")").c_str() : "",
            row.floor ? number(row.ratio(), "%.2f").c_str() : "", row.target_text().c_str(),
            row.met ? *row.met ? "" : ", missed" : ", not measurable");
        text += line;
    }
    return text;
}

}  // namespace maru::bench
