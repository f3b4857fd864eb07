/* Objects from an engine's blocks and back, in one call each: what arrives, and what a failure leaves. */
#include <stdlib.h>

#include "capi_test.h"

enum { kLayers = 2, kBlocks = 8, kPerObject = 2, kBlockBytes = OBJECT_BYTES / 4 };

static unsigned char engine_memory[kLayers][kBlocks * kBlockBytes];
static void *layers[kLayers] = {engine_memory[0], engine_memory[1]};

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
            memset(engine_memory[layer] + block * kBlockBytes, 16 * layer + block, kBlockBytes);
}

/* Does block @block hold what block @marked held, in every layer? */
static int holds(int block, int marked) {
    int layer, i;
    for (layer = 0; layer < kLayers; ++layer)
        for (i = 0; i < kBlockBytes; ++i)
            if (engine_memory[layer][block * kBlockBytes + i] != 16 * layer + marked)
                return 0;
    return 1;
}
static int is_untouched(int block) {
    int layer, i;
    for (layer = 0; layer < kLayers; ++layer)
        for (i = 0; i < kBlockBytes; ++i)
            if (engine_memory[layer][block * kBlockBytes + i] != 0xee)
                return 0;
    return 1;
}
static void wipe_blocks(void) { memset(engine_memory, 0xee, sizeof engine_memory); }

/* Objects with the checksum behind them. */
static void open_checked(struct worker *worker, uint64_t pool_bytes) {
    const struct maru_client_options options = client_options("engine");
    const struct maru_pool_options pool = pool_options(pool_bytes);
    struct maru_schema schema;
    memset(worker, 0, sizeof *worker);
    memset(&schema, 0, sizeof schema);
    schema.size = sizeof schema;
    schema.object_bytes = OBJECT_BYTES + MARU_CHECKSUM_BYTES;
    schema.format = "checked-v1";
    assert_int_equal(maru_client_open(&options, &worker->client), 0);
    assert_int_equal(maru_namespace_open(worker->client, "checked blocks", &worker->ns), 0);
    assert_int_equal(maru_client_describe(worker->client, worker->ns, &schema), 0);
    assert_int_equal(maru_pool_open(worker->client, &pool, &worker->pool), 0);
}

static void what_is_stored_is_loaded_into_other_blocks(void) {
    struct worker worker;
    const struct maru_paged_memory memory = paged(0);
    const struct maru_key keys[2] = {key_of(1), key_of(2)};
    const maru_digest digests[3] = {digest_of(1), digest_of(2), digest_of(3)};
    const uint32_t from[4] = {5, 1, 2, 3}, to[6] = {MARU_NO_BLOCK, 7, 0, 4, 6, 5};
    int results[3] = {1, 1, 1};
    uint64_t stored_ns = 0, loaded_ns = 0;
    open_worker(&worker, "engine", 1 << 20);
    mark_blocks();
    assert_int_equal(maru_store_blocks(worker.ns, worker.pool, keys, 2, &memory, from, kPerObject,
                                       MARU_CPU, NULL, results, &stored_ns),
                     0);
    assert_int_equal(results[0], 0);
    assert_int_equal(results[1], 0);
    wipe_blocks();
    results[0] = results[1] = 1;
    assert_int_equal(maru_load_blocks(worker.ns, digests, 3, &memory, to, kPerObject, MARU_CPU,
                                      NULL, results, &loaded_ns),
                     2);
    assert_true(stored_ns > 0 && loaded_ns > 0);
    assert_int_equal(results[0], 0);
    assert_int_equal(results[1], 0);
    assert_int_equal(results[2], -ENOENT);
    assert_true(holds(7, 1) && holds(0, 2) && holds(4, 3));
    assert_true(is_untouched(1) && is_untouched(5) && is_untouched(6));
    assert_int_equal(client_info_of(worker.client).leases, 0);
    /* once more: what is there already is no failure, and its pages come back */
    assert_int_equal(maru_store_blocks(worker.ns, worker.pool, keys, 2, &memory, from, kPerObject,
                                       MARU_CPU, NULL, results, NULL),
                     0);
    assert_int_equal(results[0], -EEXIST);
    assert_int_equal(results[1], -EEXIST);
    assert_int_equal(info_of(worker.pool).allocated_bytes, 2 * OBJECT_BYTES);
    assert_int_equal(maru_load_blocks(worker.ns, &digests[2], 1, &memory, to, kPerObject, MARU_CPU,
                                      NULL, NULL, &loaded_ns),
                     0);
    assert_int_equal(loaded_ns, 0);
    close_worker(&worker);
}

