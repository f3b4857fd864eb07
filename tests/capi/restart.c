/* marud is killed and comes back: what this process holds stays a hit, and no number is mixed up. */
#include <pthread.h>
#include <stdlib.h>

#include "capi_test.h"

static void hold(int forget) {
    struct worker worker;
    maru_lease *lease;
    struct maru_key key = key_of(2);
    uint32_t i, epoch;
    open_worker(&worker, "engine", 4 << 20);
    for (i = 0; i < 50; ++i)
        assert_int_equal(store_one(&worker, i), 0);
    lease = acquire_one(&worker, 7);
    epoch = client_info_of(worker.client).epoch;
    marud_kill();
    assert_true(is_filled(maru_lease_data(lease), 7, OBJECT_BYTES));
    if (forget)
        marud_forget();
    marud_start();
    for (i = 0; i < 50; ++i) {
        assert_int_equal(probe_one(&worker, i), 1);
        assert_int_equal(load_one(&worker, i), 0);
    }
    assert_true(client_info_of(worker.client).epoch != epoch);
    assert_int_equal(client_info_of(worker.client).republished, 50);
    assert_int_equal(client_info_of(worker.client).leases, 1);
    assert_int_equal(store_one(&worker, 3), -EEXIST);
    assert_int_equal(store_one(&worker, 60), 0);
    /* the lease of before protects in the new life too */
    key = key_of(7);
    assert_int_equal(maru_retire(worker.ns, &key, 1, NULL), 1);
    assert_int_equal(info_of(worker.pool).retiring_bytes, OBJECT_BYTES);
    assert_true(is_filled(maru_lease_data(lease), 7, OBJECT_BYTES));
    assert_int_equal(maru_lease_release(&lease, 1), 0);
    assert_eventually(info_of(worker.pool).retiring_bytes == 0);
    close_worker(&worker);
}

static void hits_stay_hits(void) { hold(0); }
static void hits_stay_hits_without_kept_descriptors(void) { hold(1); }

static void retiring_objects_are_not_found_again(void) {
    struct worker worker;
    maru_lease *lease;
    struct maru_key key = key_of(1);
    open_worker(&worker, "engine", 1 << 20);
    assert_int_equal(store_one(&worker, 1), 0);
    assert_int_equal(store_one(&worker, 2), 0);
    lease = acquire_one(&worker, 1);
    assert_int_equal(maru_retire(worker.ns, &key, 1, NULL), 1);
    marud_restart();
    assert_int_equal(load_one(&worker, 2), 0);
    assert_int_equal(load_one(&worker, 1), -ENOENT);
    assert_true(is_filled(maru_lease_data(lease), 1, OBJECT_BYTES));
    assert_int_equal(maru_lease_release(&lease, 1), 0);
    assert_eventually(info_of(worker.pool).allocated_bytes == OBJECT_BYTES);
    close_worker(&worker);
}

/* After the restart another client registers first: the same numbers are other texts. */
static void namespaces_registered_in_the_other_order(void) {
    struct worker first, second;
    maru_namespace *first_b, *second_a;
    const maru_digest digest = digest_of(1);
    struct maru_schema schema;
    memset(&schema, 0, sizeof schema);
    schema.size = sizeof schema;
    schema.object_bytes = OBJECT_BYTES;
    schema.format = "test-v1";
    open_worker(&first, "first", 1 << 20); /* registers maru-test first */
    assert_int_equal(maru_namespace_open(first.client, "b", &first_b), 0);
    assert_int_equal(store_one(&first, 1), 0);
    marud_kill();
    marud_start();
    {
        const struct maru_client_options options = client_options("second");
        memset(&second, 0, sizeof second);
        assert_int_equal(maru_client_open(&options, &second.client), 0);
        assert_int_equal(maru_namespace_open(second.client, "b", &second.ns), 0);
        assert_int_equal(maru_namespace_open(second.client, "maru-test", &second_a), 0);
        assert_int_equal(maru_client_describe(second.client, second.ns, &schema), 0);
    }
    assert_int_equal(probe_one(&first, 1), 1);
    assert_int_equal(load_one(&first, 1), 0);
    assert_int_equal(maru_probe(first_b, &digest, 1, NULL, 0, NULL), 0);
    close_worker(&second);
    close_worker(&first);
}

struct load {
    struct worker *worker;
    int stop;
    int wrong, hits, misses, other;
};

