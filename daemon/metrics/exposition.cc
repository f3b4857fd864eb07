#include "daemon/metrics/exposition.h"

#include <algorithm>
#include <cerrno>

namespace maru::metrics {
namespace {

bool name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == ':';
}

std::string_view take_name(std::string_view &text) {
    size_t length = 0;
    while (length < text.size() && name_char(text[length]))
        ++length;
    std::string_view name = text.substr(0, length);
    text.remove_prefix(length);
    return name.empty() || (name[0] >= '0' && name[0] <= '9') ? std::string_view() : name;
}

bool take(std::string_view &text, std::string_view what) {
    if (text.substr(0, what.size()) != what)
        return false;
    text.remove_prefix(what.size());
    return true;
}

// Up to an unescaped `end`, which is taken as well; false: there is none, or a wrong escape.
bool take_escaped(std::string_view &text, char end, std::string *ret_plain) {
    ret_plain->clear();
    while (!text.empty()) {
        char c = text.front();
        text.remove_prefix(1);
        if (c == end)
            return true;
        if (c == '\\') {
            if (text.empty() || (text[0] != '\\' && text[0] != 'n' && text[0] != '"'))
                return false;
            c = text[0] == 'n' ? '\n' : text[0];
            text.remove_prefix(1);
        }
        *ret_plain += c;
    }
    return false;
}

// Digits, perhaps a point and digits: what marud writes. Neither signs nor exponents.
bool is_number(std::string_view text) {
    size_t point = std::min(text.find('.'), text.size());
    auto digits = [](std::string_view part) {
        return !part.empty() &&
               std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    };
    bool zeros = point > 1 && text[0] == '0';
    return digits(text.substr(0, point)) && !zeros &&
           (point == text.size() || digits(text.substr(point + 1)));
}

bool belongs(const ReadFamily &family, std::string_view sample) {
    if (family.type != "histogram")
        return sample == family.name;
    if (!take(sample, family.name))
        return false;
    return sample == "_bucket" || sample == "_sum" || sample == "_count";
}

bool read_sample(std::string_view line, ReadSample *ret) {
    ret->line = line;
    ret->name = take_name(line);
    if (ret->name.empty())
        return false;
    if (take(line, "{")) {
        do {
            std::string_view label = take_name(line);
            std::string value;
            if (label.empty() || !take(line, "=\"") || !take_escaped(line, '"', &value))
                return false;
            ret->labels.emplace_back(label, std::move(value));
        } while (take(line, ","));
        if (!take(line, "}"))
            return false;
    }
    if (!take(line, " ") || !is_number(line))
        return false;
    ret->value = line;
    return true;
}

}  // namespace

Result<std::vector<ReadFamily>> read_exposition(std::string_view text) {
    std::vector<ReadFamily> families;
    size_t number = 0;
    auto wrong = [&](const std::string &why) {
        return Error{EBADMSG, "line " + std::to_string(number) + ": " + why};
    };
    bool typed = true;
    while (!text.empty()) {
        ++number;
        size_t end = text.find('\n');
        if (end == text.npos)
            return wrong("has no end");
        std::string_view whole = text.substr(0, end), line = whole;
        text.remove_prefix(end + 1);
        if (std::any_of(line.begin(), line.end(),
                        [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }))
            return wrong("contains a control character");
        if (take(line, "# HELP ")) {
            ReadFamily family;
            family.name = take_name(line);
            std::string help(line);
            help += '\n';
            std::string_view rest = help;
            if (family.name.empty() || !take(rest, " ") || !take_escaped(rest, '\n', &family.help))
                return wrong("is no HELP of a metric");
            for (const ReadFamily &other : families)
                if (other.name == family.name)
                    return wrong("describes '" + std::string(family.name) + "' again");
            if (!typed)
                return wrong("comes before the TYPE of the metric above");
            family.head = whole;
            families.push_back(std::move(family));
            typed = false;
        } else if (take(line, "# TYPE ")) {
            if (typed || take_name(line) != families.back().name || !take(line, " "))
                return wrong("is no TYPE of the metric above");
            if (line != "counter" && line != "gauge" && line != "histogram")
                return wrong("names an unknown type");
            ReadFamily &family = families.back();
            family.type = line;
            family.head = {family.head.data(),
                           static_cast<size_t>(whole.data() + whole.size() - family.head.data())};
            typed = true;
        } else {
            ReadSample sample;
            if (!read_sample(whole, &sample))
                return wrong("is no sample");
            if (families.empty() || !typed || !belongs(families.back(), sample.name))
                return wrong("does not belong to the metric above");
            families.back().samples.push_back(std::move(sample));
        }
    }
    if (families.empty())
        return wrong("there is no metric");
    return families;
}

}  // namespace maru::metrics
