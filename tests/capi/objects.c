/* Store and load: every byte, every documented result, batches beyond one message, leases. */
#include <stdlib.h>

#include "capi_test.h"

static void bytes_come_back_as_they_went(void) {
    struct worker worker;
    uint32_t i;
    open_worker(&worker, "engine", 8 << 20);
    for (i = 0; i < 100; ++i)
        assert_int_equal(store_one(&worker, i), 0);
    for (i = 0; i < 100; ++i)
        assert_int_equal(load_one(&worker, i), 0);
    assert_int_equal(load_one(&worker, 100), -ENOENT);
    assert_int_equal(store_one(&worker, 5), -EEXIST);
    assert_int_equal(info_of(worker.pool).ready_bytes, 100 * OBJECT_BYTES);
    assert_int_equal(info_of(worker.pool).allocated_bytes, 100 * OBJECT_BYTES);
    close_worker(&worker);
}

static void reserve_write_commit_acquire_read_release(void) {
    struct worker worker;
    const struct maru_key keys[2] = {key_of(1), key_of(2)};
    maru_reservation runs[2];
    maru_lease *lease;
    int results[2] = {1, 1};
    open_worker(&worker, "engine", 1 << 20);
    assert_int_equal(maru_reserve(worker.pool, OBJECT_BYTES, 2, runs), 0);
    assert_true(runs[0].generation != runs[1].generation);
    assert_true(runs[0].offset % PAGE_BYTES == 0);
    fill(runs[0].data, 1, OBJECT_BYTES);
    fill(runs[1].data, 2, OBJECT_BYTES);
    assert_int_equal(maru_commit(worker.ns, worker.pool, keys, runs, 2, results), 0);
    assert_int_equal(results[0], 0);
    assert_int_equal(results[1], 0);
    lease = acquire_one(&worker, 2);
    assert_int_equal(maru_lease_length(lease), OBJECT_BYTES);
    assert_int_equal(maru_lease_generation(lease), runs[1].generation);
    assert_true(maru_lease_data(lease) == runs[1].data);
    assert_true(is_filled(maru_lease_data(lease), 2, OBJECT_BYTES));
    assert_int_equal(maru_lease_release(&lease, 1), 0);
    assert_int_equal(maru_lease_release(&lease, 1), -ENOENT);
    assert_message("released before");
    assert_true(maru_lease_data(lease) == NULL);
    close_worker(&worker);
}

static void reservations_are_consumed_once(void) {
    struct worker worker;
    const struct maru_key keys[2] = {key_of(1), key_of(2)};
    maru_reservation runs[2], twice[2];
    int results[2];
    open_worker(&worker, "engine", 1 << 20);
    assert_int_equal(maru_reserve(worker.pool, OBJECT_BYTES, 2, runs), 0);
    twice[0] = runs[0];
    twice[1] = runs[0];
    assert_int_equal(maru_commit(worker.ns, worker.pool, keys, twice, 2, results), -EINVAL);
    assert_message("twice");
    assert_int_equal(maru_commit(worker.ns, worker.pool, keys, runs, 1, results), 0);
    assert_int_equal(maru_commit(worker.ns, worker.pool, keys, runs, 2, results), -EINVAL);
    assert_message("reservations[0]");
    assert_int_equal(maru_abort(worker.pool, runs, 2), -ENOENT); /* the other one is given back */
    assert_int_equal(maru_abort(worker.pool, runs + 1, 1), -ENOENT);
    assert_int_equal(info_of(worker.pool).allocated_bytes, OBJECT_BYTES);
    close_worker(&worker);
}

static void presence_is_a_success_and_gives_the_run_back(void) {
    struct worker worker;
    struct maru_key key = key_of(7);
    maru_reservation run;
    int result = 1;
    open_worker(&worker, "engine", 1 << 20);
    assert_int_equal(store_one(&worker, 7), 0);
    assert_int_equal(maru_reserve(worker.pool, OBJECT_BYTES, 1, &run), 0);
    fill(run.data, 7, OBJECT_BYTES);
    assert_int_equal(maru_commit(worker.ns, worker.pool, &key, &run, 1, &result), 0);
    assert_int_equal(result, -EEXIST);
    assert_int_equal(info_of(worker.pool).allocated_bytes, OBJECT_BYTES);
    close_worker(&worker);
}

