// What an operator writes: sizes, keys and defaults mean one thing, and mistakes are named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "libmaru/base/size_text.h"
#include "tests/integration/known_failures/places.h"
#include "tests/integration/known_failures/worker.h"
#include "tests/integration/wire_client.h"

namespace maru::test {
namespace {

using testing::HasSubstr;

struct Ended {
    int status = 0;
    std::string text;  // of both channels
};
Ended run(const std::string &command) {
    Ended ended;
    FILE *pipe = ::popen((command + " 2>&1").c_str(), "re");
    char text[4096];
    for (size_t got; (got = std::fread(text, 1, sizeof text, pipe)) > 0;)
        ended.text.append(text, got);
    const int status = ::pclose(pipe);
    ended.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return ended;
}

// A configuration file of its own, and what marud says about it.
Ended check(const std::string &config) {
    Marud place;  // for its directory; never started
    const std::string path = place.directory() + "/checked.toml";
    std::ofstream(path) << config;
    return run(std::string(kMarudPath) + " --check-config " + path);
}

TEST(KnownFailures, A77_ASizeMeansTheSameEverywhereAndNonsenseIsNamed) {
    Marud marud({.config = "[cpu]\nhost_bytes = \"1M\"\nsegment_bytes = \"1M\"\n"});
    marud.start();
    auto reload = [&](const std::string &size) {
        marud.notifications();
        marud.set_config("[cpu]\nhost_bytes = " + size + "\nsegment_bytes = \"1M\"\n");
        marud.signal(SIGHUP);
        ASSERT_TRUE(marud.wait_notification("READY=1", 20'000));
    };
    auto shown = [&] {  // by maructl, as JSON
        const Ended ended =
            run(std::string(kMaructlPath) + " --socket " + marud.socket() + " status --json");
        EXPECT_EQ(ended.status, 0) << ended.text;
        std::smatch found;
        return std::regex_search(ended.text, found, std::regex("\"host_limit_bytes\": *(\\d+)"))
                   ? std::stoull(found[1])
                   : 0;
    };
    const std::vector<std::pair<std::string, uint64_t>> good = {
        {"8G", 8589934592},  {"8g", 8589934592},   {"8GiB", 8589934592},
        {"512M", 536870912}, {"1024K", 1048576},   {"1.5G", 1610612736},
        {"4096", 4096},      {"16 MiB", 16777216}, {"8GB", 8589934592},
    };
    for (const auto &[text, bytes] : good) {
        SCOPED_TRACE(text);
        const auto parsed = parse_size(text);
        ASSERT_TRUE(parsed);
        EXPECT_EQ(*parsed, bytes);
        if (bytes < 1 << 20) {  // the least that this key takes: told with both
            const Ended ended = check("[cpu]\nhost_bytes = \"" + text + "\"\n");
            EXPECT_EQ(ended.status, 2);
            EXPECT_THAT(ended.text, testing::AllOf(HasSubstr("host_bytes"), HasSubstr("1MiB")));
            continue;
        }
        reload("\"" + text + "\"");
        EXPECT_EQ(query_status(marud.socket()).host_limit_bytes, bytes);
        EXPECT_EQ(shown(), bytes);
    }
    reload("\"8G\"");
    for (const std::string text :
         {"-5", "", "8X", "50%", "0", "1e30G", "99999999999G", "8GG", "0x10", "G", "8 G B"}) {
        SCOPED_TRACE("'" + text + "'");
        EXPECT_FALSE(parse_size(text));
        for (const char *key : {"host_bytes", "uid_bytes", "worker_bytes", "segment_bytes"}) {
            const Ended ended = check("[cpu]\n" + std::string(key) + " = \"" + text + "\"\n");
            EXPECT_EQ(ended.status, 2) << ended.text;
            EXPECT_THAT(ended.text, HasSubstr(key));
            EXPECT_THAT(ended.text, HasSubstr("'" + text + "'"));
        }
        reload("\"" + text + "\"");
        EXPECT_EQ(query_status(marud.socket()).host_limit_bytes, 8589934592u);
    }
    // As a number, without quotes.
    for (const char *text : {"-5", "0", "4095"}) {
        reload(text);
        EXPECT_EQ(query_status(marud.socket()).host_limit_bytes, 8589934592u);
        const Ended ended = check("[cpu]\nhost_bytes = " + std::string(text) + "\n");
        EXPECT_EQ(ended.status, 2);
        EXPECT_THAT(ended.text, HasSubstr("'host_bytes' in [cpu] is " + std::string(text)));
    }
}

TEST(KnownFailures, A78_AMisspeltMisplacedOrDoubledKeyIsRefusedByName) {
    struct Case {
        const char *config;
        std::vector<const char *> words;  // key, place, nearest name
    };
    const std::vector<Case> cases = {
        {"[cpu]\ncpu_poolsize = \"1G\"\n", {":2:", "'cpu_poolsize'", "[cpu]", "nearest"}},
        {"[cpu]\nhost_byte = \"1G\"\n", {":2:", "'host_byte'", "'host_bytes'"}},
        {"[cpu]\n\nsegmentbytes = \"1G\"\n", {":3:", "'segmentbytes'", "'segment_bytes'"}},
        {"[daemon]\nhost_bytes = \"1G\"\n", {":2:", "'host_bytes'", "[cpu]"}},
        {"host_bytes = \"1G\"\n", {":1:", "'host_bytes'", "[cpu]"}},
        {"[cpu.host]\nbytes = \"1G\"\n", {":1:", "'host'", "[cpu]"}},
        {"[cpus]\nhost_bytes = \"1G\"\n", {":1:", "[cpus]", "[cpu]"}},
        {"[cpu]\nhost_bytes = \"1G\"\nhost_bytes = \"2G\"\n", {":3", "host_bytes"}},
        {"[cpu]\nhost_bytes = \"1G\"\n[cpu]\nuid_bytes = \"1G\"\n", {":3", "cpu"}},
        {"[sessions]\nTimeout = \"3s\"\n", {":2:", "'Timeout'", "'timeout'"}},
    };
    for (const Case &given : cases) {
        SCOPED_TRACE(given.config);
        const Ended ended = check(given.config);
        EXPECT_EQ(ended.status, 2);
        for (const char *word : given.words)
            EXPECT_THAT(ended.text, HasSubstr(word));
        // And so does a start that is no mere check.
        Marud marud({.config = given.config});
        marud.spawn();
        EXPECT_EQ(marud.wait_exit(20'000), 2);
        for (const char *word : given.words)
            EXPECT_THAT(marud.log(), HasSubstr(word));
    }
}

// "section.key" to its default as TOML.
using Defaults = std::map<std::string, std::string>;

Defaults of_man_page() {
    std::ifstream page(kConfigPage);
    Defaults out;
    std::string section, key;
    for (std::string line; std::getline(page, line);) {
        std::smatch found;
        if (std::regex_match(line, found, std::regex("\\.Sh \\[(\\w+)\\]")))
            section = found[1];
        else if (line.rfind(".Sh ", 0) == 0)
            section.clear();
        else if (!section.empty() && line.rfind(".It Cm ", 0) == 0)
            key = section + "." + line.substr(7);
        else if (line == "Default:" && std::getline(page, line) &&
                 std::regex_match(line, found, std::regex("\\.Li (.*) \\.")))
            out[key] = std::regex_replace(found[1].str(), std::regex("\\\\\\(dq"), "\"");
    }
    return out;
}

Defaults of_toml(const std::string &text, const std::regex &setting) {
    Defaults out;
    std::string section;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        std::smatch found;
        if (std::regex_match(line, found, std::regex("\\[(\\w+)\\]")))
            section = found[1];
        else if (std::regex_match(line, found, setting))
            out[section + "." + found[1].str()] = found[2];
    }
    return out;
}

TEST(KnownFailures, A80_TheDocumentedDefaultsAreTheTrueOnes) {
    const Defaults documented = of_man_page();
    ASSERT_GT(documented.size(), 15u);
    const Ended commented = run(std::string(kMarudPath) + " --print-default-config");
    ASSERT_EQ(commented.status, 0);
    EXPECT_EQ(of_toml(commented.text, std::regex("#(\\w+) = (.*)")), documented);
    // What marud uses without a configuration. "auto" becomes a number of this machine.
    const Ended effective =
        run(std::string(kMarudPath) + " --print-config --config /dev/null --socket /tmp/x");
    ASSERT_EQ(effective.status, 0) << effective.text;
    Defaults used = of_toml(effective.text, std::regex("(\\w+) = (.*)"));
    for (auto &[key, value] : used) {
        auto found = documented.find(key);
        if (found == documented.end() || found->second != "\"auto\"")
            continue;
        EXPECT_NE(value, "\"auto\"") << key;
        EXPECT_THAT(value, testing::ContainsRegex("[1-9]")) << key;
        value = "\"auto\"";
    }
    EXPECT_EQ(used, documented);
    // And what a marud that runs with them tells: the limits that hello and status show.
    Marud marud;
    marud.start();
    WireClient client(marud.socket());
    const auto *hello = client.ask<wire::HelloReply>(wire::HelloRequest{});
    ASSERT_TRUE(hello);
    const wire::Limits limits = hello->limits;
    EXPECT_EQ(std::to_string(limits.in_flight), documented.at("sessions.in_flight"));
    EXPECT_EQ(std::to_string(limits.ledger_items), documented.at("sessions.ledger_items"));
    EXPECT_EQ(std::to_string(limits.leases), documented.at("sessions.leases_per_session"));
    EXPECT_EQ(std::to_string(limits.spin_us), documented.at("daemon.spin_us"));
    EXPECT_EQ("\"" + std::to_string(limits.session_timeout_ms / 1000) + "s\"",
              documented.at("sessions.timeout"));
    EXPECT_EQ(limits.heartbeat_ms, limits.session_timeout_ms / 3);
    // The defaults that the public headers tell.
    Worker worker({.socket = marud.socket(), .page_bytes = 0, .object_bytes = kPage});
    EXPECT_EQ(worker.pool_info().page_bytes, 64u << 10);
}

}  // namespace
}  // namespace maru::test
