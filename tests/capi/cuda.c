/*
 * KV on a GPU through a real pool. Without a GPU: what is refused, and how. With the stand-in for the
 * driver (MARU_TEST_CUDA_STAND_IN) everything; its "GPU memory" is this process's own.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi_test.h"

enum { kLayers = 2, kBlocks = 8, kBlockBytes = OBJECT_BYTES / 4 };

static unsigned char gpu_memory[kLayers][kBlocks * kBlockBytes];
static void *layers[kLayers] = {gpu_memory[0], gpu_memory[1]};
static void *stream = (void *)0x70;

static struct maru_paged_memory paged(uint32_t flags) {
    struct maru_paged_memory memory;
    memset(&memory, 0, sizeof memory);
    memory.size = sizeof memory;
    memory.layers = layers;
    memory.layer_count = kLayers;
    memory.block_bytes = kBlockBytes;
    memory.block_count = kBlocks;
    memory.flags = flags;
    return memory;
}

static void mark_blocks(void) {
    int layer, block;
    for (layer = 0; layer < kLayers; ++layer)
        for (block = 0; block < kBlocks; ++block)
            memset(gpu_memory[layer] + block * kBlockBytes, 16 * layer + block, kBlockBytes);
}

/* Ends the test unless there is the stand-in, and kernels in this build. */
static void need_stand_in(void) {
    if (!getenv("MARU_TEST_CUDA_STAND_IN"))
        capi_skip("the stand-in for libcuda is not loaded: the test capi-cuda does it");
    if (maru_cuda_wait(0, NULL) == -EOPNOTSUPP && strstr(maru_last_error(), "nvcc"))
        capi_skip("this build has no CUDA kernels: it was made without nvcc");
    assert_int_equal(maru_cuda_wait(0, NULL), 0);
}

static unsigned long asked(const char *name) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    unsigned long (*function)(void *) = NULL;
    if (library)
        *(void **)&function = dlsym(library, name);
    assert_true(function != NULL);
    return function(stream);
}

static void what_is_missing_is_named(void) {
    const struct maru_paged_memory memory = paged(0);
    static unsigned char object[OBJECT_BYTES];
    void *to = object;
    const void *from = object;
    const uint32_t ids[2] = {0, 1};
    int result;
    if (getenv("MARU_TEST_CUDA_STAND_IN"))
        capi_skip("the stand-in for libcuda is loaded");
    result = maru_cuda_wait(0, NULL);
    if (result == 0)
        capi_skip("there is a GPU");
    assert_int_equal(result, -EOPNOTSUPP);
    assert_message("CUDA");
    assert_int_equal(maru_cuda_gather(&memory, ids, 2, &to, 1, 0, NULL), -EOPNOTSUPP);
    assert_message("CUDA");
    assert_int_equal(maru_cuda_scatter(&memory, ids, 2, &from, 1, 0, NULL, NULL), -EOPNOTSUPP);
    assert_message("CUDA");
}