static void what_is_submitted_is_there_for_the_next_load(void) {
    struct worker worker;
    const struct maru_paged_memory memory = paged(0);
    const struct maru_key key = key_of(1);
    const maru_digest digest = digest_of(1);
    const uint32_t from[2] = {5, 1}, to[2] = {2, 3};
    struct maru_completion completion;
    maru_queue *queue;
    int result = 1;
    open_worker(&worker, "engine", 1 << 20);
    assert_int_equal(maru_queue_open(worker.client, &queue), 0);
    mark_blocks();
    assert_int_equal(maru_store_blocks_submit(queue, worker.ns, worker.pool, &key, 1, &memory, from,
                                              kPerObject, MARU_CPU, NULL, &result, NULL, 77),
                     0);
    wipe_blocks(); /* the copy has ended */
    assert_int_equal(maru_load_blocks(worker.ns, &digest, 1, &memory, to, kPerObject, MARU_CPU,
                                      NULL, NULL, NULL),
                     1);
    assert_true(holds(2, 5) && holds(3, 1));
    assert_int_equal(maru_queue_reap(queue, &completion, 1, 5000), 1);
    assert_int_equal(completion.user_data, 77);
    assert_int_equal(completion.result, 0);
    assert_int_equal(result, 0);
    assert_int_equal(maru_queue_close(queue), 0);
    close_worker(&worker);
}

static void without_room_for_all_none_is_stored(void) {
    enum { kMany = 5 }; /* of 16 KiB, in a pool of 64 KiB */
    struct worker worker;
    const struct maru_paged_memory memory = paged(0);
    struct maru_key keys[kMany];
    maru_digest digests[kMany];
    uint32_t from[kMany * kPerObject];
    int i, results[kMany];
    for (i = 0; i < kMany; ++i) {
        keys[i] = key_of((uint32_t)i);
        digests[i] = keys[i].digest;
        from[2 * i] = from[2 * i + 1] = (uint32_t)i;
        results[i] = 1;
    }
    open_worker(&worker, "engine", 4 * OBJECT_BYTES);
    mark_blocks();
    assert_int_equal(maru_store_blocks(worker.ns, worker.pool, keys, kMany, &memory, from,
                                       kPerObject, MARU_CPU, NULL, results, NULL),
                     -ENOSPC);
    assert_int_equal(results[0], 1);
    assert_int_equal(maru_probe(worker.ns, digests, kMany, NULL, 0, NULL), 0);
    assert_int_equal(info_of(worker.pool).allocated_bytes, 0);
    assert_int_equal(maru_store_blocks(worker.ns, worker.pool, keys, kMany - 1, &memory, from,
                                       kPerObject, MARU_CPU, NULL, results, NULL),
                     0);
    assert_int_equal(maru_probe(worker.ns, digests, kMany, NULL, MARU_PREFIX_ONLY, NULL), 4);
    close_worker(&worker);
}

static void a_full_queue_is_told_before_the_copy(void) {
    enum { kProbes = 1024, kTooMany = 256 }; /* blocks in one object: 2 MiB, and the pool has one */
    static const uint32_t many[kTooMany];
    struct worker worker;
    const struct maru_paged_memory memory = paged(0);
    const struct maru_key key = key_of(1);
    const maru_digest digest = digest_of(1);
    const uint32_t from[2] = {0, 1};
    struct maru_completion completion;
    maru_queue *queue;
    int i, result = 1;
    open_worker(&worker, "engine", 1 << 20);
    assert_int_equal(maru_queue_open(worker.client, &queue), 0);
#define SUBMIT                                                                                  \
    maru_store_blocks_submit(queue, worker.ns, worker.pool, &key, 1, &memory, from, kPerObject, \
                             MARU_CPU, NULL, &result, NULL, 1)
    for (i = 0; i < kProbes - 1; ++i)
        assert_int_equal(maru_probe_submit(queue, worker.ns, &digest, 1, NULL, 0, NULL, 0), 0);
    /* a failure gives its place in the queue back */
    assert_int_equal(maru_store_blocks_submit(queue, worker.ns, worker.pool, &key, 1, &memory, many,
                                              kTooMany, MARU_CPU, NULL, &result, NULL, 1),
                     -ENOSPC);
    assert_int_equal(SUBMIT, 0);
    assert_int_equal(SUBMIT, -EAGAIN);
    assert_message("reap");
    for (i = 0; i < kProbes; ++i)
        assert_int_equal(maru_queue_reap(queue, &completion, 1, 5000), 1);
    assert_int_equal(result, 0);
    assert_int_equal(info_of(worker.pool).allocated_bytes, OBJECT_BYTES);
    assert_int_equal(maru_queue_close(queue), 0);
    close_worker(&worker);
#undef SUBMIT
}

