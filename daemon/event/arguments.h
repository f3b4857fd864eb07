// The command line of marud.
#pragma once

#include <string>

#include "libmaru/base/result.h"

namespace maru {

struct Arguments {
    enum class Action { Serve, CheckConfig, PrintConfig, PrintDefault, ListDevices, Help, Version };
    Action action = Action::Serve;
    std::string config_file;  // "": the mode's default, which may be absent
    std::string socket;       // "": as configured
    bool user = false;        // --user
};

Result<Arguments> parse_arguments(int argc, char **argv);
std::string help_text();

}  // namespace maru
