// What marud counts, as plain numbers.
//
// Service and the loop increment them where things happen; families.cc says what each is called,
// and a scrape reads them. All of it is fixed in size: no session, object, key or user has a number
// of its own, so that nothing here grows with what clients do. One thread writes and reads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <variant>

#include "daemon/metrics/histogram.h"
#include "daemon/session/session_state.h"
#include "libmaru/wire/messages.h"

namespace maru::metrics {

inline constexpr size_t kStatuses = static_cast<size_t>(wire::Status::Internal) + 1;

// Items of a batch by result: those that the protocol promises, and one place for all others.
template <wire::Status... kListed>
class StatusCounts {
  public:
    static constexpr std::array<wire::Status, sizeof...(kListed)> kStatuses = {kListed...};

    void add(wire::Status status) { ++counts_[kPlaces[static_cast<size_t>(status)]]; }
    const uint64_t *listed(size_t place) const { return &counts_[place]; }
    const uint64_t *others() const { return &counts_[sizeof...(kListed)]; }
    uint64_t of(wire::Status status) const { return counts_[kPlaces[static_cast<size_t>(status)]]; }

  private:
    static constexpr auto make_places() {
        std::array<uint8_t, metrics::kStatuses> places{};
        for (uint8_t &place : places)
            place = sizeof...(kListed);
        for (size_t i = 0; i < kStatuses.size(); ++i)
            places[static_cast<size_t>(kStatuses[i])] = static_cast<uint8_t>(i);
        return places;
    }
    static constexpr auto kPlaces = make_places();
    std::array<uint64_t, sizeof...(kListed) + 1> counts_{};
};

// ---- requests ----------------------------------------------------------------------------------

// By place in RequestBody; the last is a frame that is no request.
inline constexpr size_t kRequestKinds = std::variant_size_v<wire::RequestBody> + 1;
inline constexpr size_t kMalformedRequest = kRequestKinds - 1;

// What became of a request. The 27 statuses are too many for each of 31 requests.
enum class Outcome : uint8_t {
    Ok,
    Busy,       // not now: ask again, or wait for somebody
    Exhausted,  // a limit or a resource
    Denied,     // not yours, or not any more
    Stale,      // a name of an earlier life or generation
    Invalid,    // what was asked makes no sense, or not at this point
    Failed,     // marud's own fault
    Dropped,    // the connection went before the answer
};
inline constexpr const char *kOutcomeNames[] = {"ok",    "busy",    "exhausted", "denied",
                                                "stale", "invalid", "failed",    "dropped"};
inline constexpr size_t kOutcomes = 8;

constexpr Outcome outcome_of(wire::Status status) {
    using wire::Status;
    switch (status) {
        case Status::Ok:
        case Status::AlreadyPresent:
        case Status::Pending:
        case Status::Miss:
        case Status::Unknown:
        case Status::Absent:
        case Status::Committed:
            return Outcome::Ok;
        case Status::Busy:
        case Status::Again:
        case Status::Unavailable:
            return Outcome::Busy;
        case Status::NoSpace:
        case Status::NoMemory:
        case Status::Quota:
        case Status::FdLimit:
            return Outcome::Exhausted;
        case Status::Denied:
        case Status::Fenced:
            return Outcome::Denied;
        case Status::StaleEpoch:
        case Status::StaleGeneration:
            return Outcome::Stale;
        case Status::NotFound:
        case Status::Unsupported:
        case Status::InvalidArgument:
        case Status::Conflict:
        case Status::Protocol:
        case Status::TooLarge:
        case Status::VersionMismatch:
        case Status::Incompatible:
            return Outcome::Invalid;
        case Status::Internal:
            break;
    }
    return Outcome::Failed;
}

// Requests that cost alike, for the time they take.
enum class RequestClass : uint8_t { Session, Pool, Commit, Probe, Acquire, Release, Admin };
inline constexpr const char *kRequestClassNames[] = {"session", "pool",    "commit", "probe",
                                                     "acquire", "release", "admin"};
inline constexpr size_t kRequestClasses = 7;

template <typename Request>
constexpr RequestClass class_of() {
    using namespace wire;
    auto one_of = []<typename... Each>(std::variant<Each...> *) {
        return (std::is_same_v<Request, Each> || ...);
    };
    if (one_of(static_cast<std::variant<OpenPoolRequest, GrantSegmentRequest, SegmentMappedRequest,
                                        ClosePoolRequest, AttachPoolRequest> *>(nullptr)))
        return RequestClass::Pool;
    if (one_of(
            static_cast<std::variant<CommitRequest, ResolveRequest, RepublishRequest> *>(nullptr)))
        return RequestClass::Commit;
    if (std::is_same_v<Request, ProbeRequest>)
        return RequestClass::Probe;
    if (std::is_same_v<Request, AcquireRequest>)
        return RequestClass::Acquire;
    if (one_of(
            static_cast<std::variant<ReleaseRequest, RetireRequest, ReclaimAckRequest> *>(nullptr)))
        return RequestClass::Release;
    if (one_of(
            static_cast<std::variant<UsageRequest, StatusRequest, ListRequest, ExplainRequest,
                                     AdminRetireRequest, DrainRequest, ReloadRequest> *>(nullptr)))
        return RequestClass::Admin;
    return RequestClass::Session;
}

template <typename... Requests>
constexpr auto classes_of(std::variant<Requests...> *) {
    return std::array<RequestClass, sizeof...(Requests)>{class_of<Requests>()...};
}
// By place in RequestBody.
inline constexpr auto kRequestClassOf = classes_of(static_cast<wire::RequestBody *>(nullptr));

// ---- what Service counts -----------------------------------------------------------------------

enum class SessionEnd : uint8_t {
    Closed,     // it asked
    Exited,     // its process is gone, and so is everything it had mapped: proven
    Fenced,     // lost its engine to a newcomer; proven as well
    Forgotten,  // away for a time-out, with nothing it would come back for
};
inline constexpr const char *kSessionEndNames[] = {"closed", "exited", "fenced", "forgotten"};

inline constexpr const char *kSessionEventNames[] = {"request", "timeout",     "connection_lost",
                                                     "attach",  "attach_done", "fence",
                                                     "exit",    "close",       "proven"};
static_assert(std::size(kSessionEventNames) == kSessionEvents);

inline constexpr const char *kProofNames[] = {"proven", "still_mapped", "refused"};

struct ServiceTally {
    using enum wire::Status;

