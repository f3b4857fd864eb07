// Runs a program of 0.1 against a real marud, after the link was proven to be with the present library.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "tests/integration/marud_fixture.h"

namespace {

TEST(ProgramOf01, RunsOnThePresentLibrary) {
    maru::test::Marud marud;
    marud.start();
    ::setenv("MARU_SOCKET", marud.socket().c_str(), 1);
    std::FILE *output = ::popen(PROGRAM_PATH " 2>&1", "r");
    ASSERT_TRUE(output);
    std::string text;
    std::array<char, 256> line;
    while (std::fgets(line.data(), line.size(), output))
        text += line.data();
    EXPECT_EQ(::pclose(output), 0) << text;
    EXPECT_EQ(text, "all of 0.1 works\n");
}

// The program proves nothing about a function that it does not call.
TEST(ProgramOf01, CallsEveryFunctionOfItsHeaders) {
    std::ifstream file(PROGRAM_SOURCE);
    const std::string program(std::istreambuf_iterator<char>(file), {});
    ASSERT_NE(program.size(), 0u);
    std::ifstream map(VERSION_SCRIPT);
    size_t functions = 0;
    for (std::string word; map >> word && word != "local:";) {
        if (word.rfind("maru_", 0) != 0)
            continue;
        word.pop_back();  // ';'
        ++functions;
        EXPECT_NE(program.find(word + "("), std::string::npos) << word;
    }
    EXPECT_GE(functions, 38u);
}

}  // namespace
