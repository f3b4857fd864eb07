// Truth: what must be so, from the simulation's own knowledge of every request, reply and page.
//
// Truth sees each request before marud does and each reply as marud makes it (whether or not it ever
// arrives), and it sees every page written, mapped and read. From these alone it knows which replica
// is READY, who leases it, which operation ran, and which memory may still be touched. It shares no
// state with Service; where the two disagree, a rule of rules.h is violated.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "daemon/protocol/service.h"
#include "tests/sim/model.h"
#include "tests/sim/rules.h"
#include "tests/sim/shared_truth.h"

namespace maru::sim {

class World;
struct Link;

class Truth {
  public:
    explicit Truth(World &world);

    // ---- the life of marud
    void on_daemon_start(uint32_t epoch);
    void on_daemon_death();
    void on_restore(const SessionRecord &record, bool alive);
    void on_drop(Memfd &file);
    void on_stall(TimeNs gap);

    // ---- what marud hears and says
    void on_request(Link &link, const wire::Request &request);
    void on_reply(Link &link, const wire::Request &request, const wire::Reply &reply,
                  std::span<Memfd *const> fds);
    void on_event(Link &link, const wire::Event &event);
    void on_connection_closed(Link &link);
    void on_exit(Process &process);  // reported to marud

    // ---- what really happens to memory
    void on_death(Process &process);
    void on_unmap(Process &process, Memfd &file);
    void on_write(Process &process, Memfd &file, uint32_t page, const PageValue &value);
    // A reader looks at pages for a while; it must see `expected` all the time.
    uint32_t begin_read(Process &process, Memfd &file, uint32_t first, uint32_t pages,
                        const PageValue &expected);
    void end_read(uint32_t read);

    void after_step();
    void at_end(bool processes_gone);
    uint32_t text_index(std::string_view text);
    uint32_t text_of_id(wire::Id ns) const;  // UINT32_MAX: of no namespace of this life
    // Of this life, by an answer or by marud's own record.
    void namespace_known(wire::Id id, uint32_t text, uint32_t uid);
    SharedTruth &shared() { return shared_; }

    struct Statistics {
        uint64_t requests = 0, commits = 0, present = 0, acquired = 0, missed = 0, probes = 0,
                 probe_hits = 0, released = 0, retired = 0, reclaimed = 0, republished = 0,
                 resolved = 0, pools = 0, closed = 0, opens = 0, attaches = 0, fenced = 0,
                 lives = 0, exits = 0, pages_read = 0, refused = 0, stale = 0;
        SharedTruth::Statistics shared;
        void add(const Statistics &other);
    };
    Statistics statistics() const {
        Statistics all = statistics_;
        all.shared = shared_.statistics();
        return all;
    }

  private:
    struct Operation {
        wire::Id ns = 0;
        wire::CommitItem item;
        wire::CommitResult result;
        bool absent = false;  // resolve said so: final
    };
    struct Session {
        wire::Id id = 0;
        wire::Token token{};
        bool token_known = false;
        ProcessId64 process = 0;
        uint32_t uid = 0;
        wire::Role role = wire::Role::Worker;
        std::string engine;
        ConnectionId connection = 0;
        bool this_life = true;
        bool whole = true;   // nothing left to restore after an attach
        bool ended = false;  // closed, fenced, or its process is gone
        bool fenced = false;
        bool liar = false;
        uint64_t object_bytes = 0;
        std::vector<wire::Id> described;
        uint64_t watermark = 0;
        TimeNs heard = 0;
        std::map<uint64_t, Operation> operations;
    };
    struct Pool {
        wire::Id id = 0;
        Session *owner = nullptr;
        uint64_t capacity = 0, segment_bytes = 0;
        uint32_t page_bytes = 0, segments = 0;
        std::vector<bool> granted;
        bool closing = false;
        bool forced = false;  // a forced close was asked for, and is not taken back
        bool finishing = false;
        bool unsure = false;  // a close was asked for; what it did is not known yet
        std::map<uint64_t, uint64_t> last_generation;  // of pages, by offset
    };
    struct Replica {
        wire::Id id = 0;
        uint64_t generation = 0;
        wire::Id pool = 0;
        Session *owner = nullptr;
        ObjectName object;
        uint64_t offset = 0, length = 0, allocated = 0;
        bool retiring = false;
        uint64_t leases = 0;
        bool named = false;  // since attach began
    };
    struct Read {
        uint32_t number = 0;
        ProcessId64 process = 0;
        Memfd *file = nullptr;
        uint32_t first = 0, pages = 0;
        PageValue expected;
    };
    struct Namespace {
        uint32_t text = 0;
        uint32_t epoch = 0;
        uint32_t uid = 0;
    };

