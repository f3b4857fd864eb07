/* SPDX-License-Identifier: Apache-2.0 */
/**
 * maru/client.h - a session with the host's marud
 *
 * One client is one session: a worker, which owns pools, or a scheduler, which only asks. The client
 * reconnects and re-attaches by itself when marud restarts; what it had committed stays a hit.
 *
 * Fork: a child may call nothing on a client of its parent (-EOWNERDEAD) and disturbs nothing. It
 * sees no pool memory. It may open clients of its own.
 */
#ifndef MARU_CLIENT_H
#define MARU_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct maru_client maru_client;

#define MARU_ROLE_WORKER 0u    /* one attached worker per (uid, engine) */
#define MARU_ROLE_SCHEDULER 1u /* metadata only: maps nothing, allocates nothing */

/** Options of maru_client_open(). Zero in a field means the default. */
struct maru_client_options {
    size_t size;             /* sizeof(struct maru_client_options) */
    const char *socket_path; /* NULL: $MARU_SOCKET, /run/maru/marud.sock, the user's socket */
    const char *engine;      /* required: 1 to 256 bytes; scheduler: whose worker it probes for */
    const char *name;        /* shown to operators; NULL: the program's name; at most 64 bytes */
    uint32_t role;           /* MARU_ROLE_* */
    uint32_t timeout_ms;     /* deadline of each blocking call, whole round trip; 0: 5000 */
    uint32_t connect_ms;     /* deadline of opening, incl. waiting for a dying holder; 0: 10000 */
    uint32_t spin_us;        /* busy-wait before blocking for a reply; 0: none */
};

#define MARU_STATE_ATTACHED 0u     /* connected, session whole */
#define MARU_STATE_DISCONNECTED 1u /* marud is away; retried with back-off */
#define MARU_STATE_RESTORING 2u    /* connected, re-publishing */
#define MARU_STATE_FENCED 3u       /* over for good */

/** What maru_client_info() tells. */
struct maru_client_info {
    size_t size;              /* set by the caller */
    uint32_t state;           /* MARU_STATE_* */
    uint32_t epoch;           /* of marud, 0 before the first connection */
    uint64_t session;         /* id as maructl shows it */
    uint64_t reconnects;      /* connections after the first */
    uint64_t republished;     /* replicas told again after restarts of marud */
    uint64_t leases;          /* held now */
    uint64_t unknown_commits; /* operations whose fate is not settled */
    uint32_t uid;             /* this process as marud sees it */
    uint32_t probe_keys_max;  /* per message; larger batches are split by the library */
    char server_version[32];
};

/**
 * maru_client_open() - connect and open a session
 * @options:    see there; not retained
 * @ret_client: set on success only; end with maru_client_close()
 *
 * Thread safety: any thread.
 * Blocking:      up to options->connect_ms.
 * Return: 0; -EINVAL; -E2BIG; -ENOENT, -ECONNREFUSED or -EACCES with the socket's path, -ECONNREFUSED
 *         also when marud does not take this process or user, with its reason; -EBUSY the
 *         engine still has another worker when connect_ms has passed (the message names pid and
 *         command); -ENODEV marud is draining; -EPROTONOSUPPORT; -EDQUOT; -ETIMEDOUT.
 * Since: 0.1
 */
int maru_client_open(const struct maru_client_options *options, maru_client **ret_client);

/**
 * maru_client_close() - end the session and free the client
 * @client: NULL is allowed and does nothing
 *
 * Closes what is still open. Pools of MARU_SCOPE_WORKER end; what was committed into pools of
 * MARU_SCOPE_HOST stays with marud, as a hit for others. A marud that is being restarted is waited
 * for with these, up to timeout_ms. Fails, with nothing changed, while leases, reservations,
 * completion queues or exported views live: end those first.
 * Thread safety: no other call on this client may be running or follow.
 * Blocking:      up to timeout_ms for marud's answer; marud away is not an error.
 * Return: 0 and @client is gone; -EBUSY with what holds it; -EOWNERDEAD in a forked child, which
 *         may simply forget the handle.
 * Since: 0.1
 */
int maru_client_close(maru_client *client);

/**
 * maru_client_info() - the state of a client
 * @info: info->size set by the caller
 *
 * Thread safety: any thread. Blocking: never.
 * Return: 0; -EINVAL; -EOWNERDEAD.
 * Since: 0.1
 */
