#include "daemon/event/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace maru {
namespace {

Result<Arguments> parse(std::vector<std::string> words) {
    std::vector<char *> argv = {const_cast<char *>("marud")};
    for (std::string &word : words)
        argv.push_back(word.data());
    return parse_arguments(static_cast<int>(argv.size()), argv.data());
}

TEST(Arguments, AreTakenInBothSpellings) {
    auto a = parse({"--config", "/c.toml", "--socket=/s", "--user"});
    ASSERT_TRUE(a);
    EXPECT_EQ(a->config_file, "/c.toml");
    EXPECT_EQ(a->socket, "/s");
    EXPECT_TRUE(a->user);
    EXPECT_EQ(a->action, Arguments::Action::Serve);
    auto check = parse({"--check-config", "/d.toml"});
    ASSERT_TRUE(check);
    EXPECT_EQ(check->action, Arguments::Action::CheckConfig);
    EXPECT_EQ(check->config_file, "/d.toml");
    auto both = parse({"--check-config", "--config", "/e.toml"});
    ASSERT_TRUE(both);
    EXPECT_EQ(both->config_file, "/e.toml");
}

TEST(Arguments, WrongOnesAreNamed) {
    for (const std::vector<std::string> &words :
         std::vector<std::vector<std::string>>{{"--sokcet", "/s"},
                                               {"serve"},
                                               {"--socket"},
                                               {"--config="},
                                               {"--user=yes"},
                                               {"--socket", "relative"}}) {
        auto a = parse(words);
        ASSERT_FALSE(a) << words[0];
        EXPECT_THAT(a.error().message, testing::HasSubstr(words[0].substr(0, words[0].find('='))));
    }
}

TEST(Arguments, HelpNamesEveryOption) {
    for (const char *name : {"--config", "--socket", "--user", "--check-config", "--print-config",
                             "--print-default-config", "--version", "--help"}) {
        EXPECT_THAT(help_text(), testing::HasSubstr(name));
    }
}

}  // namespace
}  // namespace maru
