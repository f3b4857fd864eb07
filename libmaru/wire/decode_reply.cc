#include "libmaru/wire/codec_internal.h"

namespace maru::wire {

namespace {

constexpr size_t kAnyText = kMaxFrameBytes;  // marud's own words: the frame is the limit

template <typename T>
bool known_statuses(FieldReader &f, std::span<const T> results) {
    Status ignored;
    for (const T &result : results)
        if (!f.status("results: status", static_cast<uint32_t>(result.status), &ignored))
            return false;
    return true;
}

template <typename T>
bool decode_results(FieldReader &f, schema::Results::Reader in, std::span<const T> *ret) {
    return f.records("results", in.getResults(), kMaxBatchItems, ret) && known_statuses(f, *ret);
}

bool decode(FieldReader &f, schema::StatusOnly::Reader in, StatusOnly *ret) {
    ret->detail = in.getDetail();
    return f.status("status", in.getStatus(), &ret->status) &&
           f.text("message", in.getMessage(), kAnyText, &ret->message);
}

bool decode(FieldReader &f, schema::HelloReply::Reader in, HelloReply *ret) {
    ret->major = in.getMajor();
    ret->minor = in.getMinor();
    ret->epoch = in.getEpoch();
    ret->nonce = in.getNonce();
    ret->uid = in.getUid();
    ret->pid = in.getPid();
    const auto limits = in.getLimits();
    ret->limits.frame_bytes = limits.getFrameBytes();
    ret->limits.probe_keys = limits.getProbeKeys();
    ret->limits.batch_items = limits.getBatchItems();
    ret->limits.in_flight = limits.getInFlight();
    ret->limits.ledger_items = limits.getLedgerItems();
    ret->limits.leases = limits.getLeases();
    ret->limits.heartbeat_ms = limits.getHeartbeatMs();
    ret->limits.session_timeout_ms = limits.getSessionTimeoutMs();
    ret->limits.spin_us = limits.getSpinUs();
    const auto list = in.getCapabilities();
    if (!f.text("version", in.getVersion(), kAnyText, &ret->version) ||
        !f.count("capabilities", list.size(), kMaxCapabilities))
        return false;
    ret->capabilities.resize(list.size());
    for (unsigned i = 0; i < list.size(); ++i)
        if (!f.text("capabilities", list[i], 1, kMaxCapabilityBytes, &ret->capabilities[i]))
            return false;
    return true;
}

bool decode(FieldReader &f, schema::AttachReply::Reader in, AttachReply *ret) {
    ret->session = in.getSession();
    ret->same_life = in.getSameLife();
    std::span<const Id> pools;
    if (!f.records("missing_pools", in.getMissingPools(), kMaxFrameBytes / sizeof(Id), &pools))
        return false;
    ret->missing_pools.assign(pools.begin(), pools.end());
    return true;
}

bool decode(FieldReader &, schema::PoolReply::Reader in, PoolReply *ret) {
    ret->pool = in.getPool();
    ret->capacity_bytes = in.getCapacityBytes();
    ret->segment_bytes = in.getSegmentBytes();
    ret->segment_count = in.getSegmentCount();
    ret->first_generation = in.getFirstGeneration();
    return true;
}

bool decode(FieldReader &f, schema::ClosePoolReply::Reader in, ClosePoolReply *ret) {
    ret->leases = in.getLeases();
    return f.status("status", in.getStatus(), &ret->status) &&
           f.text("message", in.getMessage(), kAnyText, &ret->message);
}

bool decode(FieldReader &f, schema::ProbeReply::Reader in, ProbeReply *ret) {
    ret->prefix = in.getPrefix();
    return f.count("prefix", ret->prefix, kMaxProbeKeys) &&
           f.records("bitmap", in.getBitmap(), (kMaxProbeKeys + 7) / 8, &ret->bitmap) &&
           f.enumeration("reason", in.getReason(), ProbeReason::Pending, &ret->reason);
}

bool decode(FieldReader &f, schema::ItemStatusReply::Reader in, ItemStatusReply *ret) {
    if (!f.records("statuses", in.getStatuses(), kMaxBatchItems, &ret->statuses) ||
        !f.records("replicas", in.getReplicas(), kMaxBatchItems, &ret->replicas))
        return false;
    Status ignored;
    for (const Status &status : ret->statuses)
        if (!f.status("statuses", static_cast<uint32_t>(status), &ignored))
            return false;
    if (!ret->replicas.empty() && ret->replicas.size() != ret->statuses.size())
        return f.fail(Status::InvalidArgument,
                      "replicas: " + std::to_string(ret->replicas.size()) + " ids, must be " +
                          std::to_string(ret->statuses.size()) + " or none");
    return true;
}

void read_usage(schema::Usage::Reader in, Usage *ret) {
    ret->capacity_bytes = in.getCapacityBytes();
    ret->reserved_bytes = in.getReservedBytes();
    ret->allocated_bytes = in.getAllocatedBytes();
    ret->ready_bytes = in.getReadyBytes();
    ret->ready_allocated_bytes = in.getReadyAllocatedBytes();
    ret->quarantined_bytes = in.getQuarantinedBytes();
    ret->pinned_bytes = in.getPinnedBytes();
    ret->retiring_bytes = in.getRetiringBytes();
    ret->populated_bytes = in.getPopulatedBytes();
    ret->replicas = in.getReplicas();
    ret->leases = in.getLeases();
}

bool decode(FieldReader &f, schema::StatusReply::Reader in, StatusReply *ret) {
    ret->epoch = in.getEpoch();
    ret->pid = in.getPid();
    ret->uptime_ms = in.getUptimeMs();
    ret->draining = in.getDraining();
    ret->admin = in.getAdmin();
    ret->sessions = in.getSessions();
    ret->attached = in.getAttached();
    ret->pools = in.getPools();
    ret->namespaces = in.getNamespaces();
    ret->objects = in.getObjects();
    ret->replicas = in.getReplicas();
    ret->leases = in.getLeases();
    ret->host_limit_bytes = in.getHostLimitBytes();
    ret->host_reserved_bytes = in.getHostReservedBytes();
    ret->unproven_bytes = in.getUnprovenBytes();
    read_usage(in.getUsage(), &ret->usage);
    ret->adopted_segments = in.getAdoptedSegments();
    ret->adopted_bytes = in.getAdoptedBytes();
    return f.text("version", in.getVersion(), kAnyText, &ret->version) &&
           f.text("fdstore", in.getFdstore(), kAnyText, &ret->fdstore) &&
           f.text("adopted", in.getAdopted(), kAnyText, &ret->adopted);
}

bool decode(FieldReader &f, schema::SessionRow::Reader in, SessionRow *ret) {
    ret->session = in.getSession();
    ret->uid = in.getUid();
    ret->pid = in.getPid();
    ret->pools = in.getPools();
    ret->age_ms = in.getAgeMs();
    ret->beat_age_ms = in.getBeatAgeMs();
    ret->leases = in.getLeases();
    ret->reserved_bytes = in.getReservedBytes();
    return f.enumeration("role", in.getRole(), Role::Admin, &ret->role) &&
           f.text("engine", in.getEngine(), &ret->engine) &&
           f.text("client_name", in.getClientName(), &ret->client_name) &&
           f.text("command", in.getCommand(), &ret->command) &&
           f.text("state", in.getState(), &ret->state);
}

bool decode(FieldReader &f, schema::PoolRow::Reader in, PoolRow *ret) {
    ret->pool = in.getPool();
    ret->session = in.getSession();
    ret->numa_node = in.getNumaNode();
    ret->uid = in.getUid();
    ret->page_bytes = in.getPageBytes();
    ret->segments = in.getSegments();
    ret->segment = in.getSegment();
    ret->age_ms = in.getAgeMs();
    read_usage(in.getUsage(), &ret->usage);
    return f.enumeration("medium", in.getMedium(), Medium::Ssd, &ret->medium) &&
           f.enumeration("tier", in.getTier(), Tier::L2, &ret->tier) &&
           f.enumeration("scope", in.getScope(), Scope::Domain, &ret->scope) &&
           f.text("engine", in.getEngine(), &ret->engine) &&
           f.text("state", in.getState(), &ret->state) &&
           f.text("page_kind", in.getPageKind(), &ret->page_kind);
}

bool decode(FieldReader &f, schema::NamespaceRow::Reader in, NamespaceRow *ret) {
    ret->namespace_id = in.getNamespaceId();
    ret->uid = in.getUid();
    ret->objects = in.getObjects();
    ret->replicas = in.getReplicas();
    ret->object_bytes = in.getObjectBytes();
    return f.text("text", in.getText(), &ret->text);
}

bool decode(FieldReader &f, schema::ObjectRow::Reader in, ObjectRow *ret) {
    ret->namespace_id = in.getNamespaceId();
    ret->replica = in.getReplica();
    ret->pool = in.getPool();
    ret->offset = in.getOffset();
    ret->length = in.getLength();
    ret->generation = in.getGeneration();
    ret->leases = in.getLeases();
    return f.key("key", in.getKey(), &ret->key) && f.text("state", in.getState(), &ret->state);
}

bool decode(FieldReader &f, schema::LeaseRow::Reader in, LeaseRow *ret) {
    ret->replica = in.getReplica();
    ret->session = in.getSession();
    ret->pool = in.getPool();
    ret->generation = in.getGeneration();
    ret->count = in.getCount();
    ret->age_ms = in.getAgeMs();
    ret->uid = in.getUid();
    ret->pid = in.getPid();
    return f.text("command", in.getCommand(), &ret->command) &&
           f.text("engine", in.getEngine(), &ret->engine);
}

bool decode(FieldReader &f, schema::ExplainRow::Reader in, ExplainRow *ret) {
    ret->replica = in.getReplica();
    ret->pool = in.getPool();
    ret->eligible = in.getEligible();
    return f.text("engine", in.getEngine(), &ret->engine) &&
           f.text("state", in.getState(), &ret->state) &&
           f.text("reason", in.getReason(), &ret->reason);
}

template <typename List, typename Row>
bool decode_rows(FieldReader &f, const char *field, List list, std::vector<Row> *ret) {
    if (!f.count(field, list.size(), kMaxListRows))
        return false;
    ret->resize(list.size());
    for (unsigned i = 0; i < list.size(); ++i)
        if (!decode(f, list[i], &(*ret)[i]))
            return false;
    return true;
}

bool decode(FieldReader &f, schema::ListReply::Reader in, ListReply *ret) {
    ret->next_cursor = in.getNextCursor();
    using Rows = schema::ListReply::Rows;
    const auto rows = in.getRows();
    switch (rows.which()) {
        case Rows::SESSIONS:
            return decode_rows(f, "rows", rows.getSessions(),
                               &ret->rows.emplace<std::vector<SessionRow>>());
        case Rows::POOLS:
            return decode_rows(f, "rows", rows.getPools(),
                               &ret->rows.emplace<std::vector<PoolRow>>());
        case Rows::NAMESPACES:
            return decode_rows(f, "rows", rows.getNamespaces(),
                               &ret->rows.emplace<std::vector<NamespaceRow>>());
        case Rows::OBJECTS:
            return decode_rows(f, "rows", rows.getObjects(),
                               &ret->rows.emplace<std::vector<ObjectRow>>());
        case Rows::LEASES:
            return decode_rows(f, "rows", rows.getLeases(),
                               &ret->rows.emplace<std::vector<LeaseRow>>());
    }
    return f.fail(
        Status::Unsupported,
        "rows: kind " + std::to_string(static_cast<int>(rows.which())) + " is not known here");
}

bool decode(FieldReader &f, schema::ExplainReply::Reader in, ExplainReply *ret) {
    ret->hit = in.getHit();
    return f.text("summary", in.getSummary(), &ret->summary) &&
           decode_rows(f, "replicas", in.getReplicas(), &ret->replicas);
}

}  // namespace

bool decode_reply_body(FieldReader &f, schema::Reply::Body::Reader in, ReplyBody *ret) {
    using Body = schema::Reply::Body;
    switch (in.which()) {
        case Body::STATUS_ONLY:
            return decode(f, in.getStatusOnly(), &ret->emplace<StatusOnly>());
        case Body::HELLO:
            return decode(f, in.getHello(), &ret->emplace<HelloReply>());
        case Body::SESSION: {
            const auto session = in.getSession();
            ret->emplace<SessionReply>(SessionReply{session.getSession(), session.getExisted()});
            return true;
        }
        case Body::ATTACH:
            return decode(f, in.getAttach(), &ret->emplace<AttachReply>());
        case Body::NAMESPACE_REPLY:
            ret->emplace<NamespaceReply>().namespace_id = in.getNamespaceReply().getNamespaceId();
            return true;
        case Body::POOL:
            return decode(f, in.getPool(), &ret->emplace<PoolReply>());
        case Body::SEGMENT: {
            const auto segment = in.getSegment();
            ret->emplace<SegmentReply>(SegmentReply{segment.getBytes(), segment.getHuge()});
            return true;
        }
        case Body::CLOSE_POOL:
            return decode(f, in.getClosePool(), &ret->emplace<ClosePoolReply>());
        case Body::COMMIT:
            return decode_results(f, in.getCommit(), &ret->emplace<CommitReply>().results);
        case Body::RESOLVE:
            return decode_results(f, in.getResolve(), &ret->emplace<ResolveReply>().results);
        case Body::PROBE:
            return decode(f, in.getProbe(), &ret->emplace<ProbeReply>());
        case Body::ACQUIRE:
            return decode_results(f, in.getAcquire(), &ret->emplace<AcquireReply>().results);
        case Body::ITEM_STATUS:
            return decode(f, in.getItemStatus(), &ret->emplace<ItemStatusReply>());
        case Body::USAGE: {
            const auto usage = in.getUsage();
            auto &to = ret->emplace<UsageReply>();
            read_usage(usage.getUsage(), &to.usage);
            to.limit_bytes = usage.getLimitBytes();
            return true;
        }
        case Body::STATUS:
            return decode(f, in.getStatus(), &ret->emplace<StatusReply>());
        case Body::LIST:
            return decode(f, in.getList(), &ret->emplace<ListReply>());
        case Body::EXPLAIN:
            return decode(f, in.getExplain(), &ret->emplace<ExplainReply>());
        case Body::COUNT: {
            const auto count = in.getCount();
            ret->emplace<CountReply>(CountReply{count.getCount(), count.getPending()});
            return true;
        }
        case Body::VIEW: {
            const auto view = in.getView();
            ret->emplace<ViewReply>(ViewReply{view.getPool(), view.getSegment(), view.getOffset(),
                                              view.getBytes(), view.getHuge()});
            return true;
        }
        case Body::ENGINE_WORKER: {
            const auto worker = in.getEngineWorker();
            auto &reply = ret->emplace<EngineWorkerReply>();
            reply.session = worker.getSession();
            return f.text("namespace_text", worker.getNamespaceText(), kMaxNamespaceBytes,
                          &reply.namespace_text);
        }
    }
    return f.fail(
        Status::Unsupported,
        "reply: kind " + std::to_string(static_cast<int>(in.which())) + " is not known here");
}

bool decode_event(FieldReader &f, schema::Event::Reader in, Event *ret) {
    return f.enumeration("kind", in.getKind(), EventKind::SegmentGone, &ret->kind) &&
           f.records("items", in.getItems(), kMaxBatchItems, &ret->items) &&
           f.text("message", in.getMessage(), kAnyText, &ret->message);
}

}  // namespace maru::wire
