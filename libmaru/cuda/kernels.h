// The compiled kernels, inside the library: machine code for the GPUs of today and PTX for those to come.
//
// They are part of libmaru.so, not a plug-in beside it: nothing to find at run time, and never of another
// version. kernels_fallback.cc stands in where nvcc was not there at the build.
#pragma once

#include "libmaru/base/result.h"

namespace maru::cuda {

// A fat binary, as cuModuleLoadData takes it. ENOTSUP says what was missing.
Result<const unsigned char *> kernel_image();

}  // namespace maru::cuda
