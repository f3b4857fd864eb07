// The known failures of systems like this one, each against a real marud; see tests/README.md.
#include <gtest/gtest.h>

#include "tests/integration/known_failures/actor.h"

int main(int argc, char **argv) {
    if (const int status = maru::test::run_actor(argc, argv); status >= 0)
        return status;
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
