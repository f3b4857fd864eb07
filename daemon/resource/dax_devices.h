// The DAX devices of this host, as the kernel and libdaxctl tell them: CXL memory and its like.
//
// Only looks; opens no device. CXL pools are not served by this version, so this is what an operator
// sees with `marud --list-devices` and what the Resource Manager will start from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libmaru/base/result.h"

namespace maru {

struct DaxDevice {
    std::string name;  // "dax0.0": may differ after a reboot, names no device for good
    uint64_t bytes = 0;
    uint64_t align_bytes = 0;  // offsets and lengths of a mapping are multiples of it
    int numa_node = -1;
    bool system_ram = false;  // given to the kernel as ordinary memory: no pool can use it
};

// ENOTSUP: built without libdaxctl. May take long on a host with many devices: never on the loop.
Result<std::vector<DaxDevice>> list_dax_devices();

// One line per device for people.
std::string describe_dax_devices(const std::vector<DaxDevice> &devices);

}  // namespace maru
