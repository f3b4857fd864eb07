#include "daemon/event/arguments.h"

#include <cerrno>
#include <string_view>

namespace maru {
namespace {

struct Option {
    const char *name;
    const char *operand;  // nullptr: none; "[FILE]": optional, as the next word
    const char *doc;
};

constexpr Option kOptions[] = {
    {"--config", "FILE", "Read this configuration; it must exist"},
    {"--socket", "PATH", "Listen here, whatever the configuration says"},
    {"--user", nullptr, "Serve one user from $XDG_RUNTIME_DIR, without any privilege"},
    {"--check-config", "[FILE]", "Say what is wrong with the configuration, and end"},
    {"--print-config", nullptr, "Print every setting as it would be used, and end"},
    {"--print-default-config", nullptr, "Print the commented default configuration, and end"},
    {"--list-devices", nullptr, "List the DAX devices of this host, and end"},
    {"--version", nullptr, "Print the version, and end"},
    {"--help", nullptr, "Print this, and end"},
};

const Option *find_option(std::string_view name) {
    for (const Option &option : kOptions)
        if (name == option.name)
            return &option;
    return nullptr;
}

Error wrong(const std::string &message) { return Error{EINVAL, message + "; see marud --help"}; }

}  // namespace

Result<Arguments> parse_arguments(int argc, char **argv) {
    Arguments out;
    for (int i = 1; i < argc; ++i) {
        std::string_view word = argv[i];
        std::string value;
        bool has_value = false;
        if (size_t equals = word.find('='); word.substr(0, 2) == "--" && equals != word.npos) {
            value = word.substr(equals + 1);
            has_value = true;
            word = word.substr(0, equals);
        }
        const Option *option = find_option(word);
        if (!option)
            return wrong("unknown argument '" + std::string(word) + "'");
        std::string name = option->name;
        bool optional = option->operand && option->operand[0] == '[';
        if (!option->operand && has_value)
            return wrong(name + " takes no value");
        if (option->operand && !has_value && i + 1 < argc && (!optional || argv[i + 1][0] != '-')) {
            value = argv[++i];
            has_value = true;
        }
        if (option->operand && !optional && value.empty())
            return wrong(name + " needs a " + option->operand);

        if (name == "--config") {
            out.config_file = value;
        } else if (name == "--socket") {
            if (value[0] != '/')
                return wrong("--socket '" + value + "' is not an absolute path");
            out.socket = value;
        } else if (name == "--user") {
            out.user = true;
        } else if (name == "--check-config") {
            out.action = Arguments::Action::CheckConfig;
            if (has_value)
                out.config_file = value;
        } else if (name == "--print-config") {
            out.action = Arguments::Action::PrintConfig;
        } else if (name == "--print-default-config") {
            out.action = Arguments::Action::PrintDefault;
        } else if (name == "--list-devices") {
            out.action = Arguments::Action::ListDevices;
        } else if (name == "--version") {
            out.action = Arguments::Action::Version;
        } else {
            out.action = Arguments::Action::Help;
        }
    }
    return out;
}

std::string help_text() {
    std::string out = "marud [OPTION...]\n\nThe metadata daemon of Maru.\n\n";
    for (const Option &option : kOptions) {
        std::string left = option.name;
        if (option.operand)
            left += std::string(" ") + option.operand;
        left.resize(26, ' ');
        out += "  " + left + option.doc + "\n";
    }
    return out +
           "\nExit status: 0 for a clean end, 1 for a failure, 2 for a bad configuration or bad\n"
           "arguments.\n";
}

}  // namespace maru
