// marud and libmaru when something runs out: memory, descriptors, disk, permission, time.
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/integration/exhaustion/support.h"
#include "tests/integration/known_failures/actor.h"

int main(int argc, char **argv) {
    maru::test::run_under_shim(argv);
    if (const int status = maru::test::run_actor(argc, argv); status >= 0)
        return status;
    maru::test::own_mounts();  // before the first thread
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
