#include "libmaru/client/pool_pins.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <map>

#include "libmaru/cuda/driver_types.h"

namespace maru::client {
namespace {

std::map<std::byte *, size_t> registered;
std::byte *refused = nullptr;

const cuda::DriverTable kFake = {
    .get_error_name = [](CUresult, const char **name) { return *name = nullptr, CUDA_SUCCESS; },
    .current_device = [](CUdevice *) { return CUDA_ERROR_INVALID_CONTEXT; },
    .retain_primary = [](CUcontext *, CUdevice) { return CUDA_SUCCESS; },
    .release_primary = [](CUdevice) { return CUDA_SUCCESS; },
    .push_context = [](CUcontext) { return CUDA_SUCCESS; },
    .pop_context = [](CUcontext *) { return CUDA_SUCCESS; },
    .register_memory =
        [](void *data, size_t bytes, unsigned) {
            if (data == refused)
                return CUDA_ERROR_OUT_OF_MEMORY;
            return registered[static_cast<std::byte *>(data)] = bytes, CUDA_SUCCESS;
        },
    .unregister_memory =
        [](void *data) {
            return registered.erase(static_cast<std::byte *>(data)) ? CUDA_SUCCESS
                                                                    : CUDA_ERROR_INVALID_VALUE;
        },
};

class PoolPinsTest : public testing::Test {
  protected:
    void SetUp() override { registered.clear(), refused = nullptr; }
    Result<void> add(uint64_t begin, uint64_t end, uint64_t piece = 1 << 20) {
        return pins.add(driver, memory + begin, begin, end, piece, 0);
    }
    std::byte *memory = reinterpret_cast<std::byte *>(uintptr_t{1} << 41);  // never touched
    cuda::Driver driver{kFake};
    PoolPins pins;
};

TEST_F(PoolPinsTest, GrowWithoutRegisteringTwice) {
    ASSERT_TRUE(add(0, 8192));
    ASSERT_TRUE(add(0, 8192));
    ASSERT_TRUE(add(0, 20480));
    EXPECT_EQ(registered, (std::map<std::byte *, size_t>{{memory, 8192}, {memory + 8192, 12288}}));
    EXPECT_EQ(pins.bytes(), 20480u);
    EXPECT_EQ(pins.covered(4096, 12288), 8192u);
    EXPECT_EQ(pins.covered(16384, 40960), 4096u);
}

TEST_F(PoolPinsTest, FillTheHoles) {
    ASSERT_TRUE(add(4096, 8192));
    ASSERT_TRUE(add(16384, 20480));
    ASSERT_TRUE(add(0, 28672));
    EXPECT_EQ(registered, (std::map<std::byte *, size_t>{{memory, 4096},
                                                         {memory + 4096, 4096},
                                                         {memory + 8192, 8192},
                                                         {memory + 16384, 4096},
                                                         {memory + 20480, 8192}}));
    EXPECT_EQ(pins.bytes(), 28672u);
}

TEST_F(PoolPinsTest, ChunksAreNoLargerThanAskedFor) {
    ASSERT_TRUE(add(0, 20480, 8192));
    EXPECT_EQ(registered, (std::map<std::byte *, size_t>{
                              {memory, 8192}, {memory + 8192, 8192}, {memory + 16384, 4096}}));
}

TEST_F(PoolPinsTest, WhatWasRegisteredBeforeAnErrorStays) {
    ASSERT_TRUE(add(0, 4096));
    refused = memory + 4096;
    auto added = add(0, 8192);
    ASSERT_FALSE(added);
    EXPECT_EQ(added.error().code, ENOMEM);
    EXPECT_EQ(pins.bytes(), 4096u);
}

TEST_F(PoolPinsTest, NothingIsRegisteredAfterTheEnd) {
    ASSERT_TRUE(add(0, 8192));
    pins.clear();
    EXPECT_TRUE(registered.empty());
    EXPECT_EQ(pins.bytes(), 0u);
    EXPECT_EQ(add(0, 4096).error().code, EBUSY);
    EXPECT_TRUE(registered.empty());
}

}  // namespace
}  // namespace maru::client
