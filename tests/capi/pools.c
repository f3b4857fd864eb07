/* Pools: grants and quotas, reuse with new generations, closing drained and forced. */
#include <pthread.h>
#include <stdlib.h>

#include "capi_test.h"

static void info_has_the_grant(void) {
    struct worker worker;
    struct maru_pool_info info;
    open_worker(&worker, "engine", 5 << 20);
    info = info_of(worker.pool);
    assert_int_equal(info.capacity_bytes, 5 << 20);
    assert_int_equal(info.populated_bytes, 5 << 20);
    assert_int_equal(info.segment_count, 3);
    assert_int_equal(info.page_bytes, PAGE_BYTES);
    assert_int_equal(info.allocated_bytes, 0);
    assert_int_equal(info.populating, 0);
    assert_int_equal(info.populate_result, 0);
    assert_true(info.backing_page_bytes == 4096 || info.backing_page_bytes == 2097152);
    assert_true(info.id != 0);
    close_worker(&worker);
}

static void grants_are_limited(void) {
    struct worker worker, second;
    struct maru_pool_options options = pool_options(24 << 20);
    maru_pool *pool = NULL;
    open_worker(&worker, "engine", 12 << 20);
    assert_int_equal(maru_pool_open(worker.client, &options, &pool),
                     -EDQUOT); /* the worker's grant */
    assert_message("asked");
    open_client(&second, "second", "maru-test");
    options = pool_options(14 << 20);
    assert_int_equal(maru_pool_open(second.client, &options, &pool), 0);
    options = pool_options(8 << 20);
    {
        const int result = maru_pool_open(second.client, &options, &pool);
        assert_true(result == -EDQUOT || result == -ENOSPC);
    }
    close_worker(&second);
    close_worker(&worker);
}

static void reuse_has_another_generation(void) {
    struct worker worker;
    struct maru_key key = key_of(1);
    maru_reservation first, again;
    int result;
    open_worker(&worker, "engine", OBJECT_BYTES);
    assert_int_equal(maru_reserve(worker.pool, OBJECT_BYTES, 1, &first), 0);
    assert_int_equal(maru_reserve(worker.pool, OBJECT_BYTES, 1, &again), -ENOSPC);
    fill(first.data, 1, OBJECT_BYTES);
    assert_int_equal(maru_commit(worker.ns, worker.pool, &key, &first, 1, &result), 0);
    assert_int_equal(maru_retire(worker.ns, &key, 1, NULL), 1);
    assert_eventually(maru_reserve(worker.pool, OBJECT_BYTES, 1, &again) == 0);
    assert_int_equal(again.offset, first.offset);
    assert_true(again.generation > first.generation);
    key = key_of(2);
    fill(again.data, 2, OBJECT_BYTES);
    /* the stale descriptor is refused, the good one is not */
    assert_int_equal(maru_commit(worker.ns, worker.pool, &key, &first, 1, &result), -EINVAL);
    assert_int_equal(maru_commit(worker.ns, worker.pool, &key, &again, 1, &result), 0);
    assert_int_equal(load_one(&worker, 2), 0);
    assert_int_equal(load_one(&worker, 1), -ENOENT);
    close_worker(&worker);
}

static void a_drained_close_names_what_holds_it(void) {
    struct worker worker;
    maru_lease *lease;
    maru_reservation run;
    struct maru_pool_options options = pool_options(1 << 20);
    open_worker(&worker, "engine", 1 << 20);
    assert_int_equal(store_one(&worker, 1), 0);
    lease = acquire_one(&worker, 1);
    assert_int_equal(maru_pool_close(worker.pool, MARU_CLOSE_DRAINED), -EBUSY);
    assert_message("1 leases");
    assert_int_equal(maru_client_close(worker.client), -EBUSY);
    assert_message("lease");
    assert_int_equal(store_one(&worker, 2), 0); /* nothing changed */
    assert_int_equal(maru_lease_release(&lease, 1), 0);
    assert_int_equal(maru_reserve(worker.pool, 1, 1, &run), 0);
    assert_int_equal(maru_pool_close(worker.pool, MARU_CLOSE_DRAINED), -EBUSY);
    assert_message("reservation");
    assert_int_equal(maru_client_close(worker.client), -EBUSY);
    assert_int_equal(maru_abort(worker.pool, &run, 1), 0);
    assert_int_equal(maru_pool_close(worker.pool, MARU_CLOSE_DRAINED), 0);
    assert_int_equal(probe_one(&worker, 1), 0);
    /* its budget is there again */
    assert_int_equal(maru_pool_open(worker.client, &options, &worker.pool), 0);
    assert_int_equal(store_one(&worker, 1), 0);
    close_worker(&worker);
}