static void arguments_are_judged_before_the_gpu(void) {
    struct maru_paged_memory memory = paged(0);
    static unsigned char object[OBJECT_BYTES];
    void *to = object;
    const void *from = object;
    const uint32_t ids[2] = {0, 1}, beyond[2] = {0, kBlocks}, none[2] = {0, MARU_NO_BLOCK};
    struct worker worker;
#define REFUSED(call, text)              \
    do {                                 \
        assert_int_equal(call, -EINVAL); \
        assert_message(text);            \
    } while (0)
    REFUSED(maru_cuda_gather(NULL, ids, 2, &to, 1, 0, NULL), "memory");
    REFUSED(maru_cuda_gather(&memory, beyond, 2, &to, 1, 0, NULL), "blocks[1]: is 8");
    REFUSED(maru_cuda_gather(&memory, none, 2, &to, 1, 0, NULL), "blocks[1]");
    REFUSED(maru_cuda_gather(&memory, ids, 2, &to, 1, -1, NULL), "device: is -1");
    REFUSED(maru_cuda_scatter(&memory, beyond, 2, &from, 1, 0, NULL, NULL), "blocks[1]: is 8");
    REFUSED(maru_cuda_scatter(&memory, ids, 2, NULL, 1, 0, NULL, NULL), "objects");
    REFUSED(maru_cuda_scatter(&memory, ids, 2, &from, 1, -2, NULL, NULL), "device: is -2");
    REFUSED(maru_cuda_wait(-1, NULL), "device");
    memory.layers = NULL;
    REFUSED(maru_cuda_gather(&memory, ids, 2, &to, 1, 0, NULL), "layers");
    REFUSED(maru_cuda_register(NULL, 0, 0, 0, 0), "pool");
    open_worker(&worker, "engine", 1 << 20);
    REFUSED(maru_cuda_register(worker.pool, 1, 0, 0, 0), "offset: is 1");
    REFUSED(maru_cuda_register(worker.pool, 2 << 20, 0, 0, 0), "offset");
    REFUSED(maru_cuda_register(worker.pool, 4096, 1 << 20, 0, 0), "length: is 1048576");
    REFUSED(maru_cuda_register(worker.pool, 0, 100, 0, 0), "length: is 100");
    REFUSED(maru_cuda_register(worker.pool, 0, 0, 100, 0), "chunk_bytes: is 100");
    REFUSED(maru_cuda_register(worker.pool, 0, 0, UINT64_C(512) << 30, 0), "274877906944");
    REFUSED(maru_cuda_register(worker.pool, 0, 0, 0, -1), "device: is -1");
    close_worker(&worker);
}

static void a_device_that_is_not_there(void) {
    struct worker worker;
    need_stand_in();
    assert_int_equal(maru_cuda_wait(1, NULL), -ENODEV);
    assert_message("device 1");
    open_worker(&worker, "engine", 1 << 20);
    assert_int_equal(maru_cuda_register(worker.pool, 0, 0, 0, 1), -ENODEV);
    assert_message("device 1");
    assert_int_equal(info_of(worker.pool).pinned_bytes, 0);
    close_worker(&worker);
}

static void open_worker_for(struct worker *worker, uint64_t object_bytes) {
    const struct maru_client_options options = client_options("engine");
    const struct maru_pool_options wanted = pool_options(1 << 20);
    struct maru_schema schema;
    memset(worker, 0, sizeof *worker);
    memset(&schema, 0, sizeof schema);
    schema.size = sizeof schema;
    schema.object_bytes = object_bytes;
    schema.format = "blocks-v1";
    assert_int_equal(maru_client_open(&options, &worker->client), 0);
    assert_int_equal(maru_namespace_open(worker->client, "blocks of a GPU", &worker->ns), 0);
    assert_int_equal(maru_client_describe(worker->client, worker->ns, &schema), 0);
    assert_int_equal(maru_pool_open(worker->client, &wanted, &worker->pool), 0);
}

/* Gather on a stream, wait, commit; acquire, scatter on a stream, wait. */
static void there_and_back(int registered, uint32_t flags) {
    struct worker worker;
    const struct maru_paged_memory memory = paged(flags);
    const struct maru_key key = key_of(1);
    const uint32_t from[2] = {5, 1}, to[2] = {MARU_NO_BLOCK, 7};
    const uint64_t bytes = OBJECT_BYTES + (flags ? MARU_CHECKSUM_BYTES : 0);
    maru_reservation run;
    maru_lease *lease;
    maru_digest digest = digest_of(1);
    const void *data;
    unsigned long launches, copies;
    int result = 1;
    need_stand_in();
    launches = asked("fake_cuda_launches");
    copies = asked("fake_cuda_copies");
    open_worker_for(&worker, bytes);
    if (registered)
        assert_int_equal(maru_cuda_register(worker.pool, 0, 0, 0, 0), 1 << 20);
    mark_blocks();
    assert_int_equal(maru_reserve(worker.pool, bytes, 1, &run), 0);
    memset(run.data, 0xaa, OBJECT_BYTES);
    assert_int_equal(maru_cuda_gather(&memory, from, 2, &run.data, 1, 0, stream), 0);
    if (registered && !flags) /* nothing has moved yet */
        assert_int_equal(*(unsigned char *)run.data, 0xaa);
    assert_int_equal(maru_cuda_wait(0, stream), 0);
    assert_int_equal(((unsigned char *)run.data)[0], 5);
    assert_int_equal(((unsigned char *)run.data)[kBlockBytes], 1);
    assert_int_equal(((unsigned char *)run.data)[2 * kBlockBytes], 16 + 5);
    assert_int_equal(maru_commit(worker.ns, worker.pool, &key, &run, 1, &result), 0);
    assert_int_equal(maru_acquire(worker.ns, &digest, 1, NULL, 0, &lease), 1);
    data = maru_lease_data(lease);
    memset(gpu_memory, 0xee, sizeof gpu_memory);
    assert_int_equal(maru_cuda_scatter(&memory, to, 2, &data, 1, 0, stream, &result), 0);
    assert_int_equal(result, 0);
    assert_int_equal(gpu_memory[0][7 * kBlockBytes], 0xee);
    assert_int_equal(maru_cuda_wait(0, stream), 0);
    assert_int_equal(gpu_memory[0][7 * kBlockBytes], 1);
    assert_int_equal(gpu_memory[1][8 * kBlockBytes - 1], 16 + 1);
    assert_int_equal(gpu_memory[0][7 * kBlockBytes - 1], 0xee);
    assert_int_equal(asked("fake_cuda_launches") - launches, registered ? 2 : 0);
    assert_true((asked("fake_cuda_copies") - copies > 0) == !registered);
    assert_int_equal(maru_lease_release(&lease, 1), 0);
    close_worker(&worker);
    assert_int_equal(asked("fake_cuda_registered_bytes"), 0);
}

