#include "libmaru/cuda/kernels.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace maru::cuda {
namespace {

TEST(CudaKernelsFallback, SaysThatNvccWasMissing) {
    auto image = kernel_image();
    ASSERT_FALSE(image);
    EXPECT_EQ(image.error().code, ENOTSUP);
    EXPECT_NE(image.error().message.find("nvcc"), std::string::npos);
}

}  // namespace
}  // namespace maru::cuda
