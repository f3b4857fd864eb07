// One value of a setting: from TOML to the number, and back to text.
#pragma once

#include <string>

#include "daemon/config/config.h"
#include "daemon/config/toml_file.h"

namespace maru {

// Stores the value in config, or says what is wrong and what is allowed (without place and key).
Result<void> set_value(Config &config, const Setting &setting, const TomlEntry &entry);
// As it stands in a TOML file, quotes included; read back it is the same value.
std::string show_value(const Config &config, const Setting &setting);
std::string show_number(const Setting &setting, uint64_t number);  // without quotes
bool quoted(const Setting &setting);

}  // namespace maru
