/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake's copies, with a GPU whose memory is this process's own: device 1 is not there, and a stream of 13
 * has failed. The calls that do all in one are made of the others.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fake_libmaru.h"

API int maru_gather(const struct maru_paged_memory *memory, const uint32_t *blocks,
                    size_t blocks_per_object, void *const *objects, size_t count) {
    const size_t bytes = memory->block_bytes;
    for (size_t i = 0; i < count; i++)
        for (size_t layer = 0; layer < memory->layer_count; layer++)
            for (size_t b = 0; b < blocks_per_object; b++)
                memcpy((char *)objects[i] + (layer * blocks_per_object + b) * bytes,
                       (char *)memory->layers[layer] + blocks[i * blocks_per_object + b] * bytes,
                       bytes);
    return 0;
}
API int maru_scatter(const struct maru_paged_memory *memory, const uint32_t *blocks,
                     size_t blocks_per_object, const void *const *objects, size_t count,
                     int *ret_results) {
    const size_t bytes = memory->block_bytes;
    for (size_t i = 0; i < count; i++) {
        for (size_t layer = 0; layer < memory->layer_count; layer++)
            for (size_t b = 0; b < blocks_per_object; b++)
                if (blocks[i * blocks_per_object + b] != MARU_NO_BLOCK)
                    memcpy(
                        (char *)memory->layers[layer] + blocks[i * blocks_per_object + b] * bytes,
                        (const char *)objects[i] + (layer * blocks_per_object + b) * bytes, bytes);
        ret_results[i] = 0;
    }
    return 0;
}

static int on_device(int device, void *stream) {
    if (device != 0)
        return fake_fail(ENODEV, "there is no device 1");
    return stream == (void *)13 ? fake_fail(EIO, "the GPU failed") : 0;
}
static void *gpu_stream;
API int64_t maru_cuda_register(maru_pool *pool, uint64_t offset, uint64_t length,
                               uint64_t chunk_bytes, int device) {
    (void)chunk_bytes;
    if (on_device(device, NULL) < 0)
        return -ENODEV;
    return (int64_t)(length ? length : pool->capacity - offset);
}
API int maru_cuda_gather(const struct maru_paged_memory *memory, const uint32_t *blocks,
                         size_t blocks_per_object, void *const *objects, size_t count, int device,
                         void *stream) {
    (void)device;
    gpu_stream = stream;
    return maru_gather(memory, blocks, blocks_per_object, objects, count);
}
API int maru_cuda_scatter(const struct maru_paged_memory *memory, const uint32_t *blocks,
                          size_t blocks_per_object, const void *const *objects, size_t count,
                          int device, void *stream, int *ret_results) {
    (void)device;
    gpu_stream = stream;
    return maru_scatter(memory, blocks, blocks_per_object, objects, count, ret_results);
}
API int maru_cuda_wait(int device, void *stream) {
    if (stream != NULL && stream != gpu_stream)
        return fake_fail(EINVAL, "a wait for another stream than the copy's");
    return on_device(device, stream);
}

static uint64_t object_bytes(const struct maru_paged_memory *memory, size_t blocks_per_object) {
    return memory->layer_count * blocks_per_object * memory->block_bytes +
           (memory->flags & MARU_CHECKSUM ? MARU_CHECKSUM_BYTES : 0);
}
API int maru_store_blocks_submit(maru_queue *queue, maru_namespace *ns, maru_pool *pool,
                                 const struct maru_key *keys, size_t count,
                                 const struct maru_paged_memory *memory, const uint32_t *blocks,
                                 size_t blocks_per_object, int device, void *stream,
                                 int *ret_results, uint64_t *ret_copy_ns, uint64_t user_data) {
    int result = device == MARU_CPU ? 0 : on_device(device, stream);
    (void)ret_copy_ns;
    if (result < 0)
        return result;
    maru_reservation *runs = calloc(count, sizeof(*runs));
    result = maru_reserve(pool, object_bytes(memory, blocks_per_object), count, runs);
    if (result < 0) {
        free(runs);
        return result;
    }
    for (size_t i = 0; i < count; i++)
        maru_gather(memory, blocks + i * blocks_per_object, blocks_per_object, &runs[i].data, 1);
    result = maru_commit_submit(queue, ns, pool, keys, runs, count, ret_results, user_data);
    if (result < 0)
        maru_abort(pool, runs, count);
    free(runs);
    return result;
}
API int maru_store_blocks(maru_namespace *ns, maru_pool *pool, const struct maru_key *keys,
                          size_t count, const struct maru_paged_memory *memory,
                          const uint32_t *blocks, size_t blocks_per_object, int device,
                          void *stream, int *ret_results, uint64_t *ret_copy_ns) {
    (void)ns, (void)pool, (void)keys, (void)count, (void)memory, (void)blocks;
    (void)blocks_per_object, (void)device, (void)stream, (void)ret_results, (void)ret_copy_ns;
    return fake_fail(EOPNOTSUPP, "the fake stores blocks by completions only");
}
API int64_t maru_load_blocks(maru_namespace *ns, const maru_digest *digests, size_t count,
                             const struct maru_paged_memory *memory, const uint32_t *blocks,
                             size_t blocks_per_object, int device, void *stream, int *ret_results,
                             uint64_t *ret_copy_ns) {
    int64_t loaded = 0;
    int failed = 0;
    (void)ret_copy_ns;
    for (size_t i = 0; i < count; i++)
        ret_results[i] = -ENOENT;
    for (size_t i = 0; i < count && !failed; i++) {
        maru_lease *lease = NULL;
        const int64_t found = maru_acquire(ns, &digests[i], 1, NULL, 0, &lease);
        if (found <= 0)
            return found < 0 ? found : loaded;
        const void *data = maru_lease_data(lease);
        if (maru_lease_length(lease) != object_bytes(memory, blocks_per_object))
            failed = fake_fail(EMEDIUMTYPE, "objects of another length");
        else if (device != MARU_CPU)
            failed = on_device(device, stream);
        if (!failed)
            loaded += maru_scatter(memory, blocks + i * blocks_per_object, blocks_per_object, &data,
                                   1, &ret_results[i]) == 0;
        maru_lease_release(&lease, 1);
    }
    return failed ? failed : loaded;
}
