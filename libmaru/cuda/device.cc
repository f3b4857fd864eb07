#include "libmaru/cuda/device.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <string>

#include "libmaru/cuda/driver_error.h"
#include "libmaru/cuda/kernels.h"

namespace maru::cuda {

namespace {

struct Devices {
    std::mutex mutex;
    std::map<int, std::unique_ptr<Device>> by_ordinal;
};

}  // namespace

Result<const Device *> Device::system(int ordinal) {
    // Before any lock: another thread of the parent may have held it.
    static std::atomic<pid_t> owner{0};
    if (const pid_t is = owner; is != 0 && is != ::getpid())
        return Error{EOWNERDEAD,
                     "CUDA: this is a forked child of the process that uses it: start one by exec"};
    auto image = kernel_image();
    if (!image)
        return image.error();
    auto driver = Driver::system();
    if (!driver)
        return driver.error();
    owner = ::getpid();
    static auto *devices = new Devices;  // used until the process has ended
    const std::lock_guard lock(devices->mutex);
    auto &device = devices->by_ordinal[ordinal];
    if (!device) {
        auto opened = open(**driver, ordinal, *image);
        if (!opened)
            return opened.error();
        device = std::move(*opened);
    }
    return const_cast<const Device *>(device.get());
}

Result<std::unique_ptr<Device>> Device::open(const Driver &driver, int ordinal,
                                             const unsigned char *image) {
    const DriverTable &table = driver.table();
    std::unique_ptr<Device> device(new Device(driver, ordinal));
    const auto refused = [&](CUresult failed, const std::string &call) {
        return driver_error(table, failed,
                            "open CUDA device " + std::to_string(ordinal) + ": " + call);
    };
    if (const CUresult failed = table.retain_primary(&device->context_, ordinal);
        failed != CUDA_SUCCESS)
        return refused(failed, "its primary context");
    device->retained_ = true;
    const Current current(*device);
    if (current.failed() != CUDA_SUCCESS)
        return refused(current.failed(), "cuCtxPushCurrent");
    CUmodule module = nullptr;
    if (const CUresult failed = table.load_module(&module, image); failed != CUDA_SUCCESS)
        return refused(failed, "loading the copy kernels");
    for (auto [function, name] : {std::pair{&device->gather_, "maru_cuda_gather"},
                                  std::pair{&device->scatter_, "maru_cuda_scatter"}})
        if (const CUresult failed = table.get_function(function, module, name);
            failed != CUDA_SUCCESS)
            return refused(failed, std::string("finding the kernel ") + name);
    return device;
}

Device::~Device() {
    if (retained_)
        table().release_primary(ordinal_);
}

}  // namespace maru::cuda
