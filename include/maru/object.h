/* SPDX-License-Identifier: Apache-2.0 */
/**
 * maru/object.h - probe, store and load
 *
 * All forms are batches; results come per item, in request order. Batches of any size are split into
 * messages by the library. No call here copies KV through marud.
 */
#ifndef MARU_OBJECT_H
#define MARU_OBJECT_H

#include <stddef.h>
#include <stdint.h>

#include <maru/client.h>
#include <maru/key.h>
#include <maru/pool.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MARU_PREFIX_ONLY 1u /* flags: stop at the first miss; later keys read as misses */

/**
 * maru_probe() - which of these chunks could this engine's worker read now?
 * @digests:    @count prefix digests, in prefix order
 * @manifest:   NULL: one object a chunk; else a chunk counts only if all its objects are readable
 * @flags:      0 or MARU_PREFIX_ONLY
 * @ret_bitmap: NULL, or room for (count + 7) / 8 bytes; bit i (least significant first) is chunk i
 *
 * Promises nothing and protects nothing. A scheduler asks for its engine's attached worker; without
 * one every chunk is a miss.
 * Thread safety: any thread.
 * Blocking:      one round trip, pipelined for large batches.
 * Return: the number of leading chunks that are all readable, 0 to @count; -EINVAL; -ENOTCONN;
 *         -ETIMEDOUT; -EOWNERDEAD.
 * Since: 0.1
 */
int64_t maru_probe(maru_namespace *ns, const maru_digest *digests, size_t count,
                   const struct maru_manifest *manifest, uint32_t flags, uint8_t *ret_bitmap);

/**
 * maru_commit() - publish written reservations as objects
 * @keys:         @count keys
 * @reservations: @count runs of @pool, completely written
 * @ret_results:  @count results: 0 published; -EEXIST already there (its run was given back);
 *                -EINPROGRESS fate unknown, the run is in quarantine and the library settles it;
 *                anything else: not published, the run was given back
 *
 * A store into write-combining or non-temporal memory must be fenced before; maru_copy_in() does.
 * Every reservation is consumed whatever its result. What the library repeats after a lost connection
 * or a restart of marud never publishes twice: it asks first what became of the earlier attempt.
 * Thread safety: any thread.
 * Blocking:      one round trip per 1024 items, pipelined.
 * Return: 0 when every result is 0 or -EEXIST; else the first other result; -EINVAL or -ENOMEM
 *         (nothing was consumed); -EOWNERDEAD.
 * Since: 0.1
 */
int maru_commit(maru_namespace *ns, maru_pool *pool, const struct maru_key *keys,
                const maru_reservation *reservations, size_t count, int *ret_results);

/**
 * maru_store() - reserve, copy and commit
 * @buffers: @count sources of @length bytes each
 * @ret_results: NULL, or @count results as in maru_commit(); -ENOSPC: not admitted
 *
 * Objects that are already present are not copied. When the pool fills up in the middle, the first
 * ones are stored and the rest are -ENOSPC.
 * Thread safety: any thread. Blocking: the copy and two round trips.
 * Return: the number of objects now present (0 or -EEXIST results), 0 when the pool is full; negative:
 *         none is present, and why.
 * Since: 0.1
 */
int64_t maru_store(maru_namespace *ns, maru_pool *pool, const struct maru_key *keys,
                   const void *const *buffers, uint64_t length, size_t count, int *ret_results);

typedef struct maru_lease maru_lease;

/**
 * maru_acquire() - protect objects and expose their bytes
 * @digests:    @count digests, in prefix order
 * @manifest:   NULL, or all-or-nothing per chunk; leases come chunk by chunk, shards outer, parts inner
 * @flags:      0 or MARU_PREFIX_ONLY
 * @ret_leases: room for @count x objects of the manifest; NULL where not acquired
 *
 * The bytes stay mapped and unchanged until maru_lease_release(), whatever the owner, an operator or
 * marud does meanwhile; a lease never ends by a clock.
 * Thread safety: any thread.
 * Blocking:      one round trip per 1024 objects, pipelined.
 * Return: the number of chunks acquired; -EINVAL; -EDQUOT too many leases; -EACCES for a scheduler;
 *         -EMFILE or -ENOMEM none of them, because the memory of others that is there could not be
 *         mapped here; -ENOTCONN; -ETIMEDOUT; -EOWNERDEAD. On failure nothing is held.
 * Since: 0.1
 */
int64_t maru_acquire(maru_namespace *ns, const maru_digest *digests, size_t count,
                     const struct maru_manifest *manifest, uint32_t flags, maru_lease **ret_leases);

/** The bytes of a lease. Valid until its release; never write to them. NULL for a lease that was
 *  released, and in a forked child. Any thread, never blocks. */
const void *maru_lease_data(const maru_lease *lease);
/** Their number. Any thread, never blocks. */
uint64_t maru_lease_length(const maru_lease *lease);
/** The allocation's generation. Any thread, never blocks. */
uint64_t maru_lease_generation(const maru_lease *lease);

/**
 * maru_lease_release() - end leases
 * @leases: @count of them; NULL entries are skipped; the handles are gone afterwards
 *
 * The message is queued and does not wait for marud's answer; a lost connection settles it.
 * Thread safety: any thread; not twice for one lease (a second release of the same handle is found
 * and refused with -ENOENT as long as the handle's slot was not used again).
 * Blocking:      never for longer than a send.
 * Return: 0; -EINVAL; -ENOENT; -EOWNERDEAD.
 * Since: 0.1
 */
int maru_lease_release(maru_lease *const *leases, size_t count);

/**
 * maru_load() - acquire, copy out, release
 * @buffers:     @count x objects of the manifest destinations
 * @length:      bytes of each buffer; an object of another size is -EMEDIUMTYPE, never cut
 * @ret_results: NULL, or as many results: 0 copied, -ENOENT miss, ...
 *
 * Thread safety: any thread. Blocking: one round trip and the copy.
 * Return: the number of chunks loaded; negative: none.
 * Since: 0.1
 */
int64_t maru_load(maru_namespace *ns, const maru_digest *digests, size_t count,
                  const struct maru_manifest *manifest, uint32_t flags, void *const *buffers,
                  uint64_t length, int *ret_results);

/**
 * maru_retire() - withdraw one's own objects and give their memory back
 * @keys:        @count keys that this worker committed
 * @ret_results: NULL, or @count results: 0 retired (pages return when the last reader is gone);
 *               -ENOENT not there or not this worker's
 *
 * Thread safety: any thread.
 * Blocking:      one round trip per 1024; the acknowledgement of reclaim runs in the background.
 * Return: the number retired; negative: none was tried.
 * Since: 0.1
 */
int64_t maru_retire(maru_namespace *ns, const struct maru_key *keys, size_t count,
                    int *ret_results);

/**
 * maru_copy_in() - copy into a pool with this machine's best kernel for stores, then fence
 * maru_copy_out() - copy out of a pool with the best kernel for a reader that follows
 *
 * The kernels are chosen by a calibration of some 60 milliseconds, cached per boot.
 * Ranges must not overlap. Any size and alignment.
 * Thread safety: any thread. Blocking: the copy.
 * Since: 0.1
 */
void maru_copy_in(void *pool_memory, const void *source, size_t length);
void maru_copy_out(void *destination, const void *pool_memory, size_t length);

#ifdef __cplusplus
}
#endif
#endif
