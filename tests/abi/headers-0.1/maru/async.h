/* SPDX-License-Identifier: Apache-2.0 */
/**
 * maru/async.h - the same operations without blocking
 *
 * A queue belongs to one client. Submitting never waits for marud; finished operations are reaped,
 * and the queue's descriptor is readable while any are there, for an engine's own event loop.
 * Arrays passed to a submit stay the caller's and must live until its completion is reaped.
 */
#ifndef MARU_ASYNC_H
#define MARU_ASYNC_H

#include <stddef.h>
#include <stdint.h>

#include <maru/client.h>
#include <maru/object.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct maru_queue maru_queue;

/** A finished operation. */
struct maru_completion {
    uint64_t user_data; /* as submitted */
    int64_t result;     /* what the blocking form would have returned */
};

/**
 * maru_queue_open() - make a completion queue
 * @ret_queue: set on success; end with maru_queue_close(); closing the client needs it closed
 * Thread safety: any thread. Blocking: never. Return: 0; -EINVAL; -ENOMEM; -EMFILE; -EOWNERDEAD.
 * Since: 0.1
 */
int maru_queue_open(maru_client *client, maru_queue **ret_queue);

/**
 * maru_queue_close() - free a queue
 * Return: 0; -EBUSY while operations are unfinished or completions unreaped; -EOWNERDEAD.
 * Thread safety: no other call on this queue. Blocking: never.
 * Since: 0.1
 */
int maru_queue_close(maru_queue *queue);

/**
 * maru_queue_fd() - a descriptor that polls readable while completions wait
 *
 * Poll it (POLLIN, level-triggered); never read or close it. While nobody polls or reaps, the
 * library's I/O thread still receives replies.
 * Return: the descriptor; -EINVAL; -EOWNERDEAD. Any thread, never blocks.
 * Since: 0.1
 */
int maru_queue_fd(maru_queue *queue);

/**
 * maru_queue_reap() - take finished operations
 * @timeout_ms: 0 returns at once; else waits for at least one
 * Thread safety: any thread. Blocking: up to @timeout_ms.
 * Return: how many were written to @ret_completions, 0 after the time-out; -EINVAL; -EOWNERDEAD.
 * Since: 0.1
 */
int64_t maru_queue_reap(maru_queue *queue, struct maru_completion *ret_completions, size_t max,
                        uint32_t timeout_ms);

/*
 * maru_*_submit() - the asynchronous forms
 *
 * Arguments and results as in the blocking form. The deadline is the client's timeout_ms from the
 * submit. Thread safety: any thread. Blocking: never.
 * Return: 0 submitted; -EINVAL; -EAGAIN too many in flight: reap first; -EOWNERDEAD.
 * Since: 0.1
 */
int maru_probe_submit(maru_queue *queue, maru_namespace *ns, const maru_digest *digests,
                      size_t count, const struct maru_manifest *manifest, uint32_t flags,
                      uint8_t *ret_bitmap, uint64_t user_data);
int maru_commit_submit(maru_queue *queue, maru_namespace *ns, maru_pool *pool,
                       const struct maru_key *keys, const maru_reservation *reservations,
                       size_t count, int *ret_results, uint64_t user_data);
int maru_acquire_submit(maru_queue *queue, maru_namespace *ns, const maru_digest *digests,
                        size_t count, const struct maru_manifest *manifest, uint32_t flags,
                        maru_lease **ret_leases, uint64_t user_data);
int maru_retire_submit(maru_queue *queue, maru_namespace *ns, const struct maru_key *keys,
                       size_t count, int *ret_results, uint64_t user_data);

#ifdef __cplusplus
}
#endif
#endif
