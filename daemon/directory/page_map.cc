#include "daemon/directory/page_map.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace maru::directory {

PageMap::PageMap(uint64_t capacity_bytes, uint64_t segment_bytes, uint32_t page_bytes)
    : capacity_bytes_(capacity_bytes), segment_bytes_(segment_bytes), page_bytes_(page_bytes) {
    assert(page_bytes && segment_bytes && segment_bytes % page_bytes == 0);
    const uint64_t segments =
        capacity_bytes / segment_bytes + (capacity_bytes % segment_bytes != 0);
    assert(segments <= UINT32_MAX);
    segments_.resize(segments);
}

void PageMap::grant(uint32_t segment) {
    assert(segment < segments_.size());
    segments_[segment].granted = true;
}

uint64_t PageMap::segment_pages(uint32_t segment) const {
    const uint64_t rest = capacity_bytes_ - segment * segment_bytes_.value();
    return page_bytes_.quotient(std::min(rest, segment_bytes_.value()));
}

std::optional<PageMap::Range> PageMap::locate(uint64_t offset, uint64_t length) const {
    // Subtractions only: offset + length may pass 2^64.
    if (!length || offset >= capacity_bytes_ || length > capacity_bytes_ - offset)
        return std::nullopt;
    if (page_bytes_.remainder(offset))
        return std::nullopt;
    Range range;
    range.segment = static_cast<uint32_t>(segment_bytes_.quotient(offset));
    range.first = page_bytes_.quotient(segment_bytes_.remainder(offset));
    range.count = page_bytes_.ceiling(length);
    const uint64_t pages = segment_pages(range.segment);
    if (range.first >= pages || range.count > pages - range.first)
        return std::nullopt;
    if (!segments_[range.segment].granted)
        return std::nullopt;
    return range;
}

template <typename Groups, typename Fn>
bool PageMap::for_groups(Groups &groups, const Range &range, Fn fn) {
    uint64_t page = range.first;
    const uint64_t end = range.first + range.count;
    while (page < end) {
        const uint64_t in_group = page % 64;
        const uint64_t count = std::min<uint64_t>(64 - in_group, end - page);
        const uint64_t mask = (count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1) << in_group;
        if (!fn(groups[page / 64], mask))
            return false;
        page += count;
    }
    return true;
}

bool PageMap::is_free(const Range &range) const {
    const std::vector<Group> &groups = segments_[range.segment].groups;
    return groups.empty() || for_groups(groups, range, [](const Group &group, uint64_t mask) {
               return !(group.used & mask);
           });
}

bool PageMap::is_used(const Range &range) const {
    const std::vector<Group> &groups = segments_[range.segment].groups;
    return !groups.empty() && for_groups(groups, range, [](const Group &group, uint64_t mask) {
        return (group.used & mask) == mask;
    });
}

bool PageMap::is_newer(const Range &range, uint64_t generation) const {
    const std::vector<Group> &groups = segments_[range.segment].groups;
    return groups.empty() || for_groups(groups, range, [&](const Group &group, uint64_t mask) {
               if (generation > group.generation)
                   return true;
               if (!group.pages || mask == ~uint64_t{0})
                   return false;
               for (uint64_t rest = mask; rest; rest &= rest - 1)
                   if (generation <= (*group.pages)[static_cast<size_t>(std::countr_zero(rest))])
                       return false;
               return true;
           });
}

void PageMap::occupy(const Range &range, uint64_t generation) {
    std::vector<Group> &groups = segments_[range.segment].groups;
    if (groups.empty())
        groups.resize((segment_pages(range.segment) + 63) / 64);
    for_groups(groups, range, [&](Group &group, uint64_t mask) {
        group.used |= mask;
        if (mask == ~uint64_t{0}) {
            arrays_ -= group.pages != nullptr;
            group.pages.reset();
            group.generation = generation;
            return true;
        }
        if (!group.pages) {
            group.pages = std::make_unique<std::array<uint64_t, 64>>();
            group.pages->fill(group.generation);
            ++arrays_;
        }
        for (uint64_t rest = mask; rest; rest &= rest - 1)
            (*group.pages)[static_cast<size_t>(std::countr_zero(rest))] = generation;
        group.generation = std::max(group.generation, generation);
        return true;
    });
}

void PageMap::release(const Range &range) {
    for_groups(segments_[range.segment].groups, range, [](Group &group, uint64_t mask) {
        group.used &= ~mask;
        return true;
    });
}

uint64_t PageMap::used_pages() const {
    uint64_t pages = 0;
    for (const Segment &segment : segments_)
        for (const Group &group : segment.groups)
            pages += static_cast<uint64_t>(std::popcount(group.used));
    return pages;
}

size_t PageMap::memory_bytes() const {
    size_t bytes = segments_.capacity() * sizeof(Segment) + arrays_ * sizeof(uint64_t) * 64;
    for (const Segment &segment : segments_)
        bytes += segment.groups.capacity() * sizeof(Group);
    return bytes;
}

}  // namespace maru::directory
