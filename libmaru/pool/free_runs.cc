#include "libmaru/pool/free_runs.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace maru::pool {

FreeRuns::FreeRuns(uint32_t segment_count, uint32_t pages_per_segment)
    : pages_per_segment_(pages_per_segment), segments_(segment_count) {
    heads_.fill(kNone);
}

uint32_t FreeRuns::bin_of(uint32_t pages) {
    if (pages < (1u << kBinBits))
        return pages;
    const uint32_t shift = static_cast<uint32_t>(std::bit_width(pages)) - 1 - kBinBits;
    return ((shift + 1) << kBinBits) + ((pages >> shift) & ((1u << kBinBits) - 1));
}

void FreeRuns::link(uint32_t page, uint32_t count) {
    const uint32_t bin = bin_of(count);
    Node &head = node(page);
    head.pages = count;
    head.previous = kNone;
    head.next = heads_[bin];
    head.mark = Mark::Head;
    if (head.next != kNone)
        node(head.next).previous = page;
    if (count > 1) {
        Node &tail = node(page + count - 1);
        tail.pages = count;
        tail.mark = Mark::Tail;
    }
    heads_[bin] = page;
    longest_[bin] = std::max(longest_[bin], count);
    occupied_[bin / 64] |= uint64_t{1} << (bin % 64);
    free_pages_ += count;
}

void FreeRuns::unlink(uint32_t page) {
    Node &head = node(page);
    assert(head.mark == Mark::Head);
    const uint32_t bin = bin_of(head.pages);
    if (head.previous == kNone)
        heads_[bin] = head.next;
    else
        node(head.previous).next = head.next;
    if (head.next != kNone)
        node(head.next).previous = head.previous;
    if (heads_[bin] == kNone) {
        occupied_[bin / 64] &= ~(uint64_t{1} << (bin % 64));
        longest_[bin] = 0;
    }
    free_pages_ -= head.pages;
    node(page + head.pages - 1).mark = Mark::Inside;
    head.mark = Mark::Inside;
}

void FreeRuns::put(uint32_t page, uint32_t count) {
    assert(count > 0);
    const uint32_t segment = page / pages_per_segment_;
    assert((page + count - 1) / pages_per_segment_ == segment);
    if (!segments_[segment])
        segments_[segment] = std::make_unique<Node[]>(pages_per_segment_);
    assert(node(page).mark == Mark::Inside && node(page + count - 1).mark == Mark::Inside);

    if (page % pages_per_segment_ > 0) {
        const Node &before = node(page - 1);
        if (before.mark != Mark::Inside) {  // a Head there is a run of one page
            const uint32_t length = before.pages;
            page -= length;
            count += length;
            unlink(page);
        }
    }
    if ((page + count) % pages_per_segment_ > 0) {
        const Node &after = node(page + count);
        if (after.mark == Mark::Head) {
            const uint32_t length = after.pages;
            unlink(page + count);
            count += length;
        }
    }
    link(page, count);
}

std::optional<uint32_t> FreeRuns::next_bin(uint32_t from) const {
    for (uint32_t word = from / 64; word < occupied_.size(); ++word) {
        uint64_t bits = occupied_[word];
        if (word == from / 64)
            bits &= ~uint64_t{0} << (from % 64);
        if (bits != 0)
            return word * 64 + static_cast<uint32_t>(std::countr_zero(bits));
    }
    return std::nullopt;
}

// Where in the run that starts at `page` the request would lie.
std::optional<uint32_t> FreeRuns::fit(uint32_t page, uint32_t count, uint32_t align_pages) {
    const uint32_t inside = page % pages_per_segment_;
    const uint64_t skip = (align_pages - inside % align_pages) % align_pages;
    if (skip + count > node(page).pages)
        return std::nullopt;
    return page + static_cast<uint32_t>(skip);
}

std::optional<uint32_t> FreeRuns::search(uint32_t bin, uint32_t count, uint32_t align_pages,
                                         uint32_t looks) {
    if (longest_[bin] < count)
        return std::nullopt;
    uint32_t longest = 0;
    for (uint32_t page = heads_[bin]; page != kNone; page = node(page).next) {
        if (auto at = fit(page, count, align_pages)) {
            carve(page, *at, count);
            return at;
        }
        if (looks-- == 1)
            return std::nullopt;
        longest = std::max(longest, node(page).pages);
    }
    longest_[bin] = longest;
    return std::nullopt;
}

void FreeRuns::carve(uint32_t run, uint32_t at, uint32_t count) {
    const uint32_t pages = node(run).pages;
    unlink(run);
    if (at > run)
        link(run, at - run);
    if (at + count < run + pages)
        link(at + count, run + pages - at - count);
}

std::optional<uint32_t> FreeRuns::take(uint32_t count, uint32_t align_pages) {
    assert(count > 0 && std::has_single_bit(align_pages));
    if (count > free_pages_)
        return std::nullopt;
    const uint32_t own = bin_of(count);
    for (auto bin = next_bin(own); bin; bin = next_bin(*bin + 1))
        if (auto at = search(*bin, count, align_pages, kLooks))
            return at;
    // Only in its own bin can a run that fits hide behind shorter ones; an aligned place is not worth
    // a long search.
    if (align_pages == 1)
        return search(own, count, 1, UINT32_MAX);
    return std::nullopt;
}

}  // namespace maru::pool
