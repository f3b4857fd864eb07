// Ring: a circular doubly linked list threaded through the records of a slab.
//
// The owner keeps only the head (kNone: empty). Circular, because the tail is then head.prev: a
// replica that retires moves behind those that can be read without a second pointer per object.
#pragma once

#include <cstdint>

#include "daemon/directory/slab.h"

namespace maru::directory {

template <typename T, uint32_t T::*Prev, uint32_t T::*Next>
struct Ring {
    template <typename Records>
    static void push_back(Records &records, uint32_t &head, uint32_t slot) {
        T &record = records[slot];
        if (head == kNone) {
            record.*Prev = record.*Next = slot;
            head = slot;
            return;
        }
        const uint32_t tail = records[head].*Prev;
        record.*Prev = tail;
        record.*Next = head;
        records[tail].*Next = slot;
        records[head].*Prev = slot;
    }

    template <typename Records>
    static void push_front(Records &records, uint32_t &head, uint32_t slot) {
        push_back(records, head, slot);
        head = slot;
    }

    // To the front or to the back.
    template <typename Records>
    static void push(Records &records, uint32_t &head, uint32_t slot, bool front) {
        push_back(records, head, slot);
        if (front)
            head = slot;
    }

    template <typename Records>
    static void remove(Records &records, uint32_t &head, uint32_t slot) {
        T &record = records[slot];
        if (record.*Next == slot) {
            head = kNone;
            return;
        }
        records[record.*Prev].*Next = record.*Next;
        records[record.*Next].*Prev = record.*Prev;
        if (head == slot)
            head = record.*Next;
    }

    // All of `other` behind all of `head`; `other` is empty afterwards.
    template <typename Records>
    static void splice(Records &records, uint32_t &head, uint32_t &other) {
        if (other == kNone)
            return;
        if (head != kNone) {
            const uint32_t tail = records[head].*Prev;
            const uint32_t other_tail = records[other].*Prev;
            records[tail].*Next = other;
            records[other].*Prev = tail;
            records[other_tail].*Next = head;
            records[head].*Prev = other_tail;
        } else {
            head = other;
        }
        other = kNone;
    }

    // The one after `slot`, kNone after the last.
    template <typename Records>
    static uint32_t next(const Records &records, uint32_t head, uint32_t slot) {
        const uint32_t following = records[slot].*Next;
        return following == head ? kNone : following;
    }
};

}  // namespace maru::directory
