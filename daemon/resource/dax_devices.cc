#include "daemon/resource/dax_devices.h"

#include <daxctl/libdaxctl.h>

#include <cerrno>
#include <memory>

namespace maru {

Result<std::vector<DaxDevice>> list_dax_devices() {
    daxctl_ctx *raw = nullptr;
    if (int code = daxctl_new(&raw); code < 0)
        return Error{-code, "start libdaxctl"};
    std::unique_ptr<daxctl_ctx, decltype(&daxctl_unref)> context(raw, &daxctl_unref);
    std::vector<DaxDevice> devices;
    daxctl_region *region;
    daxctl_region_foreach(context.get(), region) {
        daxctl_dev *device;
        daxctl_dev_foreach(region, device) {
            DaxDevice found;
            found.name = daxctl_dev_get_devname(device);
            found.bytes = daxctl_dev_get_size(device);
            found.align_bytes = daxctl_dev_get_align(device);
            found.numa_node = daxctl_dev_get_target_node(device);
            found.system_ram = daxctl_dev_get_memory(device) != nullptr;
            devices.push_back(std::move(found));
        }
    }
    return devices;
}

}  // namespace maru
