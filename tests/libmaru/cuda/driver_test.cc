#include "libmaru/cuda/driver.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <cerrno>
#include <string>

#include "libmaru/cuda/pinning.h"

namespace maru::cuda {
namespace {

void expect_unsupported(const char *library, const std::string &word) {
    auto driver = Driver::load(library);
    ASSERT_FALSE(driver);
    EXPECT_EQ(driver.error().code, ENOTSUP);
    EXPECT_NE(driver.error().message.find(word), std::string::npos) << driver.error().message;
}

const char *fake() {
    const char *path = ::getenv("MARU_TEST_FAKE_LIBCUDA");
    return path ? path : "";
}

TEST(CudaDriver, AbsentLibraryIsNotSupportedNamingIt) {
    expect_unsupported("/nonexistent/libcuda.so.1", "/nonexistent/libcuda.so.1");
}

TEST(CudaDriver, LibraryWithoutAFunctionIsNotSupportedNamingIt) {
    const char *path = ::getenv("MARU_TEST_PARTIAL_LIBCUDA");
    if (!path)
        GTEST_SKIP() << "MARU_TEST_PARTIAL_LIBCUDA is not set: run by meson test";
    expect_unsupported(path, "has no cuGetErrorName");
}

TEST(CudaDriver, LoadsAndChecksTheDevices) {
    if (!*fake())
        GTEST_SKIP() << "MARU_TEST_FAKE_LIBCUDA is not set: run by meson test";
    EXPECT_TRUE(Driver::load(fake()));
    ::setenv("MARU_TEST_CUDA_DEVICES", "0", 1);
    expect_unsupported(fake(), "no CUDA device");
    ::unsetenv("MARU_TEST_CUDA_DEVICES");
    ::setenv("MARU_TEST_CUDA_INIT", "100", 1);
    expect_unsupported(fake(), "cuInit gave CUDA_ERROR_NO_DEVICE");
    ::unsetenv("MARU_TEST_CUDA_INIT");
}

TEST(CudaDriver, SystemGivesTheSameAnswerEachTime) {
    auto first = Driver::system(), second = Driver::system();
    ASSERT_EQ(first.ok(), second.ok());
    if (first) {
        EXPECT_EQ(*first, *second);
    } else {
        EXPECT_EQ(first.error().code, ENOTSUP);
        EXPECT_EQ(first.error().message, second.error().message);
    }
}

// The real thing, where there is a GPU: a shared mapping, as a pool's, in several pieces.
TEST(CudaDriver, RealDevicePinsSharedMemory) {
    auto driver = Driver::system();
    if (!driver)
        GTEST_SKIP() << driver.error().message;
    constexpr uint64_t kBytes = 8 << 20;
    void *memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    {
        auto pinned = Pinning::pin(**driver, memory, kBytes, 0, 4 << 20);
        ASSERT_TRUE(pinned) << pinned.error().message;
        EXPECT_EQ(pinned->pinned_bytes(), kBytes);
        auto twice = Pinning::pin(**driver, memory, kBytes);
        ASSERT_FALSE(twice);
        EXPECT_EQ(twice.error().code, EBUSY) << twice.error().message;
    }
    EXPECT_TRUE(Pinning::pin(**driver, memory, kBytes));  // it was given back
    ::munmap(memory, kBytes);
}

}  // namespace
}  // namespace maru::cuda
