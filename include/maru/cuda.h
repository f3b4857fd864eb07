/* SPDX-License-Identifier: Apache-2.0 */
/**
 * maru/cuda.h - whole blocks of an engine's paged KV memory on a GPU, to and from a pool
 *
 * As maru/paged.h, with the layers in the memory of a GPU and the copies on the caller's CUDA stream.
 * Objects are the same: what a GPU has gathered a CPU can scatter, and the other way round.
 *
 * The library is not linked with CUDA. libcuda.so.1 is loaded by the first call that needs it, and the
 * kernels are inside libmaru. A call that needs what is not there (the driver, a GPU, kernels in this
 * build) is -EOPNOTSUPP, and the message names it. Arguments are judged before that.
 *
 * Everything runs in the primary context of the GPU, the one that the CUDA runtime uses; the calling
 * thread's current context does not matter and is left as it was. A stream is a CUstream or cudaStream_t
 * of that context, passed as void *; NULL is the legacy default stream. Streams that are being captured
 * into a graph are not supported.
 *
 * A stream is behind the caller: reservations that are gathered must be neither committed nor aborted, and
 * leases that are scattered not released, before maru_cuda_wait() on the stream has returned 0 (or an event
 * that was recorded behind the copies has passed). The library does not check this.
 *
 * Fork: CUDA does not survive it. In a child of a process that used a GPU here every call is -EOWNERDEAD.
 */
#ifndef MARU_CUDA_H
#define MARU_CUDA_H

#include <stddef.h>
#include <stdint.h>

#include <maru/paged.h>
#include <maru/pool.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * maru_cuda_register() - let the GPUs of this process use memory of a pool directly
 * @offset:      bytes from the start of the pool; a multiple of 4096
 * @length:      bytes, a multiple of 4096; 0: to the end of the pool
 * @chunk_bytes: at most so many bytes in one registration, a multiple of 4096, at most 256 GiB (drivers
 *               refuse 512 GiB); 0: 16 GiB. A chunk never spans two segments of the pool
 * @device:      in whose primary context, as CUDA counts GPUs in this process; if this thread has a
 *               context of another GPU, that one is used. All GPUs of the process may use the memory
 *
 * Registers what is populated of the range and is not registered yet; call it again as the pool grows,
 * until it returns the whole length. The registration belongs to the pool and ends with maru_pool_close().
 * maru_pool_info.pinned_bytes counts it. It is not required: objects in other memory are copied by the
 * driver, slower. Registered memory cannot be swapped out, and the kernel counts it as locked.
 *
 * Thread safety: any thread; calls for one pool are serialised.
 * Blocking:      the registration, some 100 ms for each GiB; no message to marud. A maru_pool_close() of
 *                the pool waits for it.
 * Return: bytes of the range that are registered now; what was registered before an error stays.
 *         -EINVAL; -EOPNOTSUPP; -ENODEV no such GPU; -ENOMEM; -EACCES the driver does not permit it; -EBUSY
 *         registered by somebody else, or the pool is being closed; -EIO; -EOWNERDEAD.
 * Since: 0.1
 */
int64_t maru_cuda_register(maru_pool *pool, uint64_t offset, uint64_t length, uint64_t chunk_bytes,
                           int device);

/**
 * maru_cuda_gather() - copy blocks from a GPU into objects, in order on a stream
 * @memory:            not retained; memory->layers are addresses in the GPU's memory, memory->threads is
 *                     not used
 * @blocks:            @blocks_per_object block ids for each object, object after object; not retained
 * @objects:           @count addresses in host memory, each with room for layer_count x
 *                     @blocks_per_object x block_bytes, and 16 bytes more with MARU_CHECKSUM; the
 *                     list is not retained
 * @device:            whose memory it is
 * @stream:            of @device
 *
 * An object that is registered whole is written by a kernel, others by the driver's copies. Nobody may
 * write the blocks, or touch the objects, before the stream has passed: wait for it before maru_commit().
 * Thread safety: any thread.
 * Blocking:      registered objects: never beyond the launch. Others: until their bytes have arrived. With
 *                MARU_CHECKSUM: until the stream has passed, since the CPU makes the checksums.
 * Return: 0; -EINVAL, and nothing was written; -EOPNOTSUPP; -ENODEV no such GPU; -ENOMEM; -EIO the GPU
 *         failed, and what was written is not known; -EOWNERDEAD.
 * Since: 0.1
 */
int maru_cuda_gather(const struct maru_paged_memory *memory, const uint32_t *blocks,
                     size_t blocks_per_object, void *const *objects, size_t count, int device,
                     void *stream);

/**
 * maru_cuda_scatter() - copy objects into blocks on a GPU, in order on a stream
 * @memory:            as for maru_cuda_gather()
 * @blocks:            as for maru_cuda_gather(); a block that is MARU_NO_BLOCK is left out
 * @objects:           @count addresses in host memory, for example of maru_lease_data()
 * @device:            whose memory it is
 * @stream:            of @device
 * @ret_results:       NULL, or @count results: 0 copied, or on its way; -EBADMSG the checksum is wrong, and
 *                     none of this object's blocks is written
 *
 * What is given to the stream afterwards sees the blocks. The leases must live until it has passed.
 * Thread safety: any thread.
 * Blocking:      registered objects: never beyond the launch. Others: until the driver has taken their
 *                bytes. With MARU_CHECKSUM the CPU reads each object first.
 * Return: 0; -EBADMSG at least one object is damaged, the others are copied; -EINVAL, and nothing was
 *         written; -EOPNOTSUPP; -ENODEV no such GPU; -ENOMEM; -EIO the GPU failed, and what was written
 *         is not known; -EOWNERDEAD.
 * Since: 0.1
 */
int maru_cuda_scatter(const struct maru_paged_memory *memory, const uint32_t *blocks,
                      size_t blocks_per_object, const void *const *objects, size_t count,
                      int device, void *stream, int *ret_results);

/**
 * maru_cuda_wait() - wait until everything that was given to a stream has ended
 * @device: whose stream it is
 * @stream: NULL with nothing on it only asks whether @device can be used
 *
 * Thread safety: any thread.
 * Blocking:      as long as the stream has work; the first call for a GPU loads the kernels.
 * Return: 0, and what was gathered may be committed; -EINVAL no such stream; -EOPNOTSUPP; -ENODEV no such
 *         GPU; -ENOMEM; -EIO the GPU failed: the copies since the last wait are worth nothing;
 *         -EOWNERDEAD.
 * Since: 0.1
 */
int maru_cuda_wait(int device, void *stream);

#ifdef __cplusplus
}
#endif
#endif