static void *load_and_store(void *argument) {
    struct load *load = argument;
    uint32_t i = 0;
    while (!shared_get(load->stop)) {
        const uint32_t number = i++ % 40;
        const int result = load_one(load->worker, number);
        if (result == 1)
            shared_set(load->wrong, 1);
        else if (result == 0)
            shared_add(load->hits);
        else if (result == -ENOENT)
            shared_add(load->misses);
        else
            shared_add(load->other);
        if (i % 3 == 0)
            store_one(load->worker, number);
        if (i % 11 == 0) {
            const struct maru_key key = key_of(number);
            maru_retire(load->worker->ns, &key, 1, NULL);
        }
    }
    return NULL;
}

static void killed_again_and_again_under_load(void) {
    struct worker worker;
    struct load load;
    pthread_t threads[2];
    int i, k;
    open_worker(&worker, "engine", 2 << 20);
    memset(&load, 0, sizeof load);
    load.worker = &worker;
    for (i = 0; i < 2; ++i)
        assert_int_equal(pthread_create(&threads[i], NULL, load_and_store, &load), 0);
    for (i = 0; i < 6; ++i) {
        for (k = 0; k < 100; ++k)
            capi_pause();
        marud_kill();
        if (i % 2)
            marud_forget();
        marud_start();
    }
    for (k = 0; k < 200; ++k)
        capi_pause();
    shared_set(load.stop, 1);
    for (i = 0; i < 2; ++i)
        pthread_join(threads[i], NULL);
    assert_int_equal(load.wrong, 0);
    assert_true(load.hits > 0);
    assert_int_equal(load.other, 0); /* every call waited for marud within its deadline */
    assert_eventually(client_info_of(worker.client).unknown_commits == 0);
    /* nothing leaked: all of it can be retired and the pool is empty */
    for (i = 0; i < 40; ++i) {
        const struct maru_key key = key_of((uint32_t)i);
        maru_retire(worker.ns, &key, 1, NULL);
    }
    assert_eventually(info_of(worker.pool).allocated_bytes == 0);
    close_worker(&worker);
}

static void calls_wait_for_marud_within_their_deadline(void) {
    struct worker worker;
    struct maru_client_options options = client_options("engine");
    const maru_digest digest = digest_of(1);
    memset(&worker, 0, sizeof worker);
    options.timeout_ms = 300;
    assert_int_equal(maru_client_open(&options, &worker.client), 0);
    assert_int_equal(maru_namespace_open(worker.client, "maru-test", &worker.ns), 0);
    marud_kill();
    assert_int_equal(maru_probe(worker.ns, &digest, 1, NULL, 0, NULL), -ENOTCONN);
    assert_int_equal(client_info_of(worker.client).state, MARU_STATE_DISCONNECTED);
    /* marud away is no reason not to close */
    assert_int_equal(maru_client_close(worker.client), 0);
}

static void a_pool_can_be_closed_in_the_next_life(void) {
    struct worker worker;
    open_worker(&worker, "engine", 4 << 20);
    assert_int_equal(store_one(&worker, 1), 0);
    marud_restart();
    assert_int_equal(maru_pool_close(worker.pool, MARU_CLOSE_DRAINED), 0);
    close_worker(&worker);
}

static void an_engine_is_free_again_after_close(void) {
    struct worker worker;
    int i;
    for (i = 0; i < 3; ++i) {
        open_worker(&worker, "engine", 4 << 20);
        assert_int_equal(store_one(&worker, 1), 0);
        if (i == 1)
            marud_restart();
        assert_int_equal(load_one(&worker, 1), 0);
        close_worker(&worker);
    }
}

static const struct capi_test tests[] = {
    {"HitsStayHits", hits_stay_hits, NULL},
    {"HitsStayHitsWithoutKeptDescriptors", hits_stay_hits_without_kept_descriptors, NULL},
    {"RetiringObjectsAreNotFoundAgain", retiring_objects_are_not_found_again, NULL},
    {"NamespacesRegisteredInTheOtherOrder", namespaces_registered_in_the_other_order, NULL},
    {"KilledAgainAndAgainUnderLoad", killed_again_and_again_under_load, NULL},
    {"CallsWaitForMarudWithinTheirDeadline", calls_wait_for_marud_within_their_deadline, NULL},
    {"APoolCanBeClosedInTheNextLife", a_pool_can_be_closed_in_the_next_life, NULL},
    {"AnEngineIsFreeAgainAfterClose", an_engine_is_free_again_after_close, NULL},
};
CAPI_SUITE(restart, tests);
