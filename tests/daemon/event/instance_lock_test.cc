#include "daemon/event/instance_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "libmaru/base/clock.h"
#include "tests/daemon/event/temp_dir.h"

namespace maru {
namespace {

TEST(InstanceLock, TheSecondIsRefusedSoonAndNamesTheHolder) {
    TempDir dir;
    auto first = InstanceLock::take(dir.path(), 0);
    ASSERT_TRUE(first) << describe(first.error());
    int64_t begin = monotonic_ns();
    auto second = InstanceLock::take(dir.path(), 100);
    EXPECT_LT(monotonic_ns() - begin, 2'000'000'000);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, EBUSY);
    EXPECT_THAT(second.error().message, testing::HasSubstr("in use"));
    EXPECT_THAT(second.error().message, testing::HasSubstr(std::to_string(::getpid())));
}

TEST(InstanceLock, ANumberInTheFileIsNeverBelieved) {
    TempDir dir;
    std::ofstream(dir / "marud.lock") << ::getppid() << "\n";  // alive, and not marud
    EXPECT_TRUE(InstanceLock::take(dir.path(), 0));
}

TEST(InstanceLock, IsFreeAgainWhenItsHolderGoes) {
    TempDir dir;
    { auto first = InstanceLock::take(dir.path(), 0); }
    EXPECT_TRUE(InstanceLock::take(dir.path(), 0));
}

TEST(InstanceLock, FollowsNoLinkAndNamesWhatItCannotOpen) {
    TempDir dir;
    std::filesystem::create_symlink(dir / "elsewhere", dir / "marud.lock");
    EXPECT_FALSE(InstanceLock::take(dir.path(), 0));
    EXPECT_FALSE(std::filesystem::exists(dir / "elsewhere"));
    auto missing = InstanceLock::take(dir / "none", 0);
    ASSERT_FALSE(missing);
    EXPECT_THAT(missing.error().message, testing::HasSubstr(dir / "none"));
}

}  // namespace
}  // namespace maru
