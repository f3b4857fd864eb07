/* SPDX-License-Identifier: Apache-2.0 */
/**
 * maru/paged.h - whole blocks of an engine's paged KV memory, to and from a pool
 *
 * An engine keeps KV in layers of equal blocks. An object holds some blocks of every layer:
 *
 *   [layer 0: block a, block b, ...] [layer 1: block a, block b, ...] ... [checksum]
 *
 * A block is opaque: its bytes are moved as they are. Neighbouring blocks are copied as one run.
 */
#ifndef MARU_PAGED_H
#define MARU_PAGED_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* In a list of blocks of maru_scatter(): leave this one out. */
#define MARU_NO_BLOCK 4294967295u

/* Flags: 16 bytes after the blocks are their XXH3-128, in canonical form. */
#define MARU_CHECKSUM 1u
#define MARU_CHECKSUM_BYTES 16

/** Where an engine keeps its KV. Zero in a field that is not required means the default. */
struct maru_paged_memory {
    size_t size;           /* sizeof(struct maru_paged_memory) */
    void *const *layers;   /* required: address of block 0 of each layer */
    size_t layer_count;    /* required */
    uint64_t block_bytes;  /* required: of one block in one layer, one contiguous run */
    uint64_t block_count;  /* required: in each layer; a block id must be below it */
    uint64_t block_stride; /* from one block of a layer to the next; 0: block_bytes */
    uint32_t threads;      /* 0: as many as are worth it ($MARU_COPY_THREADS at most); at most 64 */
    uint32_t flags;        /* 0 or MARU_CHECKSUM */
};

/**
 * maru_gather() - copy blocks into objects in pool memory, fenced for a commit that follows
 * @memory:            not retained
 * @blocks:            @blocks_per_object block ids for each object, object after object
 * @objects:           @count addresses in pool memory, each with room for layer_count x
 *                     @blocks_per_object x block_bytes, and 16 bytes more with MARU_CHECKSUM
 *
 * Nobody may write the blocks meanwhile. Ranges must not overlap.
 * Thread safety: any thread.
 * Blocking:      the copy.
 * Return: 0; -EINVAL, and nothing was written.
 * Since: 0.1
 */
int maru_gather(const struct maru_paged_memory *memory, const uint32_t *blocks,
                size_t blocks_per_object, void *const *objects, size_t count);

/**
 * maru_scatter() - copy objects in pool memory out into blocks
 * @memory:            not retained
 * @blocks:            as for maru_gather(); a block that is MARU_NO_BLOCK is left out
 * @objects:           @count addresses, for example of maru_lease_data()
 * @ret_results:       NULL, or @count results: 0 copied; -EBADMSG the checksum is wrong, and none of
 *                     this object's blocks was written
 *
 * With MARU_CHECKSUM each object is checked whole before its first block is written.
 * Thread safety: any thread.
 * Blocking:      the copy.
 * Return: 0; -EBADMSG at least one object is damaged, the others are copied; -EINVAL, and nothing was
 *         written.
 * Since: 0.1
 */
int maru_scatter(const struct maru_paged_memory *memory, const uint32_t *blocks,
                 size_t blocks_per_object, const void *const *objects, size_t count,
                 int *ret_results);

#ifdef __cplusplus
}
#endif
#endif
