#include "daemon/session/ledger.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

#include "daemon/directory/mutant.h"

namespace maru {
namespace {

constexpr uint64_t kFirstPlaces = 64;
constexpr uint64_t kKeptPlaces = 1024;  // an empty ring above this gives its memory back

__extension__ typedef unsigned __int128 uint128;

// Two words at once: every bit of the product's halves depends on both.
uint64_t mix(uint64_t hash, uint64_t a, uint64_t b) {
    const uint128 product =
        static_cast<uint128>(a ^ hash ^ 0x9e3779b97f4a7c15) * (b ^ 0xd1b54a32d192ed03);
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

}  // namespace

void Ledger::acknowledge(uint64_t op) {
    if (op <= watermark_)
        return;
    if (items_) {
        if (op - watermark_ >= ring_.size()) {
            std::fill(ring_.begin(), ring_.end(), Entry{});
            items_ = 0;
        } else {
            for (uint64_t known = watermark_ + 1; known <= op; ++known) {
                Entry &entry = ring_[known & (ring_.size() - 1)];
                if (entry.op == known) {
                    entry = Entry{};
                    --items_;
                }
            }
        }
    }
    watermark_ = op;
    if (!items_ && ring_.size() > kKeptPlaces)
        ring_ = {};
}

const Ledger::Entry *Ledger::find(uint64_t op) const {
    if (MARU_MUTANT(LedgerForgetsResult) || ring_.empty())
        return nullptr;
    const Entry &entry = ring_[op & (ring_.size() - 1)];
    return entry.op == op ? &entry : nullptr;
}

void Ledger::record(uint64_t op, uint64_t content, const wire::CommitResult &result) {
    // A planted bug runs what it must not; it has nowhere to write that down.
    if (MARU_MUTANT(WatermarkRunsAgain) && op <= watermark_)
        return;
    assert(in_reach(op));
    grow_to(op - watermark_);
    Entry &entry = ring_[op & (ring_.size() - 1)];
    if (MARU_MUTANT(LedgerForgetsResult) && entry.op == op)
        return;
    assert(entry.op == 0);
    entry = Entry{op, content, result.replica, result.status, 0};
    ++items_;
}

void Ledger::record_absent(uint64_t op) { record(op, 0, {0, wire::Status::Absent, 0}); }

void Ledger::set_max_items(uint32_t max_items) {
    // Lowering forgets nothing: what has a place above the new reach keeps it until acknowledged.
    max_items_ = max_items;
}

// The ring must span the whole reach in use: two operations in it never share a place, because
// those in use lie within `places` of the watermark and places <= ring size.
void Ledger::grow_to(uint64_t places) {
    if (places <= ring_.size())
        return;
    std::vector<Entry> bigger(std::max(kFirstPlaces, std::bit_ceil(places)));
    for (const Entry &entry : ring_)
        if (entry.op)
            bigger[entry.op & (bigger.size() - 1)] = entry;
    ring_ = std::move(bigger);
}

uint64_t commit_content(wire::Id namespace_id, const wire::CommitItem &item) {
    uint64_t words[sizeof(item) / sizeof(uint64_t)];
    static_assert(sizeof(item) % sizeof(uint64_t) == 0);
    std::memcpy(words, &item, sizeof(item));
    constexpr size_t kWords = sizeof(words) / sizeof(words[0]);
    uint64_t hash = mix(0x6d617275, namespace_id, words[kWords - 1]);
    for (size_t i = 0; i + 1 < kWords; i += 2)
        hash = mix(hash, words[i], words[i + 1]);
    return hash;
}

}  // namespace maru
