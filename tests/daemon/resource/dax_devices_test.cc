#include "daemon/resource/dax_devices.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>

namespace maru {

// The other file of the pair, compiled into this test under another name.
Result<std::vector<DaxDevice>> list_dax_devices_fallback();

namespace {

TEST(DaxDevices, ListsWhatTheKernelHas) {
    auto devices = list_dax_devices();
#ifdef MARU_TEST_HAVE_DAXCTL
    ASSERT_TRUE(devices) << devices.error().message;
    size_t known = 0;
    std::error_code none;  // no such bus: no device
    for (const auto &entry : std::filesystem::directory_iterator("/sys/bus/dax/devices", none))
        known += entry.path().filename().string().rfind("dax", 0) == 0;
    EXPECT_EQ(devices->size(), known);
#else
    ASSERT_FALSE(devices);
    EXPECT_EQ(devices.error().code, ENOTSUP);
#endif
}

TEST(DaxDevices, FallbackIsNotSupported) {
    auto devices = list_dax_devices_fallback();
    ASSERT_FALSE(devices);
    EXPECT_EQ(devices.error().code, ENOTSUP);
    EXPECT_NE(devices.error().message.find("without libdaxctl"), std::string::npos);
}

TEST(DaxDevices, SystemRamIsSaidInTheseWords) {
    EXPECT_EQ(describe_dax_devices({}), "no DAX device\n");
    EXPECT_EQ(
        describe_dax_devices(
            {{"dax0.0", 1ull << 30, 2 << 20, 1, false}, {"dax1.0", 512 << 20, 2 << 20, -1, true}}),
        "dax0.0  1 GiB, aligned to 2 MiB, node 1\n"
        "dax1.0  512 MiB, aligned to 2 MiB, in system-ram mode: the kernel uses it as ordinary "
        "memory\n");
}

}  // namespace
}  // namespace maru
