// Pinning: pool memory registered with the CUDA driver, so that the GPU copies it by DMA.
//
// Whoever holds the object owes the unregistration, before the memory is unmapped. The driver refuses
// a single registration of 512 GiB and more, so memory is registered in pieces; every return code
// counts, and pinned_bytes() is what the driver really took.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "libmaru/base/result.h"
#include "libmaru/cuda/driver.h"

namespace maru::cuda {

inline constexpr uint64_t kMaxPieceBytes = uint64_t{16} << 30;

class Pinning {
  public:
    // Registers [data, data + bytes), page-aligned, for all CUDA contexts of the process, through the
    // primary context of the device that this thread uses now, or else of `device`. All or nothing: a
    // refused piece unregisters those before it. `driver` is borrowed and outlives this.
    // EINVAL, ENOMEM, EACCES, EBUSY (registered already), ENOTSUP, ENODEV, EIO: name call and piece.
    static Result<Pinning> pin(const Driver &driver, void *data, uint64_t bytes, int device = 0,
                               uint64_t piece_bytes = kMaxPieceBytes);

    Pinning() = default;
    Pinning(Pinning &&other) noexcept { *this = std::move(other); }
    Pinning &operator=(Pinning &&other) noexcept;
    // Does nothing in a forked child, which has no memory to unpin and must not call the driver.
    ~Pinning() { release(); }

    uint64_t pinned_bytes() const;

  private:
    struct Piece {
        void *data;
        uint64_t bytes;
    };
    void release();

    const Driver *driver_ = nullptr;
    int device_ = 0;   // whose primary context is retained
    int process_ = 0;  // that registered
    std::vector<Piece> pieces_;
};

}  // namespace maru::cuda
