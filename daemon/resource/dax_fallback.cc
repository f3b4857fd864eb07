// Without libdaxctl (-Ddaxctl=disabled).
#include <cerrno>

#include "daemon/resource/dax_devices.h"

namespace maru {

Result<std::vector<DaxDevice>> list_dax_devices() {
    return Error{ENOTSUP, "list DAX devices: marud was built without libdaxctl"};
}

}  // namespace maru
