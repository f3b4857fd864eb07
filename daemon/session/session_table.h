// Sessions: who is using marud, from the first answer to the last proof.
//
// A session's slot is its HolderIndex in the directory. Slots start at 1 and are reused only after
// the session is closed, its leases dropped and its pools removed. A session keeps its id and its
// slot from open to close; its connection comes and goes.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "daemon/directory/directory.h"
#include "daemon/session/ledger.h"
#include "daemon/session/quota.h"
#include "daemon/session/session_state.h"
#include "daemon/session/token.h"
#include "daemon/session/types.h"

namespace maru {

struct Session {
    explicit Session(uint32_t max_ledger_items) : ledger(max_ledger_items) {}

    wire::Id id = 0;
    HolderIndex holder = 0;
    uint32_t domain = 0;       // placement domain of its private pools; unlike any other session's
    uint32_t host_domain = 0;  // of its shared ones: all of its uid's
    SessionState state = SessionState::Attached;
    TokenHash token_hash{};
    wire::Role role = wire::Role::Worker;
    std::string engine, client_name, command;
    uint32_t uid = 0, pid = 0;
    uint64_t start_time = 0;
    ProcessId64 process = 0;
    ConnectionId connection = 0;  // 0: none

    TimeNs opened = 0;
    TimeNs state_since = 0;
    TimeNs last_heard = 0;

    // Over another connection than the one it was opened over: what that one carried is decided, so
    // an operation that was not seen is Absent.
    bool reattached = false;

    Ledger ledger;
    Quota::SessionCharge charge;
    WorkerAccount account;  // before nothing that refers to it: pools live in PoolTable
    std::vector<PoolIndex> pools;

    // What Describe said; format empty: not yet.
    uint64_t object_bytes = 0;
    std::string format;
    std::vector<NamespaceIndex> described;  // in order of the first time
    bool has_described(NamespaceIndex ns) const;

    // RETIRING without readers, told to the owner or to be told, not acknowledged yet.
    struct Reclaimable {
        uint64_t generation = 0;
        PoolIndex pool = 0;
    };
    std::unordered_map<wire::Id, Reclaimable> reclaimable;  // by replica

    bool worker() const { return role == wire::Role::Worker; }
    bool maps_shared = false;  // has asked MapSegment, and its record says so: hears SegmentGone
    // From a record, and not back yet: it may be reading shared memory of its uid.
    bool leases_unknown = false;
    // After a restart: replicas of its shared pools that it has named; those it has not, with their
    // generations, which marud reclaims by itself; and those to be told of as retired.
    std::unordered_set<wire::Id> named;
    std::unordered_map<wire::Id, uint64_t> unnamed;
    std::vector<wire::ReplicaName> retired_unheard;
    bool fenced = false;  // the record says so as well; outlives the state on the way to Closed
};

class SessionTable {
  public:
    Session &create(uint32_t max_ledger_items);
    void destroy(Session &session);

    Session *at(HolderIndex holder) const {
        return holder < slots_.size() ? slots_[holder].get() : nullptr;
    }
    // Walks all of them and compares in constant time; there are at most max_sessions.
    Session *find(const TokenHash &hash) const;
    HolderIndex end() const { return static_cast<HolderIndex>(slots_.size()); }
    uint32_t size() const { return size_; }

    template <typename Fn>
    void each(Fn &&fn) const {
        // By index: fn may create or destroy sessions.
        for (size_t i = 0; i < slots_.size(); ++i)
            if (slots_[i])
                fn(*slots_[i]);
    }

  private:
    std::vector<std::unique_ptr<Session>> slots_ = std::vector<std::unique_ptr<Session>>(1);
    std::vector<HolderIndex> free_;
    uint32_t size_ = 0;
};

}  // namespace maru
