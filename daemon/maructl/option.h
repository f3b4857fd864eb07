// The options of maructl: one row each. Parsing, help and completion all read this table.
#pragma once

#include <span>
#include <string_view>

#include "daemon/maructl/verb.h"

namespace maru::maructl {

struct CommandLine {
    enum class Kind { Run, Help, Version };
    Kind kind = Kind::Run;
    const Verb *verb = nullptr;  // with Help: of this one, or of all
    Options options;
};

struct Option {
    std::string_view name;
    std::string_view value;  // how help calls it; empty: takes none
    unsigned bit;            // 0: every verb takes it
    std::string_view summary;
    Result<void> (*set)(CommandLine &line, std::string_view value);
};

std::span<const Option> options();

}  // namespace maru::maructl