    using Request = wire::Request;
    void replied(Link &, const Request &, const wire::OpenSessionRequest &, const wire::Reply &);
    void replied(Link &, const Request &, const wire::AttachRequest &, const wire::Reply &);
    void replied(Session &, const Request &, const wire::RepublishRequest &, const wire::Reply &);
    void replied(Session &, const Request &, const wire::AttachLeasesRequest &,
                 const wire::Reply &);
    void replied(Session &, const Request &, const wire::DescribeRequest &, const wire::Reply &);
    void replied(Session &, const Request &, const wire::OpenPoolRequest &, const wire::Reply &);
    void replied(Session &, const Request &, const wire::SegmentMappedRequest &,
                 const wire::Reply &);
    void replied(Session &, const Request &, const wire::ClosePoolRequest &, const wire::Reply &);
    void replied(Session &, const Request &, const wire::CommitRequest &, const wire::Reply &);
    void replied(Session &, const Request &, const wire::ResolveRequest &, const wire::Reply &);
    void replied(Session &, const Request &, const wire::ProbeRequest &, const wire::Reply &);
    void replied(Session &, const Request &, const wire::EngineWorkerRequest &,
                 const wire::Reply &);
    void replied(Session &, const Request &, const wire::AcquireRequest &, const wire::Reply &);
    void replied(Session &, const Request &, const wire::ReleaseRequest &, const wire::Reply &);
    void replied(Session &, const Request &, const wire::RetireRequest &, const wire::Reply &);
    void replied(Session &, const Request &, const wire::ReclaimAckRequest &, const wire::Reply &);
    void replied(Session &, const Request &, const wire::UsageRequest &, const wire::Reply &);
    void namespace_replied(const Link &, const wire::RegisterNamespaceRequest &,
                           const wire::Reply &);
    void admin_retired(const Link &, const wire::AdminRetireRequest &, const wire::Reply &);
    void segment_replied(Session &, const wire::GrantSegmentRequest &, const wire::Reply &,
                         std::span<Memfd *const> fds);

    static void check_self(const Service &service);
    void new_replica(Session &session, wire::Id ns, const wire::CommitItem &item, wire::Id id);
    void check_content(const Replica &replica, const char *when);
    const Namespace *fresh_namespace(wire::Id id) const;
    // The one that a session works in: of its own uid, or a rule is violated.
    const Namespace *own_namespace(const Session &session, wire::Id id, const char *what) const;
    Replica *ready_in(const Session &session, const ObjectName &object);
    Session *session_of(const Link &link);
    Session *worker_of(uint32_t uid, const std::string &engine);
    bool surely_visible(const Session &session, const Replica &replica) const;
    bool owns_pools(const Session &session) const;
    void end_session(Session &session);
    void forget_pool(wire::Id id);
    void take_engine(Session &newcomer);
    uint64_t leases_on(wire::Id pool) const;

    World &world_;
    SharedTruth shared_;
    uint32_t epoch_ = 0;
    std::vector<std::unique_ptr<Session>> sessions_;
    std::map<wire::Id, Pool> pools_;
    std::set<std::pair<wire::Id, const Session *>> finished_;  // pools that were credited
    std::map<wire::Id, Replica> replicas_;
    std::map<wire::Id, Namespace> namespaces_;
    std::map<std::string, uint32_t, std::less<>> texts_;
    std::vector<Read> reads_;
    uint32_t next_read_ = 1;
    uint64_t steps_ = 0;
    Statistics statistics_;
};

}  // namespace maru::sim