static void a_forced_close_waits_for_the_readers(void) {
    struct worker worker;
    struct maru_client_options options = client_options("engine");
    maru_lease *lease;
    struct maru_schema schema;
    const struct maru_pool_options pool = pool_options(1 << 20);
    memset(&worker, 0, sizeof worker);
    options.timeout_ms = 300;
    assert_int_equal(maru_client_open(&options, &worker.client), 0);
    assert_int_equal(maru_namespace_open(worker.client, "maru-test", &worker.ns), 0);
    memset(&schema, 0, sizeof schema);
    schema.size = sizeof schema;
    schema.object_bytes = OBJECT_BYTES;
    schema.format = "test-v1";
    assert_int_equal(maru_client_describe(worker.client, worker.ns, &schema), 0);
    assert_int_equal(maru_pool_open(worker.client, &pool, &worker.pool), 0);
    assert_int_equal(store_one(&worker, 1), 0);
    lease = acquire_one(&worker, 1);
    assert_int_equal(maru_pool_close(worker.pool, MARU_CLOSE_FORCED), -ETIMEDOUT);
    assert_true(is_filled(maru_lease_data(lease), 1, OBJECT_BYTES));
    assert_int_equal(probe_one(&worker, 1), 0);
    assert_int_equal(store_one(&worker, 2), -ENOSPC);
    assert_int_equal(maru_lease_release(&lease, 1), 0);
    assert_int_equal(maru_pool_close(worker.pool, MARU_CLOSE_FORCED), 0);
    assert_int_equal(maru_client_close(worker.client), 0);
}

static void *release_later(void *argument) {
    maru_lease *lease = argument;
    int i;
    for (i = 0; i < 50; ++i)
        capi_pause();
    maru_lease_release(&lease, 1);
    return NULL;
}

static void a_forced_close_ends_with_the_last_release(void) {
    struct worker worker;
    pthread_t thread;
    open_worker(&worker, "engine", 1 << 20);
    assert_int_equal(store_one(&worker, 1), 0);
    assert_int_equal(pthread_create(&thread, NULL, release_later, acquire_one(&worker, 1)), 0);
    assert_int_equal(maru_pool_close(worker.pool, MARU_CLOSE_FORCED), 0);
    pthread_join(thread, NULL);
    close_worker(&worker);
}

static void several_pools_of_one_worker(void) {
    struct worker worker;
    const struct maru_pool_options options = pool_options(1 << 20);
    maru_pool *first, *second;
    open_worker(&worker, "engine", 1 << 20);
    first = worker.pool;
    assert_int_equal(maru_pool_open(worker.client, &options, &second), 0);
    assert_int_equal(store_one(&worker, 1), 0);
    worker.pool = second;
    assert_int_equal(store_one(&worker, 2), 0);
    assert_int_equal(store_one(&worker, 1), -EEXIST); /* one placement domain */
    assert_int_equal(load_one(&worker, 1), 0);
    assert_int_equal(load_one(&worker, 2), 0);
    assert_int_equal(maru_pool_close(first, MARU_CLOSE_DRAINED), 0);
    assert_int_equal(load_one(&worker, 1), -ENOENT);
    assert_int_equal(load_one(&worker, 2), 0);
    close_worker(&worker);
}

/* A client of its own, with a pool of scope host. */
static void open_sharer(struct worker *worker, const char *engine, uint64_t bytes) {
    struct maru_pool_options options = pool_options(bytes);
    options.scope = MARU_SCOPE_HOST;
    open_client(worker, engine, "maru-test");
    assert_int_equal(maru_pool_open(worker->client, &options, &worker->pool), 0);
}

