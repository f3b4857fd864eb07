/* SPDX-License-Identifier: Apache-2.0 */
/**
 * maru/maru.h - the KV cache that outlives the engine: overview
 *
 * A worker opens a client, names a namespace, opens a pool, and then stores and loads. KV bytes are
 * copied straight to and from the pool's memory; marud sees only names and offsets.
 *
 * Store: maru_reserve() -> write -> maru_commit(). Load: maru_acquire() -> read -> maru_lease_release().
 *
 * Example (compiled and run by the tests as tests/capi/example.c).
 */
#ifndef MARU_MARU_H
#define MARU_MARU_H

#include <maru/async.h>
#include <maru/client.h>
#include <maru/error.h>
#include <maru/key.h>
#include <maru/object.h>
#include <maru/pool.h>

#endif
