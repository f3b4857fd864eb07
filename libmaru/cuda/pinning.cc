#include "libmaru/cuda/pinning.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>

#include "libmaru/cuda/driver_error.h"
#include "libmaru/cuda/driver_types.h"
#include "libmaru/cuda/pinned_ranges.h"

namespace maru::cuda {

namespace {

constexpr uint64_t kPageBytes = 4096;

Error refused(const DriverTable &table, CUresult failed, const std::string &what) {
    return driver_error(table, failed, "pin pool memory: " + what);
}

// A primary context, retained and current to this thread while it lives.
class ContextScope {
  public:
    ContextScope(const DriverTable &table, CUdevice device) : table_(table), device_(device) {
        CUcontext context = nullptr;
        failed_ = table_.retain_primary(&context, device_);
        if (failed_ != CUDA_SUCCESS)
            return;
        retained_ = true;
        failed_ = table_.push_context(context);
        pushed_ = failed_ == CUDA_SUCCESS;
    }
    ~ContextScope() {
        CUcontext popped = nullptr;
        if (pushed_)
            table_.pop_context(&popped);
        if (retained_)
            table_.release_primary(device_);
    }
    ContextScope(const ContextScope &) = delete;
    ContextScope &operator=(const ContextScope &) = delete;
    CUresult failed() const { return failed_; }
    void keep_retained() { retained_ = false; }

  private:
    const DriverTable &table_;
    const CUdevice device_;
    CUresult failed_ = CUDA_SUCCESS;
    bool retained_ = false;
    bool pushed_ = false;
};

}  // namespace

Result<Pinning> Pinning::pin(const Driver &driver, void *data, uint64_t bytes, int device,
                             uint64_t piece_bytes) {
    if (bytes == 0 || bytes % kPageBytes != 0 ||
        reinterpret_cast<uintptr_t>(data) % kPageBytes != 0 || piece_bytes == 0 ||
        piece_bytes % kPageBytes != 0)
        return Error{EINVAL, "pin pool memory: address, " + std::to_string(bytes) +
                                 " bytes and pieces of " + std::to_string(piece_bytes) +
                                 " must be multiples of 4096, and not 0"};
    const DriverTable &table = driver.table();
    // The context the engine computes in, if this thread has one; a new one costs GPU memory.
    CUdevice chosen = device;
    CUdevice current = 0;
    if (table.current_device(&current) == CUDA_SUCCESS)
        chosen = current;
    ContextScope scope(table, chosen);
    if (scope.failed() != CUDA_SUCCESS)
        return refused(table, scope.failed(),
                       "the primary context of device " + std::to_string(chosen));
    Pinning pinning;
    pinning.driver_ = &driver;
    pinning.device_ = chosen;
    pinning.process_ = ::getpid();
    auto *begin = static_cast<std::byte *>(data);
    for (uint64_t done = 0; done < bytes;) {
        const uint64_t piece = std::min(piece_bytes, bytes - done);
        const CUresult failed = table.register_memory(
            begin + done, piece, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
        if (failed != CUDA_SUCCESS) {
            for (const Piece &earlier : pinning.pieces_)
                table.unregister_memory(earlier.data);
            pinning.pieces_.clear();
            return refused(table, failed,
                           "cuMemHostRegister of " + std::to_string(piece) + " bytes at " +
                               std::to_string(done));
        }
        pinning.pieces_.push_back(Piece{begin + done, piece});
        done += piece;
    }
    for (const Piece &piece : pinning.pieces_)
        PinnedRanges::process().add(piece.data, piece.bytes);
    scope.keep_retained();  // until release(): without its context the registration ends
    return pinning;
}

Pinning &Pinning::operator=(Pinning &&other) noexcept {
    if (this != &other) {
        release();
        driver_ = other.driver_;
        device_ = other.device_;
        process_ = other.process_;
        pieces_ = std::move(other.pieces_);
        other.pieces_.clear();
    }
    return *this;
}

void Pinning::release() {
    if (pieces_.empty())
        return;
    if (process_ == ::getpid()) {
        for (const Piece &piece : pieces_)
            PinnedRanges::process().remove(piece.data);
        const DriverTable &table = driver_->table();
        {
            ContextScope scope(table, device_);
            // Each is tried: a failure means that the driver has dropped it, at process exit mostly.
            for (const Piece &piece : pieces_)
                (void)table.unregister_memory(piece.data);
        }
        (void)table.release_primary(device_);
    }
    pieces_.clear();
}

uint64_t Pinning::pinned_bytes() const {
    uint64_t bytes = 0;
    for (const Piece &piece : pieces_)
        bytes += piece.bytes;
    return bytes;
}

}  // namespace maru::cuda
