// A libcuda that counts, loaded by the tests where there is no GPU. MARU_TEST_CUDA_INIT and
// MARU_TEST_CUDA_DEVICES say what cuInit and cuDeviceGetCount answer.
#include <stdlib.h>

#include "libmaru/cuda/driver_types.h"

namespace {
int number(const char *name, int otherwise) {
    const char *value = ::getenv(name);
    return value ? ::atoi(value) : otherwise;
}
}  // namespace

#pragma GCC visibility push(default)
extern "C" {
CUresult cuInit(unsigned) { return static_cast<CUresult>(number("MARU_TEST_CUDA_INIT", 0)); }
CUresult cuGetErrorName(CUresult error, const char **name) {
    *name = error == CUDA_ERROR_NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_OTHER";
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int *count) {
    *count = number("MARU_TEST_CUDA_DEVICES", 1);
    return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice *) { return CUDA_ERROR_INVALID_CONTEXT; }
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice) {
    *context = nullptr;
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }
CUresult cuCtxPushCurrent_v2(CUcontext) { return CUDA_SUCCESS; }
CUresult cuCtxPopCurrent_v2(CUcontext *) { return CUDA_SUCCESS; }
CUresult cuMemHostRegister_v2(void *, size_t, unsigned) { return CUDA_SUCCESS; }
CUresult cuMemHostUnregister(void *) { return CUDA_SUCCESS; }
}
#pragma GCC visibility pop
