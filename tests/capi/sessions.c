/* Sessions: engines, schedulers, isolation, schemas, limits, and a marud that does not answer. */
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "capi_test.h"

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void info_and_capabilities(void) {
    struct worker worker;
    struct maru_client_info info;
    open_client(&worker, "engine", "maru-test");
    info = client_info_of(worker.client);
    assert_int_equal(info.state, MARU_STATE_ATTACHED);
    assert_true(info.epoch != 0 && info.session != 0 && info.probe_keys_max > 0);
    assert_true(strlen(info.server_version) > 0);
    assert_int_equal(maru_client_has_capability(worker.client, "cpu_storage_v1"), 1);
    assert_int_equal(maru_client_has_capability(worker.client, "shared_storage_v1"), 1);
    assert_int_equal(maru_client_has_capability(worker.client, "mixed_storage_v1"), 0);
    assert_int_equal(maru_client_has_capability(worker.client, NULL), -EINVAL);
    close_worker(&worker);
}

static void an_engine_has_one_worker(void) {
    struct worker worker;
    struct maru_client_options options = client_options("engine");
    maru_client *second = NULL;
    char pid[32];
    open_client(&worker, "engine", "maru-test");
    options.connect_ms = 300;
    assert_int_equal(maru_client_open(&options, &second), -EBUSY);
    snprintf(pid, sizeof pid, "pid");
    assert_message(pid);
    close_worker(&worker);
    assert_int_equal(maru_client_open(&options, &second), 0);
    assert_int_equal(maru_client_close(second), 0);
}

static void engines_do_not_read_each_other(void) {
    struct worker first, second;
    open_worker(&first, "first", 1 << 20);
    open_worker(&second, "second", 1 << 20);
    assert_int_equal(store_one(&first, 1), 0);
    assert_int_equal(probe_one(&second, 1), 0);
    assert_int_equal(load_one(&second, 1), -ENOENT);
    /* nor does one's copy stand in the way of the other's */
    assert_int_equal(store_one(&second, 1), 0);
    assert_int_equal(load_one(&second, 1), 0);
    close_worker(&first);
    assert_int_equal(load_one(&second, 1), 0);
    close_worker(&second);
}

static void a_scheduler_asks_and_holds_nothing(void) {
    struct worker worker;
    struct maru_client_options options = client_options("engine");
    const struct maru_pool_options pool = pool_options(1 << 20);
    struct maru_schema schema;
    maru_client *scheduler;
    maru_namespace *ns;
    maru_pool *ret_pool;
    maru_lease *lease;
    struct maru_key key = key_of(1);
    const maru_digest digest = digest_of(1);
    options.role = MARU_ROLE_SCHEDULER;
    assert_int_equal(maru_client_open(&options, &scheduler), 0);
    assert_int_equal(maru_namespace_open(scheduler, "maru-test", &ns), 0);
    assert_int_equal(maru_probe(ns, &digest, 1, NULL, 0, NULL), 0); /* no worker yet */
    open_worker(&worker, "engine", 1 << 20);
    assert_int_equal(store_one(&worker, 1), 0);
    assert_int_equal(maru_probe(ns, &digest, 1, NULL, 0, NULL), 1);
    assert_int_equal(maru_acquire(ns, &digest, 1, NULL, 0, &lease), -EACCES);
    assert_int_equal(maru_pool_open(scheduler, &pool, &ret_pool), -EACCES);
    assert_int_equal(maru_retire(ns, &key, 1, NULL), -EACCES);
    memset(&schema, 0, sizeof schema);
    schema.size = sizeof schema;
    schema.object_bytes = OBJECT_BYTES;
    schema.format = "test-v1";
    assert_int_equal(maru_client_describe(scheduler, ns, &schema), -EACCES);
    close_worker(&worker);
    assert_int_equal(maru_probe(ns, &digest, 1, NULL, 0, NULL), 0);
    assert_int_equal(maru_client_close(scheduler), 0);
}

