// Stands in for the compiled kernels in a build without nvcc, or without CUDA.
#include <cerrno>

#include "libmaru/cuda/kernels.h"

namespace maru::cuda {

Result<const unsigned char *> kernel_image() {
    return Error{ENOTSUP,
                 "load CUDA: this build of libmaru has no CUDA kernels: it was made without nvcc"};
}

}  // namespace maru::cuda
