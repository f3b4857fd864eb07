/* What every function says about NULL handles, bad sizes and values: -EINVAL with the field's name. */
#include "capi_test.h"

static void option_structs_of_other_versions(void) {
    struct {
        struct maru_client_options known;
        uint64_t later;
    } options;
    maru_client *client = NULL;
    memset(&options, 0, sizeof options);
    options.known = client_options("engine");

    options.known.size = 4;
    assert_int_equal(maru_client_open(&options.known, &client), -EINVAL);
    assert_message("options->size");

    /* an older caller, which has no role and no time-outs */
    options.known.role = 77;
    options.known.size = offsetof(struct maru_client_options, role);
    assert_int_equal(maru_client_open(&options.known, &client), 0);
    assert_int_equal(maru_client_close(client), 0);

    /* a newer one that sets nothing new, and one that does */
    options.known.role = MARU_ROLE_WORKER;
    options.known.size = sizeof options;
    assert_int_equal(maru_client_open(&options.known, &client), 0);
    assert_int_equal(maru_client_close(client), 0);
    options.later = 1;
    assert_int_equal(maru_client_open(&options.known, &client), -E2BIG);
    assert_message("does not know");
}

static void bad_client_options_are_named(void) {
    struct maru_client_options options = client_options("engine");
    char text[300];
    maru_client *client = NULL;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;

    assert_int_equal(maru_client_open(NULL, &client), -EINVAL);
    assert_message("options");
    assert_int_equal(maru_client_open(&options, NULL), -EINVAL);
    assert_message("ret_client");
    options.engine = NULL;
    assert_int_equal(maru_client_open(&options, &client), -EINVAL);
    assert_message("engine");
    options.engine = text;
    assert_int_equal(maru_client_open(&options, &client), -EINVAL);
    assert_message("256");
    options = client_options("engine");
    options.name = text;
    assert_int_equal(maru_client_open(&options, &client), -EINVAL);
    assert_message("name");
    options = client_options("engine");
    options.role = 2;
    assert_int_equal(maru_client_open(&options, &client), -EINVAL);
    assert_message("role");
    options = client_options("engine");
    options.socket_path = "/nonexistent/marud.sock";
    assert_int_equal(maru_client_open(&options, &client), -ENOENT);
    assert_message("/nonexistent/marud.sock");
    assert_true(client == NULL);
}

static void bad_pool_options_are_named(void) {
    struct worker worker;
    struct maru_pool_options options = pool_options(1 << 20);
    maru_pool *pool = NULL;
    open_client(&worker, "engine", "maru-test");

    options.capacity_bytes = 0;
    assert_int_equal(maru_pool_open(worker.client, &options, &pool), -EINVAL);
    assert_message("capacity_bytes");
    options = pool_options(1 << 20);
    options.page_bytes = 5000;
    assert_int_equal(maru_pool_open(worker.client, &options, &pool), -EINVAL);
    assert_message("page_bytes");
    options.page_bytes = 2048;
    assert_int_equal(maru_pool_open(worker.client, &options, &pool), -EINVAL);
    options = pool_options(1 << 20);
    options.medium = MARU_MEDIUM_CXL;
    assert_int_equal(maru_pool_open(worker.client, &options, &pool), -EOPNOTSUPP);
    options.medium = 9;
    assert_int_equal(maru_pool_open(worker.client, &options, &pool), -EINVAL);
    options = pool_options(1 << 20);
    options.huge_pages = 3;
    assert_int_equal(maru_pool_open(worker.client, &options, &pool), -EINVAL);
    assert_message("huge_pages");
    options = pool_options(1 << 20);
    options.numa = 3;
    assert_int_equal(maru_pool_open(worker.client, &options, &pool), -EINVAL);
    assert_message("numa");
    options = pool_options(1 << 20);
    options.scope = 2;
    assert_int_equal(maru_pool_open(worker.client, &options, &pool), -EINVAL);
    assert_message("scope");
    options = pool_options(1 << 20);
    options.reserved_0 = 1;
    assert_int_equal(maru_pool_open(worker.client, &options, &pool), -EINVAL);
    assert_message("reserved_0");
    assert_int_equal(maru_pool_open(worker.client, NULL, &pool), -EINVAL);
    options = pool_options(1 << 20);
    assert_int_equal(maru_pool_open(worker.client, &options, NULL), -EINVAL);
    assert_message("ret_pool");
    assert_true(pool == NULL);
    close_worker(&worker);
}

