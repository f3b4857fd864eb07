#include "libmaru/wire/codec_internal.h"

namespace maru::wire {

namespace {

capnp::Data::Reader token_bytes(const Token &token) {
    return capnp::Data::Reader(token.data(), token.size());
}

// Requests carry text as the caller gave it: marud refuses what is not text and names the field.
template <typename Init>
void put_text(std::string_view text, Init &&init) {
    if (text.empty())
        return;
    capnp::Text::Builder out = init(static_cast<unsigned>(text.size()));
    std::memcpy(out.begin(), text.data(), text.size());
}

void put_manifest(const Manifest &in, schema::Manifest::Builder out) {
    out.setFirstShard(in.first_shard);
    out.setShardCount(in.shard_count);
    out.setFirstPart(in.first_part);
    out.setPartCount(in.part_count);
}

struct BodyEncoder {
    schema::Message::Body::Builder out;

    void operator()(const HelloRequest &in) {
        auto to = out.initHello();
        to.setMajor(in.major);
        to.setMinor(in.minor);
        put_text(in.client_name, [&](unsigned n) { return to.initClientName(n); });
        if (in.required_capabilities.empty())
            return;
        auto list = to.initRequiredCapabilities(in.required_capabilities.size());
        for (unsigned i = 0; i < list.size(); ++i)
            put_text(in.required_capabilities[i], [&](unsigned n) { return list.init(i, n); });
    }
    void operator()(const HelloProofRequest &in) { out.initHelloProof().setNonce(in.nonce); }
    void operator()(const OpenSessionRequest &in) {
        auto to = out.initOpenSession();
        to.setToken(token_bytes(in.token));
        to.setRole(static_cast<schema::Role>(in.role));
        put_text(in.engine, [&](unsigned n) { return to.initEngine(n); });
    }
    void operator()(const AttachRequest &in) {
        auto to = out.initAttach();
        to.setToken(token_bytes(in.token));
        to.setRole(static_cast<schema::Role>(in.role));
        put_text(in.engine, [&](unsigned n) { return to.initEngine(n); });
        to.setOldEpoch(in.old_epoch);
        to.setLowestUnanswered(in.lowest_unanswered);
    }
    void operator()(const AttachPoolRequest &in) {
        auto to = out.initAttachPool();
        to.setPool(in.pool);
        to.setCapacityBytes(in.capacity_bytes);
        to.setSegmentBytes(in.segment_bytes);
        to.setPageBytes(in.page_bytes);
        to.setFirstSegment(in.first_segment);
        to.setSegmentCount(in.segment_count);
        to.setNextGeneration(in.next_generation);
    }
    void operator()(const RepublishRequest &in) {
        out.initRepublish().setItems(record_bytes(in.items));
    }
    void operator()(const AttachLeasesRequest &in) {
        out.initAttachLeases().setItems(record_bytes(in.items));
    }
    void operator()(const AttachDoneRequest &) { out.setAttachDone(); }
    void operator()(const DescribeRequest &in) {
        auto to = out.initDescribe();
        to.setNamespaceId(in.namespace_id);
        to.setObjectBytes(in.object_bytes);
        put_text(in.format, [&](unsigned n) { return to.initFormat(n); });
    }
    void operator()(const HeartbeatRequest &in) {
        out.initHeartbeat().setGauges(record_bytes(in.gauges));
    }
    void operator()(const RegisterNamespaceRequest &in) {
        auto to = out.initRegisterNamespace();
        put_text(in.text, [&](unsigned n) { return to.initText(n); });
    }
    void operator()(const OpenPoolRequest &in) {
        auto to = out.initOpenPool();
        to.setMedium(static_cast<schema::Medium>(in.medium));
        to.setTier(static_cast<schema::Tier>(in.tier));
        to.setScope(static_cast<schema::Scope>(in.scope));
        to.setHugePages(static_cast<schema::HugePages>(in.huge_pages));
        to.setNuma(static_cast<schema::Numa>(in.numa));
        to.setNumaNode(in.numa_node);
        to.setCapacityBytes(in.capacity_bytes);
        to.setPageBytes(in.page_bytes);
        to.setRequestKey(in.request_key);
    }
    void operator()(const GrantSegmentRequest &in) {
        auto to = out.initGrantSegment();
        to.setPool(in.pool);
        to.setSegment(in.segment);
    }
    void operator()(const SegmentMappedRequest &in) {
        auto to = out.initSegmentMapped();
        to.setPool(in.pool);
        to.setSegment(in.segment);
    }
    void operator()(const ClosePoolRequest &in) {
        auto to = out.initClosePool();
        to.setPool(in.pool);
        to.setPhase(static_cast<schema::ClosePhase>(in.phase));
    }
    void operator()(const CloseSessionRequest &) { out.setCloseSession(); }
    void operator()(const CommitRequest &in) {
        auto to = out.initCommit();
        to.setNamespaceId(in.namespace_id);
        to.setFirstOp(in.first_op);
        to.setItems(record_bytes(in.items));
    }
    void operator()(const ResolveRequest &in) {
        auto to = out.initResolve();
        to.setFirstOp(in.first_op);
        to.setCount(in.count);
    }
    void operator()(const ProbeRequest &in) {
        auto to = out.initProbe();
        to.setNamespaceId(in.namespace_id);
        to.setKeys(record_bytes(in.keys));
        put_manifest(in.manifest, to.initManifest());
        to.setStopAtMiss(in.stop_at_miss);
        to.setWorker(in.worker);
    }
    void operator()(const AcquireRequest &in) {
        auto to = out.initAcquire();
        to.setNamespaceId(in.namespace_id);
        to.setKeys(record_bytes(in.keys));
        put_manifest(in.manifest, to.initManifest());
        to.setStopAtMiss(in.stop_at_miss);
    }
    void operator()(const ReleaseRequest &in) {
        out.initRelease().setItems(record_bytes(in.items));
    }
    void operator()(const RetireRequest &in) { out.initRetire().setItems(record_bytes(in.items)); }
    void operator()(const ReclaimAckRequest &in) {
        out.initReclaimAck().setItems(record_bytes(in.items));
    }
    void operator()(const UsageRequest &in) { out.initUsage().setPool(in.pool); }
    void operator()(const StatusRequest &) { out.setStatus(); }
    void operator()(const ListRequest &in) {
        auto to = out.initList();
        to.setKind(static_cast<schema::ListKind>(in.kind));
        to.setCursor(in.cursor);
        to.setNamespaceId(in.namespace_id);
    }
    void operator()(const ExplainRequest &in) {
        auto to = out.initExplain();
        to.setNamespaceId(in.namespace_id);
        to.setKey(key_bytes(in.key));
        put_text(in.engine, [&](unsigned n) { return to.initEngine(n); });
        to.setUid(in.uid);
    }
    void operator()(const AdminRetireRequest &in) {
        auto to = out.initAdminRetire();
        to.setNamespaceId(in.namespace_id);
        if (in.key)
            to.setKey(key_bytes(*in.key));
    }
    void operator()(const DrainRequest &in) { out.initDrain().setEnable(in.enable); }
    void operator()(const ReloadRequest &) { out.setReload(); }
    void operator()(const MapSegmentRequest &in) {
        auto to = out.initMapSegment();
        to.setReplica(in.lease.replica);
        to.setGeneration(in.lease.generation);
    }
    void operator()(const RetireSegmentRequest &in) {
        auto to = out.initRetireSegment();
        to.setPool(in.pool);
        to.setSegment(in.segment);
    }
    void operator()(const EngineWorkerRequest &) { out.setEngineWorker(); }
};

}  // namespace

void encode_request_body(const RequestBody &body, schema::Message::Body::Builder out) {
    std::visit(BodyEncoder{out}, body);
}

}  // namespace maru::wire
