// The few types and values of the CUDA driver API that are used: NVIDIA's own header where the build
// found it, else the same by hand. Nothing of it is linked; see driver.h.
#pragma once

#include <cstddef>

#ifdef MARU_HAVE_CUDA_H
#include <cuda.h>
#else
enum CUresult : unsigned {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
    CUDA_ERROR_NOT_PERMITTED = 800,
    CUDA_ERROR_NOT_SUPPORTED = 801,
};
using CUdevice = int;
using CUcontext = struct CUctx_st *;
#define CU_MEMHOSTREGISTER_PORTABLE 0x01
#define CU_MEMHOSTREGISTER_DEVICEMAP 0x02
#endif

namespace maru::cuda {

// The functions of libcuda that are used, under the names they have there.
struct DriverTable {
    CUresult (*init)(unsigned flags);                                 // cuInit
    CUresult (*get_error_name)(CUresult error, const char **name);    // cuGetErrorName
    CUresult (*device_count)(int *count);                             // cuDeviceGetCount
    CUresult (*current_device)(CUdevice *device);                     // cuCtxGetDevice
    CUresult (*retain_primary)(CUcontext *context, CUdevice device);  // cuDevicePrimaryCtxRetain
    CUresult (*release_primary)(CUdevice device);  // cuDevicePrimaryCtxRelease_v2
    CUresult (*push_context)(CUcontext context);   // cuCtxPushCurrent_v2
    CUresult (*pop_context)(CUcontext *context);   // cuCtxPopCurrent_v2
    CUresult (*register_memory)(void *data, size_t bytes, unsigned flags);  // cuMemHostRegister_v2
    CUresult (*unregister_memory)(void *data);                              // cuMemHostUnregister
};

}  // namespace maru::cuda
