#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <stdexcept>

#include "tests/bench/floors/floors.h"
#include "tests/bench/suite.h"

namespace maru::bench {

struct alignas(64) LookupTable::Slot {
    Key key;
    uint64_t used;
    uint64_t rest[3];
};

namespace {

constexpr size_t kAhead = 16;
constexpr size_t kHuge = 2 << 20;

size_t slots_for(size_t entries) {
    size_t slots = 64;
    while (slots * 3 < entries * 4)
        slots *= 2;
    return slots;
}

}  // namespace

size_t LookupTable::bytes_of(size_t entries) { return slots_for(entries) * 64; }

LookupTable::LookupTable(size_t entries) {
    static_assert(sizeof(Slot) == 64);
    const size_t slots = slots_for(entries);
    mask_ = slots - 1;
    bytes_ = (slots * sizeof(Slot) + kHuge - 1) / kHuge * kHuge;
    slots_ = static_cast<Slot *>(std::aligned_alloc(kHuge, bytes_));
    if (!slots_)
        throw std::bad_alloc();
    ::madvise(slots_, bytes_, MADV_HUGEPAGE);  // as marud's own tables
    std::memset(static_cast<void *>(slots_), 0, bytes_);
    std::mt19937_64 random(1);
    order_.resize(entries);
    for (Key &key : order_) {
        for (uint64_t &word : key.words)
            word = random();
        size_t at = key.words[0] & mask_;
        while (slots_[at].used)
            at = (at + 1) & mask_;
        slots_[at].key = key;
        slots_[at].used = 1;
    }
    std::shuffle(order_.begin(), order_.end(), random);
}

LookupTable::~LookupTable() { std::free(slots_); }

double LookupTable::round_us(size_t keys, int turns) {
    std::vector<double> times;
    for (int turn = 0; turn < turns; ++turn) {
        if (next_ + keys > order_.size())
            next_ = 0;
        const Key *batch = &order_[next_];
        next_ += keys;
        const uint64_t begin = now_ns();
        size_t found = 0;
        for (size_t i = 0; i < keys; ++i) {
            if (i + kAhead < keys)
                __builtin_prefetch(&slots_[batch[i + kAhead].words[0] & mask_]);
            size_t at = batch[i].words[0] & mask_;
            while (slots_[at].used && std::memcmp(&slots_[at].key, &batch[i], sizeof(Key)) != 0)
                at = (at + 1) & mask_;
            found += slots_[at].used;
        }
        times.push_back(us_since(begin));
        if (found != keys)
            throw std::runtime_error("table lookup: a key is not there");
    }
    return median(times);
}

}  // namespace maru::bench
