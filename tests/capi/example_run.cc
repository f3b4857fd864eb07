// Runs the example program against a real marud and compares what it prints.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/integration/marud_fixture.h"

namespace {

TEST(Example, StoresAndLoads) {
    maru::test::Marud marud;
    marud.start();
    ::setenv("MARU_SOCKET", marud.socket().c_str(), 1);
    for (int run = 0; run < 2; ++run) {  // the first one's engine is free again
        FILE *output = ::popen(EXAMPLE_PATH, "r");
        ASSERT_TRUE(output);
        std::string text;
        std::array<char, 256> line;
        while (std::fgets(line.data(), line.size(), output))
            text += line.data();
        EXPECT_EQ(::pclose(output), 0);
        EXPECT_EQ(text,
                  "2 chunks are readable\n"
                  "chunk 0: 65536 bytes of 'a'\n"
                  "chunk 1: 65536 bytes of 'b'\n");
    }
}

}  // namespace