static void another_size_is_incompatible(void) {
    struct worker worker;
    struct maru_key key = key_of(7);
    maru_reservation run;
    uint32_t bytes[16];
    void *buffer = bytes;
    int result = 1;
    open_worker(&worker, "engine", 1 << 20);
    assert_int_equal(maru_reserve(worker.pool, OBJECT_BYTES / 2, 1, &run), 0);
    memset(run.data, 1, OBJECT_BYTES / 2);
    assert_int_equal(maru_commit(worker.ns, worker.pool, &key, &run, 1, &result), -EMEDIUMTYPE);
    assert_int_equal(result, -EMEDIUMTYPE);
    assert_message("item 0 of 1");
    assert_int_equal(info_of(worker.pool).allocated_bytes, 0);
    assert_int_equal(store_one(&worker, 7), 0);
    assert_int_equal(maru_load(worker.ns, &key.digest, 1, NULL, 0, &buffer, sizeof bytes, &result),
                     0);
    assert_int_equal(result, -EMEDIUMTYPE);
    close_worker(&worker);
}

/* 5,000 keys are three probes and five acquires: results stay in request order. */
enum { kMany = 5000 };
static void batches_beyond_one_message(void) {
    struct worker worker;
    struct maru_key *keys = calloc(kMany, sizeof *keys);
    maru_digest *digests = calloc(kMany, sizeof *digests);
    maru_reservation *runs = calloc(kMany, sizeof *runs);
    maru_lease **leases = calloc(kMany, sizeof *leases);
    int *results = calloc(kMany, sizeof *results);
    uint8_t *bitmap = calloc(1, kMany / 8);
    uint32_t i, used = 0;
    open_worker(&worker, "engine", 128 << 20);
    for (i = 0; i < kMany; ++i) {
        digests[i] = digest_of(i);
        if (i % 7 != 3)
            keys[used++] = key_of(i);
    }
    assert_int_equal(maru_reserve(worker.pool, OBJECT_BYTES, used, runs), 0);
    used = 0;
    for (i = 0; i < kMany; ++i)
        if (i % 7 != 3)
            fill(runs[used++].data, i, OBJECT_BYTES);
    assert_int_equal(maru_commit(worker.ns, worker.pool, keys, runs, used, results), 0);
    assert_int_equal(maru_probe(worker.ns, digests, kMany, NULL, 0, bitmap), 3);
    for (i = 0; i < kMany; ++i)
        assert_int_equal(bitmap[i / 8] >> (i % 8) & 1, i % 7 != 3);
    assert_int_equal(maru_probe(worker.ns, digests, kMany, NULL, MARU_PREFIX_ONLY, bitmap), 3);
    for (i = 0; i < kMany; ++i)
        assert_int_equal(bitmap[i / 8] >> (i % 8) & 1, i < 3);
    assert_int_equal(maru_acquire(worker.ns, digests, kMany, NULL, 0, leases), used);
    for (i = 0; i < kMany; ++i) {
        assert_true((leases[i] != NULL) == (i % 7 != 3));
        assert_true(!leases[i] || is_filled(maru_lease_data(leases[i]), i, OBJECT_BYTES));
    }
    assert_int_equal(client_info_of(worker.client).leases, used);
    assert_int_equal(maru_lease_release(leases, kMany), 0);
    assert_int_equal(maru_acquire(worker.ns, digests, kMany, NULL, MARU_PREFIX_ONLY, leases), 3);
    for (i = 3; i < kMany; ++i)
        assert_true(leases[i] == NULL);
    assert_int_equal(maru_lease_release(leases, 3), 0);
    assert_int_equal(maru_retire(worker.ns, keys, used, results), used);
    assert_eventually(info_of(worker.pool).allocated_bytes == 0);
    close_worker(&worker);
    free(keys);
    free(digests);
    free(runs);
    free(leases);
    free(results);
    free(bitmap);
}

