#include "daemon/config/toml_file.h"

#include <algorithm>

// The library marks its own noise; what is left is not ours to fix.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include <toml++/toml.h>
#pragma GCC diagnostic pop

namespace maru {
namespace {

void add_entry(std::vector<TomlEntry> &out, const std::string &table, const toml::key &key,
               const toml::node &node) {
    TomlEntry entry;
    entry.table = table;
    entry.key = std::string(key.str());
    // The key's own place: the value of a multi-line string or array begins later.
    entry.line = key.source().begin.line;
    switch (node.type()) {
        case toml::node_type::string:
            entry.kind = TomlEntry::Kind::Text;
            entry.text = node.as_string()->get();
            break;
        case toml::node_type::integer:
            entry.kind = TomlEntry::Kind::Integer;
            entry.integer = node.as_integer()->get();
            break;
        case toml::node_type::floating_point:
            entry.kind = TomlEntry::Kind::Float;
            break;
        case toml::node_type::boolean:
            entry.kind = TomlEntry::Kind::Boolean;
            break;
        case toml::node_type::array:
            entry.kind = TomlEntry::Kind::Array;
            break;
        case toml::node_type::table:
            entry.kind = TomlEntry::Kind::Table;
            break;
        default:
            entry.kind = TomlEntry::Kind::Date;
            break;
    }
    out.push_back(std::move(entry));
}

}  // namespace

TomlFile read_toml(std::string_view text) {
    TomlFile file;
    try {
        toml::table root = toml::parse(text);
        for (const auto &[key, node] : root) {
            if (!node.is_table()) {
                add_entry(file.entries, "", key, node);
                continue;
            }
            std::string table(key.str());
            TomlEntry head;
            head.table = table;
            head.line = key.source().begin.line;
            file.entries.push_back(std::move(head));
            for (const auto &[inner, value] : *node.as_table())
                add_entry(file.entries, table, inner, value);
        }
    } catch (const toml::parse_error &error) {
        file.entries.clear();
        file.error = std::string(error.description());
        file.error_line = error.source().begin.line;
    }
    // The library keeps its tables sorted by name; people read errors from top to bottom.
    std::stable_sort(file.entries.begin(), file.entries.end(),
                     [](const TomlEntry &a, const TomlEntry &b) { return a.line < b.line; });
    return file;
}

const char *toml_kind_name(TomlEntry::Kind kind) {
    switch (kind) {
        case TomlEntry::Kind::Table:
            return "a table";
        case TomlEntry::Kind::Text:
            return "text";
        case TomlEntry::Kind::Integer:
            return "an integer";
        case TomlEntry::Kind::Float:
            return "a floating-point number";
        case TomlEntry::Kind::Boolean:
            return "a boolean";
        case TomlEntry::Kind::Date:
            return "a date or time";
        case TomlEntry::Kind::Array:
            return "an array";
    }
    return "something else";
}

}  // namespace maru
