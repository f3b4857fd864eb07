// LeaseTable: the handles that callers hold on leased bytes.
//
// A handle is the address of a slot with a tag in its low bits; the tag changes with every use of
// the slot and slots are reused in the order they were freed, so a second release is found for a
// long time and never ends somebody else's lease. Slots never move or go while the client lives.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace maru::client {

class Session;

struct alignas(64) LeaseSlot {
    // Bit 0: live. Above: the tag. Taken by exchange, so that of two releases one only succeeds.
    std::atomic<uint32_t> state{0};
    uint32_t held = 0;  // slot in HeldTable
    Session *session = nullptr;
    const std::byte *data = nullptr;
    uint64_t length = 0;
    uint64_t generation = 0;
    LeaseSlot *next_free = nullptr;  // of a free one
};
static_assert(sizeof(LeaseSlot) == 64);

class LeaseHandle {
  public:
    static constexpr uintptr_t kTagMask = alignof(LeaseSlot) - 1;

    static LeaseSlot *slot(const void *handle) {
        return reinterpret_cast<LeaseSlot *>(reinterpret_cast<uintptr_t>(handle) & ~kTagMask);
    }
    static uint32_t live_state(const void *handle) {
        return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(handle) & kTagMask) << 1 | 1;
    }
    // The slot, or nullptr when the lease was released.
    static const LeaseSlot *live(const void *handle) {
        const LeaseSlot *found = slot(handle);
        return found->state.load(std::memory_order_acquire) == live_state(handle) ? found : nullptr;
    }
    // True for the one caller that ends the lease; its slot's contents are then that caller's to read.
    static bool end(const void *handle) {
        uint32_t expected = live_state(handle);
        return slot(handle)->state.compare_exchange_strong(expected, expected & ~1u,
                                                           std::memory_order_acq_rel);
    }
};

class LeaseTable {
  public:
    // A handle for the bytes. Throws bad_alloc. Under the session's lock.
    void *add(Session *session, uint32_t held, const std::byte *data, uint64_t length,
              uint64_t generation) {
        if (!first_free_)
            grow();
        LeaseSlot *slot = first_free_;
        first_free_ = slot->next_free;
        --free_;
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
    // The slot of an ended lease may be used again. Under the session's lock.
    void recycle(LeaseSlot *slot) {
        append(slot);
        --live_;
    }
    void reserve(size_t more) {  // so that add() cannot fail
        while (free_ < more)
            grow();
    }
    uint64_t live() const { return live_; }

  private:
    void grow();
    void append(LeaseSlot *slot) {
        slot->next_free = nullptr;
        (first_free_ ? last_free_->next_free : first_free_) = slot;
        last_free_ = slot;
        ++free_;
    }

    static constexpr size_t kChunk = 256;
    std::vector<std::unique_ptr<LeaseSlot[]>> chunks_;
    LeaseSlot *first_free_ = nullptr, *last_free_ = nullptr;  // the last: while there is a first
    size_t free_ = 0;
    uint64_t live_ = 0;
};

}  // namespace maru::client
