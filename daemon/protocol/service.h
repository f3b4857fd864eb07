// Service: everything marud decides. Requests and facts go in; replies and wishes come out.
//
// Pure: no I/O, no clock, no thread; the loop thread of marud and the simulation in tests/sim drive
// the same object. Time is passed in (nanoseconds, any monotonic origin that counts suspend; never
// goes back). What Service wants done in the world it asks of Effects, and the world answers by
// calling Service again - later, never from inside an Effects call.
//
// What must stay true: a request is refused before anything changed, or it is done; what is charged
// stays charged until the owner's acknowledgement or a proof; no clock ends a lease or a charge.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/metrics/tally.h"
#include "daemon/session/object_record.h"
#include "daemon/session/types.h"
#include "libmaru/base/result.h"
#include "libmaru/wire/messages.h"

namespace maru {

struct SegmentSpec {
    uint64_t bytes = 0;
    wire::HugePages huge_pages = wire::HugePages::Off;
};

// A descriptor that came with AttachPool, as the shell found it: it asks F_GET_SEALS first, which
// calls no filesystem, and fstat only when those seals say that it is a memfd of ours.
struct AttachedDescriptor {
    bool sealed = false;  // F_GET_SEALS contains SHRINK, GROW and FUTURE_WRITE; false: refused
    bool huge = false;    // backed by hugetlb
    uint64_t bytes = 0;   // st_size
    SegmentIdentity identity;
};

// What Service asks of the world. Calls return at once; results come back through Service::on_*,
// never from inside the call. What a reply or an event points to is valid during the call only.
class Effects {
  public:
    virtual ~Effects() = default;
    // `segments`: descriptors that travel with the reply, read-write for their owner, read-only in a
    // ViewReply: opened anew, so that it is another open file than marud's. Only for
    // connections that connection_closed() was not called for and close_connection() did not name.
    virtual void reply(ConnectionId to, const wire::Reply &reply,
                       std::span<const SegmentRef> segments = {}) = 0;
    virtual void event(ConnectionId to, const wire::Event &event) = 0;
    // After what was queued before has been sent, or could not be; what the peer sent and marud has
    // not handled is dropped. The shell calls connection_closed() for it afterwards.
    virtual void close_connection(ConnectionId connection, std::string_view why) = 0;
    // A memfd: MFD_NOEXEC_SEAL where known, 0600, SHRINK|GROW sealed. -> on_segment_created.
    // Asked again for the same segment only after a failure, or when a restart lost the file.
    virtual void create_segment(SegmentRef segment, const SegmentSpec &spec) = 0;
    // F_SEAL_FUTURE_WRITE -> on_segment_sealed
    virtual void seal_segment(SegmentRef segment) = 0;
    // F_SEAL_WRITE, once or a few times -> on_segment_proven. Service asks again by itself.
    virtual void prove_segment(SegmentRef segment) = 0;
    virtual void drop_segment(SegmentRef segment) = 0;  // close ours, forget it in the fd store
    // Replaces the record of the same record.session. Failed: the record is still what it was
    // before, or not there; the shell tries again by itself, until the session is saved or removed.
    virtual Result<void> save_session(const SessionRecord &record) = 0;
    virtual void remove_session(wire::Id session) = 0;
    // Appends to the record of shared memory, before what is replied or told next. It cannot be
    // refused: one that fails takes the whole record with it, so that the next life believes none.
    virtual void record_objects(std::span<const ObjectRecord> records) = 0;
    virtual void reload() = 0;  // an admin asked
    // A line for the journal, with the fields that matter. Never a token.
    virtual void log(int priority, std::string_view message, wire::Id session = 0) = 0;
};

struct ServiceConfig {
    uint32_t epoch = 0;  // random, not 0, not in any record
    uint32_t pid = 0;    // marud's own, for status
    // Random and secret, in each life anew: clients choose the keys of the directory's tables.
    uint64_t hash_seed = 0;
    bool make_blocks_ahead = false;  // as the directory's
    std::string version;
    uint32_t max_sessions = 1024;
    uint32_t max_sessions_per_uid = 256;
    uint32_t max_leases_per_session = 65536;
    uint32_t max_descriptors_per_uid = 4096;  // segments
    uint32_t max_ledger_items = wire::kMaxLedgerItems;
    uint32_t max_in_flight = wire::kMaxInFlight;  // told in hello; the shell counts and refuses
    uint32_t max_namespaces = 4096;
    uint32_t max_namespaces_per_uid = 1024;
    uint64_t max_objects = 64ull << 20;
    uint64_t host_cpu_bytes = 0;    // aggregate of all CPU grants
    uint64_t uid_cpu_bytes = 0;     // per uid
    uint64_t worker_cpu_bytes = 0;  // per worker
    uint64_t segment_bytes = 256ull << 20;
    uint64_t host_segment_bytes = 64ull << 20;  // of pools of scope Host
    TimeNs session_timeout = 30'000'000'000;
    uint32_t heartbeat_ms = 10'000;
    uint32_t spin_us = 0;
    bool fdstore = false;  // segments survive us in systemd's store
    std::string fdstore_name = "none";
};

class Service {
  public:
    Service(ServiceConfig config, Effects &effects, TimeNs now);
    ~Service();
    Service(const Service &) = delete;
    Service &operator=(const Service &) = delete;