/* The same in one call each: the stream has passed when they return. */
static void blocks_come_back_in_one_call_each(void) {
    struct worker worker;
    const struct maru_paged_memory memory = paged(MARU_CHECKSUM);
    const struct maru_key keys[2] = {key_of(1), key_of(2)};
    const maru_digest digests[3] = {digest_of(1), digest_of(2), digest_of(3)};
    const uint32_t from[4] = {5, 1, 2, 3}, to[6] = {MARU_NO_BLOCK, 7, 0, 4, 6, 5};
    const uint64_t bytes = OBJECT_BYTES + MARU_CHECKSUM_BYTES;
    uint64_t stored;
    maru_reservation run;
    int result, results[3] = {1, 1, 1};
    int64_t loaded;
    need_stand_in();
    open_worker_for(&worker, bytes);
    assert_int_equal(maru_cuda_register(worker.pool, 0, 0, 0, 0), 1 << 20);
    mark_blocks();
    assert_int_equal(maru_store_blocks(worker.ns, worker.pool, keys, 1, &memory, from, 2, 0, stream,
                                       results, NULL),
                     0);
    assert_int_equal(maru_reserve(worker.pool, bytes, 1, &run), 0);
    assert_int_equal(maru_gather(&memory, from + 2, 2, &run.data, 1), 0);
    ((unsigned char *)run.data)[17] ^= 1;
    assert_int_equal(maru_commit(worker.ns, worker.pool, &keys[1], &run, 1, results), 0);
    memset(gpu_memory, 0xee, sizeof gpu_memory);
    assert_int_equal(
        maru_load_blocks(worker.ns, digests, 3, &memory, to, 2, 0, stream, results, NULL), 1);
    assert_int_equal(results[0], 0);
    assert_int_equal(results[1], -EBADMSG);
    assert_int_equal(results[2], -ENOENT);
    assert_int_equal(gpu_memory[0][7 * kBlockBytes], 1);
    assert_int_equal(gpu_memory[1][8 * kBlockBytes - 1], 16 + 1);
    assert_int_equal(gpu_memory[0][0], 0xee);
    assert_int_equal(client_info_of(worker.client).leases, 0);
    stored = info_of(worker.pool).allocated_bytes;
    /* neither a GPU that fails nor one that is not there keeps anything */
    setenv("MARU_TEST_CUDA_FAILED", "719", 1);
    result = maru_store_blocks(worker.ns, worker.pool, keys, 1, &memory, from, 2, 0, stream,
                               results, NULL);
    loaded = maru_load_blocks(worker.ns, digests, 1, &memory, to, 2, 0, stream, results, NULL);
    unsetenv("MARU_TEST_CUDA_FAILED");
    assert_int_equal(result, -EIO);
    assert_int_equal(loaded, -EIO);
    assert_message("wait for the stream");
    assert_int_equal(client_info_of(worker.client).leases, 0);
    assert_int_equal(info_of(worker.pool).allocated_bytes, stored);
    assert_int_equal(maru_store_blocks(worker.ns, worker.pool, keys, 1, &memory, from, 2, 1, stream,
                                       results, NULL),
                     -ENODEV);
    assert_message("device 1");
    assert_int_equal(info_of(worker.pool).allocated_bytes, stored);
    close_worker(&worker);
}

