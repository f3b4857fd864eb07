// Pinning: pool memory registered with the CUDA driver, so that the GPU copies it by DMA.
//
// libcuda.so.1 is loaded at run time; nothing links against it. Where the build left CUDA out, or the
// machine has no driver or device, every call is ENOTSUP and the pool works unpinned. The driver refuses a
// single registration of 512 GiB and more, so memory is registered in pieces; every return code counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "libmaru/base/result.h"

namespace maru::cuda {

struct DriverTable;  // the functions of libcuda that are used

class Driver {
  public:
    // Loads the library once per process and initialises it. ENOTSUP with the reason.
    static Result<const Driver *> system();
    // For tests: another library file.
    static Result<std::unique_ptr<Driver>> load(const char *library);
    // For tests: functions of their own. Borrowed.
    explicit Driver(const DriverTable &table);
    Driver(const Driver &) = delete;
    Driver &operator=(const Driver &) = delete;
    ~Driver();

    int device_count() const;
    const DriverTable &table() const { return *table_; }

  private:
    explicit Driver(std::unique_ptr<DriverTable> table);
    std::unique_ptr<DriverTable> owned_;
    const DriverTable *table_;
};

// At most this much in one registration; a piece is at least one segment of a pool.
inline constexpr uint64_t kMaxPieceBytes = uint64_t{16} << 30;

class Pinning {
  public:
    // Registers [data, data + bytes), page-aligned, for every CUDA context of the process. Uses the calling thread's
    // current context, or else the primary one of `device`. All or nothing: a failed piece
    // unregisters those before it. ENOTSUP: no CUDA here; ENOMEM, EINVAL, EIO: the driver's refusal.
    static Result<Pinning> pin(const Driver &driver, void *data, uint64_t bytes, int device = 0,
                               uint64_t piece_bytes = kMaxPieceBytes);

    Pinning() = default;
    Pinning(Pinning &&other) noexcept;
    Pinning &operator=(Pinning &&other) noexcept;
    // Unregisters: before the memory is unmapped. Does nothing in a forked child, where the driver
    // must not be called.
    ~Pinning();

    uint64_t pinned_bytes() const;

  private:
    struct Piece {
        void *data;
        uint64_t bytes;
    };
    Result<void> add(void *data, uint64_t bytes);
    void release();

    const Driver *driver_ = nullptr;  // outlives this
    int device_ = 0;
    int process_ = 0;
    std::vector<Piece> pieces_;
};

}  // namespace maru::cuda
