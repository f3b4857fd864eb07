#include "libmaru/cuda/driver_error.h"

#include <cerrno>

namespace maru::cuda {

namespace {

int errno_of(CUresult failed) {
    switch (failed) {
        case CUDA_ERROR_INVALID_VALUE:
        case CUDA_ERROR_INVALID_HANDLE:
            return EINVAL;
        case CUDA_ERROR_OUT_OF_MEMORY:
            return ENOMEM;
        case CUDA_ERROR_NO_DEVICE:
        case CUDA_ERROR_INVALID_DEVICE:
            return ENODEV;
        case CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED:
            return EBUSY;
        case CUDA_ERROR_NOT_PERMITTED:
            return EACCES;
        // The driver is too old for the kernels, or the device is not one that they were made for.
        case CUDA_ERROR_INVALID_IMAGE:
        case CUDA_ERROR_INVALID_PTX:
        case CUDA_ERROR_NO_BINARY_FOR_GPU:
        case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
        case CUDA_ERROR_NOT_SUPPORTED:
            return ENOTSUP;
        default:
            return EIO;
    }
}

}  // namespace

Error driver_error(const DriverTable &table, CUresult failed, const std::string &what) {
    const char *name = nullptr;
    table.get_error_name(failed, &name);
    return Error{errno_of(failed),
                 what + " gave " + (name ? name : std::to_string(static_cast<unsigned>(failed)))};
}

}  // namespace maru::cuda
