#include "libmaru/client/lease_table.h"

namespace maru::client {

void LeaseTable::reserve(size_t more) {
    while (free_.size() < more) {
        chunks_.push_back(std::make_unique<LeaseSlot[]>(kChunk));
        for (size_t i = 0; i < kChunk; ++i)
            free_.push_back(&chunks_.back()[i]);
    }
}

void *LeaseTable::add(Session *session, uint32_t held, const std::byte *data, uint64_t length,
                      uint64_t generation) {
    reserve(1);
    LeaseSlot *slot = free_.front();
    free_.pop_front();
    slot->held = held;
    slot->session = session;
    slot->data = data;
    slot->length = length;
    slot->generation = generation;
    const uint32_t tag =
        ((slot->state.load(std::memory_order_relaxed) >> 1) + 1) & LeaseHandle::kTagMask;
    slot->state.store(tag << 1 | 1, std::memory_order_release);
    ++live_;
    return reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(slot) | tag);
}

void LeaseTable::recycle(LeaseSlot *slot) {
    free_.push_back(slot);
    --live_;
}

}  // namespace maru::client
