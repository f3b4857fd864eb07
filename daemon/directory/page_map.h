// PageMap: which pages of one pool committed replicas use, and the highest generation each had.
//
// Pages are kept in groups of 64, one bit each. While all pages of a group have had the same
// generations (large objects over small pages) the group holds one number; it gets an array of 64
// when they differ. So a commit costs by groups, not by pages, and a client that commits a
// gigabyte of 4 KiB pages a thousand times over cannot make marud stand still.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "libmaru/base/divisor.h"

namespace maru::directory {

class PageMap {
  public:
    // `segment_bytes` is a multiple of `page_bytes`; the last segment may be shorter.
    PageMap(uint64_t capacity_bytes, uint64_t segment_bytes, uint32_t page_bytes);

    void grant(uint32_t segment);
    void revoke(uint32_t segment) { segments_[segment].granted = false; }
    uint32_t segment_count() const { return static_cast<uint32_t>(segments_.size()); }

    struct Range {
        uint32_t segment = 0;
        uint64_t first = 0;  // page in its segment
        uint64_t count = 0;
    };
    // The pages of [offset, offset + length), or nothing: empty, misaligned, outside the pool or a
    // granted segment, or over the end of one. Any numbers are allowed.
    std::optional<Range> locate(uint64_t offset, uint64_t length) const;

    bool is_free(const Range &range) const;                        // no page is in use
    bool is_used(const Range &range) const;                        // every page is in use
    bool is_newer(const Range &range, uint64_t generation) const;  // than all its pages ever had
    void occupy(const Range &range, uint64_t generation);
    void release(const Range &range);  // the generations stay

    uint64_t used_pages() const;  // counted, for check_invariants
    size_t memory_bytes() const;

  private:
    struct Group {
        uint64_t used = 0;        // bit i: page i
        uint64_t generation = 0;  // the highest of its pages; of all of them if there is no array
        std::unique_ptr<std::array<uint64_t, 64>> pages;
    };
    struct Segment {
        bool granted = false;
        std::vector<Group> groups;  // empty until the first commit in it
    };
    // fn(group, mask) for every group that the range touches, until it returns false.
    template <typename Groups, typename Fn>
    static bool for_groups(Groups &groups, const Range &range, Fn fn);

    uint64_t segment_pages(uint32_t segment) const;

    uint64_t capacity_bytes_;
    Divisor segment_bytes_;
    Divisor page_bytes_;
    std::vector<Segment> segments_;
    size_t arrays_ = 0;
};

}  // namespace maru::directory
