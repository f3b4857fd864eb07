/* Gather and scatter: blocks of an engine through a real pool, and every documented refusal. */
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "capi_test.h"

enum { kLayers = 2, kBlocks = 8, kBlockBytes = OBJECT_BYTES / 4 };

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

static void blocks_come_back_through_a_pool(void) {
    struct worker worker;
    const struct maru_paged_memory memory = paged(0);
    const struct maru_key key = key_of(1);
    const uint32_t from[2] = {5, 1}, to[2] = {MARU_NO_BLOCK, 7};
    maru_reservation run;
    maru_lease *lease;
    const void *data;
    int result = 1;
    open_worker(&worker, "engine", 1 << 20);
    mark_blocks();
    assert_int_equal(maru_reserve(worker.pool, OBJECT_BYTES, 1, &run), 0);
    assert_int_equal(maru_gather(&memory, from, 2, &run.data, 1), 0);
    assert_int_equal(maru_commit(worker.ns, worker.pool, &key, &run, 1, &result), 0);
    lease = acquire_one(&worker, 1);
    data = maru_lease_data(lease);
    memset(engine_memory, 0xee, sizeof engine_memory);
    assert_int_equal(maru_scatter(&memory, to, 2, &data, 1, &result), 0);
    assert_int_equal(result, 0);
    assert_int_equal(engine_memory[0][7 * kBlockBytes], 1);
    assert_int_equal(engine_memory[1][8 * kBlockBytes - 1], 16 + 1);
    assert_int_equal(engine_memory[0][7 * kBlockBytes - 1], 0xee);
    assert_int_equal(engine_memory[0][5 * kBlockBytes], 0xee);
    assert_int_equal(maru_lease_release(&lease, 1), 0);
    close_worker(&worker);
}

static void a_wrong_checksum_is_found_before_anything_is_written(void) {
    const struct maru_paged_memory memory = paged(MARU_CHECKSUM);
    const uint32_t ids[4] = {0, 1, 2, 3};
    static unsigned char objects[2][OBJECT_BYTES + MARU_CHECKSUM_BYTES];
    void *to[2] = {objects[0], objects[1]};
    const void *from[2] = {objects[0], objects[1]};
    int results[2];
    mark_blocks();
    assert_int_equal(maru_gather(&memory, ids, 2, to, 2), 0);
    objects[1][17] ^= 1;
    memset(engine_memory, 0xee, sizeof engine_memory);
    assert_int_equal(maru_scatter(&memory, ids, 2, from, 2, results), -EBADMSG);
    assert_message("checksum");
    assert_int_equal(results[0], 0);
    assert_int_equal(results[1], -EBADMSG);
    assert_int_equal(engine_memory[1][kBlockBytes], 16 + 1);
    assert_int_equal(engine_memory[0][2 * kBlockBytes], 0xee);
    assert_int_equal(maru_scatter(&memory, ids, 2, from, 2, NULL), -EBADMSG);
}

static void every_size_and_id_is_looked_at(void) {
    struct maru_paged_memory memory = paged(0);
    static unsigned char object[OBJECT_BYTES];
    void *to = object;
    const uint32_t ids[2] = {0, kBlocks - 1}, beyond[2] = {0, kBlocks},
                   none[2] = {0, MARU_NO_BLOCK};
#define REFUSED(call, text)              \
    do {                                 \
        assert_int_equal(call, -EINVAL); \
        assert_message(text);            \
    } while (0)
    assert_int_equal(maru_gather(&memory, ids, 2, &to, 1), 0);
    assert_int_equal(maru_gather(&memory, NULL, 2, NULL, 0), 0);
    REFUSED(maru_gather(NULL, ids, 2, &to, 1), "memory");
    REFUSED(maru_gather(&memory, NULL, 2, &to, 1), "blocks");
    REFUSED(maru_gather(&memory, ids, 2, NULL, 1), "objects");
    REFUSED(maru_gather(&memory, ids, 0, &to, 1), "blocks_per_object");
    REFUSED(maru_gather(&memory, beyond, 2, &to, 1), "blocks[1]: is 8");
    REFUSED(maru_scatter(&memory, beyond, 2, (const void *const *)&to, 1, NULL), "blocks[1]: is 8");
    REFUSED(maru_gather(&memory, none, 2, &to, 1), "blocks[1]");
    memory.layers = NULL;
    REFUSED(maru_gather(&memory, ids, 2, &to, 1), "layers");
    memory = paged(0);
    memory.block_bytes = 0;
    REFUSED(maru_gather(&memory, ids, 2, &to, 1), "block_bytes");
    memory = paged(0);
    memory.block_stride = 1;
    REFUSED(maru_gather(&memory, ids, 2, &to, 1), "block_stride");
    memory = paged(0);
    memory.block_count = 0;
    REFUSED(maru_gather(&memory, ids, 2, &to, 1), "block_count");
    memory = paged(2);
    REFUSED(maru_gather(&memory, ids, 2, &to, 1), "flags");
    memory = paged(0);
    memory.threads = 65;
    REFUSED(maru_gather(&memory, ids, 2, &to, 1), "threads");
    memory = paged(0);
    memory.block_stride = UINT64_MAX / 2;
    REFUSED(maru_gather(&memory, ids, 2, &to, 1), "64 bits");
    to = NULL;
    memory = paged(0);
    REFUSED(maru_gather(&memory, ids, 2, &to, 1), "objects[0]");
}

static long ms_since(struct timespec before) {
    struct timespec after;
    clock_gettime(CLOCK_MONOTONIC, &after);
    return (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000;
}

static void the_deadline_can_be_shortened(void) {
    struct worker worker;
    struct timespec before;
    const maru_digest digest = digest_of(1);
    long waited;
    open_worker(&worker, "engine", 1 << 20);
    assert_int_equal(store_one(&worker, 1), 0);
    assert_int_equal(maru_client_set_timeout(worker.client, 50), 0);
    marud_signal(SIGSTOP);
    clock_gettime(CLOCK_MONOTONIC, &before);
    assert_int_equal(maru_probe(worker.ns, &digest, 1, NULL, 0, NULL), -ETIMEDOUT);
    waited = ms_since(before);
    marud_signal(SIGCONT);
    assert_true(waited >= 45 && waited < 4000);
    assert_int_equal(maru_client_set_timeout(worker.client, 0), 0);
    assert_int_equal(load_one(&worker, 1), 0);
    close_worker(&worker);
}

static const struct capi_test tests[] = {
    {"BlocksComeBackThroughAPool", blocks_come_back_through_a_pool, NULL},
    {"AWrongChecksumIsFoundBeforeAnythingIsWritten",
     a_wrong_checksum_is_found_before_anything_is_written, NULL},
    {"EverySizeAndIdIsLookedAt", every_size_and_id_is_looked_at, NULL},
    {"TheDeadlineCanBeShortened", the_deadline_can_be_shortened, NULL},
};
CAPI_SUITE(paged, tests);
