#include "daemon/maructl/arguments.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/daemon/maructl/fake_marud.h"

namespace maru::maructl {
namespace {

using namespace test;

void expect_usage_error(std::vector<const char *> words,
                        std::initializer_list<const char *> parts) {
    const Outcome outcome = run_words(words, [](const Options &, int64_t) -> Result<UniqueFd> {
        ADD_FAILURE() << "connected in spite of wrong usage";
        return Error{EIO, "connect"};
    });
    EXPECT_EQ(outcome.exit, kUsage) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(outcome.err.substr(0, 9), "maructl: ");
    for (const char *part : parts)
        EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err << " lacks " << part;
}

TEST(Arguments, MistakesAreNamedWithWhatIsAllowed) {
    expect_usage_error({}, {"a command is missing"});
    expect_usage_error({"sesion"}, {"unknown command 'sesion'", "did you mean 'session'?"});
    expect_usage_error({"frobnicate"}, {"unknown command 'frobnicate'", "--help"});
    expect_usage_error({"status", "--jsno"}, {"unknown option '--jsno'", "did you mean '--json'?"});
    expect_usage_error({"-x"}, {"unknown option '-x'"});
    expect_usage_error({"status", "--json=1"}, {"--json", "takes no value"});
    expect_usage_error({"status", "--socket"}, {"--socket", "expected PATH"});
    expect_usage_error({"status", "--socket="}, {"--socket", "empty"});
    expect_usage_error({"status", "--timeout", "5"}, {"--timeout", "needs a unit"});
    expect_usage_error({"status", "--timeout=0s"}, {"--timeout", "at least"});
    expect_usage_error({"status", "more"}, {"'more'", "one argument too many", "maructl status"});
    expect_usage_error({"status", "--engine", "e"}, {"--engine", "'status' does not take it"});
    expect_usage_error({"retire"}, {"retire", "argument is missing", "NAMESPACE [OBJECT]"});
    expect_usage_error({"retire", "a", "--namespace", "b"}, {"retire", "only one", "--segment"});
    expect_usage_error({"retire", "--namespace", "b", "--segment", "0x1:0"}, {"only one"});
    expect_usage_error({"retire", "--namespace="}, {"--namespace", "empty"});
    for (const char *wrong : {"7:1", "0x7", "0x7:", "0x7:x", "0x0:1", ":1"})
        expect_usage_error({"retire", "--segment", wrong},
                           {"--segment", wrong[0] == '0' ? "" : "POOL:N"});
    expect_usage_error({"object", "--segment", "0x7:1"}, {"'object' does not take it"});
    expect_usage_error({"drain"}, {"drain", "missing", "on|off"});
    expect_usage_error({"drain", "maybe"}, {"'maybe'", "'on' or 'off'"});
    expect_usage_error({"completion", "tcsh"}, {"'tcsh'", "'bash', 'zsh' or 'fish'"});
    expect_usage_error({"usage", "7"}, {"id '7'", "0x"});
    expect_usage_error({"bench", "--count", "0"}, {"--count", "at least 1"});
    expect_usage_error({"bench", "--count", "x1"}, {"--count", "not a number"});
    expect_usage_error({"bench", "--count", "1000001"}, {"--count", "at most 1000000"});
    expect_usage_error({"explain", "0x1", "ab", "--engine", "e"}, {"digest 'ab'", "64"});
    expect_usage_error({"explain", "0x1", std::string(64, 'a').c_str()},
                       {"--engine ID is missing"});
    expect_usage_error({"explain", "0x1", "k", "--engine", ""}, {"--engine", "1 to 256"});
    expect_usage_error({"explain", "0x1", "k", "--engine=e", "--uid=4294967295"},
                       {"--uid", "at most 4294967294"});
}

TEST(Arguments, OptionsStandAnywhereInBothForms) {
    const char *words[] = {"--timeout=2m", "explain",  "--engine", "e1", "ns",
                           "--uid=7",      "--socket", "/s",       "--", "-key"};
    const auto line = parse_command_line(words);
    ASSERT_TRUE(line.ok()) << line.error().message;
    EXPECT_EQ(line->verb->name, "explain");
    EXPECT_EQ(line->options.timeout_ns, 120'000'000'000);
    EXPECT_EQ(line->options.engine, "e1");
    EXPECT_EQ(line->options.uid, 7u);
    EXPECT_EQ(line->options.socket, "/s");
    EXPECT_EQ(line->options.arguments, (std::vector<std::string>{"ns", "-key"}));
}

TEST(Arguments, HelpListsEveryVerbAndNeedsNoMarud) {
    for (auto words : {std::vector<const char *>{"--help"}, {"-h"}, {"help"}}) {
        const Outcome outcome = run_words(words, nobody_there());
        EXPECT_EQ(outcome.exit, kOk);
        EXPECT_EQ(outcome.err, "");
        for (const Verb &verb : verbs())
            EXPECT_NE(outcome.out.find("\n  " + std::string(verb.name) + " "), std::string::npos)
                << verb.name;
    }
    const Outcome outcome = run_words({"explain", "--help"}, nobody_there());
    EXPECT_NE(outcome.out.find("--engine ID"), std::string::npos);
    EXPECT_EQ(outcome.out.find("--count"), std::string::npos);
}

TEST(Arguments, IdsAndKeys) {
    EXPECT_EQ(*parse_id("0x0"), 0u);
    EXPECT_EQ(*parse_id("0xFfffffffffffffff"), UINT64_MAX);
    for (const char *text : {"", "0x", "12", "0x1g", "0x10000000000000000", "0x-1", "x1"})
        EXPECT_FALSE(parse_id(text).ok()) << text;
    std::string digest;
    for (int i = 0; i < 32; ++i)
        digest += i % 2 ? "0F" : "a1";
    for (auto [suffix, shard, part] : {std::tuple("", 0u, 0u), {"/3", 3u, 0u}, {"/3/4", 3u, 4u}}) {
        const auto key = parse_key(digest + suffix);
        ASSERT_TRUE(key.ok()) << key.error().message;
        EXPECT_EQ(key->digest.bytes[0], 0xa1);
        EXPECT_EQ(key->digest.bytes[31], 0x0f);
        EXPECT_EQ(key->shard, shard);
        EXPECT_EQ(key->part, part);
    }
    for (const char *suffix : {"0", "/", "/x", "/1/", "/1/2/3", "/1/2/", "/4294967296"})
        EXPECT_FALSE(parse_key(digest + suffix).ok()) << suffix;
    digest[5] = 'g';
    EXPECT_NE(parse_key(digest).error().message.find("character 6"), std::string::npos)
        << parse_key(digest).error().message;
}

}  // namespace
}  // namespace maru::maructl
