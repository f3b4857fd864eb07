// A TOML file as a flat list of entries, in the order of the file.
//
// The only face of the TOML library, whose header costs seconds to compile: include it nowhere
// else.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace maru {

struct TomlEntry {
    enum class Kind : uint8_t { Table, Text, Integer, Float, Boolean, Date, Array };
    std::string table;  // "" at the top level
    std::string key;    // "" for a table itself
    uint32_t line = 0;
    Kind kind = Kind::Table;
    std::string text;     // Text
    int64_t integer = 0;  // Integer
};

struct TomlFile {
    std::vector<TomlEntry> entries;  // sorted by line
    std::string error;               // not empty: it is not TOML (a duplicate key included)
    uint32_t error_line = 0;
};

TomlFile read_toml(std::string_view text);
const char *toml_kind_name(TomlEntry::Kind kind);  // "an integer"

}  // namespace maru
