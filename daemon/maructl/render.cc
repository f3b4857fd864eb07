#include "daemon/maructl/render.h"

#include <algorithm>

#include "libmaru/base/duration_text.h"
#include "libmaru/base/size_text.h"

namespace maru::maructl {

namespace {

// A namespace's text may have 16 KiB: a table shows its beginning, JSON all of it.
constexpr size_t kLongestCell = 72;

}  // namespace

std::string shown(const Cell &cell, bool exact) {
    if (exact && (cell.form == Cell::Form::Bytes || cell.form == Cell::Form::Milliseconds))
        return std::to_string(cell.number);
    switch (cell.form) {
        case Cell::Form::Id:
            return id_text(cell.number);
        case Cell::Form::Text:
            return cell.text.empty() ? "-" : printable(cell.text, kLongestCell);
        case Cell::Form::Bytes:
            return format_size(cell.number);
        case Cell::Form::Milliseconds:
            return format_duration(static_cast<int64_t>(
                std::min<uint64_t>(cell.number, INT64_MAX / 1'000'000) * 1'000'000));
        case Cell::Form::Count:
            return std::to_string(cell.number);
        case Cell::Form::Signed:
            return std::to_string(static_cast<int64_t>(cell.number));
        case Cell::Form::Flag:
            return cell.number ? "yes" : "no";
    }
    return "?";
}

void write_cell(JsonWriter &json, const Cell &cell) {
    switch (cell.form) {
        case Cell::Form::Id:
            return json.text(id_text(cell.number));
        case Cell::Form::Text:
            return json.text(cell.text);
        case Cell::Form::Bytes:
        case Cell::Form::Milliseconds:
        case Cell::Form::Count:
            return json.number(cell.number);
        case Cell::Form::Signed:
            return json.signed_number(static_cast<int64_t>(cell.number));
        case Cell::Form::Flag:
            return json.flag(cell.number != 0);
    }
}

}  // namespace maru::maructl