static void a_host_pool_is_read_by_others_and_outlives_its_client(void) {
    struct worker first, second, third;
    maru_lease *lease;
    open_sharer(&first, "first", 1 << 20);
    assert_int_equal(info_of(first.pool).scope, MARU_SCOPE_HOST);
    assert_int_equal(store_one(&first, 1), 0);
    assert_int_equal(store_one(&first, 2), 0);
    open_worker(&second, "second", 1 << 20);
    assert_int_equal(info_of(second.pool).scope, MARU_SCOPE_WORKER);
    assert_int_equal(load_one(&second, 1), 0);
    lease = acquire_one(&second, 2);
    /* What is private stays so. */
    assert_int_equal(store_one(&second, 3), 0);
    assert_int_equal(load_one(&first, 3), -ENOENT);
    close_worker(&first);
    assert_true(is_filled(maru_lease_data(lease), 2, OBJECT_BYTES));
    assert_int_equal(maru_lease_release(&lease, 1), 0);
    assert_eventually(load_one(&second, 1) == 0);
    open_sharer(&third, "first", 1 << 20);
    assert_int_equal(load_one(&third, 2), 0);
    assert_int_equal(store_one(&third, 1), -EEXIST);
    assert_int_equal(info_of(third.pool).allocated_bytes, 0); /* the pages are free again */
    close_worker(&third);
    close_worker(&second);
}

static void a_closed_host_pool_leaves_nothing(void) {
    struct worker first, second;
    maru_lease *lease;
    open_sharer(&first, "first", 1 << 20);
    open_client(&second, "second", "maru-test");
    assert_int_equal(store_one(&first, 1), 0);
    lease = acquire_one(&second, 1);
    assert_int_equal(maru_pool_close(first.pool, MARU_CLOSE_DRAINED), -EBUSY);
    assert_message("1 leases");
    assert_int_equal(maru_lease_release(&lease, 1), 0);
    /* Told to marud later: a release waits for nobody. */
    assert_eventually(maru_pool_close(first.pool, MARU_CLOSE_DRAINED) == 0);
    assert_int_equal(load_one(&second, 1), -ENOENT);
    close_worker(&second);
    close_worker(&first);
}

static void a_host_pool_grows_by_segments_and_keeps_its_hits_when_full(void) {
    struct worker first, second;
    struct maru_pool_info info;
    uint32_t stored = 0, number;
    int result = 0;
    open_worker(&second, "second", 5 << 20); /* leaves the uid room for three segments */
    open_sharer(&first, "first", 8 << 20);
    info = info_of(first.pool);
    assert_int_equal(info.segment_count, 8);
    assert_true(info.populated_bytes <= 2 << 20); /* asked for as it fills */
    for (number = 0; number < 8 * 64 && result == 0; ++number) {
        int tries = 0;
        /* The next segment is on its way, or is not granted. */
        do {
            result = store_one(&first, number);
            if (result == -ENOSPC)
                capi_pause();
        } while (result == -ENOSPC && info_of(first.pool).populate_result == 0 && ++tries < 10000);
        stored += result == 0;
    }
    assert_int_equal(result, -ENOSPC);
    assert_int_equal(info_of(first.pool).populate_result, -EDQUOT);
    assert_int_equal(store_one(&first, number), -ENOSPC);
    assert_message("quota in bytes");
    assert_int_equal(stored, 3 * 64);
    for (number = 0; number < stored; ++number)
        assert_int_equal(load_one(&second, number), 0);
    close_worker(&second);
    close_worker(&first);
}

static const struct capi_test tests[] = {
    {"InfoHasTheGrant", info_has_the_grant, NULL},
    {"GrantsAreLimited", grants_are_limited,
     "[cpu]\nhost_bytes = \"32MiB\"\nworker_bytes = \"20MiB\"\nsegment_bytes = \"2MiB\"\n"},
    {"ReuseHasAnotherGeneration", reuse_has_another_generation, NULL},
    {"ADrainedCloseNamesWhatHoldsIt", a_drained_close_names_what_holds_it, NULL},
    {"AForcedCloseWaitsForTheReaders", a_forced_close_waits_for_the_readers, NULL},
    {"AForcedCloseEndsWithTheLastRelease", a_forced_close_ends_with_the_last_release, NULL},
    {"SeveralPoolsOfOneWorker", several_pools_of_one_worker, NULL},
    {"AHostPoolIsReadByOthersAndOutlivesItsClient",
     a_host_pool_is_read_by_others_and_outlives_its_client, NULL},
    {"AClosedHostPoolLeavesNothing", a_closed_host_pool_leaves_nothing, NULL},
    {"AHostPoolGrowsBySegmentsAndKeepsItsHitsWhenFull",
     a_host_pool_grows_by_segments_and_keeps_its_hits_when_full,
     "[cpu]\nhost_bytes = \"32MiB\"\nuid_bytes = \"8MiB\"\n"
     "host_segment_bytes = \"1MiB\"\n"},
};
CAPI_SUITE(pools, tests);
