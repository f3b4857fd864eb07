/* A18: a forked child is refused at once, disturbs nothing, and may open a client of its own. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi_test.h"

/* In the child: the number of the first call that did not answer -EOWNERDEAD, or 0. */
static int refused_everywhere(struct worker *worker, maru_queue *queue, maru_lease *lease) {
    struct maru_client_info client_info;
    struct maru_pool_info pool_info;
    struct maru_schema schema;
    struct maru_completion completion;
    struct maru_key key;
    maru_namespace *ns;
    maru_pool *pool;
    maru_queue *other;
    maru_reservation run;
    maru_lease *got;
    maru_digest digest;
    const void *source = &key;
    void *target = &key;
    int result;
    uint64_t session;
    char text[MARU_NAMESPACE_MAX + 1];
    const struct maru_pool_options options = pool_options(1 << 20);
    memset(&digest, 0, sizeof digest);
    memset(&key, 0, sizeof key);
    memset(&run, 0, sizeof run);
    memset(&schema, 0, sizeof schema);
    client_info.size = sizeof client_info;
    pool_info.size = sizeof pool_info;
    schema.size = sizeof schema;
#define REFUSED(number, call)  \
    if ((call) != -EOWNERDEAD) \
    return number
    REFUSED(1, maru_client_info(worker->client, &client_info));
    REFUSED(2, maru_client_close(worker->client));
    REFUSED(3, maru_client_set_timeout(worker->client, 50));
    REFUSED(3, maru_client_bind(worker->client, 1));
    REFUSED(3, maru_client_worker(worker->client, &session, text, sizeof text));
    REFUSED(3, maru_client_has_capability(worker->client, "x"));
    REFUSED(4, maru_namespace_open(worker->client, "x", &ns));
    REFUSED(5, maru_client_describe(worker->client, worker->ns, &schema));
    REFUSED(6, maru_pool_open(worker->client, &options, &pool));
    REFUSED(7, maru_pool_close(worker->pool, 0));
    REFUSED(8, maru_pool_info(worker->pool, &pool_info));
    REFUSED(9, maru_pool_wait_populated(worker->pool, 0));
    REFUSED(10, maru_reserve(worker->pool, 1, 1, &run));
    REFUSED(11, maru_abort(worker->pool, &run, 1));
    REFUSED(12, maru_probe(worker->ns, &digest, 1, NULL, 0, NULL));
    REFUSED(13, maru_commit(worker->ns, worker->pool, &key, &run, 1, &result));
    REFUSED(14, maru_store(worker->ns, worker->pool, &key, &source, 1, 1, NULL));
    REFUSED(15, maru_acquire(worker->ns, &digest, 1, NULL, 0, &got));
    REFUSED(16, maru_load(worker->ns, &digest, 1, NULL, 0, &target, 1, NULL));
    REFUSED(17, maru_retire(worker->ns, &key, 1, NULL));
    REFUSED(18, maru_lease_release(&lease, 1));
    REFUSED(19, maru_queue_open(worker->client, &other));
    REFUSED(20, maru_queue_close(queue));
    REFUSED(21, maru_queue_fd(queue));
    REFUSED(22, maru_queue_reap(queue, &completion, 1, 10));
    REFUSED(23, maru_probe_submit(queue, worker->ns, &digest, 1, NULL, 0, NULL, 0));
    REFUSED(24, maru_commit_submit(queue, worker->ns, worker->pool, &key, &run, 1, &result, 0));
    REFUSED(25, maru_acquire_submit(queue, worker->ns, &digest, 1, NULL, 0, &got, 0));
    REFUSED(26, maru_retire_submit(queue, worker->ns, &key, 1, NULL, 0));
#undef REFUSED
    if (maru_lease_data(lease) || maru_lease_length(lease) || maru_lease_generation(lease))
        return 27;
    return 0;
}

