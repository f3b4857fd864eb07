#include "daemon/event/setup.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "libmaru/base/socket_path.h"

namespace maru {
namespace {

constexpr char kSystemConfig[] = MARU_SYSCONFDIR "/maru/marud.toml";

std::string environment(const char *name) {
    const char *value = ::getenv(name);
    return value ? value : "";
}

// A system service is told its directory by systemd or runs as root; anybody else who simply starts
// marud wants his own.
bool wants_user_mode(const Arguments &arguments) {
    return arguments.user || (::geteuid() != 0 && environment("RUNTIME_DIRECTORY").empty());
}

std::string default_config_path(bool user_mode) {
    if (!user_mode)
        return kSystemConfig;
    std::string home = environment("XDG_CONFIG_HOME");
    if (home.empty() && !environment("HOME").empty())
        home = environment("HOME") + "/.config";
    return home.empty() ? "" : home + "/maru/marud.toml";
}

std::string directory_of(const std::string &path) {
    size_t slash = path.rfind('/');
    return slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
}

std::string beside(const std::string &path, const char *name) {
    return path.substr(0, path.rfind('/') + 1) + name;
}

void choose_places(Setup &setup, const Arguments &arguments, SetupErrors &errors) {
    setup.socket = !arguments.socket.empty() ? arguments.socket : setup.config.socket;
    if (setup.socket.empty() && setup.user_mode) {
        std::string runtime = environment("XDG_RUNTIME_DIR");
        if (runtime.empty() || runtime[0] != '/') {
            errors.lines.push_back(
                "user mode needs $XDG_RUNTIME_DIR, an absolute path, to place its socket; or give "
                "--socket PATH");
            return;
        }
        setup.socket = runtime + "/maru/marud.sock";
    } else if (setup.socket.empty()) {
        setup.socket = kSystemSocketPath;
    }
    if (setup.socket.size() > 107) {
        errors.lines.push_back("socket path '" + setup.socket + "' is longer than 107 bytes");
        return;
    }
    if (setup.config.metrics_socket != "off") {
        setup.metrics_socket = setup.config.metrics_socket;
        if (setup.metrics_socket.empty())
            setup.metrics_socket = beside(setup.socket, "metrics.sock");
        if (setup.metrics_socket.size() > 107)
            errors.lines.push_back("metrics.socket: '" + setup.metrics_socket +
                                   "' is longer than 107 bytes; name another, or \"off\"");
    }
    setup.runtime_directory = setup.config.runtime_directory;
    if (setup.runtime_directory.empty()) {
        // systemd separates several with ':'; the unit names one.
        std::string given = environment("RUNTIME_DIRECTORY");
        setup.runtime_directory = given.substr(0, given.find(':'));
    }
    if (setup.runtime_directory.empty())
        setup.runtime_directory = directory_of(setup.socket);
}

}  // namespace

Setup make_setup(const Arguments &arguments, SetupErrors &errors) {
    Setup setup;
    setup.user_mode = wants_user_mode(arguments);
    bool required = !arguments.config_file.empty();
    std::string file = required ? arguments.config_file : default_config_path(setup.user_mode);
    ParsedConfig parsed = parse_config("", file);
    if (required || (!file.empty() && ::access(file.c_str(), F_OK) == 0)) {
        auto loaded = load_config(file);
        if (!loaded) {
            errors.lines.push_back(describe(loaded.error()));
            return setup;
        }
        parsed = std::move(*loaded);
        setup.config_file = file;
    }
    resolve_config(parsed, file, host_memory_bytes());
    errors.lines.insert(errors.lines.end(), parsed.errors.begin(), parsed.errors.end());
    setup.config = parsed.config;
    choose_places(setup, arguments, errors);
    return setup;
}

ServiceConfig make_service_config(const Config &config) {
    auto narrow = [](uint64_t value) {
        return static_cast<uint32_t>(std::min<uint64_t>(value, UINT32_MAX));
    };
    ServiceConfig out;
    out.pid = static_cast<uint32_t>(::getpid());
    out.version = MARU_VERSION;
    out.max_sessions = narrow(config.sessions);
    out.max_sessions_per_uid = narrow(std::min(config.sessions, config.sessions_per_uid));
    out.max_leases_per_session = narrow(config.leases_per_session);
    out.max_descriptors_per_uid = narrow(config.descriptors_per_uid);
    out.max_ledger_items = narrow(config.ledger_items);
    out.max_in_flight = narrow(config.in_flight);
    out.max_namespaces = narrow(config.namespaces);
    out.max_namespaces_per_uid = narrow(config.namespaces_per_uid);
    out.max_objects = config.objects;
    out.host_cpu_bytes = config.host_bytes;
    out.uid_cpu_bytes = config.uid_bytes;
    out.worker_cpu_bytes = config.worker_bytes;
    out.segment_bytes = config.segment_bytes;
    out.host_segment_bytes = config.host_segment_bytes;
    out.session_timeout = static_cast<TimeNs>(config.timeout_ns);
    out.heartbeat_ms = narrow(config.heartbeat_ns / 1'000'000);
    out.spin_us = narrow(config.spin_us);
    return out;
}

Result<void> make_directory(const std::string &path, unsigned mode) {
    for (size_t at = 1; at != std::string::npos;) {
        at = path.find('/', at);
        std::string part = path.substr(0, at);
        if (at != std::string::npos)
            ++at;
        if (::mkdir(part.c_str(), mode) < 0 && errno != EEXIST)
            return Error{errno, "mkdir '" + part + "'"};
    }
    struct stat info = {};
    if (::stat(path.c_str(), &info) < 0)
        return Error{errno, "stat '" + path + "'"};
    if (!S_ISDIR(info.st_mode))
        return Error{ENOTDIR, "'" + path + "'"};
    return {};
}

}  // namespace maru
