/*
 * A program of 0.1: compiled against the headers as they were then (headers-0.1), run with the present
 * library and a real marud. It calls every function of 0.1. It is never changed, like its headers.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <maru/maru.h>

#define OBJECT_BYTES 65536u
#define TEXT "abi-0.1;model=tiny"

static void check(int good, const char *what, int line) {
    if (good)
        return;
    fprintf(stderr, "line %d: %s: %s\n", line, what, maru_last_error());
    exit(1);
}
#define CHECK(condition) check((condition) != 0, #condition, __LINE__)

static int filled(const void *data, int with) {
    const unsigned char *bytes = data;
    size_t i;
    for (i = 0; i < OBJECT_BYTES; ++i)
        if (bytes[i] != (unsigned char)with)
            return 0;
    return 1;
}

static maru_client *client;
static maru_namespace *ns;
static maru_pool *pool;
static maru_digest digests[4];
static struct maru_key keys[4];

static void open_all(void) {
    struct maru_client_options options;
    struct maru_pool_options pool_options;
    struct maru_schema schema;
    struct maru_client_info info;
    const uint32_t tokens[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    char text[2 * MARU_DIGEST_BYTES + 1];
    maru_digest parsed;
    int i;
    CHECK(strncmp(maru_version(), "0.", 2) == 0);
    CHECK(strcmp(maru_error_name(-ENOENT), "ENOENT") == 0);
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    CHECK(maru_client_open(&options, &client) == -EINVAL); /* no engine */
    CHECK(*maru_last_error() != '\0');
    options.engine = "abi-0.1";
    options.name = "program_0_1";
    options.role = MARU_ROLE_WORKER;
    options.timeout_ms = 20000;
    CHECK(maru_client_open(&options, &client) == 0);
    CHECK(maru_client_has_capability(client, "cpu_storage_v1") == 1);
    CHECK(maru_client_has_capability(client, "no_such_v1") == 0);
    CHECK(maru_namespace_open(client, TEXT, &ns) == 0);
    memset(&schema, 0, sizeof schema);
    schema.size = sizeof schema;
    schema.object_bytes = OBJECT_BYTES;
    schema.format = "bytes-v1";
    CHECK(maru_client_describe(client, ns, &schema) == 0);
    memset(&pool_options, 0, sizeof pool_options);
    pool_options.size = sizeof pool_options;
    pool_options.capacity_bytes = 4u << 20;
    pool_options.medium = MARU_MEDIUM_CPU;
    pool_options.huge_pages = MARU_HUGE_OFF;
    pool_options.numa = MARU_NUMA_OFF;
    pool_options.populate_margin_mib = 1;
    CHECK(maru_pool_open(client, &pool_options, &pool) == 0);
    CHECK(maru_pool_wait_populated(pool, 20000) == 0);
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    CHECK(maru_client_info(client, &info) == 0);
    CHECK(info.state == MARU_STATE_ATTACHED && info.session != 0 && info.server_version[0] != '\0');
    CHECK(maru_prefix_digests(TEXT, tokens, 16, 4, NULL, digests) == 4);
    CHECK(maru_digest_format(&digests[0], text) == 0);
    CHECK(maru_digest_parse(text, &parsed) == 0);
    CHECK(memcmp(&parsed, &digests[0], sizeof parsed) == 0);
    memset(keys, 0, sizeof keys);
    for (i = 0; i < 4; ++i)
        keys[i].digest = digests[i];
}

static void store_and_load(void) {
    static unsigned char source[OBJECT_BYTES], target[2][OBJECT_BYTES];
    void *targets[2];
    const void *sources[1];
    maru_reservation runs[2];
    maru_lease *leases[2];
    struct maru_manifest manifest;
    struct maru_pool_info info;
    int results[2];
    uint8_t bitmap = 0;
    CHECK(maru_reserve(pool, OBJECT_BYTES, 2, runs) == 0);
    memset(source, 'a', sizeof source);
    maru_copy_in(runs[0].data, source, OBJECT_BYTES);
    CHECK(maru_abort(pool, &runs[1], 1) == 0);
    CHECK(maru_commit(ns, pool, keys, runs, 1, results) == 0 && results[0] == 0);
    memset(source, 'b', sizeof source);
    sources[0] = source;
    CHECK(maru_store(ns, pool, &keys[1], sources, OBJECT_BYTES, 1, results) == 1);
    memset(&manifest, 0, sizeof manifest);
    manifest.size = sizeof manifest;
    manifest.shard_count = 1;
    CHECK(maru_probe(ns, digests, 4, &manifest, 0, &bitmap) == 2 && bitmap == 3);
    CHECK(maru_acquire(ns, digests, 2, NULL, MARU_PREFIX_ONLY, leases) == 2);
    CHECK(maru_lease_length(leases[0]) == OBJECT_BYTES && maru_lease_generation(leases[0]) != 0);
    CHECK(filled(maru_lease_data(leases[0]), 'a'));
    maru_copy_out(target[0], maru_lease_data(leases[1]), OBJECT_BYTES);
    CHECK(filled(target[0], 'b'));
    CHECK(maru_lease_release(leases, 2) == 0);
    targets[0] = target[0];
    targets[1] = target[1];
    CHECK(maru_load(ns, digests, 2, NULL, 0, targets, OBJECT_BYTES, results) == 2);
    CHECK(filled(target[0], 'a') && filled(target[1], 'b'));
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    CHECK(maru_pool_info(pool, &info) == 0);
    CHECK(info.capacity_bytes == 4u << 20 && info.ready_bytes == 2 * OBJECT_BYTES);
}

static void reap(maru_queue *queue, uint64_t user_data, int64_t result) {
    struct maru_completion completion;
    struct pollfd wait;
    wait.fd = maru_queue_fd(queue);
    wait.events = POLLIN;
    CHECK(poll(&wait, 1, 20000) == 1);
    CHECK(maru_queue_reap(queue, &completion, 1, 20000) == 1);
    CHECK(completion.user_data == user_data && completion.result == result);
}

static void store_and_load_asynchronously(void) {
    maru_queue *queue;
    maru_reservation run;
    maru_lease *lease;
    int result = 1;
    uint8_t bitmap = 0;
    CHECK(maru_queue_open(client, &queue) == 0);
    CHECK(maru_reserve(pool, OBJECT_BYTES, 1, &run) == 0);
    memset(run.data, 'c', OBJECT_BYTES);
    CHECK(maru_commit_submit(queue, ns, pool, &keys[2], &run, 1, &result, 1) == 0);
    reap(queue, 1, 0);
    CHECK(result == 0);
    CHECK(maru_probe_submit(queue, ns, digests, 4, NULL, 0, &bitmap, 2) == 0);
    reap(queue, 2, 3);
    CHECK(maru_acquire_submit(queue, ns, &digests[2], 1, NULL, 0, &lease, 3) == 0);
    reap(queue, 3, 1);
    CHECK(filled(maru_lease_data(lease), 'c'));
    CHECK(maru_lease_release(&lease, 1) == 0);
    CHECK(maru_retire_submit(queue, ns, &keys[2], 1, &result, 4) == 0);
    reap(queue, 4, 1);
    CHECK(maru_queue_close(queue) == 0);
}

int main(void) {
    int results[2];
    open_all();
    store_and_load();
    store_and_load_asynchronously();
    CHECK(maru_retire(ns, keys, 2, results) == 2);
    CHECK(maru_pool_close(pool, MARU_CLOSE_FORCED) == 0);
    CHECK(maru_client_close(client) == 0);
    printf("all of 0.1 works\n");
    return 0;
}
