#include "libmaru/pool/page_allocator.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <string>

#include "libmaru/pool/segment.h"

namespace maru::pool {

namespace {

constexpr uint64_t kMinPageBytes = 4096;
constexpr uint64_t kMaxSegmentBytes = uint64_t{1} << 31;  // a logical length fits in 32 bits
constexpr size_t index_of(AllocationState state) { return static_cast<size_t>(state); }

}  // namespace

Result<std::unique_ptr<PageAllocator>> PageAllocator::create(const Config &config) {
    auto refuse = [](const std::string &what) { return Error{EINVAL, "page allocator: " + what}; };
    const uint64_t page = config.page_bytes;
    if (page < kMinPageBytes || page > (uint64_t{1} << 30) || !std::has_single_bit(page))
        return refuse("page size " + std::to_string(page) +
                      " is not a power of two from 4 KiB to 1 GiB");
    if (config.segment_bytes == 0 || config.segment_bytes % page != 0 ||
        config.segment_bytes > kMaxSegmentBytes)
        return refuse("segment size " + std::to_string(config.segment_bytes) +
                      " is not a multiple of the page size " + std::to_string(page) +
                      " up to 2 GiB");
    if (config.capacity_bytes == 0 || config.capacity_bytes % page != 0)
        return refuse("capacity " + std::to_string(config.capacity_bytes) +
                      " is not a multiple of the page size " + std::to_string(page));
    // Pages of all segments are numbered in 32 bits, the last segment as if it were a whole one.
    const uint64_t segments = (config.capacity_bytes - 1) / config.segment_bytes + 1;
    if (segments > UINT32_MAX / (config.segment_bytes / page))
        return refuse("capacity " + std::to_string(config.capacity_bytes) +
                      " is more than 2^32 pages of " + std::to_string(page));
    if (config.first_generation == 0)
        return refuse("generation 0 names no allocation");
    return std::unique_ptr<PageAllocator>(new PageAllocator(config));
}

PageAllocator::PageAllocator(const Config &config)
    : config_(config),
      page_bytes_(config.page_bytes),
      segment_count_(static_cast<uint32_t>((config.capacity_bytes - 1) / config.segment_bytes + 1)),
      pages_per_segment_(config.segment_bytes / config.page_bytes),
      next_generation_(config.first_generation),
      admitted_pages_(segment_count_),
      slots_(segment_count_),
      free_(segment_count_, pages_per_segment()) {}

uint32_t PageAllocator::pages_of(uint64_t length) const {
    return static_cast<uint32_t>(page_bytes_.ceiling(length));
}

Result<void> PageAllocator::admit(uint32_t segment, uint64_t usable_bytes) {
    if (segment >= segment_count_)
        return Error{EINVAL, "admit segment " + std::to_string(segment) + ": the pool has " +
                                 std::to_string(segment_count_)};
    const uint64_t begin = uint64_t{segment} * config_.segment_bytes;
    const uint64_t bytes = std::min(config_.segment_bytes, config_.capacity_bytes - begin);
    if (usable_bytes > bytes)
        return Error{EINVAL, "admit segment " + std::to_string(segment) + ": " +
                                 std::to_string(usable_bytes) + " bytes of " +
                                 std::to_string(bytes)};
    const uint32_t pages = static_cast<uint32_t>(usable_bytes / config_.page_bytes);
    std::lock_guard lock(mutex_);
    uint32_t &admitted = admitted_pages_[segment];
    if (pages <= admitted)
        return {};
    if (!slots_[segment])
        slots_[segment] = std::make_unique<Slot[]>(pages_per_segment());
    free_.put(segment * pages_per_segment() + admitted, pages - admitted);
    admitted_bytes_ += (pages - admitted) * config_.page_bytes;
    admitted = pages;
    return {};
}

uint64_t PageAllocator::admitted_bytes(uint32_t segment) const {
    std::lock_guard lock(mutex_);
    return segment < segment_count_ ? admitted_pages_[segment] * config_.page_bytes : 0;
}

// What is free is counted too, though nobody asks for it: wrong, and never looked at.
void PageAllocator::account(AllocationState from, AllocationState to, uint64_t length,
                            uint32_t pages) {
    Tally &less = tallies_[index_of(from)];
    Tally &more = tallies_[index_of(to)];
    --less.runs;
    less.pages -= pages;
    less.bytes -= length;
    ++more.runs;
    more.pages += pages;
    more.bytes += length;
}

ReserveStatus PageAllocator::reserve(uint64_t length, std::span<PageRun> out) {
    if (length == 0)
        return ReserveStatus::Invalid;
    if (length > std::min(config_.segment_bytes, config_.capacity_bytes))
        return ReserveStatus::TooLong;
    const uint32_t pages = pages_of(length);
    // Only multiples of 2 MiB: aligning others would leave holes that nothing of their kind fills
    // (objects of 2.25 MiB would lose 44 % of the pool).
    const bool aligned = length % kHugePageBytes == 0 && config_.page_bytes < kHugePageBytes;
    const uint32_t align = aligned ? static_cast<uint32_t>(kHugePageBytes / config_.page_bytes) : 1;

    std::lock_guard lock(mutex_);
    if (closed_)
        return ReserveStatus::Closed;
    if (out.size() > free_.free_pages() / pages)
        return ReserveStatus::Full;
    for (size_t i = 0; i < out.size(); ++i) {
        auto page = free_.take(pages, align);
        if (!page && align > 1)
            page = free_.take(pages);
        if (!page) {
            for (size_t j = 0; j < i; ++j) {
                RunStatus status = RunStatus::Ok;
                Slot *slot = find(out[j], &status);
                assert(slot);
                move(*slot, out[j], AllocationState::Free);
            }
            return ReserveStatus::Full;
        }
        Slot &slot = slot_of(*page);
        assert(slot.state == AllocationState::Free);
        slot.generation = next_generation_++;
        slot.length = static_cast<uint32_t>(length);
        slot.state = AllocationState::Reserved;
        account(AllocationState::Free, AllocationState::Reserved, length, pages);
        out[i] = PageRun{uint64_t{*page} * config_.page_bytes, length, slot.generation};
    }
    return ReserveStatus::Ok;
}

PageAllocator::Slot *PageAllocator::find(const PageRun &run, RunStatus *status) {
    *status = RunStatus::NotFound;
    if (run.offset >= config_.capacity_bytes || page_bytes_.remainder(run.offset) != 0)
        return nullptr;
    const auto page = static_cast<uint32_t>(page_bytes_.quotient(run.offset));
    if (!slots_[pages_per_segment_.quotient(page)])
        return nullptr;
    Slot &slot = slot_of(page);
    if (slot.state == AllocationState::Free)
        return nullptr;
    if (slot.generation != run.generation) {
        *status = RunStatus::StaleGeneration;
        return nullptr;
    }
    if (slot.length != run.length)
        return nullptr;
    *status = RunStatus::Ok;
    return &slot;
}

void PageAllocator::move(Slot &slot, const PageRun &run, AllocationState to) {
    const uint32_t pages = pages_of(run.length);
    account(slot.state, to, run.length, pages);
    slot.state = to;
    if (to == AllocationState::Free)
        free_.put(static_cast<uint32_t>(page_bytes_.quotient(run.offset)), pages);
}

RunStatus PageAllocator::apply_locked(AllocationEvent event, const PageRun &run) {
    RunStatus status;
    Slot *slot = find(run, &status);
    if (!slot)
        return status;
    const auto to = next_state(slot->state, event);
    if (!to)
        return RunStatus::WrongState;
    move(*slot, run, *to);
    return RunStatus::Ok;
}

RunStatus PageAllocator::apply(AllocationEvent event, const PageRun &run) {
    std::lock_guard lock(mutex_);
    return apply_locked(event, run);
}

size_t PageAllocator::apply(AllocationEvent event, std::span<const PageRun> runs,
                            std::span<RunStatus> statuses) {
    assert(statuses.empty() || statuses.size() == runs.size());
    std::lock_guard lock(mutex_);
    size_t applied = 0;
    for (size_t i = 0; i < runs.size(); ++i) {
        const RunStatus status = apply_locked(event, runs[i]);
        applied += status == RunStatus::Ok;
        if (!statuses.empty())
            statuses[i] = status;
    }
    return applied;
}

RunStatus PageAllocator::apply_all(AllocationEvent event, std::span<const PageRun> runs) {
    std::lock_guard lock(mutex_);
    // A claim finds the same run named twice in one batch.
    RunStatus refused = RunStatus::Ok;
    size_t claimed = 0;
    for (; claimed < runs.size(); ++claimed) {
        Slot *slot = find(runs[claimed], &refused);
        if (!slot)
            break;
        if (slot->claimed || !next_state(slot->state, event)) {
            refused = RunStatus::WrongState;
            break;
        }
        slot->claimed = true;
    }
    for (size_t i = 0; i < claimed; ++i) {
        RunStatus status;
        Slot *slot = find(runs[i], &status);
        slot->claimed = false;
        if (refused == RunStatus::Ok)
            move(*slot, runs[i], *next_state(slot->state, event));
    }
    return refused;
}

AllocationState PageAllocator::state(const PageRun &run) const {
    std::lock_guard lock(mutex_);
    RunStatus status;
    const Slot *slot = const_cast<PageAllocator *>(this)->find(run, &status);
    return slot ? slot->state : AllocationState::Free;
}

std::vector<PageRun> PageAllocator::list(AllocationState state) const {
    std::vector<PageRun> runs;
    if (state == AllocationState::Free)
        return runs;
    std::lock_guard lock(mutex_);
    runs.reserve(tallies_[index_of(state)].runs);
    for (uint32_t segment = 0; segment < segment_count_; ++segment)
        for (uint32_t page = 0; page < admitted_pages_[segment]; ++page) {
            const Slot &slot = slots_[segment][page];
            if (slot.state == state)
                runs.push_back(PageRun{segment * config_.segment_bytes + page * config_.page_bytes,
                                       slot.length, slot.generation});
        }
    return runs;
}

uint64_t PageAllocator::count(AllocationState state) const {
    std::lock_guard lock(mutex_);
    return tallies_[index_of(state)].runs;
}

void PageAllocator::set_closed(bool closed) {
    std::lock_guard lock(mutex_);
    closed_ = closed;
}

wire::Usage PageAllocator::usage() const {
    std::lock_guard lock(mutex_);
    auto tally = [this](AllocationState state) { return tallies_[index_of(state)]; };
    wire::Usage usage;
    usage.capacity_bytes = config_.capacity_bytes;
    usage.reserved_bytes =
        config_.reserved_bytes > 0 ? config_.reserved_bytes : config_.capacity_bytes;
    usage.allocated_bytes = admitted_bytes_ - free_.free_pages() * config_.page_bytes;
    usage.ready_bytes = tally(AllocationState::Ready).bytes;
    usage.ready_allocated_bytes = tally(AllocationState::Ready).pages * config_.page_bytes;
    usage.quarantined_bytes = tally(AllocationState::Quarantined).pages * config_.page_bytes;
    usage.retiring_bytes = tally(AllocationState::Retiring).pages * config_.page_bytes;
    usage.populated_bytes = admitted_bytes_;
    usage.replicas = tally(AllocationState::Ready).runs;
    return usage;
}

uint64_t PageAllocator::next_generation() const {
    std::lock_guard lock(mutex_);
    return next_generation_;
}

}  // namespace maru::pool
