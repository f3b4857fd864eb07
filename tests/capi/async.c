/* The asynchronous forms: the descriptor, results, order of nothing, the deadline, the bound. */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>

#include "capi_test.h"

static int readable(maru_queue *queue, int timeout_ms) {
    struct pollfd fd;
    fd.fd = maru_queue_fd(queue);
    fd.events = POLLIN;
    fd.revents = 0;
    return poll(&fd, 1, timeout_ms) == 1;
}

static void a_store_and_a_load_by_completions(void) {
    struct worker worker;
    maru_queue *queue;
    struct maru_key key = key_of(1);
    const maru_digest digests[2] = {digest_of(1), digest_of(2)};
    maru_reservation run;
    maru_lease *leases[2];
    struct maru_completion completion;
    uint8_t bitmap = 0;
    int result = 1;
    open_worker(&worker, "engine", 1 << 20);
    assert_int_equal(maru_queue_open(worker.client, &queue), 0);
    assert_int_equal(readable(queue, 0), 0);
    assert_int_equal(maru_reserve(worker.pool, OBJECT_BYTES, 1, &run), 0);
    fill(run.data, 1, OBJECT_BYTES);
    assert_int_equal(maru_commit_submit(queue, worker.ns, worker.pool, &key, &run, 1, &result, 11),
                     0);
    /* nobody calls: the library receives by itself, and the descriptor stays readable until reaped */
    assert_int_equal(readable(queue, 5000), 1);
    assert_int_equal(readable(queue, 0), 1);
    assert_int_equal(maru_queue_reap(queue, &completion, 1, 0), 1);
    assert_int_equal(completion.user_data, 11);
    assert_int_equal(completion.result, 0);
    assert_int_equal(result, 0);
    assert_int_equal(readable(queue, 0), 0);
    assert_int_equal(maru_probe_submit(queue, worker.ns, digests, 2, NULL, 0, &bitmap, 12), 0);
    assert_int_equal(maru_queue_reap(queue, &completion, 1, 5000), 1);
    assert_int_equal(completion.user_data, 12);
    assert_int_equal(completion.result, 1);
    assert_int_equal(bitmap, 1);
    assert_int_equal(maru_acquire_submit(queue, worker.ns, digests, 2, NULL, 0, leases, 13), 0);
    assert_int_equal(maru_queue_close(queue), -EBUSY);
    assert_int_equal(maru_client_close(worker.client), -EBUSY);
    assert_int_equal(maru_queue_reap(queue, &completion, 1, 5000), 1);
    assert_int_equal(completion.result, 1);
    assert_true(leases[1] == NULL);
    assert_true(is_filled(maru_lease_data(leases[0]), 1, OBJECT_BYTES));
    assert_int_equal(maru_lease_release(leases, 2), 0);
    assert_int_equal(maru_retire_submit(queue, worker.ns, &key, 1, &result, 14), 0);
    assert_int_equal(maru_queue_reap(queue, &completion, 1, 5000), 1);
    assert_int_equal(completion.result, 1);
    assert_int_equal(maru_queue_reap(queue, &completion, 1, 1), 0);
    assert_int_equal(maru_queue_close(queue), 0);
    close_worker(&worker);
}

static void many_at_once_beside_blocking_calls(void) {
    enum { kProbes = 1024 };
    struct worker worker;
    maru_queue *queue;
    maru_digest digests[kProbes];
    struct maru_completion completions[100];
    static char seen[kProbes];
    uint32_t i, reaped = 0;
    open_worker(&worker, "engine", 4 << 20);
    for (i = 0; i < 100; ++i)
        assert_int_equal(store_one(&worker, i), 0);
    assert_int_equal(maru_queue_open(worker.client, &queue), 0);
    for (i = 0; i < kProbes; ++i) {
        digests[i] = digest_of(i % 200);
        assert_int_equal(maru_probe_submit(queue, worker.ns, &digests[i], 1, NULL, 0, NULL, i), 0);
    }
    assert_int_equal(maru_probe_submit(queue, worker.ns, digests, 1, NULL, 0, NULL, 0), -EAGAIN);
    assert_message("reap");
    assert_int_equal(load_one(&worker, 50), 0);
    memset(seen, 0, sizeof seen);
    while (reaped < kProbes) {
        const int64_t n = maru_queue_reap(queue, completions, 100, 5000);
        int64_t k;
        assert_true(n > 0);
        for (k = 0; k < n; ++k) {
            const uint64_t which = completions[k].user_data;
            assert_int_equal(seen[which]++, 0);
            assert_int_equal(completions[k].result, which % 200 < 100);
        }
        reaped += (uint32_t)n;
    }
    assert_int_equal(maru_queue_close(queue), 0);
    close_worker(&worker);
}

static void the_deadline_completes_what_is_not_answered(void) {
    struct worker worker;
    struct maru_client_options options = client_options("engine");
    maru_queue *queue;
    const maru_digest digest = digest_of(1);
    struct maru_completion completion;
    memset(&worker, 0, sizeof worker);
    options.timeout_ms = 200;
    assert_int_equal(maru_client_open(&options, &worker.client), 0);
    assert_int_equal(maru_namespace_open(worker.client, "maru-test", &worker.ns), 0);
    assert_int_equal(maru_queue_open(worker.client, &queue), 0);
    marud_signal(SIGSTOP);
    assert_int_equal(maru_probe_submit(queue, worker.ns, &digest, 1, NULL, 0, NULL, 1), 0);
    assert_int_equal(readable(queue, 5000), 1);
    assert_int_equal(maru_queue_reap(queue, &completion, 1, 0), 1);
    assert_int_equal(completion.result, -ETIMEDOUT);
    marud_signal(SIGCONT);
    assert_eventually(maru_probe(worker.ns, &digest, 1, NULL, 0, NULL) == 0);
    assert_int_equal(maru_queue_close(queue), 0);
    close_worker(&worker);
}

static const struct capi_test tests[] = {
    {"AStoreAndALoadByCompletions", a_store_and_a_load_by_completions, NULL},
    {"ManyAtOnceBesideBlockingCalls", many_at_once_beside_blocking_calls, NULL},
    {"TheDeadlineCompletesWhatIsNotAnswered", the_deadline_completes_what_is_not_answered, NULL},
};
CAPI_SUITE(async, tests);
