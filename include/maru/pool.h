/* SPDX-License-Identifier: Apache-2.0 */
/**
 * maru/pool.h - memory that a worker fills with KV
 *
 * A CPU pool is a list of segments: sealed memfds that marud makes and this process maps, populates
 * and pays for. Allocation is local: no message per page. Memory is handed out only after it is
 * populated, so that a store never meets an empty page.
 *
 * A pool of MARU_SCOPE_WORKER is private. What is committed into a pool of MARU_SCOPE_HOST is a hit
 * for every client of the same uid in the same namespace, which read it in place; nobody but this
 * process can write it. When this process has ended (however it ended, and also after
 * maru_client_close()) marud keeps what was committed, segment by segment, and it stays a hit for
 * the next engine. A kept segment never changes; its memory comes back as a whole, when all of it
 * is retired ("maructl retire") and no reader is left. Its memory is granted as it is needed: while
 * a segment is refused, for want of room or because marud is draining, a reservation fails with
 * -ENOSPC, and the hits stay.
 */
#ifndef MARU_POOL_H
#define MARU_POOL_H

#include <stddef.h>
#include <stdint.h>

#include <maru/client.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct maru_pool maru_pool;

#define MARU_MEDIUM_CPU 0u
#define MARU_MEDIUM_CXL 1u

#define MARU_SCOPE_WORKER 0u /* read by this client alone, and ended with it */
#define MARU_SCOPE_HOST 1u   /* read by every client of the uid, and kept by marud after this one */

#define MARU_HUGE_OFF 0u      /* base pages; 2 MiB ones where the kernel gives them by itself */
#define MARU_HUGE_TRY 1u      /* hugetlb when enough are free, else MARU_HUGE_OFF */
#define MARU_HUGE_REQUIRED 2u /* hugetlb or -ENOMEM naming needed and free counts */

#define MARU_NUMA_OFF 0u
#define MARU_NUMA_AUTO 1u   /* bind if the kernel lets us, else info and maru_last_error() say */
#define MARU_NUMA_STRICT 2u /* bind or -EOPNOTSUPP naming the errno */

/** Options of maru_pool_open(). Zero in a field means the default. */
struct maru_pool_options {
    size_t size;             /* sizeof(struct maru_pool_options) */
    uint64_t capacity_bytes; /* required; at least one page; rounded up to whole pages */
    uint64_t page_bytes;     /* allocation unit, a power of two from 4 KiB to 1 GiB; 0: 64 KiB */
    uint32_t medium;         /* MARU_MEDIUM_*; CXL: -EOPNOTSUPP until marud has it */
    uint32_t huge_pages;     /* MARU_HUGE_* */
    uint32_t numa;           /* MARU_NUMA_* */
    int32_t numa_node;       /* with AUTO or STRICT: the node, or -1 for the caller's */
    uint32_t wait_populated; /* 1: return only when all of it is populated (or cannot be) */
    uint32_t populate_margin_mib; /* free memory to leave on host, node and cgroup; 0: 256 */
    uint32_t scope;      /* MARU_SCOPE_*; HOST: -EOPNOTSUPP if marud lacks shared_storage_v1 */
    uint32_t reserved_0; /* must be 0 */
};

/** What maru_pool_info() tells. All bytes. */
struct maru_pool_info {
    size_t size;                    /* set by the caller */
    uint64_t id;                    /* as maructl shows it; stable for the pool's life */
    uint64_t capacity_bytes;        /* granted */
    uint64_t reserved_bytes;        /* backing reserved for the pool, rounding included */
    uint64_t allocated_bytes;       /* pages handed out, committed or not */
    uint64_t ready_bytes;           /* logical bytes of committed objects */
    uint64_t ready_allocated_bytes; /* their pages */
    uint64_t quarantined_bytes;     /* pages of commits whose fate is unknown */
    uint64_t pinned_bytes;          /* registered with CUDA, really */
    uint64_t retiring_bytes;        /* pages retired whose last reader is not gone */
    uint64_t populated_bytes;       /* memory that really stands behind it */
    uint64_t swapped_bytes;         /* of those, on swap now */
    uint64_t page_bytes;            /* allocation unit */
    uint64_t backing_page_bytes;    /* what the kernel really gave: 4096 or 2097152 */
    int32_t numa_node;              /* -1: unbound */
    uint32_t populating;            /* 1: the background population still runs */
    int32_t populate_result; /* 0, or the negative errno that keeps the pool smaller; of scope
                                       host perhaps for a while only */
    uint32_t segment_count;
    uint32_t scope; /* MARU_SCOPE_* */
    uint32_t reserved_0;
};

