// What marud needs to know before it serves: configuration, mode and places.
#pragma once

#include <string>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/event/arguments.h"
#include "daemon/protocol/service.h"

namespace maru {

struct Setup {
    Config config;            // resolved
    std::string config_file;  // "": there is none
    std::string socket;       // an absolute path
    std::string runtime_directory;
    std::string metrics_socket;  // "": none
    bool user_mode = false;
};

// Each line stands on its own and goes to stderr; the exit status is then 2.
struct SetupErrors {
    std::vector<std::string> lines;
};

// Reads the configuration and chooses places. `errors` not empty: the setup is not to be used.
Setup make_setup(const Arguments &arguments, SetupErrors &errors);
ServiceConfig make_service_config(const Config &config);

// mkdir with parents; an existing directory stays as it is.
Result<void> make_directory(const std::string &path, unsigned mode);

}  // namespace maru
