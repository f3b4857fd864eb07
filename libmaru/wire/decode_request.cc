#include "libmaru/wire/codec_internal.h"

namespace maru::wire {

namespace {

bool decode(FieldReader &f, schema::Hello::Reader in, HelloRequest *ret) {
    ret->major = in.getMajor();
    ret->minor = in.getMinor();
    const auto list = in.getRequiredCapabilities();
    if (!f.text("client_name", in.getClientName(), kMaxClientNameBytes, &ret->client_name) ||
        !f.count("required_capabilities", list.size(), kMaxCapabilities))
        return false;
    ret->required_capabilities.resize(list.size());
    for (unsigned i = 0; i < list.size(); ++i)
        if (!f.text("required_capabilities", list[i], 1, kMaxCapabilityBytes,
                    &ret->required_capabilities[i]))
            return false;
    return true;
}

bool decode(FieldReader &f, schema::OpenSession::Reader in, OpenSessionRequest *ret) {
    return f.token(in.getToken(), &ret->token) &&
           f.enumeration("role", in.getRole(), Role::Admin, &ret->role) &&
           f.text("engine", in.getEngine(), 1, kMaxEngineIdBytes, &ret->engine);
}

bool decode(FieldReader &f, schema::Attach::Reader in, AttachRequest *ret) {
    ret->old_epoch = in.getOldEpoch();
    ret->lowest_unanswered = in.getLowestUnanswered();
    return f.token(in.getToken(), &ret->token) &&
           f.enumeration("role", in.getRole(), Role::Admin, &ret->role) &&
           f.text("engine", in.getEngine(), 1, kMaxEngineIdBytes, &ret->engine);
}

bool decode(FieldReader &f, schema::AttachPool::Reader in, AttachPoolRequest *ret) {
    ret->pool = in.getPool();
    ret->capacity_bytes = in.getCapacityBytes();
    ret->segment_bytes = in.getSegmentBytes();
    ret->page_bytes = in.getPageBytes();
    ret->first_segment = in.getFirstSegment();
    ret->segment_count = in.getSegmentCount();
    ret->next_generation = in.getNextGeneration();
    return f.count("segment_count", ret->segment_count, kMaxDescriptors);
}

bool decode(FieldReader &f, schema::Republish::Reader in, RepublishRequest *ret) {
    if (!f.records("items", in.getItems(), kMaxBatchItems, &ret->items))
        return false;
    for (const RepublishItem &item : ret->items)
        if (item.retiring > 2)
            return f.fail(
                Status::InvalidArgument,
                "items: retiring is " + std::to_string(item.retiring) + ", must be 0, 1 or 2");
    return true;
}

bool decode(FieldReader &f, schema::Describe::Reader in, DescribeRequest *ret) {
    ret->namespace_id = in.getNamespaceId();
    ret->object_bytes = in.getObjectBytes();
    return f.text("format", in.getFormat(), 1, kMaxFormatBytes, &ret->format);
}

bool decode(FieldReader &f, schema::OpenPool::Reader in, OpenPoolRequest *ret) {
    ret->numa_node = in.getNumaNode();
    ret->capacity_bytes = in.getCapacityBytes();
    ret->page_bytes = in.getPageBytes();
    ret->request_key = in.getRequestKey();
    if (ret->request_key == 0)
        return f.fail(Status::InvalidArgument, "request_key: must not be 0");
    return f.enumeration("medium", in.getMedium(), Medium::Ssd, &ret->medium) &&
           f.enumeration("tier", in.getTier(), Tier::L2, &ret->tier) &&
           f.enumeration("scope", in.getScope(), Scope::Domain, &ret->scope) &&
           f.enumeration("huge_pages", in.getHugePages(), HugePages::Required, &ret->huge_pages) &&
           f.enumeration("numa", in.getNuma(), Numa::Strict, &ret->numa);
}

template <typename T>
bool decode_segment(schema::SegmentRequest::Reader in, T *ret) {
    ret->pool = in.getPool();
    ret->segment = in.getSegment();
    return true;
}

bool decode(FieldReader &f, schema::ClosePool::Reader in, ClosePoolRequest *ret) {
    ret->pool = in.getPool();
    return f.enumeration("phase", in.getPhase(), ClosePhase::Leave, &ret->phase);
}

bool decode(FieldReader &f, schema::Commit::Reader in, CommitRequest *ret) {
    ret->namespace_id = in.getNamespaceId();
    ret->first_op = in.getFirstOp();
    return f.records("items", in.getItems(), kMaxBatchItems, &ret->items) &&
           f.operation_range(ret->first_op, ret->items.size());
}

bool decode(FieldReader &f, schema::Resolve::Reader in, ResolveRequest *ret) {
    ret->first_op = in.getFirstOp();
    ret->count = in.getCount();
    return f.count("count", ret->count, kMaxBatchItems) &&
           f.operation_range(ret->first_op, ret->count);
}

bool decode(FieldReader &f, schema::Manifest::Reader in, Manifest *ret) {
    return f.manifest(in.getFirstShard(), in.getShardCount(), in.getFirstPart(), in.getPartCount(),
                      ret);
}

bool decode(FieldReader &f, schema::Probe::Reader in, ProbeRequest *ret) {
    ret->namespace_id = in.getNamespaceId();
    ret->stop_at_miss = in.getStopAtMiss();
    ret->worker = in.getWorker();
    return f.records("keys", in.getKeys(), kMaxProbeKeys, &ret->keys) &&
           decode(f, in.getManifest(), &ret->manifest) &&
           f.count("keys times objects of the manifest", ret->keys.size() * ret->manifest.objects(),
                   kMaxProbeObjects);
}

bool decode(FieldReader &f, schema::Acquire::Reader in, AcquireRequest *ret) {
    ret->namespace_id = in.getNamespaceId();
    ret->stop_at_miss = in.getStopAtMiss();
    return f.records("keys", in.getKeys(), kMaxBatchItems, &ret->keys) &&
           decode(f, in.getManifest(), &ret->manifest) &&
           f.count("keys times objects of the manifest", ret->keys.size() * ret->manifest.objects(),
                   kMaxBatchItems);
}

template <typename T>
bool decode_names(FieldReader &f, schema::ReplicaNames::Reader in, T *ret) {
    return f.records("items", in.getItems(), kMaxBatchItems, &ret->items);
}

bool decode(FieldReader &f, schema::ListRequest::Reader in, ListRequest *ret) {
    ret->cursor = in.getCursor();
    ret->namespace_id = in.getNamespaceId();
    return f.enumeration("kind", in.getKind(), ListKind::Leases, &ret->kind);
}

bool decode(FieldReader &f, schema::Explain::Reader in, ExplainRequest *ret) {
    ret->namespace_id = in.getNamespaceId();
    ret->uid = in.getUid();
    return f.key("key", in.getKey(), &ret->key) &&
           f.text("engine", in.getEngine(), kMaxEngineIdBytes, &ret->engine);
}

bool decode(FieldReader &f, schema::AdminRetire::Reader in, AdminRetireRequest *ret) {
    ret->namespace_id = in.getNamespaceId();
    if (!in.hasKey() || in.getKey().size() == 0)
        return true;
    return f.key("key", in.getKey(), &ret->key.emplace());
}

}  // namespace

bool decode_request_body(FieldReader &f, schema::Message::Body::Reader in, RequestBody *ret) {
    using Body = schema::Message::Body;
    switch (in.which()) {
        case Body::HELLO:
            return decode(f, in.getHello(), &ret->emplace<HelloRequest>());
        case Body::HELLO_PROOF:
            ret->emplace<HelloProofRequest>().nonce = in.getHelloProof().getNonce();
            return true;
        case Body::OPEN_SESSION:
            return decode(f, in.getOpenSession(), &ret->emplace<OpenSessionRequest>());
        case Body::ATTACH:
            return decode(f, in.getAttach(), &ret->emplace<AttachRequest>());
        case Body::ATTACH_POOL:
            return decode(f, in.getAttachPool(), &ret->emplace<AttachPoolRequest>());
        case Body::REPUBLISH:
            return decode(f, in.getRepublish(), &ret->emplace<RepublishRequest>());
        case Body::ATTACH_LEASES:
            return f.records("items", in.getAttachLeases().getItems(), kMaxBatchItems,
                             &ret->emplace<AttachLeasesRequest>().items);
        case Body::ATTACH_DONE:
            ret->emplace<AttachDoneRequest>();
            return true;
        case Body::DESCRIBE:
            return decode(f, in.getDescribe(), &ret->emplace<DescribeRequest>());
        case Body::HEARTBEAT:
            return f.records("gauges", in.getHeartbeat().getGauges(), kMaxBatchItems,
                             &ret->emplace<HeartbeatRequest>().gauges);
        case Body::REGISTER_NAMESPACE:
            return f.text("text", in.getRegisterNamespace().getText(), 1, kMaxNamespaceBytes,
                          &ret->emplace<RegisterNamespaceRequest>().text);
        case Body::OPEN_POOL:
            return decode(f, in.getOpenPool(), &ret->emplace<OpenPoolRequest>());
        case Body::GRANT_SEGMENT:
            return decode_segment(in.getGrantSegment(), &ret->emplace<GrantSegmentRequest>());
        case Body::SEGMENT_MAPPED:
            return decode_segment(in.getSegmentMapped(), &ret->emplace<SegmentMappedRequest>());
        case Body::CLOSE_POOL:
            return decode(f, in.getClosePool(), &ret->emplace<ClosePoolRequest>());
        case Body::CLOSE_SESSION:
            ret->emplace<CloseSessionRequest>();
            return true;
        case Body::COMMIT:
            return decode(f, in.getCommit(), &ret->emplace<CommitRequest>());
        case Body::RESOLVE:
            return decode(f, in.getResolve(), &ret->emplace<ResolveRequest>());
        case Body::PROBE:
            return decode(f, in.getProbe(), &ret->emplace<ProbeRequest>());
        case Body::ACQUIRE:
            return decode(f, in.getAcquire(), &ret->emplace<AcquireRequest>());
        case Body::RELEASE:
            return decode_names(f, in.getRelease(), &ret->emplace<ReleaseRequest>());
        case Body::RETIRE:
            return decode_names(f, in.getRetire(), &ret->emplace<RetireRequest>());
        case Body::RECLAIM_ACK:
            return decode_names(f, in.getReclaimAck(), &ret->emplace<ReclaimAckRequest>());
        case Body::USAGE:
            ret->emplace<UsageRequest>().pool = in.getUsage().getPool();
            return true;
        case Body::STATUS:
            ret->emplace<StatusRequest>();
            return true;
        case Body::LIST:
            return decode(f, in.getList(), &ret->emplace<ListRequest>());
        case Body::EXPLAIN:
            return decode(f, in.getExplain(), &ret->emplace<ExplainRequest>());
        case Body::ADMIN_RETIRE:
            return decode(f, in.getAdminRetire(), &ret->emplace<AdminRetireRequest>());
        case Body::DRAIN:
            ret->emplace<DrainRequest>().enable = in.getDrain().getEnable();
            return true;
        case Body::RELOAD:
            ret->emplace<ReloadRequest>();
            return true;
        case Body::MAP_SEGMENT: {
            const auto map = in.getMapSegment();
            ret->emplace<MapSegmentRequest>().lease = {map.getReplica(), map.getGeneration()};
            return true;
        }
        case Body::RETIRE_SEGMENT:
            return decode_segment(in.getRetireSegment(), &ret->emplace<RetireSegmentRequest>());
        case Body::ENGINE_WORKER:
            ret->emplace<EngineWorkerRequest>();
            return true;
    }
    return f.fail(
        Status::Unsupported,
        "request: kind " + std::to_string(static_cast<int>(in.which())) + " is not known here");
}

}  // namespace maru::wire
