#include "libmaru/cuda/pinning.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <map>

#include "libmaru/cuda/driver_types.h"

namespace maru::cuda {
namespace {

// What the fake driver was told. One test at a time.
struct Calls {
    std::map<void *, size_t> registered;
    std::map<int, int> retained;  // by device
    int pushed = 0;
    int current_device = -1;  // -1: this thread has no context
    int register_count = 0;
    int register_fails_at = 0;  // which call; 0: none
    CUresult register_error = CUDA_ERROR_OUT_OF_MEMORY;
    CUresult retain_error = CUDA_SUCCESS;
    unsigned flags = 0;
};
Calls calls;

const DriverTable kFake = {
    .init = [](unsigned) { return CUDA_SUCCESS; },
    .get_error_name =
        [](CUresult error, const char **name) {
            *name = error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : nullptr;
            return CUDA_SUCCESS;
        },
    .device_count = [](int *count) { return *count = 1, CUDA_SUCCESS; },
    .current_device =
        [](CUdevice *device) {
            *device = calls.current_device;
            return calls.current_device < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
        },
    .retain_primary =
        [](CUcontext *context, CUdevice device) {
            if (calls.retain_error != CUDA_SUCCESS)
                return calls.retain_error;
            *context = nullptr;
            ++calls.retained[device];
            return CUDA_SUCCESS;
        },
    .release_primary = [](CUdevice device) { return --calls.retained[device], CUDA_SUCCESS; },
    .push_context = [](CUcontext) { return ++calls.pushed, CUDA_SUCCESS; },
    .pop_context = [](CUcontext *) { return --calls.pushed, CUDA_SUCCESS; },
    .register_memory =
        [](void *data, size_t bytes, unsigned flags) {
            calls.flags = flags;
            if (++calls.register_count == calls.register_fails_at)
                return calls.register_error;
            calls.registered[data] = bytes;
            return CUDA_SUCCESS;
        },
    .unregister_memory =
        [](void *data) {
            return calls.registered.erase(data) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
        },
};

class PinningTest : public testing::Test {
  protected:
    void SetUp() override { calls = {}; }
    void expect_nothing_owed() {
        EXPECT_TRUE(calls.registered.empty());
        EXPECT_EQ(calls.pushed, 0);
        for (auto [device, count] : calls.retained)
            EXPECT_EQ(count, 0) << "device " << device;
    }
    std::byte *memory = reinterpret_cast<std::byte *>(uintptr_t{1} << 40);  // never touched
    const uint64_t gib = uint64_t{1} << 30;
    Driver driver{kFake};
};

TEST_F(PinningTest, RegistersInPiecesAndGivesAllBack) {
    {
        auto pinned = Pinning::pin(driver, memory, 40 * gib);
        ASSERT_TRUE(pinned);
        EXPECT_EQ(calls.registered, (std::map<void *, size_t>{{memory, 16 * gib},
                                                              {memory + 16 * gib, 16 * gib},
                                                              {memory + 32 * gib, 8 * gib}}));
        EXPECT_EQ(pinned->pinned_bytes(), 40 * gib);
        EXPECT_EQ(calls.flags,
                  unsigned{CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP});
        EXPECT_EQ(calls.retained[0], 1);  // the registration needs its context
        EXPECT_EQ(calls.pushed, 0);       // the caller's context is as it was
    }
    expect_nothing_owed();
}

TEST_F(PinningTest, NoSinglePieceReachesTheSizeThatTheDriverRefuses) {
    auto pinned = Pinning::pin(driver, memory, 1024 * gib);
    ASSERT_TRUE(pinned);
    for (auto [data, bytes] : calls.registered)
        EXPECT_LT(bytes, 512 * gib);
    EXPECT_EQ(pinned->pinned_bytes(), 1024 * gib);
}

TEST_F(PinningTest, RefusedPieceUndoesTheOthersAndIsNamed) {
    calls.register_fails_at = 3;
    auto pinned = Pinning::pin(driver, memory, 40 * gib);
    ASSERT_FALSE(pinned);
    EXPECT_EQ(pinned.error().code, ENOMEM);
    EXPECT_NE(pinned.error().message.find("CUDA_ERROR_OUT_OF_MEMORY"), std::string::npos);
    EXPECT_NE(pinned.error().message.find(std::to_string(8 * gib)), std::string::npos);
    expect_nothing_owed();
}

TEST_F(PinningTest, EveryDriverCodeHasAnErrno) {
    for (auto [result, code] : {std::pair{CUDA_ERROR_INVALID_VALUE, EINVAL},
                                {CUDA_ERROR_OUT_OF_MEMORY, ENOMEM},
                                {CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, EBUSY},
                                {CUDA_ERROR_NOT_PERMITTED, EACCES},
                                {CUDA_ERROR_NOT_SUPPORTED, ENOTSUP},
                                {static_cast<CUresult>(999), EIO}}) {
        calls = {.register_fails_at = 1, .register_error = result};
        EXPECT_EQ(Pinning::pin(driver, memory, gib).error().code, code);
        expect_nothing_owed();
    }
    calls = {.retain_error = CUDA_ERROR_INVALID_DEVICE};
    auto pinned = Pinning::pin(driver, memory, gib, 7);
    EXPECT_EQ(pinned.error().code, ENODEV);
    EXPECT_NE(pinned.error().message.find("device 7"), std::string::npos);
    expect_nothing_owed();
}

TEST_F(PinningTest, UsesTheDeviceOfTheCallersContext) {
    calls.current_device = 3;
    auto pinned = Pinning::pin(driver, memory, gib, 0);
    ASSERT_TRUE(pinned);
    EXPECT_EQ(calls.retained[3], 1);
    EXPECT_EQ(calls.retained.count(0), 0u);
    calls.current_device = -1;  // released from a thread without one
    *pinned = Pinning();
    expect_nothing_owed();
}

TEST_F(PinningTest, MovesWithoutRegisteringTwice) {
    auto first = Pinning::pin(driver, memory, gib);
    ASSERT_TRUE(first);
    Pinning second = std::move(*first);
    EXPECT_EQ(first->pinned_bytes(), 0u);
    EXPECT_EQ(second.pinned_bytes(), gib);
    *first = Pinning();
    EXPECT_EQ(calls.registered.size(), 1u);
    second = Pinning();
    expect_nothing_owed();
}

TEST_F(PinningTest, UnalignedAndEmptyRangesAreRefusedBeforeTheDriver) {
    EXPECT_EQ(Pinning::pin(driver, memory, 0).error().code, EINVAL);
    EXPECT_EQ(Pinning::pin(driver, memory, 100).error().code, EINVAL);
    EXPECT_EQ(Pinning::pin(driver, memory + 1, 4096).error().code, EINVAL);
    EXPECT_EQ(Pinning::pin(driver, memory, 4096, 0, 0).error().code, EINVAL);
    EXPECT_EQ(Pinning::pin(driver, memory, 4096, 0, 100).error().code, EINVAL);
    EXPECT_EQ(calls.register_count, 0);
}

TEST_F(PinningTest, ForkedChildNeverCallsTheDriver) {
    auto pinned = Pinning::pin(driver, memory, gib);
    ASSERT_TRUE(pinned);
    const pid_t child = ::fork();
    if (child == 0) {
        *pinned = Pinning();
        ::_exit(calls.registered.size() == 1 && calls.retained[0] == 1 ? 0 : 1);
    }
    int status = 1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace maru::cuda
