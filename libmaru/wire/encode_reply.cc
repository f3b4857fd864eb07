#include "libmaru/wire/codec_internal.h"
#include "libmaru/wire/text.h"

namespace maru::wire {

namespace {

// Replies repeat what marud was told or read from /proc, so text is repaired here: one odd process
// name must not make a listing unreadable.
template <typename Init>
void put_text(std::string_view text, Init &&init) {
    if (text.empty())
        return;
    if (!valid_text(text)) {
        put_text(repaired_text(text), init);
        return;
    }
    capnp::Text::Builder out = init(static_cast<unsigned>(text.size()));
    std::memcpy(out.begin(), text.data(), text.size());
}

void put_usage(const Usage &in, schema::Usage::Builder out) {
    out.setCapacityBytes(in.capacity_bytes);
    out.setReservedBytes(in.reserved_bytes);
    out.setAllocatedBytes(in.allocated_bytes);
    out.setReadyBytes(in.ready_bytes);
    out.setReadyAllocatedBytes(in.ready_allocated_bytes);
    out.setQuarantinedBytes(in.quarantined_bytes);
    out.setPinnedBytes(in.pinned_bytes);
    out.setRetiringBytes(in.retiring_bytes);
    out.setPopulatedBytes(in.populated_bytes);
    out.setReplicas(in.replicas);
    out.setLeases(in.leases);
}

void put_row(const SessionRow &in, schema::SessionRow::Builder out) {
    out.setSession(in.session);
    out.setRole(static_cast<schema::Role>(in.role));
    put_text(in.engine, [&](unsigned n) { return out.initEngine(n); });
    put_text(in.client_name, [&](unsigned n) { return out.initClientName(n); });
    put_text(in.command, [&](unsigned n) { return out.initCommand(n); });
    put_text(in.state, [&](unsigned n) { return out.initState(n); });
    out.setUid(in.uid);
    out.setPid(in.pid);
    out.setPools(in.pools);
    out.setAgeMs(in.age_ms);
    out.setBeatAgeMs(in.beat_age_ms);
    out.setLeases(in.leases);
    out.setReservedBytes(in.reserved_bytes);
}

void put_row(const PoolRow &in, schema::PoolRow::Builder out) {
    out.setPool(in.pool);
    out.setSession(in.session);
    out.setMedium(static_cast<schema::Medium>(in.medium));
    out.setTier(static_cast<schema::Tier>(in.tier));
    out.setScope(static_cast<schema::Scope>(in.scope));
    put_text(in.engine, [&](unsigned n) { return out.initEngine(n); });
    put_text(in.state, [&](unsigned n) { return out.initState(n); });
    put_text(in.page_kind, [&](unsigned n) { return out.initPageKind(n); });
    out.setNumaNode(in.numa_node);
    out.setUid(in.uid);
    out.setPageBytes(in.page_bytes);
    out.setSegments(in.segments);
    out.setSegment(in.segment);
    out.setAgeMs(in.age_ms);
    put_usage(in.usage, out.initUsage());
}

void put_row(const NamespaceRow &in, schema::NamespaceRow::Builder out) {
    out.setNamespaceId(in.namespace_id);
    put_text(in.text, [&](unsigned n) { return out.initText(n); });
    out.setUid(in.uid);
    out.setObjects(in.objects);
    out.setReplicas(in.replicas);
    out.setObjectBytes(in.object_bytes);
}

void put_row(const ObjectRow &in, schema::ObjectRow::Builder out) {
    out.setNamespaceId(in.namespace_id);
    out.setKey(key_bytes(in.key));
    out.setReplica(in.replica);
    out.setPool(in.pool);
    out.setOffset(in.offset);
    out.setLength(in.length);
    out.setGeneration(in.generation);
    put_text(in.state, [&](unsigned n) { return out.initState(n); });
    out.setLeases(in.leases);
}

void put_row(const LeaseRow &in, schema::LeaseRow::Builder out) {
    out.setReplica(in.replica);
    out.setSession(in.session);
    out.setPool(in.pool);
    out.setGeneration(in.generation);
    out.setCount(in.count);
    out.setAgeMs(in.age_ms);
    out.setUid(in.uid);
    out.setPid(in.pid);
    put_text(in.command, [&](unsigned n) { return out.initCommand(n); });
    put_text(in.engine, [&](unsigned n) { return out.initEngine(n); });
}

struct RowsEncoder {
    schema::ListReply::Rows::Builder out;

