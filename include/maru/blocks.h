/* SPDX-License-Identifier: Apache-2.0 */
/**
 * maru/blocks.h - objects stored from an engine's blocks, and loaded into them, in one call each
 *
 * What maru_reserve(), maru_gather() and maru_commit() do one after the other, and maru_acquire(),
 * maru_scatter() and maru_lease_release(): the same objects, laid out as maru/paged.h says. An engine that
 * moves KV between the steps of its model, when nothing of this library is in a cache any more, crosses the
 * interface once.
 *
 * @memory, @blocks and @blocks_per_object are those of maru_gather() and maru_scatter(), and so is the length
 * of an object: layer_count x @blocks_per_object x block_bytes, and 16 bytes more with MARU_CHECKSUM.
 * @device says whose memory the blocks are in: MARU_CPU, or a GPU as maru/cuda.h counts them. Then the copies
 * are in order on @stream, and the call waits for it; with MARU_CPU @stream is not used.
 */
#ifndef MARU_BLOCKS_H
#define MARU_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

#include <maru/async.h>
#include <maru/object.h>
#include <maru/paged.h>
#include <maru/pool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A device that is no GPU. */
#define MARU_CPU (-1)

/**
 * maru_store_blocks() - reserve, gather and commit
 * @keys:        of the objects, @count of them
 * @memory:      not retained
 * @blocks:      @blocks_per_object block ids for each object, object after object; not retained
 * @device:      MARU_CPU, or the GPU that the blocks are in the memory of
 * @stream:      of @device
 * @ret_results: @count results, as of maru_commit()
 * @ret_copy_ns: NULL, or how long the copy alone took, in nanoseconds; set on success
 *
 * All or nothing until the commit: when the pool has no room for all of the objects, none is stored. Nobody
 * may write the blocks meanwhile.
 * Thread safety: any thread.
 * Blocking:      the copy, then until marud answers, up to the client's timeout_ms.
 * Return: what maru_commit() returns. Before anything was stored, and with @ret_results unchanged: -EINVAL;
 *         what maru_reserve() returns, -ENOSPC above all; -EOPNOTSUPP, -ENODEV, -EIO of a GPU; -EOWNERDEAD.
 * Since: 0.1
 */
int maru_store_blocks(maru_namespace *ns, maru_pool *pool, const struct maru_key *keys,
                      size_t count, const struct maru_paged_memory *memory, const uint32_t *blocks,
                      size_t blocks_per_object, int device, void *stream, int *ret_results,
                      uint64_t *ret_copy_ns);

/**
 * maru_store_blocks_submit() - the same without waiting for marud
 * @keys:        must live, as @ret_results must, until the completion is reaped; the rest is not retained
 *
 * The copy has ended when this returns; an acquire that follows over the same client finds the objects. The
 * result of the completion is what maru_commit() returns.
 * Thread safety: any thread.
 * Blocking:      the copy.
 * Return: 0 submitted; -EAGAIN too many in flight: reap first; else as maru_store_blocks(), and nothing was
 *         submitted.
 * Since: 0.1
 */
int maru_store_blocks_submit(maru_queue *queue, maru_namespace *ns, maru_pool *pool,
                             const struct maru_key *keys, size_t count,
                             const struct maru_paged_memory *memory, const uint32_t *blocks,
                             size_t blocks_per_object, int device, void *stream, int *ret_results,
                             uint64_t *ret_copy_ns, uint64_t user_data);

/**
 * maru_load_blocks() - acquire, scatter and release
 * @digests:     of the objects, @count of them, each of shard 0 and part 0
 * @memory:      not retained
 * @blocks:      as for maru_store_blocks(); a block that is MARU_NO_BLOCK is left out
 * @device:      MARU_CPU, or the GPU that the blocks are in the memory of
 * @stream:      of @device
 * @ret_results: NULL, or @count results: 0 copied; -ENOENT not there, and none behind it was asked for;
 *               -EBADMSG its checksum is wrong, and none of its blocks was written
 * @ret_copy_ns: as for maru_store_blocks(); 0 when none was there
 *
 * From the front, as many as are there: a prefix, as of maru_acquire() with MARU_PREFIX_ONLY.
 * Thread safety: any thread.
 * Blocking:      until marud answers, up to the client's timeout_ms, then the copy. The release is not
 *                waited for.
 * Return: how many were copied. Before anything was written: -EINVAL; what maru_acquire() returns;
 *         -EMEDIUMTYPE the objects of @ns have another length; -EOPNOTSUPP, -ENODEV of a GPU; -EOWNERDEAD.
 *         -EIO a GPU failed, and what was written is not known.
 * Since: 0.1
 */
int64_t maru_load_blocks(maru_namespace *ns, const maru_digest *digests, size_t count,
                         const struct maru_paged_memory *memory, const uint32_t *blocks,
                         size_t blocks_per_object, int device, void *stream, int *ret_results,
                         uint64_t *ret_copy_ns);

#ifdef __cplusplus
}
#endif
#endif
