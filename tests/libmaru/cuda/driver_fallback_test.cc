#include <gtest/gtest.h>

#include <cerrno>

#include "libmaru/cuda/driver.h"

namespace maru::cuda {
namespace {

TEST(CudaFallback, SaysThatTheBuildHasNoCuda) {
    for (const Error &error : {Driver::system().error(), Driver::load("libcuda.so.1").error()}) {
        EXPECT_EQ(error.code, ENOTSUP);
        EXPECT_NE(error.message.find("no CUDA support"), std::string::npos);
    }
}

}  // namespace
}  // namespace maru::cuda
