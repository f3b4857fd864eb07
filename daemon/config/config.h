// Config: marud's settings as plain values, and the one table that describes them.
//
// Parsing, --check-config, --print-config, the commented default file and the messages all walk
// kSettings: a key that is not in it does not exist. Parsing is strict: an unknown key, a wrong
// type or a value out of range is an error with its place, never ignored. Values that default to
// "auto" are 0 until resolve() has put the numbers of this machine in.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libmaru/base/result.h"

namespace maru {

struct Config {
    // [daemon]
    std::string socket;  // "": chosen by the mode (system or user)
    uint64_t socket_mode = 0;
    std::string admin_group;
    std::string runtime_directory;  // "": chosen by the mode
    uint64_t spin_us = 0;
    uint64_t log_level = 0;  // a syslog priority: what is above it is not logged
    // [sessions]
    uint64_t timeout_ns = 0;
    uint64_t heartbeat_ns = 0;  // 0 until resolved: a third of timeout
    uint64_t sessions = 0;
    uint64_t sessions_per_uid = 0;
    uint64_t leases_per_session = 0;
    uint64_t in_flight = 0;
    uint64_t ledger_items = 0;
    // [cpu]
    uint64_t host_bytes = 0;    // 0 until resolved: half of the machine's memory
    uint64_t uid_bytes = 0;     // 0 until resolved: host_bytes
    uint64_t worker_bytes = 0;  // 0 until resolved: uid_bytes
    uint64_t segment_bytes = 0;
    uint64_t host_segment_bytes = 0;  // of pools of scope host
    // [limits]
    uint64_t namespaces = 0;
    uint64_t namespaces_per_uid = 0;
    uint64_t objects = 0;
    uint64_t descriptors_per_uid = 0;
    uint64_t connections_per_uid = 0;
    // [metrics]
    std::string metrics_socket;  // "": beside the socket of clients; "off": none
    std::string metrics_tcp;     // "": none
};

enum class SettingType : uint8_t {
    Text,
    Path,
    PathOrOff,
    Loopback,
    Mode,
    Level,
    Count,
    Size,
    Duration
};

struct Setting {
    const char *section;
    const char *name;
    SettingType type;
    std::string Config::*text;  // Text, Path, PathOrOff and Loopback
    uint64_t Config::*number;   // the others
    const char *default_value;  // as it would be written, without quotes
    uint64_t min, max;          // of number; of the length for Text
    bool auto_allowed;          // "auto" means 0 here and a number after resolve()
    bool reloadable;            // SIGHUP may change it; others need a restart
    const char *doc;            // sentences for the default file; '\n' starts a new line
};

std::span<const Setting> settings();
const Setting *find_setting(std::string_view section, std::string_view name);
std::span<const char *const> sections();

// Where each value was set, for messages about combinations: 0 = a default.
using SettingLines = std::vector<uint32_t>;  // by index in settings()

struct ParsedConfig {
    Config config;
    SettingLines lines;
    std::vector<std::string> errors;  // "FILE:LINE: what is wrong, and what is allowed"
};

Config default_config();
ParsedConfig parse_config(std::string_view text, const std::string &file);
// Reads at most 1 MiB. A file that cannot be read is the Error; a bad one is in errors.
Result<ParsedConfig> load_config(const std::string &file);

// Puts this machine's numbers where "auto" stands and checks the rules between keys. Appends to
// errors. `memory_bytes`: of the host (MemTotal).
void resolve_config(ParsedConfig &parsed, const std::string &file, uint64_t memory_bytes);
uint64_t host_memory_bytes();

// One line per key, as TOML that parse_config reads back to the same values.
std::string print_config(const Config &config);
// The commented file that is installed: every key with its default and its meaning.
std::string default_config_file();

// Copies what a reload may change from `fresh` to `config`; returns the names ("daemon.socket") of
// keys that differ and need a restart.
std::vector<std::string> reload_config(Config &config, const Config &fresh);

}  // namespace maru
