#include "daemon/config/setting_value.h"

#include <sys/un.h>

#include <cerrno>

#include "daemon/config/loopback_address.h"
#include "libmaru/base/duration_text.h"
#include "libmaru/base/size_text.h"

namespace maru {
namespace {

struct Level {
    const char *name;
    uint64_t priority;  // of syslog
};
constexpr Level kLevels[] = {{"err", 3}, {"warning", 4}, {"notice", 5}, {"info", 6}, {"debug", 7}};

Error wrong(std::string message) { return Error{EINVAL, std::move(message)}; }

const char *wanted(const Setting &setting) {
    switch (setting.type) {
        case SettingType::Text:
            return "text in quotes";
        case SettingType::Path:
            return "an absolute path in quotes";
        case SettingType::PathOrOff:
            return "an absolute path in quotes, or \"off\"";
        case SettingType::Loopback:
            return "an address such as \"127.0.0.1:9469\" in quotes, or \"\"";
        case SettingType::Mode:
            return "an octal mode in quotes such as \"0660\"";
        case SettingType::Level:
            return "one of \"err\", \"warning\", \"notice\", \"info\", \"debug\"";
        case SettingType::Count:
            return "an integer";
        case SettingType::Size:
            return "a size such as \"8G\" or a number of bytes";
        case SettingType::Duration:
            return "a duration in quotes such as \"30s\"";
    }
    return "another type";
}

Result<void> in_range(const Setting &setting, uint64_t number) {
    if (number >= setting.min && number <= setting.max)
        return {};
    return wrong("is out of range: allowed is " + show_number(setting, setting.min) + " to " +
                 show_number(setting, setting.max));
}

Result<void> set_text(Config &config, const Setting &setting, const std::string &text) {
    if (text.find('\0') != std::string::npos)
        return wrong("contains a NUL character");
    if (text.size() > 4095)
        return wrong("is longer than 4095 bytes");
    if (setting.type == SettingType::Loopback && !text.empty()) {
        if (auto address = parse_loopback_address(text); !address)
            return wrong(address.error().message);
    }
    bool off = setting.type == SettingType::PathOrOff && text == "off";
    bool path = setting.type == SettingType::Path || setting.type == SettingType::PathOrOff;
    if (path && !off && !text.empty()) {
        if (text[0] != '/')
            return wrong("'" + text + "' is not an absolute path" +
                         (setting.type == SettingType::PathOrOff ? " or \"off\"" : ""));
        bool socket = setting.text == &Config::socket || setting.text == &Config::metrics_socket;
        if (socket && text.size() >= sizeof(sockaddr_un::sun_path))
            return wrong("is longer than the 107 bytes of a socket's path");
    }
    config.*setting.text = text;
    return {};
}

Result<uint64_t> parse_text_number(const Setting &setting, const std::string &text) {
    switch (setting.type) {
        case SettingType::Mode: {
            uint64_t mode = 0;
            bool good = !text.empty() && text.size() <= 4;
            for (char c : text) {
                good = good && c >= '0' && c <= '7';
                mode = mode * 8 + static_cast<uint64_t>(c - '0');
            }
            if (!good)
                return wrong("'" + text + "' is not " + wanted(setting));
            return mode;
        }
        case SettingType::Level:
            for (const Level &level : kLevels)
                if (text == level.name)
                    return level.priority;
            return wrong("'" + text + "' is not " + wanted(setting));
        case SettingType::Size:
            return parse_size(text);
        case SettingType::Duration:
            if (auto span = parse_duration(text); span)
                return static_cast<uint64_t>(*span);
            else
                return span.error();
        default:
            return wrong("is text; it must be " + std::string(wanted(setting)));
    }
}

}  // namespace

bool quoted(const Setting &setting) { return setting.type != SettingType::Count; }

Result<void> set_value(Config &config, const Setting &setting, const TomlEntry &entry) {
    bool takes_integer = setting.type == SettingType::Count || setting.type == SettingType::Size;
    if (entry.kind == TomlEntry::Kind::Integer && takes_integer) {
        if (entry.integer < 0 || !in_range(setting, static_cast<uint64_t>(entry.integer)))
            return wrong("is " + std::to_string(entry.integer) + ": allowed is " +
                         show_number(setting, setting.min) + " to " +
                         show_number(setting, setting.max));
        config.*setting.number = static_cast<uint64_t>(entry.integer);
        return {};
    }
    if (entry.kind != TomlEntry::Kind::Text)
        return wrong("is " + std::string(toml_kind_name(entry.kind)) + "; it must be " +
                     wanted(setting) + (setting.auto_allowed ? " or \"auto\"" : ""));
    if (setting.text)
        return set_text(config, setting, entry.text);
    if (setting.auto_allowed && entry.text == "auto") {
        config.*setting.number = 0;
        return {};
    }
    auto number = parse_text_number(setting, entry.text);
    if (!number)
        return number.error();
    if (auto checked = in_range(setting, *number); !checked)
        return wrong("'" + entry.text + "' " + checked.error().message);
    config.*setting.number = *number;
    return {};
}

std::string show_number(const Setting &setting, uint64_t number) {
    switch (setting.type) {
        case SettingType::Mode: {
            std::string text = "0000";
            for (size_t i = 0; i < 4; ++i)
                text[3 - i] = static_cast<char>('0' + ((number >> (3 * i)) & 7));
            return text;
        }
        case SettingType::Level:
            for (const Level &level : kLevels)
                if (number == level.priority)
                    return level.name;
            return std::to_string(number);
        case SettingType::Size: {
            // Exact: the largest unit that divides it, so that reading it back changes nothing.
            constexpr const char *kUnits[] = {"", "KiB", "MiB", "GiB", "TiB"};
            size_t unit = 0;
            while (unit < 4 && number != 0 && number % 1024 == 0) {
                number /= 1024;
                ++unit;
            }
            return std::to_string(number) + kUnits[unit];
        }
        case SettingType::Duration:
            if (number % 1'000'000'000 == 0)
                return std::to_string(number / 1'000'000'000) + "s";
            if (number % 1'000'000 == 0)
                return std::to_string(number / 1'000'000) + "ms";
            if (number % 1'000 == 0)
                return std::to_string(number / 1'000) + "us";
            return std::to_string(number) + "ns";
        default:
            return std::to_string(number);
    }
}

std::string show_value(const Config &config, const Setting &setting) {
    if (!setting.text) {
        uint64_t number = config.*setting.number;
        if (setting.auto_allowed && number == 0)
            return "\"auto\"";
        std::string text = show_number(setting, number);
        return quoted(setting) ? "\"" + text + "\"" : text;
    }
    std::string out = "\"";
    for (char c : config.*setting.text) {
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
            constexpr char kHex[] = "0123456789ABCDEF";
            out += "\\u00";
            out += kHex[static_cast<unsigned char>(c) >> 4];
            out += kHex[static_cast<unsigned char>(c) & 15];
        } else {
            out += c;
        }
    }
    return out + "\"";
}

}  // namespace maru
