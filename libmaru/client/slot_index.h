// SlotIndex: finds a slot number by a hash, without an allocation per entry.
//
// Open addressing over 32-bit slot numbers; the keys stay in the slots themselves. Removal shifts
// the following entries back, so that a search never walks over graves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace maru::client {

class SlotIndex {
  public:
    static constexpr uint32_t kNone = UINT32_MAX;

    // hash_of(slot): of a slot already in the index; matches(slot): is it the one looked for?
    template <typename Matches>
    uint32_t find(uint64_t hash, Matches matches) const {
        if (places_.empty())
            return kNone;
        for (size_t at = hash & mask();; at = (at + 1) & mask()) {
            if (places_[at] == kNone || matches(places_[at]))
                return places_[at];
        }
    }

    // So that so many insertions do not allocate.
    template <typename HashOf>
    void reserve(size_t more, HashOf hash_of) {
        while ((count_ + more) * 2 > places_.size())
            grow(hash_of);
    }

    // The slot must not be in the index.
    template <typename HashOf>
    void insert(uint32_t slot, HashOf hash_of) {
        if ((count_ + 1) * 2 > places_.size())
            grow(hash_of);
        place(slot, hash_of(slot));
        ++count_;
    }

    // The slot must be in the index, and its hash as at insertion.
    template <typename HashOf>
    void erase(uint32_t slot, HashOf hash_of) {
        size_t hole = hash_of(slot) & mask();
        while (places_[hole] != slot)
            hole = (hole + 1) & mask();
        for (size_t at = (hole + 1) & mask(); places_[at] != kNone; at = (at + 1) & mask()) {
            const size_t home = hash_of(places_[at]) & mask();
            // May it move to the hole without leaving the chain from its home?
            if (((at - home) & mask()) >= ((at - hole) & mask())) {
                places_[hole] = places_[at];
                hole = at;
            }
        }
        places_[hole] = kNone;
        --count_;
    }

    void clear() {
        places_.clear();
        count_ = 0;
    }
    size_t size() const { return count_; }

  private:
    size_t mask() const { return places_.size() - 1; }
    void place(uint32_t slot, uint64_t hash) {
        size_t at = hash & mask();
        while (places_[at] != kNone)
            at = (at + 1) & mask();
        places_[at] = slot;
    }
    template <typename HashOf>
    void grow(HashOf hash_of) {
        std::vector<uint32_t> old(places_.empty() ? 64 : places_.size() * 2, kNone);
        old.swap(places_);
        for (uint32_t slot : old)
            if (slot != kNone)
                place(slot, hash_of(slot));
    }

    std::vector<uint32_t> places_;
    size_t count_ = 0;
};

}  // namespace maru::client
