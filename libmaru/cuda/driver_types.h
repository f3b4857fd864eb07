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
    CUDA_ERROR_INVALID_IMAGE = 200,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
    CUDA_ERROR_INVALID_PTX = 218,
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
    CUDA_ERROR_NOT_PERMITTED = 800,
    CUDA_ERROR_NOT_SUPPORTED = 801,
};
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st *;
using CUmodule = struct CUmod_st *;
using CUfunction = struct CUfunc_st *;
using CUstream = struct CUstream_st *;
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
    // cuMemHostGetDevicePointer_v2
    CUresult (*device_pointer)(CUdeviceptr *device, void *data, unsigned flags);
    CUresult (*load_module)(CUmodule *module, const void *image);  // cuModuleLoadData
    // cuModuleGetFunction
    CUresult (*get_function)(CUfunction *function, CUmodule module, const char *name);
    // cuLaunchKernel
    CUresult (*launch)(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                       CUstream stream, void **parameters, void **extra);
    // cuMemcpyHtoDAsync_v2, cuMemcpyDtoHAsync_v2
    CUresult (*copy_to_device)(CUdeviceptr to, const void *from, size_t bytes, CUstream stream);
    CUresult (*copy_to_host)(void *to, CUdeviceptr from, size_t bytes, CUstream stream);
    CUresult (*synchronize)(CUstream stream);  // cuStreamSynchronize
};

}  // namespace maru::cuda
