#include "daemon/maructl/table.h"

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <ostream>

namespace maru::maructl {

namespace {

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

size_t characters(std::string_view text) {
    return static_cast<size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return !continues(c); }));
}

}  // namespace

void Table::add_column(std::string_view title, Align align) {
    titles_.emplace_back(title);
    aligns_.push_back(align);
    widths_.push_back(characters(title));
}

void Table::add_row(std::vector<std::string> cells) {
    assert(cells.size() == titles_.size());
    for (size_t i = 0; i < cells.size(); ++i)
        widths_[i] = std::max(widths_[i], characters(cells[i]));
    rows_.push_back(std::move(cells));
}

void Table::flush(std::ostream &out) {
    if (!started_)
        write(out, titles_);
    started_ = true;
    for (const auto &row : rows_)
        write(out, row);
    rows_.clear();
}

void Table::write(std::ostream &out, const std::vector<std::string> &cells) const {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) {
        const std::string pad(widths_[i] - characters(cells[i]), ' ');
        if (i > 0)
            line += "  ";
        line += aligns_[i] == Align::Right ? pad + cells[i] : cells[i] + pad;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << '\n';
}

std::string printable(std::string_view text, size_t longest) {
    std::string out;
    size_t shown = 0;
    for (size_t i = 0; i < text.size();) {
        size_t next = i + 1;
        while (next < text.size() && continues(text[next]))
            ++next;
        if (shown >= longest) {
            // "..." takes the place of the last three characters.
            for (int dots = 0; dots < 3 && !out.empty(); ++dots) {
                while (continues(out.back()))
                    out.pop_back();
                out.pop_back();
            }
            return out + "...";
        }
        const auto lead = static_cast<unsigned char>(text[i]);
        // C0 and DEL, and C1, which UTF-8 writes as c2 80 to c2 9f.
        const bool control = lead < 0x20 || lead == 0x7f ||
                             (lead == 0xc2 && static_cast<unsigned char>(text[i + 1]) < 0xa0);
        if (control) {
            char escape[8];
            std::snprintf(escape, sizeof escape, "\\x%02x",
                          lead == 0xc2 ? static_cast<unsigned char>(text[i + 1]) : lead);
            out += escape;
            shown += 4;
        } else {
            out += text.substr(i, next - i);
            ++shown;
        }
        i = next;
    }
    return out;
}

}  // namespace maru::maructl