static void blocks_come_back_by_kernels(void) { there_and_back(1, 0); }
static void blocks_come_back_through_memory_that_is_not_registered(void) { there_and_back(0, 0); }
static void blocks_come_back_with_checksums(void) { there_and_back(1, MARU_CHECKSUM); }

static void a_cpu_reads_what_a_gpu_wrote(void) {
    const struct maru_paged_memory memory = paged(MARU_CHECKSUM);
    static unsigned char object[OBJECT_BYTES + MARU_CHECKSUM_BYTES];
    void *to = object;
    const void *from = object;
    const uint32_t ids[2] = {5, 1};
    int result = 1;
    need_stand_in();
    mark_blocks();
    assert_int_equal(maru_cuda_gather(&memory, ids, 2, &to, 1, 0, stream), 0);
    assert_int_equal(maru_scatter(&memory, ids, 2, &from, 1, &result), 0);
    object[100] ^= 1;
    assert_int_equal(maru_cuda_scatter(&memory, ids, 2, &from, 1, 0, stream, &result), -EBADMSG);
    assert_message("checksum");
    assert_int_equal(result, -EBADMSG);
}

static void registered_is_what_is_populated_and_counted(void) {
    struct worker worker;
    need_stand_in();
    open_worker(&worker, "engine", 8 << 20); /* four segments */
    assert_int_equal(maru_pool_wait_populated(worker.pool, 10000), 0);
    assert_int_equal(maru_cuda_register(worker.pool, 4096, 8192, 4096, 0), 8192);
    assert_int_equal(info_of(worker.pool).pinned_bytes, 8192);
    assert_int_equal(maru_cuda_register(worker.pool, 0, 4 << 20, 0, 0), 4 << 20);
    assert_int_equal(info_of(worker.pool).pinned_bytes, 4 << 20);
    assert_int_equal(maru_cuda_register(worker.pool, 0, 0, 1 << 20, 0), 8 << 20);
    assert_int_equal(maru_cuda_register(worker.pool, 0, 0, 0, 0), 8 << 20);
    assert_int_equal(info_of(worker.pool).pinned_bytes, 8 << 20);
    assert_int_equal(asked("fake_cuda_registered_bytes"), 8 << 20);
    close_worker(&worker);
    assert_int_equal(asked("fake_cuda_registered_bytes"), 0);
}

static void a_forked_child_uses_no_gpu(void) {
    pid_t child;
    int status = 1;
    need_stand_in();
    child = fork();
    if (child == 0)
        _exit(maru_cuda_wait(0, NULL) == -EOWNERDEAD && strstr(maru_last_error(), "fork") ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static const struct capi_test tests[] = {
    {"WhatIsMissingIsNamed", what_is_missing_is_named, NULL},
    {"ArgumentsAreJudgedBeforeTheGpu", arguments_are_judged_before_the_gpu, NULL},
    {"ADeviceThatIsNotThere", a_device_that_is_not_there, NULL},
    {"BlocksComeBackByKernels", blocks_come_back_by_kernels, NULL},
    {"BlocksComeBackThroughMemoryThatIsNotRegistered",
     blocks_come_back_through_memory_that_is_not_registered, NULL},
    {"BlocksComeBackWithChecksums", blocks_come_back_with_checksums, NULL},
    {"BlocksComeBackInOneCallEach", blocks_come_back_in_one_call_each, NULL},
    {"ACpuReadsWhatAGpuWrote", a_cpu_reads_what_a_gpu_wrote, NULL},
    {"RegisteredIsWhatIsPopulatedAndCounted", registered_is_what_is_populated_and_counted, NULL},
    {"AForkedChildUsesNoGpu", a_forked_child_uses_no_gpu, NULL},
};
CAPI_SUITE(cuda, tests);
