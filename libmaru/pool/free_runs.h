// FreeRuns: the free page runs of a pool, found by length in about constant time.
//
// Runs are kept in bins by length (exact up to 8 pages, then eight bins to a doubling), each a list
// threaded through per-page nodes, with a bit per bin that is not empty. Neighbours merge when a run
// is returned, never across a segment's end. Not thread-safe: PageAllocator locks.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace maru::pool {

class FreeRuns {
  public:
    // Pages are numbered through all segments; each segment has pages_per_segment of them.
    FreeRuns(uint32_t segment_count, uint32_t pages_per_segment);

    // Makes [page, page + count) free; the pages must not be free already, and lie in one segment.
    void put(uint32_t page, uint32_t count);
    // Takes `count` pages at a multiple of `align_pages` (a power of two, counted from the segment's
    // start); nothing when there is no such run.
    std::optional<uint32_t> take(uint32_t count, uint32_t align_pages = 1);

    uint64_t free_pages() const { return free_pages_; }

  private:
    static constexpr uint32_t kNone = UINT32_MAX;
    static constexpr uint32_t kBinBits = 3;
    static constexpr uint32_t kBins = (32 - kBinBits + 1) << kBinBits;
    static constexpr uint32_t kLooks =
        32;  // runs of one bin looked at before the next bin is tried

    enum class Mark : uint8_t { Inside, Head, Tail };  // a run of one page is a Head
    struct Node {
        uint32_t pages = 0;  // of the run, in its first and in its last page
        uint32_t next = kNone, previous = kNone;
        Mark mark = Mark::Inside;
    };

    static uint32_t bin_of(uint32_t pages);
    Node &node(uint32_t page) {
        return segments_[page / pages_per_segment_][page % pages_per_segment_];
    }
    void link(uint32_t page, uint32_t count);
    void unlink(uint32_t page);
    std::optional<uint32_t> next_bin(uint32_t from) const;
    std::optional<uint32_t> fit(uint32_t page, uint32_t count, uint32_t align_pages);
    std::optional<uint32_t> search(uint32_t bin, uint32_t count, uint32_t align_pages,
                                   uint32_t looks);
    void carve(uint32_t run, uint32_t at, uint32_t count);

    const uint32_t pages_per_segment_;
    std::vector<std::unique_ptr<Node[]>> segments_;  // made at the first put
    std::array<uint32_t, kBins> heads_;
    // No run of the bin is longer; exact after a whole bin was searched in vain, so that a full pool
    // says so without searching again.
    std::array<uint32_t, kBins> longest_{};
    std::array<uint64_t, (kBins + 63) / 64> occupied_{};
    uint64_t free_pages_ = 0;
};

}  // namespace maru::pool