static void damage_is_found_and_the_others_are_loaded(void) {
    struct worker worker;
    const struct maru_paged_memory memory = paged(MARU_CHECKSUM);
    const uint64_t bytes = OBJECT_BYTES + MARU_CHECKSUM_BYTES;
    const struct maru_key keys[3] = {key_of(1), key_of(2), key_of(3)};
    const maru_digest digests[3] = {digest_of(1), digest_of(2), digest_of(3)};
    const uint32_t from[2] = {2, 3}, outer[4] = {0, 1, 4, 5}, to[6] = {0, 1, 2, 3, 4, 5};
    const struct maru_key others[2] = {key_of(1), key_of(3)};
    maru_reservation run;
    int results[3];
    open_checked(&worker, 1 << 20);
    mark_blocks();
    assert_int_equal(maru_store_blocks(worker.ns, worker.pool, others, 2, &memory, outer,
                                       kPerObject, MARU_CPU, NULL, results, NULL),
                     0);
    assert_int_equal(maru_reserve(worker.pool, bytes, 1, &run), 0);
    assert_int_equal(maru_gather(&memory, from, kPerObject, &run.data, 1), 0);
    ((unsigned char *)run.data)[17] ^= 1;
    assert_int_equal(maru_commit(worker.ns, worker.pool, &keys[1], &run, 1, results), 0);
    wipe_blocks();
    assert_int_equal(maru_load_blocks(worker.ns, digests, 3, &memory, to, kPerObject, MARU_CPU,
                                      NULL, results, NULL),
                     2);
    assert_message("checksum");
    assert_int_equal(results[0], 0);
    assert_int_equal(results[1], -EBADMSG);
    assert_int_equal(results[2], 0);
    assert_true(holds(0, 0) && holds(1, 1) && holds(4, 4) && holds(5, 5));
    assert_true(is_untouched(2) && is_untouched(3));
    assert_int_equal(client_info_of(worker.client).leases, 0);
    close_worker(&worker);
}

static void objects_of_another_length_are_left_where_they_are(void) {
    struct worker worker;
    const struct maru_paged_memory memory = paged(0);
    const struct maru_key keys[2] = {key_of(1), key_of(2)};
    const maru_digest digests[2] = {digest_of(1), digest_of(2)};
    const uint32_t ids[4] = {0, 1, 2, 3};
    int results[2] = {1, 1};
    open_worker(&worker, "engine", 1 << 20);
    mark_blocks();
    assert_int_equal(maru_store_blocks(worker.ns, worker.pool, keys, 2, &memory, ids, 1, MARU_CPU,
                                       NULL, results, NULL),
                     -EMEDIUMTYPE); /* marud knows the length */
    assert_int_equal(results[1], -EMEDIUMTYPE);
    assert_int_equal(info_of(worker.pool).allocated_bytes, 0);
    assert_int_equal(maru_store_blocks(worker.ns, worker.pool, keys, 2, &memory, ids, kPerObject,
                                       MARU_CPU, NULL, results, NULL),
                     0);
    wipe_blocks();
    results[0] = results[1] = 1;
    assert_int_equal(
        maru_load_blocks(worker.ns, digests, 2, &memory, ids, 1, MARU_CPU, NULL, results, NULL),
        -EMEDIUMTYPE);
    assert_message("object 0: has 16384 bytes, its blocks make 8192");
    assert_int_equal(results[0], 1);
    assert_true(is_untouched(0) && is_untouched(1));
    assert_int_equal(client_info_of(worker.client).leases, 0);
    close_worker(&worker);
}

