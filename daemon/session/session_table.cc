#include "daemon/session/session_table.h"

#include <algorithm>
#include <cassert>

namespace maru {

bool Session::has_described(NamespaceIndex ns) const {
    return std::find(described.begin(), described.end(), ns) != described.end();
}

Session &SessionTable::create(uint32_t max_ledger_items) {
    HolderIndex holder = 0;
    if (free_.empty()) {
        holder = static_cast<HolderIndex>(slots_.size());
        slots_.emplace_back();
    } else {
        holder = free_.back();
        free_.pop_back();
    }
    slots_[holder] = std::make_unique<Session>(max_ledger_items);
    slots_[holder]->holder = holder;
    ++size_;
    return *slots_[holder];
}

void SessionTable::destroy(Session &session) {
    assert(session.pools.empty());
    HolderIndex holder = session.holder;
    assert(at(holder) == &session);
    slots_[holder].reset();
    free_.push_back(holder);
    --size_;
}

Session *SessionTable::find(const TokenHash &hash) const {
    Session *found = nullptr;
    for (const auto &slot : slots_)
        if (slot && same_token(slot->token_hash, hash))
            found = slot.get();
    return found;
}

}  // namespace maru