static void a_scheduler_asks_for_the_worker_of_its_engine(void) {
    struct worker worker;
    struct maru_client_options options = client_options("engine");
    struct maru_schema schema;
    maru_client *scheduler;
    maru_namespace *ns;
    uint64_t session = 7;
    char text[MARU_NAMESPACE_MAX + 1] = "untouched";
    char *longest = malloc(MARU_NAMESPACE_MAX + 1);
    options.role = MARU_ROLE_SCHEDULER;
    assert_int_equal(maru_client_open(&options, &scheduler), 0);
    assert_int_equal(maru_client_has_capability(scheduler, "engine_worker_v1"), 1);
    assert_int_equal(maru_client_worker(scheduler, &session, text, sizeof text), -ENOENT);
    assert_message("'engine' has no attached worker");
    assert_true(session == 7 && strcmp(text, "untouched") == 0);

    memset(&worker, 0, sizeof worker);
    options.role = MARU_ROLE_WORKER;
    assert_int_equal(maru_client_open(&options, &worker.client), 0);
    assert_int_equal(maru_client_worker(scheduler, &session, text, sizeof text), 0);
    assert_true(session == client_info_of(worker.client).session);
    assert_true(text[0] == '\0'); /* it has described nothing yet */

    memset(longest, 'x', MARU_NAMESPACE_MAX);
    longest[MARU_NAMESPACE_MAX] = '\0';
    memset(&schema, 0, sizeof schema);
    schema.size = sizeof schema;
    schema.object_bytes = OBJECT_BYTES;
    schema.format = "test-v1";
    assert_int_equal(maru_namespace_open(worker.client, longest, &ns), 0);
    assert_int_equal(maru_client_describe(worker.client, ns, &schema), 0);
    assert_int_equal(maru_client_worker(scheduler, &session, text, sizeof text), 0);
    assert_true(strcmp(text, longest) == 0);
    free(longest);

    assert_int_equal(maru_client_worker(scheduler, NULL, text, sizeof text), -EINVAL);
    assert_message("ret_session");
    assert_int_equal(maru_client_worker(scheduler, &session, NULL, sizeof text), -EINVAL);
    assert_message("ret_text");
    assert_int_equal(maru_client_worker(scheduler, &session, text, sizeof text - 1), -EINVAL);
    assert_message("size: is 16384");
    assert_int_equal(maru_client_close(worker.client), 0);
    assert_int_equal(maru_client_worker(scheduler, &session, text, sizeof text), -ENOENT);
    assert_int_equal(maru_client_close(scheduler), 0);
}

static void who_is_the_worker_is_known_again_after_a_restart(void) {
    struct worker worker;
    struct maru_client_options options = client_options("engine");
    maru_client *scheduler;
    uint64_t before = 0, after = 0;
    char text[MARU_NAMESPACE_MAX + 1];
    options.role = MARU_ROLE_SCHEDULER;
    options.timeout_ms = 300;
    open_client(&worker, "engine", "maru-test");
    assert_int_equal(maru_client_open(&options, &scheduler), 0);
    assert_int_equal(maru_client_worker(scheduler, &before, text, sizeof text), 0);
    marud_kill();
    assert_int_equal(maru_client_worker(scheduler, &after, text, sizeof text), -ENOTCONN);
    marud_start();
    assert_eventually(maru_client_worker(scheduler, &after, text, sizeof text) == 0);
    assert_true(after == before); /* a session keeps its id */
    assert_true(strcmp(text, "maru-test") == 0);
    assert_int_equal(maru_client_close(scheduler), 0);
    close_worker(&worker);
}

static void a_schema_is_set_once(void) {
    struct worker worker, other;
    struct maru_schema schema;
    open_client(&worker, "engine", "maru-test");
    memset(&schema, 0, sizeof schema);
    schema.size = sizeof schema;
    schema.object_bytes = OBJECT_BYTES;
    schema.format = "test-v1";
    assert_int_equal(maru_client_describe(worker.client, worker.ns, &schema), 0);
    schema.object_bytes = 1;
    assert_int_equal(maru_client_describe(worker.client, worker.ns, &schema), -ENOTUNIQ);
    /* another session may not describe the namespace differently */
    {
        const struct maru_client_options options = client_options("other");
        memset(&other, 0, sizeof other);
        assert_int_equal(maru_client_open(&options, &other.client), 0);
        assert_int_equal(maru_namespace_open(other.client, "maru-test", &other.ns), 0);
        assert_int_equal(maru_client_describe(other.client, other.ns, &schema), -EMEDIUMTYPE);
        assert_int_equal(maru_client_describe(other.client, worker.ns, &schema), -EINVAL);
    }
    schema.object_bytes = 0;
    assert_int_equal(maru_client_describe(worker.client, worker.ns, &schema), -EINVAL);
    assert_message("object_bytes");
    schema.object_bytes = OBJECT_BYTES;
    schema.format = "";
    assert_int_equal(maru_client_describe(worker.client, worker.ns, &schema), -EINVAL);
    assert_message("format");
    close_worker(&other);
    close_worker(&worker);
}