static int child_status(pid_t child) {
    int status = 0;
    if (waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void a_child_is_refused_and_disturbs_nothing(void) {
    struct worker worker;
    maru_queue *queue;
    maru_lease *lease;
    pid_t child;
    open_worker(&worker, "engine", 1 << 20);
    assert_int_equal(maru_queue_open(worker.client, &queue), 0);
    assert_int_equal(store_one(&worker, 1), 0);
    lease = acquire_one(&worker, 1);
    child = fork();
    if (child == 0) {
        alarm(30); /* a call that hangs fails the test */
        exit(refused_everywhere(&worker, queue, lease));
    }
    assert_int_equal(child_status(child), 0);
    assert_true(is_filled(maru_lease_data(lease), 1, OBJECT_BYTES));
    assert_int_equal(store_one(&worker, 2), 0);
    assert_int_equal(load_one(&worker, 2), 0);
    assert_int_equal(client_info_of(worker.client).reconnects, 0);
    assert_int_equal(maru_lease_release(&lease, 1), 0);
    assert_int_equal(maru_queue_close(queue), 0);
    close_worker(&worker);
}

struct traffic {
    struct worker *worker;
    int stop;
    int failed;
};

static void *keep_loading(void *argument) {
    struct traffic *traffic = argument;
    while (!shared_get(traffic->stop))
        if (load_one(traffic->worker, 1) != 0)
            shared_set(traffic->failed, 1);
    return NULL;
}

static void forks_amid_traffic(void) {
    struct worker worker;
    struct traffic traffic;
    pthread_t thread;
    int i;
    open_worker(&worker, "engine", 1 << 20);
    assert_int_equal(store_one(&worker, 1), 0);
    traffic.worker = &worker;
    traffic.stop = traffic.failed = 0;
    assert_int_equal(pthread_create(&thread, NULL, keep_loading, &traffic), 0);
    for (i = 0; i < 20; ++i) {
        struct maru_client_info info;
        const pid_t child = fork();
        info.size = sizeof info;
        if (child == 0) {
            alarm(30);
            _exit(maru_client_info(worker.client, &info) == -EOWNERDEAD ? 0 : 1);
        }
        if (child_status(child) != 0)
            shared_set(traffic.failed, 2);
    }
    shared_set(traffic.stop, 1);
    pthread_join(thread, NULL);
    assert_int_equal(traffic.failed, 0);
    assert_int_equal(client_info_of(worker.client).reconnects, 0);
    close_worker(&worker);
}

static void a_child_may_have_a_client_of_its_own(void) {
    struct worker worker;
    pid_t child;
    if (NO_THREADS_AFTER_FORK)
        capi_skip("ThreadSanitizer lets no forked child start threads");
    open_worker(&worker, "parent", 1 << 20);
    assert_int_equal(store_one(&worker, 1), 0);
    child = fork();
    if (child == 0) {
        struct worker own;
        const struct maru_client_options options = client_options("child");
        const struct maru_pool_options pool = pool_options(1 << 20);
        struct maru_schema schema;
        alarm(10);
        memset(&own, 0, sizeof own);
        memset(&schema, 0, sizeof schema);
        schema.size = sizeof schema;
        schema.object_bytes = OBJECT_BYTES;
        schema.format = "test-v1";
        if (maru_client_open(&options, &own.client) != 0)
            _exit(1);
        if (maru_namespace_open(own.client, "maru-test", &own.ns) != 0 ||
            maru_client_describe(own.client, own.ns, &schema) != 0 ||
            maru_pool_open(own.client, &pool, &own.pool) != 0)
            _exit(2);
        if (store_one(&own, 2) != 0 || load_one(&own, 2) != 0 || load_one(&own, 1) != -ENOENT)
            _exit(3);
        _exit(maru_client_close(own.client) == 0 ? 0 : 4);
    }
    assert_int_equal(child_status(child), 0);
    assert_int_equal(load_one(&worker, 1), 0);
    assert_int_equal(load_one(&worker, 2), -ENOENT);
    close_worker(&worker);
}

/* A child that lives on keeps no mapping: the pool can be sealed and given back. */
static void a_living_child_does_not_hold_the_pool(void) {
    struct worker worker;
    int pipes[2];
    pid_t child;
    open_worker(&worker, "engine", 4 << 20);
    assert_int_equal(store_one(&worker, 1), 0);
    assert_int_equal(pipe(pipes), 0);
    child = fork();
    if (child == 0) {
        char byte;
        close(pipes[1]);
        alarm(20);
        _exit(read(pipes[0], &byte, 1) == 0 ? 0 : 1);
    }
    assert_int_equal(maru_pool_close(worker.pool, MARU_CLOSE_DRAINED), 0);
    close_worker(&worker);
    close(pipes[1]);
    close(pipes[0]);
    assert_int_equal(child_status(child), 0);
}

static const struct capi_test tests[] = {
    {"AChildIsRefusedAndDisturbsNothing", a_child_is_refused_and_disturbs_nothing, NULL},
    {"ForksAmidTraffic", forks_amid_traffic, NULL},
    {"AChildMayHaveAClientOfItsOwn", a_child_may_have_a_client_of_its_own, NULL},
    {"ALivingChildDoesNotHoldThePool", a_living_child_does_not_hold_the_pool, NULL},
};
CAPI_SUITE(fork, tests);