static void what_is_wrong_is_named(void) {
    struct worker worker, other;
    struct maru_client_options options = client_options("engine");
    struct maru_paged_memory memory = paged(0);
    const struct maru_key key = key_of(1);
    const maru_digest digest = digest_of(1);
    const uint32_t ids[2] = {0, 1}, beyond[2] = {0, kBlocks}, none[2] = {0, MARU_NO_BLOCK};
    maru_queue *queue;
    maru_client *scheduler;
    maru_namespace *ns;
    int result = 1;
    open_worker(&worker, "engine", 1 << 20);
    open_worker(&other, "another", 1 << 20);
    assert_int_equal(maru_queue_open(other.client, &queue), 0);
#define REFUSED(call, text)              \
    do {                                 \
        assert_int_equal(call, -EINVAL); \
        assert_message(text);            \
    } while (0)
#define STORE(ns, pool, keys, memory, ids, device, results) \
    maru_store_blocks(ns, pool, keys, 1, memory, ids, kPerObject, device, NULL, results, NULL)
#define LOAD(ns, digests, memory, ids, device) \
    maru_load_blocks(ns, digests, 1, memory, ids, kPerObject, device, NULL, NULL, NULL)
    REFUSED(STORE(NULL, worker.pool, &key, &memory, ids, MARU_CPU, &result), "ns");
    REFUSED(STORE(worker.ns, NULL, &key, &memory, ids, MARU_CPU, &result), "pool");
    REFUSED(STORE(worker.ns, other.pool, &key, &memory, ids, MARU_CPU, &result), "different");
    REFUSED(STORE(worker.ns, worker.pool, NULL, &memory, ids, MARU_CPU, &result), "keys");
    REFUSED(STORE(worker.ns, worker.pool, &key, &memory, ids, MARU_CPU, NULL), "ret_results");
    REFUSED(STORE(worker.ns, worker.pool, &key, NULL, ids, MARU_CPU, &result), "memory");
    REFUSED(STORE(worker.ns, worker.pool, &key, &memory, NULL, MARU_CPU, &result), "blocks");
    REFUSED(STORE(worker.ns, worker.pool, &key, &memory, beyond, MARU_CPU, &result), "blocks[1]");
    REFUSED(STORE(worker.ns, worker.pool, &key, &memory, none, MARU_CPU, &result), "blocks[1]");
    REFUSED(STORE(worker.ns, worker.pool, &key, &memory, ids, -2, &result), "device: is -2");
    REFUSED(maru_store_blocks_submit(NULL, worker.ns, worker.pool, &key, 1, &memory, ids,
                                     kPerObject, MARU_CPU, NULL, &result, NULL, 1),
            "queue");
    REFUSED(maru_store_blocks_submit(queue, worker.ns, worker.pool, &key, 1, &memory, ids,
                                     kPerObject, MARU_CPU, NULL, &result, NULL, 1),
            "different");
    REFUSED(LOAD(NULL, &digest, &memory, ids, MARU_CPU), "ns");
    REFUSED(LOAD(worker.ns, NULL, &memory, ids, MARU_CPU), "digests");
    REFUSED(LOAD(worker.ns, &digest, NULL, ids, MARU_CPU), "memory");
    REFUSED(LOAD(worker.ns, &digest, &memory, beyond, MARU_CPU), "blocks[1]: is 8");
    REFUSED(LOAD(worker.ns, &digest, &memory, ids, -2), "device: is -2");
    /* with its checksum an object would be of 8 bytes */
    memory = paged(MARU_CHECKSUM);
    memory.layer_count = 1;
    memory.block_bytes = UINT64_MAX / 2 - 3;
    memory.block_count = 2;
    REFUSED(STORE(worker.ns, worker.pool, &key, &memory, ids, MARU_CPU, &result), "64 bits");
    memory = paged(0);
    memory.layers = NULL;
    REFUSED(LOAD(worker.ns, &digest, &memory, ids, MARU_CPU), "layers");
    memory = paged(0);
    options.role = MARU_ROLE_SCHEDULER;
    assert_int_equal(maru_client_open(&options, &scheduler), 0);
    assert_int_equal(maru_namespace_open(scheduler, "maru-test", &ns), 0);
    assert_int_equal(LOAD(ns, &digest, &memory, ids, MARU_CPU), -EACCES);
    assert_message("scheduler");
    assert_int_equal(maru_client_close(scheduler), 0);
    /* none of it took anything */
    assert_int_equal(result, 1);
    assert_int_equal(info_of(worker.pool).allocated_bytes, 0);
    assert_int_equal(info_of(other.pool).allocated_bytes, 0);
    assert_int_equal(maru_queue_close(queue), 0);
    close_worker(&other);
    close_worker(&worker);
}

static const struct capi_test tests[] = {
    {"WhatIsStoredIsLoadedIntoOtherBlocks", what_is_stored_is_loaded_into_other_blocks, NULL},
    {"WhatIsSubmittedIsThereForTheNextLoad", what_is_submitted_is_there_for_the_next_load, NULL},
    {"WithoutRoomForAllNoneIsStored", without_room_for_all_none_is_stored, NULL},
    {"AFullQueueIsToldBeforeTheCopy", a_full_queue_is_told_before_the_copy, NULL},
    {"DamageIsFoundAndTheOthersAreLoaded", damage_is_found_and_the_others_are_loaded, NULL},
    {"ObjectsOfAnotherLengthAreLeftWhereTheyAre", objects_of_another_length_are_left_where_they_are,
     NULL},
    {"WhatIsWrongIsNamed", what_is_wrong_is_named, NULL},
};
CAPI_SUITE(blocks, tests);
