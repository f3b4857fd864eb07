// Ledger: what became of a session's operations, until the client says that it knows.
//
// Operation ids are a counter. Those up to the watermark are acknowledged: forgotten, and never run
// again. Those above it, up to a fixed number, have a place in a ring. A place filled once does not
// change: a retry meets the first result, a final Absent refuses the late commit. So the ledger is
// bounded and never dead-ends: the client moves the watermark and there is room again.
#pragma once

#include <cstdint>
#include <vector>

#include "libmaru/wire/records.h"

namespace maru {

class Ledger {
  public:
    explicit Ledger(uint32_t max_items) : max_items_(max_items) {}

    struct Entry {        // 32 B
        uint64_t op = 0;  // 0: free
        uint64_t content = 0;
        wire::Id replica = 0;
        wire::Status status = wire::Status::Unknown;
        uint32_t reserved = 0;
    };
    static_assert(sizeof(Entry) == 32);

    // Everything up to `op` is known to the client. Never goes back.
    void acknowledge(uint64_t op);
    uint64_t watermark() const { return watermark_; }
    bool acknowledged(uint64_t op) const { return op <= watermark_; }
    // Is there a place for it? If not, watermark() + 1 is the operation that pins the ledger.
    bool in_reach(uint64_t op) const { return op > watermark_ && op - watermark_ <= max_items_; }
    uint64_t pinned_by() const { return watermark_ + 1; }

    // What was recorded for it; nullptr: nothing. Only for ops in reach. Valid until record().
    const Entry *find(uint64_t op) const;
    // Once per operation in reach.
    void record(uint64_t op, uint64_t content, const wire::CommitResult &result);
    // Final: an operation that was not seen will never be applied.
    void record_absent(uint64_t op);

    void set_max_items(uint32_t max_items);
    uint64_t items() const { return items_; }
    bool empty() const { return items_ == 0 && watermark_ == 0; }

  private:
    void grow_to(uint64_t places);

    uint32_t max_items_;
    uint64_t watermark_ = 0;
    uint64_t items_ = 0;
    std::vector<Entry> ring_;  // place of op: op % size, a power of two
};

// What a commit said, for telling a retry from another operation under the same id.
uint64_t commit_content(wire::Id namespace_id, const wire::CommitItem &item);

}  // namespace maru