    std::array<std::array<uint64_t, kOutcomes>, kRequestKinds> requests{};
    std::array<uint64_t, kStatuses> refusals{};  // by the status of the reply; Ok stays 0

    StatusCounts<Ok, AlreadyPresent, Conflict, Incompatible, NotFound, Denied, Unavailable,
                 InvalidArgument, NoSpace>
        commits;
    uint64_t commit_retries = 0;  // answered from the ledger
    uint64_t committed_bytes = 0;
    uint64_t probe_keys = 0, probe_hits = 0, probe_prefix_keys = 0;
    uint64_t probes_without_worker = 0;
    StatusCounts<Ok, Miss, Quota> acquires;
    uint64_t acquired_bytes = 0;
    StatusCounts<Ok, NotFound, StaleGeneration, StaleEpoch> releases;
    StatusCounts<Ok, Pending, Denied, NotFound, StaleGeneration, StaleEpoch> retires;
    StatusCounts<Ok, Busy, InvalidArgument, Denied, NotFound, StaleGeneration, StaleEpoch> reclaims;
    StatusCounts<Ok, Denied, StaleEpoch, NotFound, InvalidArgument, Conflict, Incompatible>
        republished;
    uint64_t admin_retired = 0;

    std::array<uint64_t, 2> sessions_opened{};  // by Role: worker, scheduler
    uint64_t sessions_restored = 0;
    std::array<uint64_t, std::size(kSessionEndNames)> sessions_ended{};
    std::array<uint64_t, kSessionEvents> session_events{};  // those that changed the state
    std::array<uint64_t, 2> reattaches{};  // in the life that opened it; in a later one

