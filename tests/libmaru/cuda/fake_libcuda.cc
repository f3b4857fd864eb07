// A libcuda with a GPU of the tests' own, loaded where there is none. MARU_TEST_CUDA_INIT and
// MARU_TEST_CUDA_DEVICES say what cuInit and cuDeviceGetCount answer, MARU_TEST_CUDA_FAILED what a stream
// that has passed answers.
#include <stdlib.h>

#include "libmaru/cuda/driver_types.h"
#include "tests/libmaru/cuda/fake_gpu.h"

namespace {
int number(const char *name, int otherwise) {
    const char *value = ::getenv(name);
    return value ? ::atoi(value) : otherwise;
}
maru::cuda::FakeGpu &gpu() {
    static auto *one = new maru::cuda::FakeGpu;  // pools may be unregistered at exit
    return *one;
}
}  // namespace

#pragma GCC visibility push(default)
extern "C" {
CUresult cuInit(unsigned) { return static_cast<CUresult>(number("MARU_TEST_CUDA_INIT", 0)); }
CUresult cuGetErrorName(CUresult error, const char **name) {
    *name = error == CUDA_ERROR_NO_DEVICE         ? "CUDA_ERROR_NO_DEVICE"
            : error == CUDA_ERROR_INVALID_DEVICE  ? "CUDA_ERROR_INVALID_DEVICE"
            : error == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                                                  : "CUDA_ERROR_OTHER";
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int *count) {
    *count = number("MARU_TEST_CUDA_DEVICES", 1);
    return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice *) { return CUDA_ERROR_INVALID_CONTEXT; }
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    *context = nullptr;
    return device < number("MARU_TEST_CUDA_DEVICES", 1) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }
CUresult cuCtxPushCurrent_v2(CUcontext) { return CUDA_SUCCESS; }
CUresult cuCtxPopCurrent_v2(CUcontext *) { return CUDA_SUCCESS; }
CUresult cuMemHostRegister_v2(void *data, size_t bytes, unsigned) { return gpu().add(data, bytes); }
CUresult cuMemHostUnregister(void *data) { return gpu().remove(data); }
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *data, unsigned) {
    return gpu().address(device, data);
}
CUresult cuModuleLoadData(CUmodule *, const void *) { return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction *function, CUmodule, const char *name) {
    *function = maru::cuda::fake_function(name);
    return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction function, unsigned grid, unsigned, unsigned, unsigned threads,
                        unsigned, unsigned, unsigned, CUstream stream, void **parameters, void **) {
    return maru::cuda::fake_launch(gpu(), function, grid, threads, stream, parameters);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    return gpu().to_device(to, from, bytes, stream);
}
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return gpu().to_host(to, from, bytes, stream);
}
CUresult cuStreamSynchronize(CUstream stream) {
    const CUresult passed = gpu().synchronize(stream);
    return passed ? passed : static_cast<CUresult>(number("MARU_TEST_CUDA_FAILED", 0));
}

// For the tests: what was asked of it.
unsigned long fake_cuda_launches(void *stream) {
    return gpu().launches(static_cast<CUstream>(stream));
}
unsigned long fake_cuda_copies(void) { return gpu().copies(); }
unsigned long fake_cuda_registered_bytes(void) { return gpu().registered_bytes(); }
}
#pragma GCC visibility pop
