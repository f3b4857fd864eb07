#include <iterator>

#include "libmaru/wire/codec.h"

namespace maru::wire {

namespace {

constexpr const char *kStatusNames[] = {
    "OK",           "ALREADY_PRESENT", "PENDING",          "MISS",
    "NOT_FOUND",    "NO_SPACE",        "NO_MEMORY",        "QUOTA",
    "UNAVAILABLE",  "UNSUPPORTED",     "INVALID_ARGUMENT", "DENIED",
    "BUSY",         "CONFLICT",        "STALE_GENERATION", "STALE_EPOCH",
    "AGAIN",        "PROTOCOL",        "TOO_LARGE",        "VERSION_MISMATCH",
    "INCOMPATIBLE", "UNKNOWN",         "ABSENT",           "COMMITTED",
    "FD_LIMIT",     "FENCED",          "INTERNAL",
};
static_assert(std::size(kStatusNames) == static_cast<size_t>(Status::Internal) + 1);

// In the order of RequestBody.
constexpr const char *kRequestNames[] = {
    "hello",
    "hello_proof",
    "open_session",
    "attach",
    "attach_pool",
    "republish",
    "attach_leases",
    "attach_done",
    "describe",
    "heartbeat",
    "register_namespace",
    "open_pool",
    "grant_segment",
    "segment_mapped",
    "close_pool",
    "close_session",
    "commit",
    "resolve",
    "probe",
    "acquire",
    "release",
    "retire",
    "reclaim_ack",
    "usage",
    "status",
    "list",
    "explain",
    "admin_retire",
    "drain",
    "reload",
    "map_segment",
    "retire_segment",
    "engine_worker",
};
static_assert(std::size(kRequestNames) == std::variant_size_v<RequestBody>);

}  // namespace

const char *status_name(Status status) {
    const auto number = static_cast<size_t>(status);
    return number < std::size(kStatusNames) ? kStatusNames[number] : "status out of range";
}

const char *request_kind_name(size_t kind) {
    return kind < std::size(kRequestNames) ? kRequestNames[kind] : "request out of range";
}

const char *request_name(const RequestBody &body) { return request_kind_name(body.index()); }

}  // namespace maru::wire
