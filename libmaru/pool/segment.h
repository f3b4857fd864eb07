// Segment: one memfd of a pool, mapped shared: writable by its worker, or for reading by others.
//
// Checked before it is trusted: type, size, and the seals SHRINK|GROW, without which a truncation
// elsewhere would turn a store into SIGBUS. Mapped at a multiple of 2 MiB. A forked child does not
// inherit the mapping, and a core dump does not contain it. marud adds FUTURE_WRITE once told that
// it is mapped; the descriptor is kept, to be passed again to a restarted marud.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "libmaru/base/result.h"
#include "libmaru/base/unique_fd.h"

namespace maru::pool {

inline constexpr uint64_t kHugePageBytes = 2 * 1024 * 1024;

class Segment {
  public:
    // `bytes` and `huge` as in SegmentReply. The descriptor is consumed, whatever the result.
    static Result<Segment> map(UniqueFd fd, uint64_t bytes, bool huge);

    // Another worker's, or one that marud has adopted: the descriptor must be read-only, and its file
    // sealed against new writers. It is closed again: the mapping is all that is needed.
    static Result<Segment> map_for_reading(UniqueFd fd, uint64_t bytes, bool huge);

    Segment(Segment &&other) noexcept
        : fd_(std::move(other.fd_)),
          data_(std::exchange(other.data_, nullptr)),
          bytes_(other.bytes_),
          huge_(other.huge_) {}
    Segment &operator=(Segment &&other) noexcept;
    ~Segment();

    std::byte *data() const { return data_; }
    uint64_t bytes() const { return bytes_; }
    bool huge() const { return huge_; }
    int fd() const { return fd_.get(); }
    // For pthread_atfork's child, where O_CLOEXEC does not act: the mapping is not there any more.
    void close_descriptor() { fd_.reset(); }

  private:
    Segment(UniqueFd fd, std::byte *data, uint64_t bytes, bool huge)
        : fd_(std::move(fd)), data_(data), bytes_(bytes), huge_(huge) {}
    static Result<Segment> map_checked(UniqueFd fd, uint64_t bytes, bool huge, uint64_t align,
                                       int protection);
    UniqueFd fd_;
    std::byte *data_ = nullptr;
    uint64_t bytes_ = 0;
    bool huge_ = false;
};

}  // namespace maru::pool
