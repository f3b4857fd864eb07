// Device: one GPU with the copy kernels loaded into its primary context.
//
// Engines compute in the primary context (PyTorch and everything else on the CUDA runtime does), so
// their streams and memory are good here. The context of the calling thread is left as it was. CUDA
// does not survive a fork: in a child nothing here may be called.
#pragma once

#include <memory>

#include "libmaru/base/result.h"
#include "libmaru/cuda/driver.h"
#include "libmaru/cuda/driver_types.h"

namespace maru::cuda {

class Device {
  public:
    // The GPU that this process counts as `ordinal`, opened once and kept; a failure is not kept.
    // ENOTSUP with what is missing; ENODEV no such GPU; ENOMEM, EIO; EOWNERDEAD in a forked child.
    static Result<const Device *> system(int ordinal);
    // `driver` is borrowed and outlives this; `image` is of kernel_image().
    static Result<std::unique_ptr<Device>> open(const Driver &driver, int ordinal,
                                                const unsigned char *image);
    ~Device();
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;

    const DriverTable &table() const { return driver_.table(); }
    CUfunction gather() const { return gather_; }
    CUfunction scatter() const { return scatter_; }

    // This thread's context is the device's while it lives.
    class Current {
      public:
        explicit Current(const Device &device)
            : table_(device.table()), failed_(table_.push_context(device.context_)) {}
        ~Current() {
            CUcontext popped = nullptr;
            if (failed_ == CUDA_SUCCESS)
                table_.pop_context(&popped);
        }
        Current(const Current &) = delete;
        Current &operator=(const Current &) = delete;
        CUresult failed() const { return failed_; }

      private:
        const DriverTable &table_;
        const CUresult failed_;
    };

  private:
    Device(const Driver &driver, int ordinal) : driver_(driver), ordinal_(ordinal) {}

    const Driver &driver_;
    const int ordinal_;
    CUcontext context_ = nullptr;
    bool retained_ = false;
    CUfunction gather_ = nullptr, scatter_ = nullptr;  // the module lives as long as the context
};

}  // namespace maru::cuda