    // Before the first connection, and before restore(): the record of shared memory. `held`: the
    // adopted segments in it that the shell holds; the others are gone, and what was in them.
    // `sessions_lost`: a session record could not be read, so that somebody whom nobody knows may be
    // reading: what was shared before is never reused in this life.
    void restore_objects(std::span<const ObjectRecord> records, std::span<const SegmentRef> held,
                         TimeNs now, bool sessions_lost = false);
    // The same facts in their shortest form, with the numbers of this life: to begin a record anew.
    std::vector<ObjectRecord> object_records();
    // The same in parts of about `most` facts, while requests are handled: each is what is true when it
    // is asked for, and what record_objects() is given meanwhile belongs between them. `cursor`: 0
    // first, and 0 again after the last.
    std::vector<ObjectRecord> object_records(uint64_t &cursor, uint32_t most);
    // True: no memory is shared or adopted, and what was recorded of it is forgotten here, too.
    bool end_object_records();

    // Before the first connection: what the last life of marud recorded. Charged from now on.
    // `held`: the segments of this record that the shell holds (fd store). `process`: of the pidfd
    // that the shell opened for, or kept of, the recorded process; watched like any other.
    // `alive`: that process still runs (same pid and start time); false starts its proof at once.
    // Segments of a dead process that nobody holds cannot be proven by F_SEAL_WRITE ever: their
    // charge returns with the proof of the exit (they are private, so marud never hands them on).
    void restore(const SessionRecord &record, std::span<const SegmentRef> held, ProcessId64 process,
                 bool alive, TimeNs now);

    // After the last of them.
    void restored(TimeNs now);

    void connection_opened(ConnectionId connection, const Peer &peer, uint64_t proof_nonce,
                           TimeNs now);  // proof_nonce != 0: HelloProof is required
    void connection_closed(ConnectionId connection, TimeNs now);
    // `descriptors`: what arrived with it, in order. Only AttachPool may carry any. Afterwards
    // adopted_descriptors() says which to keep.
    void handle(ConnectionId connection, const wire::Request &request,
                std::span<const AttachedDescriptor> descriptors, TimeNs now);
    // After handle(): which segment each of its descriptors became; pool 0 = close it. As long as
    // the descriptors were. Valid until the next handle().
    std::span<const SegmentRef> adopted_descriptors() const;
    // Answers a frame that did not decode.
    void refuse(ConnectionId connection, uint64_t request_id, wire::Status status,
                std::string_view message, TimeNs now);

    // Facts. Each answers exactly one Effects call; one that nobody waits for is ignored.
    struct CreatedSegment {
        bool huge = false;  // backed by hugetlb
        SegmentIdentity identity;
    };
    void on_segment_created(SegmentRef segment, const Result<CreatedSegment> &result, TimeNs now);
    void on_segment_sealed(SegmentRef segment, const Result<void> &result, TimeNs now);
    enum class Proof { Proven, StillMapped, Refused };  // Refused: EPERM, never retried
    void on_segment_proven(SegmentRef segment, Proof proof, TimeNs now);
    void process_exited(ProcessId64 process, TimeNs now);  // its pidfd became readable
    // marud itself did not run for `gap`: called before anything else after the gap. Everybody gets
    // a full session_timeout from now.
    void stalled(TimeNs gap, TimeNs now);

    TimeNs next_deadline() const;  // INT64_MAX: none. May be early, never late
    void tick(TimeNs now);

    void reconfigure(const ServiceConfig &config);  // reload: limits only
    void drain(bool enable);
    void shutdown(TimeNs now);                // tells every session; records stay for the next life
    bool watched(ProcessId64 process) const;  // does anything still depend on its exit?

    struct Counters {
        uint32_t sessions = 0, attached = 0, connections = 0;
        uint64_t replicas = 0, leases = 0, objects = 0, reserved_bytes = 0, unproven_bytes = 0;
        uint64_t requests = 0, refused = 0;
    };
    Counters counters() const;
    const metrics::ServiceTally &tally() const;
    // Walks sessions and pools, as Status does.
    metrics::ServiceGauges gauges() const;

    // For tests and the simulation: walks everything, "" or what is inconsistent.
    std::string check_invariants() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace maru