#if defined(__cplusplus) && defined(__GNUC__) /* struct and function share a name, like stat(2) */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif
int maru_client_info(maru_client *client, struct maru_client_info *info);
#if defined(__cplusplus) && defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

/**
 * maru_client_set_timeout() - another deadline for this client's blocking calls
 * @timeout_ms: from now on, also for calls that are waiting to begin; 0: 5000
 *
 * For a caller whose patience is long while it sets up and short in its hot path.
 * Thread safety: any thread. Blocking: never.
 * Return: 0; -EINVAL; -EOWNERDEAD.
 * Since: 0.1
 */
int maru_client_set_timeout(maru_client *client, uint32_t timeout_ms);

/**
 * maru_client_bind() - the worker that this client's probes ask for
 * @session: maru_client_info.session of the worker, from now on; 0: whichever worker the engine has
 *
 * For a scheduler. Two lives of a worker need not be able to read the same; probes that name a
 * session which is not the engine's attached worker find nothing. Calls that have begun may still
 * ask for the one before.
 * Thread safety: any thread. Blocking: never.
 * Return: 0; -EINVAL; -EOWNERDEAD.
 * Since: 0.1
 */
int maru_client_bind(maru_client *client, uint64_t session);

#define MARU_NAMESPACE_MAX 16384 /* bytes of a namespace's text, without the 0 that ends it */

/**
 * maru_client_worker() - the worker of this client's engine, and its namespace
 * @ret_session: maru_client_info.session of the engine's attached worker; set on success only
 * @ret_text:    full text of the namespace that it described last; empty: none yet; set on success
 *               only
 * @size:        of @ret_text in bytes, more than MARU_NAMESPACE_MAX
 *
 * For a scheduler that nobody has told what to open and bind. The answer is of this moment: another
 * worker may have the engine a moment later.
 * Thread safety: any thread.
 * Blocking:      one round trip to marud, plus up to timeout_ms.
 * Return: 0; -ENOENT no worker is attached; -EINVAL; -EOPNOTSUPP marud lacks engine_worker_v1;
 *         -ENOTCONN; -ETIMEDOUT; -EOWNERDEAD.
 * Since: 0.1
 */
int maru_client_worker(maru_client *client, uint64_t *ret_session, char *ret_text, size_t size);

/**
 * maru_client_has_capability() - does this marud have a capability?
 * @name: for example "cpu_storage_v1"
 *
 * Thread safety: any thread. Blocking: never.
 * Return: 1 yes; 0 no; -EINVAL; -EOWNERDEAD.
 * Since: 0.1
 */
int maru_client_has_capability(maru_client *client, const char *name);

typedef struct maru_namespace maru_namespace;

/**
 * maru_namespace_open() - name a namespace by its full text
 * @text:   everything that makes KV incompatible: application or tenant, weights and revision,
 *          adapter, dtype and quantisation, geometry, storage format, chunk tokens, parallel layout;
 *          1 to 16384 bytes of UTF-8
 * @ret_ns: set on success; belongs to the client, freed with it
 *
 * Two different texts never share a namespace; the library registers the text again by itself after
 * a restart of marud. The same text returns the same handle.
 * Thread safety: any thread.
 * Blocking:      one round trip.
 * Return: 0; -EINVAL; -EAGAIN too many namespaces; -ENOTCONN; -ETIMEDOUT; -EOWNERDEAD.
 * Since: 0.1
 */
int maru_namespace_open(maru_client *client, const char *text, maru_namespace **ret_ns);

/** The KV schema of a worker: one for all its namespaces, told for each before its first commit. */
struct maru_schema {
    size_t size;           /* sizeof(struct maru_schema) */
    uint64_t object_bytes; /* logical size of every object: a commit of another is refused */
    const char *format;    /* storage format, 1 to 256 bytes; part of compatibility */
};

/**
 * maru_client_describe() - set this session's KV schema
 *
 * Thread safety: any thread.
 * Blocking:      one round trip.
 * Return: 0, also for the same schema again; -ENOTUNIQ it is already another; -EACCES a
 *         scheduler; -EMEDIUMTYPE the namespace has another size or format; -EINVAL; -ENOTCONN;
 *         -ETIMEDOUT; -EOWNERDEAD.
 * Since: 0.1
 */
int maru_client_describe(maru_client *client, maru_namespace *ns, const struct maru_schema *schema);

#ifdef __cplusplus
}
#endif
#endif
