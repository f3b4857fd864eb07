// Where a test's engine keeps its KV and who runs the kernels: the CPU by the reference, or a real GPU.
#pragma once

#include <memory>
#include <string>

#include "libmaru/base/result.h"
#include "libmaru/cuda/device.h"
#include "tests/libmaru/cuda/fake_gpu.h"

namespace maru::cuda {

enum class Processor { Reference, Gpu };

class Machine {
  public:
    // An error says why there is no such machine here.
    static Result<std::unique_ptr<Machine>> make(Processor processor);
    virtual ~Machine() = default;

    const Driver &driver() const { return *driver_; }
    const Device &device() const { return *device_; }
    // The GPU's memory. Ends with the machine.
    virtual void *allocate(size_t bytes) = 0;
    virtual void write(void *to, const void *from, size_t bytes) = 0;
    virtual void read(void *to, const void *from, size_t bytes) = 0;

  protected:
    const Driver *driver_ = nullptr;
    const Device *device_ = nullptr;
};

// The driver's functions on top of `gpu`, which is borrowed. One at a time.
DriverTable fake_table(FakeGpu &gpu);

}  // namespace maru::cuda
