// SharedTruth: what must be so of memory that several sessions read, while it has a worker and after.
//
// Sharers have uids and namespace texts of their own, so that Truth, which knows private memory
// only, never meets theirs; it still checks every page that they read or write. What is READY is
// what marud has recorded, checked against the pages at that moment: a record comes before the reply
// that relies on it, whether or not marud lives to send it.
#pragma once

#include <map>
#include <set>
#include <span>
#include <vector>

#include "daemon/protocol/service.h"
#include "tests/sim/model.h"
#include "tests/sim/rules.h"

namespace maru::sim {

class World;
struct Link;

class SharedTruth {
  public:
    explicit SharedTruth(World &world) : world_(world) {}

    void recorded(const ObjectRecord &fact);
    void restarted(std::span<const ObjectRecord> kept);
    void on_restore(const SessionRecord &record);
    void on_reply(const Link &link, const wire::Request &request, const wire::Reply &reply);
    // Also for those that share nothing.
    void segment_retired(const Link &link, const wire::RetireSegmentRequest &request) const;
    void viewed(const Link &link, const wire::Reply &reply, std::span<Memfd *const> fds);
    bool owns(wire::Id pool) const { return pools_.count(pool) != 0; }

    struct Statistics {
        uint64_t stored = 0, own_hits = 0, foreign_hits = 0, adopted_hits = 0, adopted = 0,
                 retired = 0, views = 0, kept_over_restart = 0;
    };
    const Statistics &statistics() const { return statistics_; }

  private:
    struct Pool {
        ProcessId64 process = 0;
        uint32_t uid = 0;
        uint64_t segment_bytes = 0;
    };
    struct Place {
        wire::Id pool = 0;
        uint64_t offset = 0;
        auto operator<=>(const Place &) const = default;
    };
    struct Copy {
        uint64_t generation = 0, length = 0;
        ObjectName name;
        uint32_t uid = 0;
    };
    using Found = std::map<Place, Copy>::iterator;

    Memfd *file_of(const Place &place) const;
    void check_pages(const Place &place, const Copy &copy, const char *when) const;
    bool any(uint32_t uid, const ObjectName &name, bool adopted_only) const;
    void hit(uint32_t uid, const ObjectName &name, const wire::AcquireResult &result,
             ProcessId64 reader);

    World &world_;
    std::map<wire::Id, Pool> pools_;  // of all lives; ids never come again
    std::map<Place, Copy> copies_;    // READY
    struct Text {
        uint32_t text = 0, uid = 0;
    };
    std::map<uint32_t, Text> texts_;  // by number in the record of this life
    Statistics statistics_;
};

}  // namespace maru::sim