/* A chunk of two shards and two parts is a hit only with all four. */
static void manifests_are_all_or_nothing(void) {
    struct worker worker;
    struct maru_manifest manifest;
    struct maru_key keys[4];
    maru_digest digest = digest_of(3);
    maru_lease *leases[4];
    const void *buffers[4];
    uint32_t bytes[4][OBJECT_BYTES / 4];
    int i;
    open_worker(&worker, "engine", 1 << 20);
    memset(&manifest, 0, sizeof manifest);
    manifest.size = sizeof manifest;
    manifest.first_shard = 2;
    manifest.shard_count = 2;
    manifest.first_part = 5;
    manifest.part_count = 2;
    for (i = 0; i < 4; ++i) {
        keys[i].digest = digest;
        keys[i].shard = 2 + (uint32_t)i / 2;
        keys[i].part = 5 + (uint32_t)i % 2;
        fill(bytes[i], 100 + (uint32_t)i, OBJECT_BYTES);
        buffers[i] = bytes[i];
    }
    assert_int_equal(maru_store(worker.ns, worker.pool, keys, buffers, OBJECT_BYTES, 3, NULL), 3);
    assert_int_equal(maru_probe(worker.ns, &digest, 1, &manifest, 0, NULL), 0);
    assert_int_equal(maru_acquire(worker.ns, &digest, 1, &manifest, 0, leases), 0);
    for (i = 0; i < 4; ++i)
        assert_true(leases[i] == NULL);
    assert_int_equal(client_info_of(worker.client).leases, 0);
    assert_int_equal(
        maru_store(worker.ns, worker.pool, keys + 3, buffers + 3, OBJECT_BYTES, 1, NULL), 1);
    assert_int_equal(maru_probe(worker.ns, &digest, 1, &manifest, 0, NULL), 1);
    assert_int_equal(maru_acquire(worker.ns, &digest, 1, &manifest, 0, leases), 1);
    for (i = 0; i < 4; ++i)
        assert_true(is_filled(maru_lease_data(leases[i]), 100 + (uint32_t)i, OBJECT_BYTES));
    assert_int_equal(maru_lease_release(leases, 4), 0);
    close_worker(&worker);
}

static void retired_objects_stay_readable_for_their_readers(void) {
    struct worker worker;
    struct maru_key key = key_of(1), other = key_of(99);
    maru_lease *lease;
    int results[2];
    struct maru_key both[2];
    open_worker(&worker, "engine", 1 << 20);
    assert_int_equal(store_one(&worker, 1), 0);
    lease = acquire_one(&worker, 1);
    both[0] = key;
    both[1] = other;
    assert_int_equal(maru_retire(worker.ns, both, 2, results), 1);
    assert_int_equal(results[0], 0);
    assert_int_equal(results[1], -ENOENT);
    assert_int_equal(probe_one(&worker, 1), 0);
    assert_int_equal(load_one(&worker, 1), -ENOENT);
    assert_int_equal(info_of(worker.pool).retiring_bytes, OBJECT_BYTES);
    assert_true(is_filled(maru_lease_data(lease), 1, OBJECT_BYTES));
    /* the same object may be stored again meanwhile, elsewhere */
    assert_int_equal(store_one(&worker, 1), 0);
    assert_true(is_filled(maru_lease_data(lease), 1, OBJECT_BYTES));
    assert_int_equal(maru_lease_release(&lease, 1), 0);
    assert_eventually(info_of(worker.pool).retiring_bytes == 0);
    assert_int_equal(info_of(worker.pool).allocated_bytes, OBJECT_BYTES);
    assert_int_equal(load_one(&worker, 1), 0);
    close_worker(&worker);
}

static void leases_have_a_limit(void) {
    struct worker worker;
    maru_digest digests[9];
    maru_lease *leases[9];
    uint32_t i;
    open_worker(&worker, "engine", 1 << 20);
    for (i = 0; i < 9; ++i) {
        assert_int_equal(store_one(&worker, i), 0);
        digests[i] = digest_of(i);
    }
    assert_int_equal(maru_acquire(worker.ns, digests, 9, NULL, 0, leases), -EDQUOT);
    for (i = 0; i < 9; ++i)
        assert_true(leases[i] == NULL);
    assert_int_equal(client_info_of(worker.client).leases, 0);
    assert_eventually(maru_acquire(worker.ns, digests, 8, NULL, 0, leases) == 8);
    assert_int_equal(maru_lease_release(leases, 8), 0);
    close_worker(&worker);
}

