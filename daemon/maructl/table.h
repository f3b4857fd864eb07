// A table for people: columns as wide as their widest cell, numbers to the right.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace maru::maructl {

enum class Align { Left, Right };

class Table {
  public:
    void add_column(std::string_view title, Align align);
    void add_row(std::vector<std::string> cells);
    // Writes the rows so far, the titles before the first. Later rows are at least as wide.
    void flush(std::ostream &out);
    size_t pending() const { return rows_.size(); }

  private:
    void write(std::ostream &out, const std::vector<std::string> &cells) const;

    std::vector<std::string> titles_;
    std::vector<Align> aligns_;
    std::vector<size_t> widths_;
    std::vector<std::vector<std::string>> rows_;
    bool started_ = false;
};

// Text of unknown origin, made harmless for a terminal (control characters as \xNN) and cut to
// `longest` characters, with "..." at the end.
std::string printable(std::string_view text, size_t longest);

}  // namespace maru::maructl
