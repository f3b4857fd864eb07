// Slab<T>: records addressed by a 32-bit slot that never move.
//
// Grows by whole blocks, so that growing copies nothing and pauses nobody. A released slot keeps
// its bytes, but for the link of the free list: that is how a replica's slot remembers the last
// generation it had. Slots are handed out again last in, first out, while still in the cache.
#pragma once

#include <bit>
#include <cassert>
#include <cstdint>
#include <new>
#include <type_traits>
#include <vector>

#include "daemon/directory/block.h"

namespace maru::directory {

inline constexpr uint32_t kNone = UINT32_MAX;

template <typename T, uint32_t T::*Link>
class Slab {
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

  public:
    static constexpr uint32_t kPerBlock =
        static_cast<uint32_t>(std::bit_floor(kBlockBytes / sizeof(T)));

    explicit Slab(Blocks &blocks) : source_(blocks) {}

    T &operator[](uint32_t slot) { return *at(slot); }
    const T &operator[](uint32_t slot) const { return *at(slot); }
    void prefetch(uint32_t slot) const { __builtin_prefetch(at(slot)); }

    // A slot whose record is T{}. Of the free ones, one that `accept` takes (asked a few times
    // only, so that nobody can make this slow); else a slot never used before.
    template <typename Accept>
    uint32_t allocate(Accept accept) {
        uint32_t *link = &free_;
        for (int tries = 0; *link != kNone && tries < 8; ++tries) {
            const uint32_t slot = *link;
            T &record = (*this)[slot];
            if (accept(static_cast<const T &>(record))) {
                *link = record.*Link;
                --free_count_;
                record = T{};
                return slot;
            }
            link = &(record.*Link);
        }
        return allocate_fresh();
    }
    uint32_t allocate() {
        if (free_ == kNone)
            return allocate_fresh();
        const uint32_t slot = free_;
        T &record = (*this)[slot];
        free_ = record.*Link;
        --free_count_;
        record = T{};
        return slot;
    }

    void release(uint32_t slot) {
        (*this)[slot].*Link = free_;
        free_ = slot;
        ++free_count_;
    }

    uint32_t end() const { return end_; }  // every slot below it was used at least once
    uint32_t live() const { return end_ - free_count_; }
    size_t memory_bytes() const {
        return blocks_.size() * kBlockBytes + blocks_.capacity() * sizeof(Block);
    }

  private:
    T *at(uint32_t slot) const {
        return reinterpret_cast<T *>(blocks_[slot / kPerBlock].get()) + slot % kPerBlock;
    }
    uint32_t allocate_fresh() {
        assert(end_ < kNone);
        if (end_ / kPerBlock == blocks_.size())
            blocks_.push_back(source_.take(!blocks_.empty()));
        if (end_ % kPerBlock == announced_at(kPerBlock))
            source_.announce();
        new (at(end_)) T{};
        return end_++;
    }

    Blocks &source_;
    std::vector<Block> blocks_;
    uint32_t end_ = 0;
    uint32_t free_ = kNone;
    uint32_t free_count_ = 0;
};

}  // namespace maru::directory