static void null_handles_are_named(void) {
    struct maru_client_info client_info;
    struct maru_pool_info pool_info;
    struct maru_schema schema;
    struct maru_key key = key_of(1);
    struct maru_completion completion;
    maru_digest digest = digest_of(1);
    maru_reservation reservation;
    maru_namespace *ns;
    maru_queue *queue;
    maru_pool *pool;
    maru_lease *lease;
    const void *source = "x";
    void *target = &schema;
    int result;
    uint64_t session;
    char text[MARU_NAMESPACE_MAX + 1];
    const struct maru_pool_options options = pool_options(1 << 20);
    memset(&reservation, 0, sizeof reservation);

    assert_int_equal(maru_client_close(NULL), 0);
    assert_int_equal(maru_client_info(NULL, &client_info), -EINVAL);
    assert_message("client");
    assert_int_equal(maru_client_set_timeout(NULL, 1), -EINVAL);
    assert_int_equal(maru_client_bind(NULL, 1), -EINVAL);
    assert_int_equal(maru_client_worker(NULL, &session, text, sizeof text), -EINVAL);
    assert_int_equal(maru_client_has_capability(NULL, "x"), -EINVAL);
    assert_int_equal(maru_namespace_open(NULL, "x", &ns), -EINVAL);
    assert_int_equal(maru_client_describe(NULL, NULL, &schema), -EINVAL);
    assert_int_equal(maru_pool_open(NULL, &options, &pool), -EINVAL);
    assert_int_equal(maru_pool_close(NULL, 0), -EINVAL);
    assert_message("pool");
    assert_int_equal(maru_pool_info(NULL, &pool_info), -EINVAL);
    assert_int_equal(maru_pool_wait_populated(NULL, 0), -EINVAL);
    assert_int_equal(maru_reserve(NULL, 1, 1, &reservation), -EINVAL);
    assert_int_equal(maru_abort(NULL, &reservation, 1), -EINVAL);
    assert_int_equal(maru_probe(NULL, &digest, 1, NULL, 0, NULL), -EINVAL);
    assert_message("ns");
    assert_int_equal(maru_commit(NULL, NULL, &key, &reservation, 1, &result), -EINVAL);
    assert_int_equal(maru_store(NULL, NULL, &key, &source, 1, 1, NULL), -EINVAL);
    assert_int_equal(maru_acquire(NULL, &digest, 1, NULL, 0, &lease), -EINVAL);
    assert_int_equal(maru_load(NULL, &digest, 1, NULL, 0, &target, 1, NULL), -EINVAL);
    assert_int_equal(maru_retire(NULL, &key, 1, NULL), -EINVAL);
    assert_int_equal(maru_lease_release(NULL, 1), -EINVAL);
    assert_int_equal(maru_lease_release(NULL, 0), 0);
    assert_true(maru_lease_data(NULL) == NULL);
    assert_int_equal(maru_lease_length(NULL), 0);
    assert_int_equal(maru_lease_generation(NULL), 0);
    assert_int_equal(maru_queue_open(NULL, &queue), -EINVAL);
    assert_int_equal(maru_queue_close(NULL), 0);
    assert_int_equal(maru_queue_fd(NULL), -EINVAL);
    assert_int_equal(maru_queue_reap(NULL, &completion, 1, 0), -EINVAL);
    assert_int_equal(maru_probe_submit(NULL, NULL, &digest, 1, NULL, 0, NULL, 0), -EINVAL);
    assert_int_equal(maru_commit_submit(NULL, NULL, NULL, &key, &reservation, 1, &result, 0),
                     -EINVAL);
    assert_int_equal(maru_acquire_submit(NULL, NULL, &digest, 1, NULL, 0, &lease, 0), -EINVAL);
    assert_int_equal(maru_retire_submit(NULL, NULL, &key, 1, NULL, 0), -EINVAL);
}

