// Driver: libcuda.so.1, loaded at run time.
//
// The library never links against CUDA: a machine without it runs the same binary. What is not there
// (the library, a function of it, a device) is ENOTSUP with the reason. driver_fallback.cc stands in
// when the build leaves CUDA out.
#pragma once

#include <memory>

#include "libmaru/base/result.h"

namespace maru::cuda {

struct DriverTable;

class Driver {
  public:
    // Loads libcuda.so.1 and initialises it, once per process: later calls give the same answer. It
    // is never unloaded.
    static Result<const Driver *> system();
    // Another library file; for tests.
    static Result<std::unique_ptr<Driver>> load(const char *library);

    explicit Driver(const DriverTable &table);
    ~Driver();
    Driver(const Driver &) = delete;
    Driver &operator=(const Driver &) = delete;

    const DriverTable &table() const { return *table_; }

  private:
    std::unique_ptr<const DriverTable> table_;
};

}  // namespace maru::cuda