/**
 * maru_pool_open() - ask for a grant and start to populate it
 * @ret_pool: set on success; belongs to the client; end with maru_pool_close()
 *
 * Returns before the memory is populated unless options->wait_populated is set; reservations are
 * admitted as segments become ready, in 16 MiB steps of background work. A pool of MARU_SCOPE_HOST
 * begins with one segment, or none if there is no room for it, and asks for the next when less than
 * half a segment is free; populated means here: as much as it has asked for. A segment that is refused
 * is asked for again as long as somebody reserves, at most once a second.
 * Thread safety: any thread.
 * Blocking:      one round trip; plus population with wait_populated. While memory of an engine that
 *                has ended is still being proven free, -EDQUOT and -ENOSPC are asked again about,
 *                up to timeout_ms.
 * Return: 0; -EINVAL; -EACCES for a scheduler; -ENOSPC host aggregate; -EDQUOT worker grant or uid
 *         quota; -ENOMEM; -EOPNOTSUPP medium or strict binding; -ENOTCONN; -ETIMEDOUT; -EOWNERDEAD.
 * Since: 0.1
 */
int maru_pool_open(maru_client *client, const struct maru_pool_options *options,
                   maru_pool **ret_pool);

#define MARU_CLOSE_DRAINED 0u /* -EBUSY, nothing changed, while anybody uses memory of it */
#define MARU_CLOSE_FORCED 1u  /* retire everything at once, then wait for the readers */

/**
 * maru_pool_close() - give a pool back
 * @mode: MARU_CLOSE_*
 *
 * Done means: unmapped here, sealed by marud, and its budget returned; also of scope host, whose
 * objects are gone then: to leave them to others, close the client instead. On -EBUSY and -ETIMEDOUT the
 * pool handle stays valid; after -ETIMEDOUT of a forced close call again to go on waiting.
 * Thread safety: any thread; one close at a time.
 * Blocking:      a few round trips; forced: up to timeout_ms for readers.
 * Return: 0 and @pool is gone; -EBUSY naming the leases or views; -EINVAL; -ETIMEDOUT; -ENOTCONN;
 *         -EOWNERDEAD.
 * Since: 0.1
 */
int maru_pool_close(maru_pool *pool, uint32_t mode);

/**
 * maru_pool_info() - sizes and usage of a pool, from this process's own books
 *
 * Thread safety: any thread.
 * Blocking:      never (swapped_bytes reads /proc and is refreshed at most once a second).
 * Return: 0; -EINVAL; -EOWNERDEAD.
 * Since: 0.1
 */
#if defined(__cplusplus) && defined(__GNUC__) /* struct and function share a name, like stat(2) */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif
int maru_pool_info(maru_pool *pool, struct maru_pool_info *info);
#if defined(__cplusplus) && defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

/**
 * maru_pool_wait_populated() - wait until the background population has ended
 * @timeout_ms: 0 asks only
 *
 * Thread safety: any thread. Blocking: up to @timeout_ms.
 * Return: 0 all of it; -ETIMEDOUT; -ENOMEM the pool stays smaller (info has the size); of scope host
 *         also what populate_result says of a segment that is refused; -EINVAL; -EOWNERDEAD.
 * Since: 0.1
 */
int maru_pool_wait_populated(maru_pool *pool, uint32_t timeout_ms);

/** A run of pages being written. Filled by maru_reserve(); plain data, copy it freely. */
typedef struct maru_reservation {
    void *data;          /* write @length bytes here, then commit or abort */
    uint64_t length;     /* as asked for */
    uint64_t offset;     /* from the start of the pool; page-aligned */
    uint64_t generation; /* of this allocation; never used twice */
} maru_reservation;

/**
 * maru_reserve() - allocate pages for objects, locally
 * @length:           bytes of each, at least 1; each is one contiguous run of pages
 * @count:            how many
 * @ret_reservations: room for @count; all or none
 *
 * Each must end in maru_commit() or maru_abort(). Multiples of 2 MiB are aligned to 2 MiB as long as
 * an aligned run is free; other lengths are packed, since alignment would leave holes.
 * Thread safety: any thread.
 * Blocking:      never. No message.
 * Return: 0; -EINVAL; -ENOSPC full now, also for want of a segment of a pool of scope host (keep your
 *         hits, skip this admission; maru_pool_info() has the errno of the refusal); -EOWNERDEAD.
 * Since: 0.1
 */
int maru_reserve(maru_pool *pool, uint64_t length, size_t count,
                 maru_reservation *ret_reservations);

/**
 * maru_abort() - give reservations back unwritten or half written
 * Thread safety: any thread. Blocking: never.
 * Return: 0; -ENOENT one of them is not reserved any more (the others are given back); -EINVAL;
 *         -EOWNERDEAD.
 * Since: 0.1
 */
int maru_abort(maru_pool *pool, const maru_reservation *reservations, size_t count);

#ifdef __cplusplus
}
#endif
#endif