static void a_commit_needs_a_schema(void) {
    struct worker worker;
    const struct maru_client_options options = client_options("engine");
    const struct maru_pool_options pool = pool_options(1 << 20);
    memset(&worker, 0, sizeof worker);
    assert_int_equal(maru_client_open(&options, &worker.client), 0);
    assert_int_equal(maru_namespace_open(worker.client, "maru-test", &worker.ns), 0);
    assert_int_equal(maru_pool_open(worker.client, &pool, &worker.pool), 0);
    assert_int_equal(store_one(&worker, 1), -EINVAL);
    assert_int_equal(info_of(worker.pool).allocated_bytes, 0);
    close_worker(&worker);
}

static void namespaces_are_told_apart_by_their_text(void) {
    struct worker worker;
    maru_namespace *same, *other;
    char *text = malloc(16386);
    const maru_digest digest = digest_of(1);
    open_worker(&worker, "engine", 1 << 20);
    assert_int_equal(maru_namespace_open(worker.client, "maru-test", &same), 0);
    assert_true(same == worker.ns);
    assert_int_equal(maru_namespace_open(worker.client, "maru-test/2@x", &other), 0);
    assert_int_equal(store_one(&worker, 1), 0);
    assert_int_equal(maru_probe(other, &digest, 1, NULL, 0, NULL), 0);
    assert_int_equal(maru_namespace_open(worker.client, "", &other), -EINVAL);
    assert_message("text");
    assert_int_equal(maru_namespace_open(worker.client, "a\xff", &other), -EINVAL);
    memset(text, 'x', 16385);
    text[16385] = 0;
    assert_int_equal(maru_namespace_open(worker.client, text, &other), -EINVAL);
    text[16384] = 0;
    assert_int_equal(maru_namespace_open(worker.client, text, &other), 0);
    free(text);
    close_worker(&worker);
}

static void too_many_namespaces(void) {
    struct worker worker;
    maru_namespace *ns;
    open_client(&worker, "engine", "maru-test");
    assert_int_equal(maru_namespace_open(worker.client, "2", &ns), 0);
    assert_int_equal(maru_namespace_open(worker.client, "3", &ns), -EAGAIN);
    close_worker(&worker);
}

static void too_many_sessions(void) {
    struct worker first, second;
    struct maru_client_options options = client_options("third");
    maru_client *client;
    open_client(&first, "first", "maru-test");
    open_client(&second, "second", "maru-test");
    assert_int_equal(maru_client_open(&options, &client), -EDQUOT);
    close_worker(&first);
    close_worker(&second);
}

/* The deadline covers the whole round trip, and what comes later is nobody's. */
static void a_stopped_marud_costs_the_deadline_only(void) {
    struct worker worker;
    struct maru_client_options options = client_options("engine");
    const maru_digest digest = digest_of(1);
    double begin;
    memset(&worker, 0, sizeof worker);
    options.timeout_ms = 300;
    assert_int_equal(maru_client_open(&options, &worker.client), 0);
    assert_int_equal(maru_namespace_open(worker.client, "maru-test", &worker.ns), 0);
    marud_signal(SIGSTOP);
    begin = seconds();
    assert_int_equal(maru_probe(worker.ns, &digest, 1, NULL, 0, NULL), -ETIMEDOUT);
    assert_true(seconds() - begin > 0.25 && seconds() - begin < 0.8);
    marud_signal(SIGCONT);
    assert_eventually(maru_probe(worker.ns, &digest, 1, NULL, 0, NULL) == 0);
    assert_int_equal(client_info_of(worker.client).reconnects, 0);
    close_worker(&worker);
}

static const struct capi_test tests[] = {
    {"InfoAndCapabilities", info_and_capabilities, NULL},
    {"AnEngineHasOneWorker", an_engine_has_one_worker, NULL},
    {"EnginesDoNotReadEachOther", engines_do_not_read_each_other, NULL},
    {"ASchedulerAsksAndHoldsNothing", a_scheduler_asks_and_holds_nothing, NULL},
    {"ASchedulerAsksForTheWorkerOfItsEngine", a_scheduler_asks_for_the_worker_of_its_engine, NULL},
    {"WhoIsTheWorkerIsKnownAgainAfterARestart", who_is_the_worker_is_known_again_after_a_restart,
     NULL},
    {"ASchemaIsSetOnce", a_schema_is_set_once, NULL},
    {"ACommitNeedsASchema", a_commit_needs_a_schema, NULL},
    {"NamespacesAreToldApartByTheirText", namespaces_are_told_apart_by_their_text, NULL},
    {"TooManyNamespaces", too_many_namespaces, "[limits]\nnamespaces = 2\n"},
    {"TooManySessions", too_many_sessions, "[sessions]\nmax_per_uid = 2\n"},
    {"AStoppedMarudCostsTheDeadlineOnly", a_stopped_marud_costs_the_deadline_only, NULL},
};
CAPI_SUITE(sessions, tests);
