// Opaque handles of the C interface and what they are inside.
//
// A handle of a parent process is recognised by its fork mark alone: nothing else of it may be
// touched in a child.
#pragma once

#include "libmaru/capi/guard.h"
#include "libmaru/client/completion_queue.h"
#include "libmaru/client/fork_guard.h"
#include "libmaru/client/pool.h"
#include "libmaru/client/session.h"
#include "maru/maru.h"

namespace maru::capi {

inline client::Session *inside(maru_client *handle) {
    return reinterpret_cast<client::Session *>(handle);
}
inline client::Namespace *inside(maru_namespace *handle) {
    return reinterpret_cast<client::Namespace *>(handle);
}
inline client::Pool *inside(maru_pool *handle) { return reinterpret_cast<client::Pool *>(handle); }
inline client::CompletionQueue *inside(maru_queue *handle) {
    return reinterpret_cast<client::CompletionQueue *>(handle);
}
inline maru_client *outside(client::Session *object) {
    return reinterpret_cast<maru_client *>(object);
}
inline maru_namespace *outside(client::Namespace *object) {
    return reinterpret_cast<maru_namespace *>(object);
}
inline maru_pool *outside(client::Pool *object) { return reinterpret_cast<maru_pool *>(object); }
inline maru_queue *outside(client::CompletionQueue *object) {
    return reinterpret_cast<maru_queue *>(object);
}

inline client::Session &session_of(maru_client *handle) { return *inside(handle); }
inline client::Session &session_of(maru_namespace *handle) { return inside(handle)->session; }
inline client::Session &session_of(maru_pool *handle) { return inside(handle)->session(); }
inline client::Session &session_of(maru_queue *handle) { return inside(handle)->session; }

inline int check_fork(const client::Session &session) {
    if (session.fork_mark == client::ForkGuard::mark())
        return 0;
    return fail(EOWNERDEAD, "this client belongs to the parent process: open a client of its own");
}

// 0, or the errno of a NULL or forked handle.
template <typename Handle>
int check(Handle *handle, const char *name) {
    if (!handle)
        return fail(EINVAL, std::string(name) + ": must not be NULL");
    return check_fork(session_of(handle));
}

// NULL is allowed only for an empty array.
inline int check_array(const void *array, size_t count, const char *name) {
    if (!array && count > 0)
        return fail(EINVAL, std::string(name) + ": must not be NULL");
    return 0;
}

// The protocol's manifest from the caller's; NULL is one object.
int read_manifest(const maru_manifest *from, size_t count, wire::Manifest &to);
// What all calls on a namespace's objects check first; `objects` may be NULL.
int check_batch(maru_namespace *ns, const maru_manifest *manifest, size_t count, uint32_t flags,
                wire::Manifest &to);

static_assert(sizeof(maru_digest) == sizeof(wire::Digest) &&
              alignof(maru_digest) == alignof(wire::Digest));
static_assert(sizeof(maru_key) == sizeof(wire::Key) && alignof(maru_key) == alignof(wire::Key) &&
              offsetof(maru_key, shard) == offsetof(wire::Key, shard) &&
              offsetof(maru_key, part) == offsetof(wire::Key, part));
inline const wire::Digest *wire_digests(const maru_digest *digests) {
    return reinterpret_cast<const wire::Digest *>(digests);
}
inline const wire::Key *wire_keys(const maru_key *keys) {
    return reinterpret_cast<const wire::Key *>(keys);
}

}  // namespace maru::capi
