#include "libmaru/cuda/driver.h"

#include <dlfcn.h>

#include <cerrno>
#include <string>
#include <type_traits>

#include "libmaru/cuda/driver_types.h"

namespace maru::cuda {

namespace {

Error unsupported(const std::string &what) { return Error{ENOTSUP, "load CUDA: " + what}; }

}  // namespace

Driver::Driver(const DriverTable &table) : table_(std::make_unique<const DriverTable>(table)) {}
Driver::~Driver() = default;

Result<std::unique_ptr<Driver>> Driver::load(const char *library) {
    // Never closed: the driver has threads and exit handlers of its own.
    void *handle = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *why = ::dlerror();
        return unsupported(why ? why : library);
    }
    DriverTable table{};
    const char *missing = nullptr;
    auto find = [&](auto &function, const char *name) {
        void *symbol = ::dlsym(handle, name);
        if (!symbol && !missing)
            missing = name;
        function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
    };
    find(table.init, "cuInit");
    find(table.get_error_name, "cuGetErrorName");
    find(table.device_count, "cuDeviceGetCount");
    find(table.current_device, "cuCtxGetDevice");
    find(table.retain_primary, "cuDevicePrimaryCtxRetain");
    find(table.release_primary, "cuDevicePrimaryCtxRelease_v2");
    find(table.push_context, "cuCtxPushCurrent_v2");
    find(table.pop_context, "cuCtxPopCurrent_v2");
    find(table.register_memory, "cuMemHostRegister_v2");
    find(table.unregister_memory, "cuMemHostUnregister");
    find(table.device_pointer, "cuMemHostGetDevicePointer_v2");
    find(table.load_module, "cuModuleLoadData");
    find(table.get_function, "cuModuleGetFunction");
    find(table.launch, "cuLaunchKernel");
    find(table.copy_to_device, "cuMemcpyHtoDAsync_v2");
    find(table.copy_to_host, "cuMemcpyDtoHAsync_v2");
    find(table.synchronize, "cuStreamSynchronize");
    if (missing)
        return unsupported(std::string(library) + " has no " + missing);

    CUresult failed = table.init(0);
    int devices = 0;
    const char *call = "cuInit";
    if (failed == CUDA_SUCCESS) {
        call = "cuDeviceGetCount";
        failed = table.device_count(&devices);
    }
    if (failed != CUDA_SUCCESS) {
        const char *name = nullptr;
        table.get_error_name(failed, &name);
        return unsupported(std::string(call) + " gave " +
                           (name ? name : std::to_string(static_cast<unsigned>(failed))));
    }
    if (devices == 0)
        return unsupported("there is no CUDA device");
    return std::make_unique<Driver>(table);
}

Result<const Driver *> Driver::system() {
    // Leaked on purpose: at exit, pools may be unpinned after static objects are gone.
    static const auto *loaded = new Result<std::unique_ptr<Driver>>(load("libcuda.so.1"));
    if (!*loaded)
        return loaded->error();
    return const_cast<const Driver *>((**loaded).get());
}

}  // namespace maru::cuda
