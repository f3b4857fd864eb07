// The small world that the simulation believes in: objects, pages, memory files and processes.
//
// These are facts of the simulated machine, not of marud: what is really written where, who really
// maps it. Truth compares what marud says with them.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/protocol/service.h"
#include "libmaru/wire/records.h"

namespace maru::sim {

// A logical object by its content: the namespace's text, not the number that marud gave it.
struct ObjectName {
    uint32_t text = 0;
    uint32_t key = 0;
    uint32_t shard = 0;
    uint32_t part = 0;
    auto operator<=>(const ObjectName &) const = default;
};

// The bytes of a page are a function of the object and the allocation that wrote them.
struct PageValue {
    ObjectName object;
    uint64_t generation = 0;
    bool written = false;  // false: never, or only half of it so far
    bool operator==(const PageValue &) const = default;
};

struct Process {
    ProcessId64 number = 0;
    uint32_t uid = 0;
    uint32_t pid = 0;
    uint64_t start_time = 0;
    bool alive = true;
    bool stopped = false;  // SIGSTOP: does nothing, answers nothing
    bool sibling = false;  // a forked child: no pidfd of it is watched
    bool liar = false;     // its bytes are worth nothing
    bool sharer = false;   // has shared memory: SharedTruth knows it
    bool admin = false;
    bool reported = false;  // marud has been told of its exit
    TimeNs report_at = 0;
};

// A memfd. Its number is its identity; `ref` is the name under which marud made it.
struct Memfd {
    uint32_t number = 0;
    SegmentRef ref;
    uint64_t bytes = 0;
    uint32_t page_bytes = 4096;
    std::vector<PageValue> pages;
    bool future_sealed = false;
    bool write_sealed = false;
    bool with_daemon = false;  // the running marud holds a descriptor
    bool in_store = false;     // systemd holds one
    bool adopted = false;      // recorded as marud's own
    bool lost = false;         // marud died without a store: it cannot prove anything about it
    std::vector<ProcessId64> holders;   // have a descriptor
    std::vector<ProcessId64> mappings;  // map it writable
    uint32_t in_flight = 0;             // descriptors in socket queues
    uint32_t pins = 0;                  // page pins of I/O in flight

    bool mapped_by(ProcessId64 process) const {
        return std::find(mappings.begin(), mappings.end(), process) != mappings.end();
    }
    bool held_by(ProcessId64 process) const {
        return std::find(holders.begin(), holders.end(), process) != holders.end();
    }
    // Can anybody still change its bytes, or make them changeable?
    bool touchable() const {
        if (write_sealed)
            return false;
        return !mappings.empty() || pins != 0 ||
               (!future_sealed && (!holders.empty() || in_flight));
    }
};

inline wire::Digest digest_of(uint32_t key) {
    wire::Digest digest;
    uint64_t x = 0x4d61727500000000ull + key;
    for (size_t i = 0; i < 4; ++i) {
        x = (x ^ (x >> 31)) * 0x7fb5d329728ea185ull + i;
        std::memcpy(digest.bytes.data() + 8 * i, &x, 8);
    }
    std::memcpy(digest.bytes.data(), &key, 4);
    return digest;
}
inline uint32_t key_of(const wire::Digest &digest) {
    uint32_t key;
    std::memcpy(&key, digest.bytes.data(), 4);
    return key;
}

template <typename T>
void erase_value(std::vector<T> &list, const T &value) {
    list.erase(std::remove(list.begin(), list.end(), value), list.end());
}

}  // namespace maru::sim
