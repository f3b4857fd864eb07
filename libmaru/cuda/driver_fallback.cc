// Stands in for driver.cc in a build without CUDA (meson option cuda=disabled).
#include <cerrno>

#include "libmaru/cuda/driver.h"
#include "libmaru/cuda/driver_types.h"

namespace maru::cuda {

Driver::Driver(const DriverTable &table) : table_(std::make_unique<const DriverTable>(table)) {}
Driver::~Driver() = default;

Result<std::unique_ptr<Driver>> Driver::load(const char *) {
    return Error{ENOTSUP, "load CUDA: this build of libmaru has no CUDA support"};
}

Result<const Driver *> Driver::system() {
    return Error{ENOTSUP, "load CUDA: this build of libmaru has no CUDA support"};
}

}  // namespace maru::cuda
