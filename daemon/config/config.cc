#include "daemon/config/config.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <cerrno>

#include "daemon/config/setting_value.h"
#include "daemon/config/toml_file.h"
#include "libmaru/base/nearest_name.h"
#include "libmaru/base/unique_fd.h"

namespace maru {
namespace {

std::string full_name(const Setting &setting) {
    return std::string(setting.section) + "." + setting.name;
}

size_t index_of(const Setting &setting) {
    return static_cast<size_t>(&setting - settings().data());
}

// The same name in another table is the likeliest mistake; then a typing error in the same table;
// then one anywhere.
const Setting &nearest_setting(const std::string &table, const std::string &key) {
    const Setting *best = &settings()[0];
    size_t best_score = SIZE_MAX;
    for (const Setting &setting : settings()) {
        size_t score = 2 * edit_distance(key, setting.name) + (table == setting.section ? 0 : 1);
        if (score < best_score) {
            best_score = score;
            best = &setting;
        }
    }
    return *best;
}

std::string nearest_section(const std::string &table) {
    return *std::min_element(sections().begin(), sections().end(),
                             [&](const char *a, const char *b) {
                                 return edit_distance(table, a) < edit_distance(table, b);
                             });
}

std::string place(const std::string &file, uint32_t line) {
    return file + ":" + std::to_string(line) + ": ";
}

// "[sessions] timeout", as one would look for it in the file.
std::string key_text(const std::string &table, const std::string &key) {
    return table.empty() ? "'" + key + "' outside of a table" : "'" + key + "' in [" + table + "]";
}

void apply_entry(ParsedConfig &parsed, const TomlEntry &entry, const std::string &file) {
    bool known_section =
        std::find(sections().begin(), sections().end(), entry.table) != sections().end();
    if (entry.key.empty()) {
        if (!known_section)
            parsed.errors.push_back(place(file, entry.line) + "unknown table [" + entry.table +
                                    "]; the nearest known one is [" + nearest_section(entry.table) +
                                    "]");
        return;
    }
    if (!known_section && !entry.table.empty())
        return;  // said once, at the table's head
    const Setting *setting = find_setting(entry.table, entry.key);
    if (!setting) {
        const Setting &near = nearest_setting(entry.table, entry.key);
        parsed.errors.push_back(place(file, entry.line) + "unknown key " +
                                key_text(entry.table, entry.key) + "; the nearest known one is '" +
                                near.name + "' in [" + near.section + "]");
        return;
    }
    parsed.lines[index_of(*setting)] = entry.line;
    if (auto set = set_value(parsed.config, *setting, entry); !set)
        parsed.errors.push_back(place(file, entry.line) + key_text(entry.table, entry.key) + " " +
                                set.error().message);
}

// A rule between two values is reported where one of them was written.
void check_not_above(ParsedConfig &parsed, const std::string &file, const char *low_section,
                     const char *low, const char *high_section, const char *high) {
    const Setting *a = find_setting(low_section, low), *b = find_setting(high_section, high);
    uint64_t low_value = parsed.config.*a->number, high_value = parsed.config.*b->number;
    if (low_value <= high_value)
        return;
    uint32_t line = std::max(parsed.lines[index_of(*a)], parsed.lines[index_of(*b)]);
    parsed.errors.push_back(place(file, line) + full_name(*a) + " (" + show_number(*a, low_value) +
                            ") is above " + full_name(*b) + " (" + show_number(*b, high_value) +
                            "): it may at most be equal");
}

void append_comment(std::string &out, std::string_view doc) {
    while (!doc.empty()) {
        size_t end = std::min(doc.find('\n'), doc.size());
        out += "# ";
        out += doc.substr(0, end);
        out += '\n';
        doc.remove_prefix(std::min(end + 1, doc.size()));
    }
}

}  // namespace

Config default_config() {
    Config config;
    for (const Setting &setting : settings()) {
        TomlEntry entry;
        if (quoted(setting)) {
            entry.kind = TomlEntry::Kind::Text;
            entry.text = setting.default_value;
        } else {
            entry.kind = TomlEntry::Kind::Integer;
            entry.integer = std::stoll(setting.default_value);
        }
        auto set = set_value(config, setting, entry);
        assert(set.ok());  // the table is ours; a test walks it
    }
    return config;
}

ParsedConfig parse_config(std::string_view text, const std::string &file) {
    ParsedConfig parsed;
    parsed.config = default_config();
    parsed.lines.assign(settings().size(), 0);
    TomlFile toml = read_toml(text);
    if (!toml.error.empty()) {
        parsed.errors.push_back(place(file, toml.error_line) + toml.error);
        return parsed;
    }
    for (const TomlEntry &entry : toml.entries)
        apply_entry(parsed, entry, file);
    return parsed;
}

Result<ParsedConfig> load_config(const std::string &file) {
    // O_NONBLOCK: a FIFO in the place of the file is an error, not a hang.
    UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd)
        return Error{errno, "open '" + file + "'"};
    struct stat info = {};
    if (::fstat(fd.get(), &info) < 0)
        return Error{errno, "stat '" + file + "'"};
    if (!S_ISREG(info.st_mode) && !S_ISCHR(info.st_mode))  // /dev/null is a good empty file
        return Error{EINVAL, "read '" + file + "': not a regular file"};
    constexpr size_t kMaxBytes = 1 << 20;
    std::string text;
    char block[8192];
    for (;;) {
        ssize_t got = ::read(fd.get(), block, sizeof block);
        if (got < 0)
            return Error{errno, "read '" + file + "'"};
        if (got == 0)
            break;
        text.append(block, static_cast<size_t>(got));
        if (text.size() > kMaxBytes)
            return Error{EFBIG, "read '" + file + "': a configuration has at most 1 MiB"};
    }
    return parse_config(text, file);
}

