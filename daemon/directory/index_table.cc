#include "daemon/directory/index_table.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

namespace maru::directory {

IndexTable::IndexTable(Blocks &blocks) : source_(blocks) { directory_.push_back(new_chunk(0)); }

IndexTable::Entry IndexTable::new_chunk(uint32_t depth) {
    constexpr size_t kPerBlock = kBlockBytes / kChunkBytes;
    const size_t number = chunks_.size();
    if (number / kPerBlock == blocks_.size())
        blocks_.push_back(source_.take(!blocks_.empty()));
    if (number % kPerBlock == announced_at(kPerBlock))
        source_.announce();
    std::byte *bytes = blocks_.back().get() + number % kPerBlock * kChunkBytes;
    std::memset(bytes, 0, kChunkBytes);
    chunks_.push_back(Chunk{0, depth});
    return Entry{reinterpret_cast<Slot *>(bytes), static_cast<uint32_t>(number)};
}

void IndexTable::place(Slot *slots, Slot slot) {
    uint32_t at = slot.hash & kMask;
    while (slots[at].index)
        at = (at + 1) & kMask;
    slots[at] = slot;
}

void IndexTable::split(uint32_t hash) {
    const Entry low = entry(hash);
    const uint32_t depth = chunks_[low.chunk].depth;
    if (depth == depth_) {
        std::vector<Entry> doubled(directory_.size() * 2);
        for (size_t i = 0; i < directory_.size(); ++i)
            doubled[2 * i] = doubled[2 * i + 1] = directory_[i];
        directory_ = std::move(doubled);
        ++depth_;
    }
    const Entry high = new_chunk(depth + 1);
    chunks_[low.chunk].depth = depth + 1;
    // The entries that name the old chunk are neighbours; the upper half of them moves.
    const size_t named = size_t{1} << (depth_ - depth);
    const size_t first = entry_number(hash) & ~(named - 1);
    std::fill_n(directory_.begin() + static_cast<ptrdiff_t>(first + named / 2), named / 2, high);

    std::array<Slot, kChunkSlots> old;
    std::memcpy(old.data(), low.slots, kChunkBytes);
    std::memset(static_cast<void *>(low.slots), 0, kChunkBytes);
    uint32_t moved = 0;
    for (const Slot &slot : old) {
        if (!slot.index)
            continue;
        const bool upper = slot.hash >> (31 - depth) & 1;
        moved += upper;
        place(upper ? high.slots : low.slots, slot);
    }
    chunks_[low.chunk].fill -= moved;
    chunks_[high.chunk].fill = moved;
}

bool IndexTable::insert(uint32_t hash, uint32_t index) {
    while (chunks_[entry(hash).chunk].fill >= kSplitAt) {
        if (chunks_[entry(hash).chunk].depth == kMaxDepth)
            break;
        split(hash);
    }
    const Entry &home = entry(hash);
    if (chunks_[home.chunk].fill >= kChunkSlots - 1)
        return false;  // one slot stays empty: that is where every search ends
    place(home.slots, Slot{hash, index + 1});
    ++chunks_[home.chunk].fill;
    ++size_;
    return true;
}

void IndexTable::erase(uint32_t hash, uint32_t index) {
    const Entry &home = entry(hash);
    Slot *slots = home.slots;
    uint32_t hole = hash & kMask;
    while (slots[hole].index != index + 1) {
        assert(slots[hole].index);
        hole = (hole + 1) & kMask;
    }
    // Every later entry of the run whose search would now end at the hole moves into it.
    for (uint32_t at = (hole + 1) & kMask; slots[at].index; at = (at + 1) & kMask) {
        const uint32_t wanted = slots[at].hash & kMask;
        if (((at - wanted) & kMask) < ((at - hole) & kMask))
            continue;  // its place lies behind the hole
        slots[hole] = slots[at];
        hole = at;
    }
    slots[hole] = Slot{};
    --chunks_[home.chunk].fill;
    --size_;
}

size_t IndexTable::memory_bytes() const {
    return blocks_.size() * kBlockBytes + directory_.capacity() * sizeof(Entry) +
           chunks_.capacity() * sizeof(Chunk) + blocks_.capacity() * sizeof(Block);
}

}  // namespace maru::directory