    uint64_t proof_attempts = 0;
    std::array<uint64_t, std::size(kProofNames)> proofs{};
    Histogram<kProofBounds> proof_time;
};

// ---- what Service has, at this moment ----------------------------------------------------------

// Where KV bytes can lie: the five kinds that there are. A pool is of one of them.
struct Placement {
    wire::Medium medium;
    wire::Tier tier;
    wire::Scope scope;
    const char *medium_name, *tier_name, *scope_name;
};
inline constexpr Placement kPlacements[] = {
    {wire::Medium::Cpu, wire::Tier::L1, wire::Scope::Worker, "cpu", "l1", "worker"},
    {wire::Medium::Cpu, wire::Tier::L1, wire::Scope::Host, "cpu", "l1", "host"},
    {wire::Medium::Cxl, wire::Tier::L1, wire::Scope::Worker, "cxl", "l1", "worker"},
    {wire::Medium::Cxl, wire::Tier::L1, wire::Scope::Domain, "cxl", "l1", "domain"},
    {wire::Medium::Ssd, wire::Tier::L2, wire::Scope::Host, "ssd", "l2", "host"},
};
// SIZE_MAX: there is no such kind.
constexpr size_t placement_of(wire::Medium medium, wire::Tier tier, wire::Scope scope) {
    for (size_t i = 0; i < std::size(kPlacements); ++i)
        if (kPlacements[i].medium == medium && kPlacements[i].tier == tier &&
            kPlacements[i].scope == scope)
            return i;
    return SIZE_MAX;
}

inline constexpr const char *kPoolStateNames[] = {"open", "closing", "finishing", "orphaned"};

struct ServiceGauges {
    // By role and SessionState; Restoring is counted as Attaching.
    std::array<std::array<uint64_t, kSessionStates>, 2> sessions{};
    std::array<uint64_t, std::size(kPoolStateNames)> pools{};
    uint64_t objects = 0, replicas = 0, leases = 0, namespaces = 0;
    std::array<wire::Usage, std::size(kPlacements)> usage{};
    uint64_t charged_bytes = 0, limit_bytes = 0, unproven_bytes = 0;
    uint64_t draining = 0;
};

// ---- what the loop counts and has --------------------------------------------------------------

enum class Refused : uint8_t { UidLimit, ClosesPending, Other };
inline constexpr const char *kRefusedNames[] = {"uid_limit", "closes_pending", "other"};

enum class Closed : uint8_t { Peer, NotReading, Malformed, Sender, Service };
inline constexpr const char *kClosedNames[] = {"peer", "not_reading", "malformed", "sender",
                                               "service"};

struct HostTally {
    std::array<Histogram<kRequestBounds>, kRequestClasses> handling;
    Histogram<kTurnBounds> turns;
    uint64_t connections_opened = 0;
    std::array<uint64_t, std::size(kRefusedNames)> connections_refused{};
    std::array<uint64_t, std::size(kClosedNames)> connections_closed{};
    uint64_t send_queue_high_water = 0;  // bytes; of any one client
    uint64_t stalls = 0, stalled_ns = 0;
    uint64_t log_suppressed = 0;
    uint64_t watchdog_pings = 0;
    std::array<uint64_t, 2> reloads{};  // ok, failed
};

struct HostGauges {
    uint64_t connections = 0, send_queue_bytes = 0;
    uint64_t reaper_queued = 0, reaper_running = 0, reaper_threads = 0;
    uint64_t reaper_longest_ns = 0, reaper_jobs = 0;
    uint64_t journal_dropped = 0, notifications_dropped = 0, fdstore_entries = 0;
};

// ---- the scrapes themselves --------------------------------------------------------------------

enum class Source : uint8_t { Unix, Tcp };
inline constexpr const char *kSourceNames[] = {"unix", "tcp"};
enum class Scrape : uint8_t { Ok, Refused, Dropped };  // answered; with an error; cut off
inline constexpr const char *kScrapeNames[] = {"ok", "refused", "dropped"};

struct ScrapeTally {
    std::array<std::array<uint64_t, std::size(kScrapeNames)>, std::size(kSourceNames)> scrapes{};
    uint64_t connections = 0;
};

// ---- the process -------------------------------------------------------------------------------

struct ProcessFacts {
    uint64_t cpu_ns = 0, resident_bytes = 0, virtual_bytes = 0;
    uint64_t open_fds = 0, max_fds = 0, start_ns = 0;
};

}  // namespace maru::metrics
