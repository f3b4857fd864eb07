#include "daemon/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace maru {
namespace {

using testing::HasSubstr;

constexpr uint64_t kGiB = 1ull << 30;

ParsedConfig parse(const std::string &text) { return parse_config(text, "m.toml"); }

ParsedConfig resolve(const std::string &text, uint64_t memory = 64 * kGiB) {
    ParsedConfig parsed = parse(text);
    resolve_config(parsed, "m.toml", memory);
    return parsed;
}

struct BadConfig {
    const char *text;
    const char *place;    // what the error begins with
    const char *message;  // and what it contains
};

class BadConfigs : public testing::TestWithParam<BadConfig> {};

TEST_P(BadConfigs, AreRefusedWithPlaceAndReason) {
    ParsedConfig parsed = resolve(GetParam().text);
    ASSERT_EQ(parsed.errors.size(), 1u) << testing::PrintToString(parsed.errors);
    EXPECT_EQ(parsed.errors[0].rfind(GetParam().place, 0), 0u) << parsed.errors[0];
    EXPECT_THAT(parsed.errors[0], HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Table, BadConfigs,
    testing::Values(
        // unknown names, with the nearest one
        BadConfig{
            "[sessions]\ntimeot = \"3s\"\n", "m.toml:2: ",
            "unknown key 'timeot' in [sessions]; the nearest known one is 'timeout' in [sessions]"},
        BadConfig{"[cpu]\n\ncpu_poolsize = \"1G\"\n",
                  "m.toml:3: ", "unknown key 'cpu_poolsize' in [cpu]"},
        BadConfig{"[cpu]\nhostbytes = 1\n", "m.toml:2: ", "'host_bytes' in [cpu]"},
        BadConfig{"[sesions]\ntimeout = \"3s\"\nmax = 4\n",
                  "m.toml:1: ", "unknown table [sesions]; the nearest known one is [sessions]"},
        // wrong nesting
        BadConfig{"timeout = \"3s\"\n", "m.toml:1: ",
                  "unknown key 'timeout' outside of a table; the nearest known one is 'timeout' in "
                  "[sessions]"},
        BadConfig{"[daemon]\ntimeout = \"3s\"\n", "m.toml:2: ", "'timeout' in [sessions]"},
        BadConfig{"[daemon.socket]\npath = \"/x\"\n",
                  "m.toml:1: ", "'socket' in [daemon] is a table"},
        BadConfig{"[daemon]\nsocket = \"/a\"\n[daemon.sub]\nx = 1\n",
                  "m.toml:3: ", "unknown key 'sub'"},
        // who could reach the metrics
        BadConfig{"[metrics]\ntcp = \"0.0.0.0:9469\"\n", "m.toml:2: ",
                  "'0.0.0.0:9469' can be reached from other hosts: it is not in 127.0.0.0/8"},
        BadConfig{"[metrics]\ntcp = \"[::]:9469\"\n",
                  "m.toml:2: ", "can be reached from other hosts: it is not ::1"},
        BadConfig{"[metrics]\ntcp = \"[::ffff:127.0.0.1]:9469\"\n", "m.toml:2: ", "it is not ::1"},
        BadConfig{"[metrics]\ntcp = \"localhost:9469\"\n",
                  "m.toml:2: ", "does not begin with a numeric address"},
        BadConfig{"[metrics]\ntcp = \"127.1:9469\"\n", "m.toml:2: ", "numeric address"},
        BadConfig{"[metrics]\ntcp = \"127.0.0.1\"\n", "m.toml:2: ", "has no port"},
        BadConfig{"[metrics]\ntcp = \"127.0.0.1:0\"\n", "m.toml:2: ", "port from 1 to 65535"},
        BadConfig{"[metrics]\ntcp = \"127.0.0.1:65536\"\n", "m.toml:2: ", "port from 1"},
        BadConfig{"[metrics]\ntcp = \"127.0.0.1:94 \"\n", "m.toml:2: ", "port from 1"},
        BadConfig{"[metrics]\ntcp = 9469\n", "m.toml:2: ", "such as \"127.0.0.1:9469\""},
        BadConfig{"[metrics]\nsocket = \"of\"\n",
                  "m.toml:2: ", "'of' is not an absolute path or \"off\""},
        // duplicates, and what is not TOML
        BadConfig{"[cpu]\nhost_bytes = 1073741824\nhost_bytes = 2\n", "m.toml:3: ", "host_bytes"},
        BadConfig{"[cpu]\nhost_bytes = \n", "m.toml:2: ", ""},
        BadConfig{"[cpu\n", "m.toml:1: ", ""},
        // types
        BadConfig{"[daemon]\nspin_us = \"5\"\n", "m.toml:2: ", "must be an integer"},
        BadConfig{"[daemon]\nspin_us = 1.5\n", "m.toml:2: ", "is a floating-point number"},
        BadConfig{"[daemon]\nsocket = 5\n", "m.toml:2: ", "must be an absolute path in quotes"},
        BadConfig{"[daemon]\nadmin_group = [\"a\"]\n", "m.toml:2: ", "is an array"},
        BadConfig{"[sessions]\ntimeout = 30\n", "m.toml:2: ", "such as \"30s\""},
        BadConfig{"[sessions]\ntimeout = true\n", "m.toml:2: ", "is a boolean"},
        BadConfig{"[sessions]\ntimeout = 2024-01-01\n", "m.toml:2: ", "is a date or time"},
        BadConfig{"[daemon]\nsocket_mode = 438\n", "m.toml:2: ", "octal"},
        BadConfig{"[daemon]\nsocket_mode = \"0888\"\n", "m.toml:2: ", "'0888' is not"},
        BadConfig{"[daemon]\nsocket_mode = \"07777\"\n", "m.toml:2: ", "'07777' is not"},
        BadConfig{"[daemon]\nlog_level = \"loud\"\n", "m.toml:2: ", "\"notice\""},
        BadConfig{"[daemon]\nsocket = \"run/maru.sock\"\n", "m.toml:2: ", "not an absolute path"},
        // sizes
        BadConfig{"[cpu]\nhost_bytes = \"-5\"\n", "m.toml:2: ", "-5"},
        BadConfig{"[cpu]\nhost_bytes = -5\n", "m.toml:2: ", "is -5: allowed is 1MiB to"},
        BadConfig{"[cpu]\nhost_bytes = \"\"\n", "m.toml:2: ", "'host_bytes' in [cpu]"},
        BadConfig{"[cpu]\nhost_bytes = \"8X\"\n", "m.toml:2: ", "8X"},
        BadConfig{"[cpu]\nhost_bytes = \"50%\"\n", "m.toml:2: ", "50%"},
        BadConfig{"[cpu]\nhost_bytes = \"0\"\n", "m.toml:2: ", "0"},
        BadConfig{"[cpu]\nhost_bytes = 0\n", "m.toml:2: ", "is 0: allowed is 1MiB to"},
        BadConfig{"[cpu]\nhost_bytes = \"1e30G\"\n", "m.toml:2: ", "1e30G"},
        BadConfig{"[cpu]\nhost_bytes = \"99999999999G\"\n", "m.toml:2: ", "99999999999G"},
        BadConfig{"[cpu]\nhost_bytes = \"8GG\"\n", "m.toml:2: ", "8GG"},
        BadConfig{"[cpu]\nhost_bytes = \"0x10\"\n", "m.toml:2: ", "0x10"},
        BadConfig{"[cpu]\nsegment_bytes = \"2G\"\n", "m.toml:2: ", "64KiB to 1GiB"},
        BadConfig{"[cpu]\nsegment_bytes = 1000001\n", "m.toml:2: ", "not a multiple of 4096"},
        BadConfig{"[cpu]\nsegment_bytes = \"auto\"\n", "m.toml:2: ", "auto"},
        BadConfig{"[cpu]\nhost_segment_bytes = \"2G\"\n", "m.toml:2: ", "64KiB to 1GiB"},
        BadConfig{"[cpu]\nhost_segment_bytes = 1000001\n",
                  "m.toml:2: ", "cpu.host_segment_bytes (1000001) is not a multiple of 4096"},
        // ranges
        BadConfig{"[sessions]\ntimeout = \"1ms\"\n",
                  "m.toml:2: ", "'1ms' is out of range: allowed is 200ms to 3600s"},
        BadConfig{"[sessions]\nmax = 0\n", "m.toml:2: ", "allowed is 1 to 1000000"},
        BadConfig{"[sessions]\nin_flight = 257\n", "m.toml:2: ", "is 257: allowed is 1 to 256"},
        BadConfig{"[daemon]\nspin_us = 1001\n", "m.toml:2: ", "allowed is 0 to 1000"},
        // rules between keys
        BadConfig{"[cpu]\nhost_bytes = \"8G\"\nuid_bytes = \"9G\"\n",
                  "m.toml:3: ", "cpu.uid_bytes (9GiB) is above cpu.host_bytes (8GiB)"},
        BadConfig{"[cpu]\nuid_bytes = \"100G\"\n", "m.toml:2: ", "above cpu.host_bytes (32GiB)"},
        BadConfig{"[cpu]\nhost_bytes = \"8G\"\nworker_bytes = \"9G\"\n",
                  "m.toml:3: ", "cpu.worker_bytes (9GiB) is above cpu.uid_bytes (8GiB)"},
        BadConfig{"[sessions]\ntimeout = \"10s\"\nheartbeat = \"6s\"\n",
                  "m.toml:3: ", "above half of sessions.timeout (10s)"}));

TEST(Config, EveryProblemIsTold) {
    ParsedConfig parsed = resolve("[daemon]\nspim_us = 1\n[sessions]\nmax = 0\n[nope]\n");
    ASSERT_EQ(parsed.errors.size(), 3u);
    EXPECT_THAT(parsed.errors[0], HasSubstr("m.toml:2: "));
    EXPECT_THAT(parsed.errors[1], HasSubstr("m.toml:4: "));
    EXPECT_THAT(parsed.errors[2], HasSubstr("m.toml:5: "));
}

TEST(Config, SizesAreBinaryAndOneParserReadsThem) {
    const std::pair<const char *, uint64_t> kSizes[] = {
        {"\"8G\"", 8589934592},   {"\"8g\"", 8589934592}, {"\"8GiB\"", 8589934592},
        {"\"512M\"", 536870912},  {"\"1024K\"", 1048576}, {"\"1.5G\"", 1610612736},
        {"\"16 MiB\"", 16777216}, {"1048576", 1048576},   {"\"8GB\"", 8589934592},
    };
    for (auto [text, bytes] : kSizes) {
        ParsedConfig parsed = parse(std::string("[cpu]\nhost_bytes = ") + text + "\n");
        EXPECT_TRUE(parsed.errors.empty()) << text << ": " << testing::PrintToString(parsed.errors);
        EXPECT_EQ(parsed.config.host_bytes, bytes) << text;
    }
}

TEST(Config, AutoBecomesNumbersOfThisMachine) {
    ParsedConfig parsed = resolve("", 7 * kGiB + 12345);
    ASSERT_TRUE(parsed.errors.empty());
    EXPECT_EQ(parsed.config.host_bytes, 7 * kGiB / 2);
    EXPECT_EQ(parsed.config.uid_bytes, parsed.config.host_bytes);
    EXPECT_EQ(parsed.config.worker_bytes, parsed.config.host_bytes);
    EXPECT_EQ(parsed.config.heartbeat_ns, 10'000'000'000u);
    EXPECT_EQ(resolve("[sessions]\ntimeout = \"3s\"\n").config.heartbeat_ns, 1'000'000'000u);
    EXPECT_GT(host_memory_bytes(), 1u << 24);
}

TEST(Config, QuotaOfAUidLimitsItsWorkersByDefault) {
    ParsedConfig parsed = resolve("[cpu]\nhost_bytes = \"8G\"\nuid_bytes = \"2G\"\n");
    ASSERT_TRUE(parsed.errors.empty());
    EXPECT_EQ(parsed.config.worker_bytes, 2 * kGiB);
}

TEST(Config, PrintedValuesReadBackTheSame) {
    ParsedConfig parsed = resolve(
        "[daemon]\nsocket = \"/tmp/a \\\"b\\\" \\\\ \\u0001.sock\"\nsocket_mode = "
        "\"0640\"\nlog_level = \"debug\"\n"
        "[sessions]\ntimeout = \"1.5s\"\n[cpu]\nhost_bytes = 1048577\n");
    ASSERT_TRUE(parsed.errors.empty()) << testing::PrintToString(parsed.errors);
    std::string printed = print_config(parsed.config);
    ParsedConfig again = resolve(printed);
    ASSERT_TRUE(again.errors.empty()) << testing::PrintToString(again.errors);
    EXPECT_EQ(print_config(again.config), printed);
    for (const Setting &setting : settings()) {
        if (setting.text)
            EXPECT_EQ(again.config.*setting.text, parsed.config.*setting.text) << setting.name;
        else
            EXPECT_EQ(again.config.*setting.number, parsed.config.*setting.number) << setting.name;
    }
    EXPECT_EQ(again.config.socket_mode, 0640u);
    EXPECT_EQ(again.config.timeout_ns, 1'500'000'000u);
}

TEST(Config, DefaultsAreWithinTheirOwnRanges) {
    ParsedConfig defaults = resolve(print_config(default_config()));
    EXPECT_TRUE(defaults.errors.empty()) << testing::PrintToString(defaults.errors);
}

TEST(Config, InstalledFileIsTheTableWithEveryKeyCommentedOut) {
    std::ifstream file(DEFAULT_CONFIG_FILE);
    std::stringstream text;
    text << file.rdbuf();
    EXPECT_EQ(text.str(), default_config_file())
        << "write it anew: marud --print-default-config > daemon/config/marud.toml";
    // As it stands it changes nothing; with every '#key' opened it still is the defaults.
    EXPECT_EQ(print_config(parse(text.str()).config), print_config(default_config()));
    std::string opened;
    for (std::string line; std::getline(text, line);)
        opened +=
            (line.size() > 1 && line[0] == '#' && line[1] != ' ' ? line.substr(1) : line) + "\n";
    ParsedConfig parsed = parse(opened);
    EXPECT_TRUE(parsed.errors.empty()) << testing::PrintToString(parsed.errors);
    EXPECT_EQ(print_config(parsed.config), print_config(default_config()));
    for (size_t i = 0; i < settings().size(); ++i)
        EXPECT_NE(parsed.lines[i], 0u) << settings()[i].name << " is not in the file";
}

TEST(Config, EverySettingIsDescribedAndHasItsOwnPlace) {
    for (const Setting &a : settings()) {
        EXPECT_GT(std::string(a.doc).size(), 20u) << a.name;
        EXPECT_NE(a.text == nullptr, a.number == nullptr) << a.name;
        for (const Setting &b : settings()) {
            if (&a == &b)
                continue;
            EXPECT_FALSE(std::string(a.section) == b.section && std::string(a.name) == b.name);
            EXPECT_FALSE(a.text && a.text == b.text) << a.name;
            EXPECT_FALSE(a.number && a.number == b.number) << a.name;
        }
    }
}

TEST(Config, ReloadTakesLimitsAndNamesWhatNeedsARestart) {
    Config config = resolve("").config;
    ParsedConfig fresh =
        resolve("[daemon]\nsocket = \"/tmp/other.sock\"\nspin_us = 50\n[sessions]\nmax = 7\n");
    auto restart = reload_config(config, fresh.config);
    EXPECT_EQ(restart, std::vector<std::string>{"daemon.socket"});
    EXPECT_EQ(config.spin_us, 50u);
    EXPECT_EQ(config.sessions, 7u);
    EXPECT_EQ(config.socket, "");
}

TEST(Config, AFileThatCannotBeReadIsAnErrorThatNamesIt) {
    auto missing = load_config("/nonexistent/marud.toml");
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().code, ENOENT);
    EXPECT_THAT(missing.error().message, HasSubstr("/nonexistent/marud.toml"));
    auto directory = load_config("/");
    ASSERT_FALSE(directory);
    EXPECT_THAT(directory.error().message, HasSubstr("not a regular file"));
    EXPECT_TRUE(load_config("/dev/null"));
}

TEST(Config, MetricsTakePathsOffAndLoopbackAddresses) {
    for (const char *address : {"", "127.0.0.1:9469", "127.9.9.9:1", "[::1]:65535"}) {
        ParsedConfig parsed = resolve(std::string("[metrics]\ntcp = \"") + address + "\"\n");
        EXPECT_TRUE(parsed.errors.empty()) << testing::PrintToString(parsed.errors);
        EXPECT_EQ(parsed.config.metrics_tcp, address);
    }
    for (const char *path : {"", "off", "/run/x/metrics.sock"}) {
        ParsedConfig parsed = resolve(std::string("[metrics]\nsocket = \"") + path + "\"\n");
        EXPECT_TRUE(parsed.errors.empty()) << testing::PrintToString(parsed.errors);
        EXPECT_EQ(parsed.config.metrics_socket, path);
    }
}

}  // namespace
}  // namespace maru