    void operator()(const std::vector<SessionRow> &rows) {
        put(rows, out.initSessions(rows.size()));
    }
    void operator()(const std::vector<PoolRow> &rows) { put(rows, out.initPools(rows.size())); }
    void operator()(const std::vector<NamespaceRow> &rows) {
        put(rows, out.initNamespaces(rows.size()));
    }
    void operator()(const std::vector<ObjectRow> &rows) { put(rows, out.initObjects(rows.size())); }
    void operator()(const std::vector<LeaseRow> &rows) { put(rows, out.initLeases(rows.size())); }

    template <typename Row, typename List>
    void put(const std::vector<Row> &rows, List list) {
        for (unsigned i = 0; i < rows.size(); ++i)
            put_row(rows[i], list[i]);
    }
};

struct BodyEncoder {
    schema::Reply::Body::Builder out;

    void operator()(const StatusOnly &in) {
        auto to = out.initStatusOnly();
        to.setStatus(static_cast<uint32_t>(in.status));
        put_text(in.message, [&](unsigned n) { return to.initMessage(n); });
        to.setDetail(in.detail);
    }
    void operator()(const HelloReply &in) {
        auto to = out.initHello();
        to.setMajor(in.major);
        to.setMinor(in.minor);
        to.setEpoch(in.epoch);
        to.setNonce(in.nonce);
        to.setUid(in.uid);
        to.setPid(in.pid);
        auto list = to.initCapabilities(in.capabilities.size());
        for (unsigned i = 0; i < list.size(); ++i)
            put_text(in.capabilities[i], [&](unsigned n) { return list.init(i, n); });
        auto limits = to.initLimits();
        limits.setFrameBytes(in.limits.frame_bytes);
        limits.setProbeKeys(in.limits.probe_keys);
        limits.setBatchItems(in.limits.batch_items);
        limits.setInFlight(in.limits.in_flight);
        limits.setLedgerItems(in.limits.ledger_items);
        limits.setLeases(in.limits.leases);
        limits.setHeartbeatMs(in.limits.heartbeat_ms);
        limits.setSessionTimeoutMs(in.limits.session_timeout_ms);
        limits.setSpinUs(in.limits.spin_us);
        put_text(in.version, [&](unsigned n) { return to.initVersion(n); });
    }
    void operator()(const SessionReply &in) {
        auto to = out.initSession();
        to.setSession(in.session);
        to.setExisted(in.existed);
    }
    void operator()(const AttachReply &in) {
        auto to = out.initAttach();
        to.setSession(in.session);
        to.setSameLife(in.same_life);
        to.setMissingPools(record_bytes(std::span(in.missing_pools)));
    }
    void operator()(const NamespaceReply &in) {
        out.initNamespaceReply().setNamespaceId(in.namespace_id);
    }
    void operator()(const PoolReply &in) {
        auto to = out.initPool();
        to.setPool(in.pool);
        to.setCapacityBytes(in.capacity_bytes);
        to.setSegmentBytes(in.segment_bytes);
        to.setSegmentCount(in.segment_count);
        to.setFirstGeneration(in.first_generation);
    }
    void operator()(const SegmentReply &in) {
        auto to = out.initSegment();
        to.setBytes(in.bytes);
        to.setHuge(in.huge);
    }
    void operator()(const ClosePoolReply &in) {
        auto to = out.initClosePool();
        to.setStatus(static_cast<uint32_t>(in.status));
        to.setLeases(in.leases);
        put_text(in.message, [&](unsigned n) { return to.initMessage(n); });
    }
    void operator()(const CommitReply &in) {
        out.initCommit().setResults(record_bytes(in.results));
    }
    void operator()(const ResolveReply &in) {
        out.initResolve().setResults(record_bytes(in.results));
    }
    void operator()(const ProbeReply &in) {
        auto to = out.initProbe();
        to.setPrefix(in.prefix);
        to.setBitmap(record_bytes(in.bitmap));
        to.setReason(static_cast<schema::ProbeReason>(in.reason));
    }
    void operator()(const AcquireReply &in) {
        out.initAcquire().setResults(record_bytes(in.results));
    }
    void operator()(const ItemStatusReply &in) {
        auto to = out.initItemStatus();
        to.setStatuses(record_bytes(in.statuses));
        to.setReplicas(record_bytes(in.replicas));
    }
    void operator()(const UsageReply &in) {
        auto to = out.initUsage();
        put_usage(in.usage, to.initUsage());
        to.setLimitBytes(in.limit_bytes);
    }
    void operator()(const StatusReply &in) {
        auto to = out.initStatus();
        put_text(in.version, [&](unsigned n) { return to.initVersion(n); });
        to.setEpoch(in.epoch);
        to.setPid(in.pid);
        to.setUptimeMs(in.uptime_ms);
        to.setDraining(in.draining);
        to.setAdmin(in.admin);
        to.setSessions(in.sessions);
        to.setAttached(in.attached);
        to.setPools(in.pools);
        to.setNamespaces(in.namespaces);
        to.setObjects(in.objects);
        to.setReplicas(in.replicas);
        to.setLeases(in.leases);
        to.setHostLimitBytes(in.host_limit_bytes);
        to.setHostReservedBytes(in.host_reserved_bytes);
        to.setUnprovenBytes(in.unproven_bytes);
        put_usage(in.usage, to.initUsage());
        put_text(in.fdstore, [&](unsigned n) { return to.initFdstore(n); });
        put_text(in.adopted, [&](unsigned n) { return to.initAdopted(n); });
        to.setAdoptedSegments(in.adopted_segments);
        to.setAdoptedBytes(in.adopted_bytes);
    }
    void operator()(const ListReply &in) {
        auto to = out.initList();
        std::visit(RowsEncoder{to.getRows()}, in.rows);
        to.setNextCursor(in.next_cursor);
    }
    void operator()(const ExplainReply &in) {
        auto to = out.initExplain();
        to.setHit(in.hit);
        put_text(in.summary, [&](unsigned n) { return to.initSummary(n); });
        auto list = to.initReplicas(in.replicas.size());
        for (unsigned i = 0; i < list.size(); ++i) {
            const ExplainRow &row = in.replicas[i];
            auto row_out = list[i];
            row_out.setReplica(row.replica);
            row_out.setPool(row.pool);
            put_text(row.engine, [&](unsigned n) { return row_out.initEngine(n); });
            put_text(row.state, [&](unsigned n) { return row_out.initState(n); });
            row_out.setEligible(row.eligible);
            put_text(row.reason, [&](unsigned n) { return row_out.initReason(n); });
        }
    }
    void operator()(const CountReply &in) {
        auto to = out.initCount();
        to.setCount(in.count);
        to.setPending(in.pending);
    }
    void operator()(const ViewReply &in) {
        auto to = out.initView();
        to.setPool(in.pool);
        to.setSegment(in.segment);
        to.setHuge(in.huge);
        to.setOffset(in.offset);
        to.setBytes(in.bytes);
    }
    void operator()(const EngineWorkerReply &in) {
        auto to = out.initEngineWorker();
        to.setSession(in.session);
        put_text(in.namespace_text, [&](unsigned n) { return to.initNamespaceText(n); });
    }
};

}  // namespace

void encode_reply_body(const ReplyBody &body, schema::Reply::Body::Builder out) {
    std::visit(BodyEncoder{out}, body);
}

void encode_event(const Event &event, schema::Event::Builder out) {
    out.setKind(static_cast<schema::EventKind>(event.kind));
    out.setItems(record_bytes(event.items));
    put_text(event.message, [&](unsigned n) { return out.initMessage(n); });
}

}  // namespace maru::wire