void resolve_config(ParsedConfig &parsed, const std::string &file, uint64_t memory_bytes) {
    Config &config = parsed.config;
    if (config.heartbeat_ns == 0)
        config.heartbeat_ns = std::max<uint64_t>(config.timeout_ns / 3, 50'000'000);
    // Whole MiB: what is printed reads well and reads back.
    if (config.host_bytes == 0)
        config.host_bytes = std::max<uint64_t>(memory_bytes / 2 >> 20, 1) << 20;
    if (config.uid_bytes == 0)
        config.uid_bytes = config.host_bytes;
    if (config.worker_bytes == 0)
        config.worker_bytes = config.uid_bytes;
    if (!parsed.errors.empty())
        return;  // values that were refused would only cause more complaints
    check_not_above(parsed, file, "cpu", "uid_bytes", "cpu", "host_bytes");
    check_not_above(parsed, file, "cpu", "worker_bytes", "cpu", "uid_bytes");
    for (const char *name : {"segment_bytes", "host_segment_bytes"}) {
        const Setting *segment = find_setting("cpu", name);
        if (uint64_t bytes = config.*segment->number; bytes % 4096 != 0)
            parsed.errors.push_back(place(file, parsed.lines[index_of(*segment)]) + "cpu." + name +
                                    " (" + std::to_string(bytes) + ") is not a multiple of 4096");
    }
    if (config.heartbeat_ns > config.timeout_ns / 2) {
        const Setting *beat = find_setting("sessions", "heartbeat");
        const Setting *timeout = find_setting("sessions", "timeout");
        uint32_t line = std::max(parsed.lines[index_of(*beat)], parsed.lines[index_of(*timeout)]);
        parsed.errors.push_back(place(file, line) + "sessions.heartbeat (" +
                                show_number(*beat, config.heartbeat_ns) +
                                ") is above half of sessions.timeout (" +
                                show_number(*timeout, config.timeout_ns) + ")");
    }
}

uint64_t host_memory_bytes() {
    struct sysinfo info = {};
    if (::sysinfo(&info) < 0)
        return 0;
    return static_cast<uint64_t>(info.totalram) * info.mem_unit;
}

std::string print_config(const Config &config) {
    std::string out;
    const char *section = "";
    for (const Setting &setting : settings()) {
        if (std::string_view(section) != setting.section) {
            section = setting.section;
            out += (out.empty() ? "[" : "\n[") + std::string(section) + "]\n";
        }
        out += std::string(setting.name) + " = " + show_value(config, setting) + "\n";
    }
    return out;
}

std::string default_config_file() {
    const Config config = default_config();
    std::string out =
        "# Configuration of marud, the metadata daemon of Maru. Every key stands here with its "
        "default;\n"
        "# remove the '#' before it to change it. An unknown key, a wrong type or a value out of "
        "range\n"
        "# is an error. Check with: marud --check-config. Sizes are binary: 8G = 8GiB = 8 * 2^30.\n"
        "# Keys marked (restart) take effect when marud starts, the others also at a reload.\n";
    const char *section = "";
    for (const Setting &setting : settings()) {
        if (std::string_view(section) != setting.section) {
            section = setting.section;
            out += "\n[" + std::string(section) + "]\n";
        } else {
            out += '\n';
        }
        append_comment(out, setting.doc);
        if (!setting.text && setting.type != SettingType::Level)
            out += "# From " + show_number(setting, setting.min) + " to " +
                   show_number(setting, setting.max) + ".\n";
        if (!setting.reloadable)
            out += "# (restart)\n";
        out += "#" + std::string(setting.name) + " = " + show_value(config, setting) + "\n";
    }
    return out;
}

std::vector<std::string> reload_config(Config &config, const Config &fresh) {
    std::vector<std::string> restart;
    for (const Setting &setting : settings()) {
        bool differs = setting.text ? config.*setting.text != fresh.*setting.text
                                    : config.*setting.number != fresh.*setting.number;
        if (!differs)
            continue;
        if (!setting.reloadable) {
            restart.push_back(full_name(setting));
        } else if (setting.text) {
            config.*setting.text = fresh.*setting.text;
        } else {
            config.*setting.number = fresh.*setting.number;
        }
    }
    return restart;
}

}  // namespace maru
