#include "capi_test.h"

#include <stdlib.h>
#include <time.h>

void capi_pause(void) {
    struct timespec pause;
    pause.tv_sec = 0;
    pause.tv_nsec = 1000000;
    nanosleep(&pause, NULL);
}

struct maru_client_options client_options(const char *engine) {
    struct maru_client_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.socket_path = marud_socket();
    options.engine = engine;
    options.timeout_ms = 10000;
    return options;
}

struct maru_pool_options pool_options(uint64_t capacity) {
    struct maru_pool_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.capacity_bytes = capacity;
    options.page_bytes = PAGE_BYTES;
    options.numa_node = -1;
    options.populate_margin_mib = 1;
    options.wait_populated = 1;
    return options;
}

void open_client(struct worker *worker, const char *engine, const char *text) {
    const struct maru_client_options options = client_options(engine);
    struct maru_schema schema;
    memset(worker, 0, sizeof *worker);
    assert_int_equal(maru_client_open(&options, &worker->client), 0);
    assert_int_equal(maru_namespace_open(worker->client, text, &worker->ns), 0);
    memset(&schema, 0, sizeof schema);
    schema.size = sizeof schema;
    schema.object_bytes = OBJECT_BYTES;
    schema.format = "test-v1";
    assert_int_equal(maru_client_describe(worker->client, worker->ns, &schema), 0);
}

void open_worker(struct worker *worker, const char *engine, uint64_t pool_bytes) {
    const struct maru_pool_options options = pool_options(pool_bytes);
    open_client(worker, engine, "maru-test");
    assert_int_equal(maru_pool_open(worker->client, &options, &worker->pool), 0);
    assert_int_equal(maru_pool_wait_populated(worker->pool, 10000), 0);
}

void close_worker(struct worker *worker) {
    assert_int_equal(maru_client_close(worker->client), 0);
    memset(worker, 0, sizeof *worker);
}

maru_digest digest_of(uint32_t number) {
    maru_digest digest;
    const uint32_t tokens[4] = {number, 1, 2, 3};
    assert_int_equal(maru_prefix_digests("maru-test", tokens, 4, 4, NULL, &digest), 1);
    return digest;
}

struct maru_key key_of(uint32_t number) {
    struct maru_key key;
    key.digest = digest_of(number);
    key.shard = 0;
    key.part = 0;
    return key;
}

static uint32_t word_of(uint32_t number, uint64_t index) {
    uint64_t mixed = ((uint64_t)number << 32 | (uint32_t)index) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(mixed >> 29);
}

void fill(void *bytes, uint32_t number, uint64_t length) {
    uint32_t *words = bytes;
    uint64_t i;
    for (i = 0; i < length / 4; ++i)
        words[i] = word_of(number, i);
}

int is_filled(const void *bytes, uint32_t number, uint64_t length) {
    const uint32_t *words = bytes;
    uint64_t i;
    for (i = 0; i < length / 4; ++i)
        if (words[i] != word_of(number, i))
            return 0;
    return 1;
}

int store_one(struct worker *worker, uint32_t number) {
    uint32_t bytes[OBJECT_BYTES / 4];
    const void *buffer = bytes;
    const struct maru_key key = key_of(number);
    int result = 1;
    int64_t present;
    fill(bytes, number, OBJECT_BYTES);
    present = maru_store(worker->ns, worker->pool, &key, &buffer, OBJECT_BYTES, 1, &result);
    return result == 1 ? (int)present : result;
}

int load_one(struct worker *worker, uint32_t number) {
    uint32_t bytes[OBJECT_BYTES / 4];
    void *buffer = bytes;
    const maru_digest digest = digest_of(number);
    int result = 1;
    const int64_t loaded =
        maru_load(worker->ns, &digest, 1, NULL, 0, &buffer, OBJECT_BYTES, &result);
    if (loaded < 0)
        return (int)loaded;
    if (result != 0)
        return result;
    return is_filled(bytes, number, OBJECT_BYTES) ? 0 : 1;
}

maru_lease *acquire_one(struct worker *worker, uint32_t number) {
    const maru_digest digest = digest_of(number);
    maru_lease *lease = NULL;
    assert_int_equal(maru_acquire(worker->ns, &digest, 1, NULL, 0, &lease), 1);
    return lease;
}

int64_t probe_one(struct worker *worker, uint32_t number) {
    const maru_digest digest = digest_of(number);
    return maru_probe(worker->ns, &digest, 1, NULL, 0, NULL);
}

struct maru_pool_info info_of(maru_pool *pool) {
    struct maru_pool_info info;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    assert_int_equal(maru_pool_info(pool, &info), 0);
    return info;
}

struct maru_client_info client_info_of(maru_client *client) {
    struct maru_client_info info;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    assert_int_equal(maru_client_info(client, &info), 0);
    return info;
}