static void bad_batches_are_named(void) {
    struct worker worker, other;
    struct maru_manifest manifest;
    struct maru_key key = key_of(1);
    maru_digest digest = digest_of(1);
    maru_reservation reservation;
    maru_lease *lease;
    const void *source = NULL;
    int result;
    open_worker(&worker, "engine", 1 << 20);
    open_client(&other, "other", "maru-test");

    assert_int_equal(maru_probe(worker.ns, NULL, 1, NULL, 0, NULL), -EINVAL);
    assert_message("digests");
    assert_int_equal(maru_probe(worker.ns, &digest, 1, NULL, 8, NULL), -EINVAL);
    assert_message("flags");
    memset(&manifest, 0, sizeof manifest);
    assert_int_equal(maru_probe(worker.ns, &digest, 1, &manifest, 0, NULL), -EINVAL);
    assert_message("manifest->size");
    manifest.size = sizeof manifest;
    manifest.shard_count = 64;
    manifest.part_count = 64;
    assert_int_equal(maru_acquire(worker.ns, &digest, 1, &manifest, 0, &lease), -EMSGSIZE);
    assert_message("1024");
    manifest.part_count = 1;
    manifest.first_shard = UINT32_MAX;
    assert_int_equal(maru_probe(worker.ns, &digest, 1, &manifest, 0, NULL), -EINVAL);
    assert_int_equal(maru_acquire(worker.ns, &digest, 1, NULL, 0, NULL), -EINVAL);
    assert_message("ret_leases");
    assert_int_equal(maru_store(worker.ns, worker.pool, &key, &source, OBJECT_BYTES, 1, NULL),
                     -EINVAL);
    assert_message("buffers[0]");
    source = &key;
    assert_int_equal(maru_store(worker.ns, worker.pool, &key, &source, 0, 1, NULL), -EINVAL);
    assert_message("length");
    assert_int_equal(maru_reserve(worker.pool, 0, 1, &reservation), -EINVAL);
    assert_message("length");
    assert_int_equal(maru_store(other.ns, worker.pool, &key, &source, OBJECT_BYTES, 1, NULL),
                     -EINVAL);
    assert_message("different clients");
    assert_int_equal(maru_pool_close(worker.pool, 2), -EINVAL);
    assert_message("mode");
    /* empty batches are nothing to do */
    assert_int_equal(maru_probe(worker.ns, NULL, 0, NULL, 0, NULL), 0);
    assert_int_equal(maru_acquire(worker.ns, NULL, 0, NULL, 0, NULL), 0);
    assert_int_equal(maru_store(worker.ns, worker.pool, NULL, NULL, 1, 0, NULL), 0);
    assert_int_equal(maru_commit(worker.ns, worker.pool, NULL, NULL, 0, NULL), 0);
    assert_int_equal(maru_retire(worker.ns, NULL, 0, NULL), 0);
    assert_int_equal(maru_reserve(worker.pool, 1, 0, NULL), 0);
    (void)result;
    close_worker(&other);
    close_worker(&worker);
}

static void result_structs_of_other_versions(void) {
    struct worker worker;
    struct {
        struct maru_client_info known;
        uint64_t later;
    } info;
    open_client(&worker, "engine", "maru-test");
    memset(&info, 0xff, sizeof info);
    info.known.size = sizeof info;
    assert_int_equal(maru_client_info(worker.client, &info.known), 0);
    assert_int_equal(info.later, 0);
    assert_int_equal(info.known.size, sizeof info);
    assert_true(info.known.epoch != 0);
    memset(&info, 0xff, sizeof info);
    info.known.size = offsetof(struct maru_client_info, reconnects);
    assert_int_equal(maru_client_info(worker.client, &info.known), 0);
    assert_true(info.known.reconnects == UINT64_MAX);
    info.known.size = 0;
    assert_int_equal(maru_client_info(worker.client, &info.known), -EINVAL);
    assert_message("info->size");
    close_worker(&worker);
}

static const struct capi_test tests[] = {
    {"OptionStructsOfOtherVersions", option_structs_of_other_versions, NULL},
    {"BadClientOptionsAreNamed", bad_client_options_are_named, NULL},
    {"BadPoolOptionsAreNamed", bad_pool_options_are_named, NULL},
    {"NullHandlesAreNamed", null_handles_are_named, NULL},
    {"BadBatchesAreNamed", bad_batches_are_named, NULL},
    {"ResultStructsOfOtherVersions", result_structs_of_other_versions, NULL},
};
CAPI_SUITE(arguments, tests);
