// IndexTable: 32-bit hash -> 32-bit index, the keys themselves being elsewhere.
//
// Extendible hashing: the upper bits of the hash choose a chunk of 4,096 slots, the lower bits the
// place in it. A chunk that is three quarters full splits in two, about 20 us however large the
// table is; there is no other growth, so no pause and no time in which two tables must be asked.
// The hash alone says where an entry belongs: moving entries reads no key.
// Deletion shifts later entries back, so a table that lives on churn does not fill with tombstones.
#pragma once

#include <emmintrin.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/directory/block.h"
#include "daemon/directory/slab.h"

namespace maru::directory {

class IndexTable {
  public:
    explicit IndexTable(Blocks &blocks);

    // The first index under `hash` that `equal(index)` takes, or kNone.
    template <typename Equal>
    uint32_t find(uint32_t hash, Equal equal) const {
        const Slot *slots = entry(hash).slots;
        uint32_t line = hash & kMask & ~7u;
        uint32_t wanted = 0xffu << (hash & 7);  // those of the line that the search passes
        while (true) {
            const Line found = compare(slots + line, hash);
            const uint32_t empty = found.empty & wanted;
            uint32_t matches = found.equal & wanted & ((empty & -empty) - 1);  // before the first
            for (; matches; matches &= matches - 1) {
                const uint32_t index = slots[line + std::countr_zero(matches)].index - 1;
                if (equal(index))
                    return index;
            }
            if (empty)
                return kNone;
            line = (line + 8) & kMask;
            wanted = 0xff;
        }
    }
    // find() in two steps, for batches: ask for the memory, later take the first candidate.
    void prefetch(uint32_t hash) const { __builtin_prefetch(entry(hash).slots + (hash & kMask)); }
    uint32_t candidate(uint32_t hash) const {
        return find(hash, [](uint32_t) { return true; });
    }

    // False: no room, which takes thousands of entries of one and the same hash.
    bool insert(uint32_t hash, uint32_t index);  // the entry must not be there yet
    void erase(uint32_t hash, uint32_t index);   // the entry must be there

    uint64_t size() const { return size_; }
    uint32_t chunk_count() const { return static_cast<uint32_t>(chunks_.size()); }
    size_t memory_bytes() const;

    static constexpr uint32_t kChunkSlots = 4096;
    static constexpr uint32_t kSplitAt = kChunkSlots / 4 * 3;

  private:
    struct Slot {
        uint32_t hash = 0;
        uint32_t index = 0;  // + 1; 0: empty
    };
    static_assert(sizeof(Slot) == 8);
    struct Entry {
        Slot *slots = nullptr;
        uint32_t chunk = 0;  // in chunks_
    };
    struct Chunk {
        uint32_t fill = 0;
        uint32_t depth = 0;  // how many upper bits of the hash all its entries share
    };
    static constexpr uint32_t kMask = kChunkSlots - 1;
    static constexpr uint32_t kMaxDepth = 20;  // the other 12 bits are the place in the chunk
    static constexpr size_t kChunkBytes = kChunkSlots * sizeof(Slot);

    // Eight slots, one cache line, at once: where a run ends is chance, and a loop over its slots
    // would mispredict its end for nearly every key.
    struct Line {
        uint32_t equal, empty;  // bit i: slot i
    };
    static Line compare(const Slot *line, uint32_t hash) {
        const __m128i wanted = _mm_set1_epi32(static_cast<int>(hash));
        const __m128i zero = _mm_setzero_si128();
        Line found{0, 0};
        for (int half = 0; half < 2; ++half) {
            const auto *at = reinterpret_cast<const __m128i *>(line + 4 * half);
            const __m128 first = _mm_castsi128_ps(_mm_load_si128(at));
            const __m128 second = _mm_castsi128_ps(_mm_load_si128(at + 1));
            const __m128i hashes =
                _mm_castps_si128(_mm_shuffle_ps(first, second, _MM_SHUFFLE(2, 0, 2, 0)));
            const __m128i indexes =
                _mm_castps_si128(_mm_shuffle_ps(first, second, _MM_SHUFFLE(3, 1, 3, 1)));
            found.equal |= mask_of(_mm_cmpeq_epi32(hashes, wanted)) << 4 * half;
            found.empty |= mask_of(_mm_cmpeq_epi32(indexes, zero)) << 4 * half;
        }
        return found;
    }
    static uint32_t mask_of(__m128i lanes) {
        return static_cast<uint32_t>(_mm_movemask_ps(_mm_castsi128_ps(lanes)));
    }

    size_t entry_number(uint32_t hash) const {
        return static_cast<size_t>((static_cast<uint64_t>(hash) << depth_) >> 32);
    }
    const Entry &entry(uint32_t hash) const { return directory_[entry_number(hash)]; }
    Entry new_chunk(uint32_t depth);
    void split(uint32_t hash);
    static void place(Slot *slots, Slot slot);

    std::vector<Entry> directory_;  // 2^depth_
    std::vector<Chunk> chunks_;
    Blocks &source_;
    std::vector<Block> blocks_;
    uint32_t depth_ = 0;
    uint64_t size_ = 0;
};

}  // namespace maru::directory
