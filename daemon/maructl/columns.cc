#include "daemon/maructl/columns.h"

#include <cstdio>

namespace maru::maructl {

namespace {

using namespace wire;
using Form = Cell::Form;

template <typename T>
const char *name_of(T value, std::initializer_list<const char *> names) {
    const auto index = static_cast<size_t>(value);
    return index < names.size() ? names.begin()[index] : "?";
}

const char *name(Role role) { return name_of(role, {"worker", "scheduler", "admin"}); }
const char *name(Medium medium) { return name_of(medium, {"cpu", "cxl", "ssd"}); }
const char *name(Tier tier) { return name_of(tier, {"L1", "L2"}); }
const char *name(Scope scope) { return name_of(scope, {"worker", "host", "domain"}); }

// One field: its key, its title, its form, and where it is. The form is known without a row, since
// an empty table has to be aligned as well.
#define FIELD(row, form, key, title, value)                                             \
    {                                                                                   \
        key, title, [](const row &r) -> Cell { return cell_##form(value); }, Form::form \
    }

// The bytes of a Usage inside a row, for lists of values.
#define USAGE(row)                                                                        \
    FIELD(row, Bytes, "capacity_bytes", "capacity", r.usage.capacity_bytes),              \
        FIELD(row, Bytes, "reserved_bytes", "reserved", r.usage.reserved_bytes),          \
        FIELD(row, Bytes, "populated_bytes", "populated", r.usage.populated_bytes),       \
        FIELD(row, Bytes, "allocated_bytes", "allocated", r.usage.allocated_bytes),       \
        FIELD(row, Bytes, "ready_bytes", "ready", r.usage.ready_bytes),                   \
        FIELD(row, Bytes, "ready_allocated_bytes", "ready, in pages",                     \
              r.usage.ready_allocated_bytes),                                             \
        FIELD(row, Bytes, "retiring_bytes", "retiring", r.usage.retiring_bytes),          \
        FIELD(row, Bytes, "quarantined_bytes", "quarantined", r.usage.quarantined_bytes), \
        FIELD(row, Bytes, "pinned_bytes", "pinned", r.usage.pinned_bytes)

Cell cell_Id(wire::Id v) { return {Form::Id, v}; }
Cell cell_Text(std::string_view v) { return {Form::Text, 0, std::string(v)}; }
Cell cell_Bytes(uint64_t v) { return {Form::Bytes, v}; }
Cell cell_Milliseconds(uint64_t v) { return {Form::Milliseconds, v}; }
Cell cell_Count(uint64_t v) { return {Form::Count, v}; }
Cell cell_Signed(int64_t v) { return {Form::Signed, static_cast<uint64_t>(v)}; }
Cell cell_Flag(bool v) { return {Form::Flag, v}; }

constexpr Column<SessionRow> kSession[] = {
    FIELD(SessionRow, Id, "session", "SESSION", r.session),
    FIELD(SessionRow, Text, "role", "ROLE", name(r.role)),
    FIELD(SessionRow, Text, "engine", "ENGINE", r.engine),
    FIELD(SessionRow, Text, "state", "STATE", r.state),
    FIELD(SessionRow, Count, "pid", "PID", r.pid),
    FIELD(SessionRow, Count, "uid", "UID", r.uid),
    FIELD(SessionRow, Milliseconds, "age_ms", "AGE", r.age_ms),
    FIELD(SessionRow, Milliseconds, "beat_age_ms", "SEEN", r.beat_age_ms),
    FIELD(SessionRow, Count, "pools", "POOLS", r.pools),
    FIELD(SessionRow, Count, "leases", "LEASES", r.leases),
    FIELD(SessionRow, Bytes, "reserved_bytes", "RESERVED", r.reserved_bytes),
    FIELD(SessionRow, Text, "client_name", nullptr, r.client_name),
    FIELD(SessionRow, Text, "command", "COMMAND", r.command),
};

constexpr Column<PoolRow> kPool[] = {
    FIELD(PoolRow, Id, "pool", "POOL", r.pool),
    FIELD(PoolRow, Signed, "segment", "SEGMENT", r.segment == UINT32_MAX ? -1 : int64_t{r.segment}),
    FIELD(PoolRow, Id, "session", nullptr, r.session),
    FIELD(PoolRow, Text, "engine", "ENGINE", r.engine),
    FIELD(PoolRow, Count, "uid", "UID", r.uid),
    FIELD(PoolRow, Text, "medium", "MEDIUM", name(r.medium)),
    FIELD(PoolRow, Text, "tier", "TIER", name(r.tier)),
    FIELD(PoolRow, Text, "scope", "SCOPE", name(r.scope)),
    FIELD(PoolRow, Text, "state", "STATE", r.state),
    FIELD(PoolRow, Signed, "numa_node", "NUMA", r.numa_node),
    FIELD(PoolRow, Text, "page_kind", "PAGES", r.page_kind),
    FIELD(PoolRow, Bytes, "page_bytes", nullptr, r.page_bytes),
    FIELD(PoolRow, Count, "segments", nullptr, r.segments),
    FIELD(PoolRow, Milliseconds, "age_ms", "AGE", r.age_ms),
    FIELD(PoolRow, Bytes, "capacity_bytes", "CAPACITY", r.usage.capacity_bytes),
    FIELD(PoolRow, Bytes, "reserved_bytes", nullptr, r.usage.reserved_bytes),
    FIELD(PoolRow, Bytes, "populated_bytes", "POPULATED", r.usage.populated_bytes),
    FIELD(PoolRow, Bytes, "allocated_bytes", "ALLOCATED", r.usage.allocated_bytes),
    FIELD(PoolRow, Bytes, "ready_bytes", "READY", r.usage.ready_bytes),
    FIELD(PoolRow, Bytes, "ready_allocated_bytes", nullptr, r.usage.ready_allocated_bytes),
    FIELD(PoolRow, Bytes, "retiring_bytes", nullptr, r.usage.retiring_bytes),
    FIELD(PoolRow, Bytes, "quarantined_bytes", "QUARANTINED", r.usage.quarantined_bytes),
    FIELD(PoolRow, Bytes, "pinned_bytes", "PINNED", r.usage.pinned_bytes),
    FIELD(PoolRow, Count, "replicas", "REPLICAS", r.usage.replicas),
    FIELD(PoolRow, Count, "leases", "LEASES", r.usage.leases),
};

constexpr Column<NamespaceRow> kNamespace[] = {
    FIELD(NamespaceRow, Id, "namespace", "NAMESPACE", r.namespace_id),
    FIELD(NamespaceRow, Count, "objects", "OBJECTS", r.objects),
    FIELD(NamespaceRow, Count, "replicas", "REPLICAS", r.replicas),
    FIELD(NamespaceRow, Bytes, "object_bytes", "OBJECT", r.object_bytes),
    FIELD(NamespaceRow, Count, "uid", "UID", r.uid),
    FIELD(NamespaceRow, Text, "text", "TEXT", r.text),
};

constexpr Column<ObjectRow> kObject[] = {
    FIELD(ObjectRow, Id, "namespace", "NAMESPACE", r.namespace_id),
    FIELD(ObjectRow, Text, "digest", nullptr, digest_text(r.key.digest)),
    FIELD(ObjectRow, Count, "shard", nullptr, r.key.shard),
    FIELD(ObjectRow, Count, "part", nullptr, r.key.part),
    FIELD(ObjectRow, Text, "key", "KEY", key_text(r.key)),
    FIELD(ObjectRow, Text, "state", "STATE", r.state),
    FIELD(ObjectRow, Id, "replica", "REPLICA", r.replica),
    FIELD(ObjectRow, Count, "generation", "GENERATION", r.generation),
    FIELD(ObjectRow, Id, "pool", "POOL", r.pool),
    FIELD(ObjectRow, Count, "offset_bytes", nullptr, r.offset),
    FIELD(ObjectRow, Bytes, "length_bytes", "LENGTH", r.length),
    FIELD(ObjectRow, Count, "leases", "LEASES", r.leases),
};

constexpr Column<LeaseRow> kLease[] = {
    FIELD(LeaseRow, Id, "replica", "REPLICA", r.replica),
    FIELD(LeaseRow, Count, "generation", "GENERATION", r.generation),
    FIELD(LeaseRow, Id, "pool", "POOL", r.pool),
    FIELD(LeaseRow, Count, "count", "COUNT", r.count),
    FIELD(LeaseRow, Milliseconds, "age_ms", "AGE", r.age_ms),
    FIELD(LeaseRow, Id, "session", "SESSION", r.session),
    FIELD(LeaseRow, Text, "engine", "ENGINE", r.engine),
    FIELD(LeaseRow, Count, "pid", "PID", r.pid),
    FIELD(LeaseRow, Count, "uid", "UID", r.uid),
    FIELD(LeaseRow, Text, "command", "COMMAND", r.command),
};

constexpr Column<ExplainRow> kExplain[] = {
    FIELD(ExplainRow, Id, "replica", "REPLICA", r.replica),
    FIELD(ExplainRow, Id, "pool", "POOL", r.pool),
    FIELD(ExplainRow, Text, "engine", "ENGINE", r.engine),
    FIELD(ExplainRow, Text, "state", "STATE", r.state),
    FIELD(ExplainRow, Flag, "eligible", "ELIGIBLE", r.eligible),
    FIELD(ExplainRow, Text, "reason", "REASON", r.reason),
};

constexpr Column<StatusReply> kStatus[] = {
    FIELD(StatusReply, Text, "version", "marud", r.version),
    FIELD(StatusReply, Count, "pid", "process", r.pid),
    FIELD(StatusReply, Milliseconds, "uptime_ms", "running for", r.uptime_ms),
    FIELD(StatusReply, Id, "epoch", "epoch", r.epoch),
    FIELD(StatusReply, Flag, "draining", "draining", r.draining),
    FIELD(StatusReply, Flag, "admin", "you are admin", r.admin),
    FIELD(StatusReply, Text, "fdstore", "segments kept by", r.fdstore),
    FIELD(StatusReply, Text, "adopted", "adopted", r.adopted),
    FIELD(StatusReply, Count, "adopted_segments", "adopted segments", r.adopted_segments),
    FIELD(StatusReply, Bytes, "adopted_bytes", "of bytes", r.adopted_bytes),
    FIELD(StatusReply, Count, "sessions", "sessions", r.sessions),
    FIELD(StatusReply, Count, "attached", "of them attached", r.attached),
    FIELD(StatusReply, Count, "pools", "pools", r.pools),
    FIELD(StatusReply, Count, "namespaces", "namespaces", r.namespaces),
    FIELD(StatusReply, Count, "objects", "objects", r.objects),
    FIELD(StatusReply, Count, "replicas", "replicas", r.replicas),
    FIELD(StatusReply, Count, "leases", "leases", r.leases),
    FIELD(StatusReply, Bytes, "host_limit_bytes", "host limit", r.host_limit_bytes),
    FIELD(StatusReply, Bytes, "host_reserved_bytes", "host reserved", r.host_reserved_bytes),
    FIELD(StatusReply, Bytes, "unproven_bytes", "unproven", r.unproven_bytes),
    USAGE(StatusReply),
};

constexpr Column<UsageReply> kUsageReply[] = {
    FIELD(UsageReply, Bytes, "limit_bytes", "limit", r.limit_bytes),
    USAGE(UsageReply),
    FIELD(UsageReply, Count, "replicas", "replicas", r.usage.replicas),
    FIELD(UsageReply, Count, "leases", "leases", r.usage.leases),
};

#undef USAGE
#undef FIELD

}  // namespace

std::span<const Column<SessionRow>> columns(const SessionRow &) { return kSession; }
std::span<const Column<PoolRow>> columns(const PoolRow &) { return kPool; }
std::span<const Column<NamespaceRow>> columns(const NamespaceRow &) { return kNamespace; }
std::span<const Column<ObjectRow>> columns(const ObjectRow &) { return kObject; }
std::span<const Column<LeaseRow>> columns(const LeaseRow &) { return kLease; }
std::span<const Column<ExplainRow>> columns(const ExplainRow &) { return kExplain; }
std::span<const Column<StatusReply>> columns(const StatusReply &) { return kStatus; }
std::span<const Column<UsageReply>> columns(const UsageReply &) { return kUsageReply; }

std::string id_text(wire::Id id) {
    char text[24];
    std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(id));
    return text;
}

std::string digest_text(const Digest &digest) {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    for (const uint8_t byte : digest.bytes) {
        text += kDigits[byte >> 4];
        text += kDigits[byte & 15];
    }
    return text;
}

std::string key_text(const Key &key) {
    return digest_text(key.digest) + "/" + std::to_string(key.shard) + "/" +
           std::to_string(key.part);
}

}  // namespace maru::maructl
