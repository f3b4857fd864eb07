#include "daemon/resource/dax_devices.h"
#include "libmaru/base/size_text.h"

namespace maru {

std::string describe_dax_devices(const std::vector<DaxDevice> &devices) {
    if (devices.empty())
        return "no DAX device\n";
    std::string text;
    for (const DaxDevice &device : devices) {
        text += device.name + "  " + format_size(device.bytes) + ", aligned to " +
                format_size(device.align_bytes);
        if (device.numa_node >= 0)
            text += ", node " + std::to_string(device.numa_node);
        if (device.system_ram)
            text += ", in system-ram mode: the kernel uses it as ordinary memory";
        text += "\n";
    }
    return text;
}

}  // namespace maru
