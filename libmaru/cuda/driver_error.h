// The errno of what the CUDA driver answered, with the driver's own name for it.
#pragma once

#include <string>

#include "libmaru/base/result.h"
#include "libmaru/cuda/driver_types.h"

namespace maru::cuda {

// "`what` gave CUDA_ERROR_...". EIO for what has no errno of its own: after most of those the context is
// lost, and every later call gives the same.
Error driver_error(const DriverTable &table, CUresult failed, const std::string &what);

}  // namespace maru::cuda
