// SlotIndex: finds a slot number by a hash, without an allocation per entry.
//
// Open addressing over 32-bit slot numbers, each with half of its hash: the keys stay in the slots
// themselves, and only the slot that is looked for is read. Removal shifts the following entries
// back, so that a search never walks over graves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace maru::client {

class SlotIndex {
  public:
    static constexpr uint32_t kNone = UINT32_MAX;

    // matches(slot): is it the one looked for?
    template <typename Matches>
    uint32_t find(uint32_t hash, Matches matches) const {
        if (places_.empty())
            return kNone;
        for (size_t at = hash & mask();; at = (at + 1) & mask()) {
            const Place &place = places_[at];
            if (place.slot == kNone || (place.hash == hash && matches(place.slot)))
                return place.slot;
        }
    }

    // So that so many insertions do not allocate.
    void reserve(size_t more) {
        while ((count_ + more) * 2 > places_.size())
            grow();
    }

    // The slot must not be in the index.
    void insert(uint32_t slot, uint32_t hash) {
        if ((count_ + 1) * 2 > places_.size())
            grow();
        place({slot, hash});
        ++count_;
    }

    // The slot must be in the index, under that hash.
    void erase(uint32_t slot, uint32_t hash) {
        size_t hole = hash & mask();
        while (places_[hole].slot != slot)
            hole = (hole + 1) & mask();
        for (size_t at = (hole + 1) & mask(); places_[at].slot != kNone; at = (at + 1) & mask()) {
            const size_t home = places_[at].hash & mask();
            // May it move to the hole without leaving the chain from its home?
            if (((at - home) & mask()) >= ((at - hole) & mask())) {
                places_[hole] = places_[at];
                hole = at;
            }
        }
        places_[hole] = Place{};
        --count_;
    }

    void clear() {
        places_.clear();
        count_ = 0;
    }
    size_t size() const { return count_; }

  private:
    struct Place {
        uint32_t slot = kNone;
        uint32_t hash = 0;
    };
    size_t mask() const { return places_.size() - 1; }
    void place(const Place &entry) {
        size_t at = entry.hash & mask();
        while (places_[at].slot != kNone)
            at = (at + 1) & mask();
        places_[at] = entry;
    }
    void grow() {
        std::vector<Place> old(places_.empty() ? 64 : places_.size() * 2);
        old.swap(places_);
        for (const Place &entry : old)
            if (entry.slot != kNone)
                place(entry);
    }

    std::vector<Place> places_;
    size_t count_ = 0;
};

}  // namespace maru::client
