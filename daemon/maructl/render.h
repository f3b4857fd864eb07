// Rows of columns.h as a table, as a list of values, or as JSON.
#pragma once

#include <ostream>

#include "daemon/maructl/columns.h"
#include "daemon/maructl/json_writer.h"
#include "daemon/maructl/table.h"

namespace maru::maructl {

// For people: "1.5 GiB", "5m 3s"; exact: bytes and milliseconds as they are.
std::string shown(const Cell &cell, bool exact = false);
void write_cell(JsonWriter &json, const Cell &cell);

template <typename Row>
void write_members(JsonWriter &json, const Row &row) {
    for (const auto &column : columns(row)) {
        json.key(column.key);
        write_cell(json, column.get(row));
    }
}

template <typename Row>
void write_object(JsonWriter &json, const Row &row) {
    json.begin_object();
    write_members(json, row);
    json.end_object();
}

template <typename Row>
Table make_table() {
    Table table;
    for (const auto &column : columns(Row{}))
        if (column.title)
            table.add_column(column.title, column.form == Cell::Form::Id ||
                                                   column.form == Cell::Form::Text ||
                                                   column.form == Cell::Form::Flag
                                               ? Align::Left
                                               : Align::Right);
    return table;
}

template <typename Row>
void add_row(Table &table, const Row &row, bool exact = false) {
    std::vector<std::string> cells;
    for (const auto &column : columns(row))
        if (column.title)
            cells.push_back(shown(column.get(row), exact));
    table.add_row(std::move(cells));
}

// "title  value" lines.
template <typename Row>
void write_values(std::ostream &out, const Row &row, bool exact = false) {
    size_t width = 0;
    for (const auto &column : columns(row))
        if (column.title)
            width = std::max(width, std::string_view(column.title).size());
    for (const auto &column : columns(row))
        if (column.title)
            out << column.title
                << std::string(width + 2 - std::string_view(column.title).size(), ' ')
                << shown(column.get(row), exact) << '\n';
}

}  // namespace maru::maructl