static void a_full_pool_keeps_its_hits(void) {
    struct worker worker;
    struct maru_key keys[4];
    const void *buffers[4];
    uint32_t bytes[OBJECT_BYTES / 4];
    int results[4];
    uint32_t i;
    open_worker(&worker, "engine", 10 * OBJECT_BYTES);
    for (i = 0; i < 8; ++i)
        assert_int_equal(store_one(&worker, i), 0);
    fill(bytes, 0, OBJECT_BYTES);
    for (i = 0; i < 4; ++i) {
        keys[i] = key_of(i == 0 ? 0 : 20 + i);
        buffers[i] = bytes;
    }
    /* one is there, two fit, one does not */
    assert_int_equal(maru_store(worker.ns, worker.pool, keys, buffers, OBJECT_BYTES, 4, results),
                     3);
    assert_int_equal(results[0], -EEXIST);
    assert_int_equal(results[1], 0);
    assert_int_equal(results[2], 0);
    assert_int_equal(results[3], -ENOSPC);
    assert_int_equal(store_one(&worker, 50), -ENOSPC);
    for (i = 0; i < 8; ++i)
        assert_int_equal(load_one(&worker, i), 0);
    /* room again after a retirement */
    assert_int_equal(maru_retire(worker.ns, keys, 1, NULL), 1);
    assert_eventually(store_one(&worker, 50) == 0);
    assert_int_equal(load_one(&worker, 50), 0);
    assert_int_equal(load_one(&worker, 0), -ENOENT);
    close_worker(&worker);
}

/* Each round holds a quarter of what is allowed: releases that lag by four rounds are seen. */
static void releases_keep_up_with_acquires(void) {
    enum { kCount = 2048, kRounds = 40 };
    struct worker worker;
    static maru_digest digests[kCount];
    static maru_lease *leases[kCount];
    uint32_t i, round;
    open_worker(&worker, "engine", 48 << 20);
    for (i = 0; i < kCount; ++i) {
        digests[i] = digest_of(i);
        assert_int_equal(store_one(&worker, i), 0);
    }
    for (round = 0; round < kRounds; ++round) {
        assert_int_equal(maru_acquire(worker.ns, digests, kCount, NULL, 0, leases), kCount);
        assert_int_equal(maru_lease_release(leases, kCount), 0);
    }
    close_worker(&worker);
}

static const struct capi_test tests[] = {
    {"BytesComeBackAsTheyWent", bytes_come_back_as_they_went, NULL},
    {"ReserveWriteCommitAcquireReadRelease", reserve_write_commit_acquire_read_release, NULL},
    {"ReservationsAreConsumedOnce", reservations_are_consumed_once, NULL},
    {"PresenceIsASuccessAndGivesTheRunBack", presence_is_a_success_and_gives_the_run_back, NULL},
    {"AnotherSizeIsIncompatible", another_size_is_incompatible, NULL},
    {"BatchesBeyondOneMessage", batches_beyond_one_message, NULL},
    {"ManifestsAreAllOrNothing", manifests_are_all_or_nothing, NULL},
    {"RetiredObjectsStayReadableForTheirReaders", retired_objects_stay_readable_for_their_readers,
     NULL},
    {"LeasesHaveALimit", leases_have_a_limit,
     "[sessions]\nleases_per_session = 8\n[cpu]\nhost_bytes = \"64MiB\"\nsegment_bytes = "
     "\"2MiB\"\n"},
    {"ReleasesKeepUpWithAcquires", releases_keep_up_with_acquires,
     "[sessions]\nleases_per_session = 8192\n[cpu]\nhost_bytes = \"64MiB\"\nsegment_bytes = "
     "\"2MiB\"\n"},
    {"AFullPoolKeepsItsHits", a_full_pool_keeps_its_hits, NULL},
};
CAPI_SUITE(objects, tests);
