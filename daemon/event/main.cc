// marud: what the command line asks for, and nothing more.

#include <cstdio>

#include "daemon/event/daemon.h"
#include "daemon/resource/dax_devices.h"

namespace {

int list_devices() {
    auto devices = maru::list_dax_devices();
    if (!devices) {
        std::fprintf(stderr, "marud: %s\n", maru::describe(devices.error()).c_str());
        return 1;
    }
    std::fputs(maru::describe_dax_devices(*devices).c_str(), stdout);
    return 0;
}

}  // namespace

int main(int argc, char **argv) {
    using namespace maru;
    auto arguments = parse_arguments(argc, argv);
    if (!arguments) {
        std::fprintf(stderr, "marud: %s\n", arguments.error().message.c_str());
        return 2;
    }
    switch (arguments->action) {
        case Arguments::Action::Help:
            std::fputs(help_text().c_str(), stdout);
            return 0;
        case Arguments::Action::Version:
            std::puts("marud " MARU_VERSION);
            return 0;
        case Arguments::Action::PrintDefault:
            std::fputs(default_config_file().c_str(), stdout);
            return 0;
        case Arguments::Action::ListDevices:
            return list_devices();
        default:
            break;
    }
    SetupErrors errors;
    Setup setup = make_setup(*arguments, errors);
    if (!errors.lines.empty()) {
        for (const std::string &line : errors.lines)
            std::fprintf(stderr, "marud: %s\n", line.c_str());
        return 2;
    }
    if (arguments->action == Arguments::Action::CheckConfig)
        return 0;
    if (arguments->action == Arguments::Action::PrintConfig) {
        std::fputs(print_config(setup.config).c_str(), stdout);
        return 0;
    }
    return Daemon(std::move(setup), std::move(*arguments)).run();
}
