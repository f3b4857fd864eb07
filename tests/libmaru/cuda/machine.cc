#include "tests/libmaru/cuda/machine.h"

#include <dlfcn.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "libmaru/cuda/kernels.h"

namespace maru::cuda {

namespace {

FakeGpu *g_gpu = nullptr;

class ReferenceMachine : public Machine {
  public:
    ReferenceMachine() : table_driver_(fake_table(gpu_)) {
        static const unsigned char image[1] = {0};
        owned_ = std::move(*Device::open(table_driver_, 0, image));
        driver_ = &table_driver_;
        device_ = owned_.get();
    }
    void *allocate(size_t bytes) override {
        memory_.push_back(std::make_unique<std::byte[]>(bytes));
        return memory_.back().get();
    }
    void write(void *to, const void *from, size_t bytes) override { std::memcpy(to, from, bytes); }
    void read(void *to, const void *from, size_t bytes) override { std::memcpy(to, from, bytes); }

  private:
    FakeGpu gpu_;
    Driver table_driver_;
    std::unique_ptr<Device> owned_;
    std::vector<std::unique_ptr<std::byte[]>> memory_;
};

// Allocation and blocking copies are functions that Maru does not use.
class GpuMachine : public Machine {
  public:
    static Result<std::unique_ptr<Machine>> make() {
        auto driver = Driver::system();
        if (!driver)
            return driver.error();
        auto device = Device::system(0);
        if (!device)
            return device.error();
        auto machine = std::make_unique<GpuMachine>();
        machine->driver_ = *driver;
        machine->device_ = *device;
        void *library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        const auto find = [&](auto &function, const char *name) {
            function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
                ::dlsym(library, name));
            return function != nullptr;
        };
        if (!find(machine->allocate_, "cuMemAlloc_v2") || !find(machine->free_, "cuMemFree_v2") ||
            !find(machine->to_device_, "cuMemcpyHtoD_v2") ||
            !find(machine->to_host_, "cuMemcpyDtoH_v2"))
            return Error{ENOTSUP, "libcuda.so.1 is a stand-in"};
        return std::unique_ptr<Machine>(std::move(machine));
    }
    ~GpuMachine() override {
        const Device::Current current(*device_);
        for (CUdeviceptr memory : memory_)
            free_(memory);
    }
    void *allocate(size_t bytes) override {
        const Device::Current current(*device_);
        CUdeviceptr memory = 0;
        if (allocate_(&memory, bytes) != CUDA_SUCCESS)
            return nullptr;
        memory_.push_back(memory);
        return reinterpret_cast<void *>(memory);
    }
    void write(void *to, const void *from, size_t bytes) override {
        const Device::Current current(*device_);
        to_device_(reinterpret_cast<CUdeviceptr>(to), from, bytes);
    }
    void read(void *to, const void *from, size_t bytes) override {
        const Device::Current current(*device_);
        to_host_(to, reinterpret_cast<CUdeviceptr>(from), bytes);
    }

  private:
    CUresult (*allocate_)(CUdeviceptr *, size_t) = nullptr;
    CUresult (*free_)(CUdeviceptr) = nullptr;
    CUresult (*to_device_)(CUdeviceptr, const void *, size_t) = nullptr;
    CUresult (*to_host_)(void *, CUdeviceptr, size_t) = nullptr;
    std::vector<CUdeviceptr> memory_;
};

}  // namespace

DriverTable fake_table(FakeGpu &gpu) {
    g_gpu = &gpu;
    return {
        .get_error_name =
            [](CUresult error, const char **name) {
                *name =
                    error == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : nullptr;
                return CUDA_SUCCESS;
            },
        .current_device = [](CUdevice *) { return CUDA_ERROR_INVALID_CONTEXT; },
        .retain_primary = [](CUcontext *, CUdevice) { return CUDA_SUCCESS; },
        .release_primary = [](CUdevice) { return CUDA_SUCCESS; },
        .push_context = [](CUcontext) { return CUDA_SUCCESS; },
        .pop_context = [](CUcontext *) { return CUDA_SUCCESS; },
        .register_memory = [](void *data, size_t bytes,
                              unsigned) { return g_gpu->add(data, bytes); },
        .unregister_memory = [](void *data) { return g_gpu->remove(data); },
        .device_pointer = [](CUdeviceptr *device, void *data,
                             unsigned) { return g_gpu->address(device, data); },
        .load_module = [](CUmodule *, const void *) { return CUDA_SUCCESS; },
        .get_function =
            [](CUfunction *function, CUmodule, const char *name) {
                *function = fake_function(name);
                return *function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
            },
        .launch =
            [](CUfunction function, unsigned grid, unsigned, unsigned, unsigned threads, unsigned,
               unsigned, unsigned, CUstream stream, void **parameters, void **) {
                return fake_launch(*g_gpu, function, grid, threads, stream, parameters);
            },
        .copy_to_device = [](CUdeviceptr to, const void *from, size_t bytes,
                             CUstream stream) { return g_gpu->to_device(to, from, bytes, stream); },
        .copy_to_host = [](void *to, CUdeviceptr from, size_t bytes,
                           CUstream stream) { return g_gpu->to_host(to, from, bytes, stream); },
        .synchronize = [](CUstream stream) { return g_gpu->synchronize(stream); },
    };
}

Result<std::unique_ptr<Machine>> Machine::make(Processor processor) {
    if (processor == Processor::Gpu)
        return GpuMachine::make();
    return std::unique_ptr<Machine>(std::make_unique<ReferenceMachine>());
}

}  // namespace maru::cuda
