/* SPDX-License-Identifier: Apache-2.0 */
/**
 * maru/maru.h - the KV cache that outlives the engine: overview
 *
 * A worker opens a client, names a namespace, opens a pool, and then stores and loads. KV bytes are
 * copied straight to and from the pool's memory; marud sees only names and offsets.
 *
 * Store: maru_reserve() -> write -> maru_commit(). Load: maru_acquire() -> read -> maru_lease_release().
 *
 * Link with -lmaru (pkg-config --libs maru). Every call may come from any thread. A call that fails
 * returns a negative errno, and maru_last_error() says why; a cache miss is never an error.
 *
 * Example (compiled and run by the tests as tests/capi/example.c):
 *
 *  #include <maru/maru.h>
 *  #include <stdio.h>
 *  #include <string.h>
 *
 *  static int check(const char *what, long long result) {
 *      if (result < 0)
 *          fprintf(stderr, "%s: %s: %s\n", what, maru_error_name((int)result), maru_last_error());
 *      return result < 0;
 *  }
 *
 *  int main(void) {
 *      const char *text = "example-model@1f3a;bf16;chunk=4";
 *      const uint32_t prompt[8] = {11, 12, 13, 14, 15, 16, 17, 18};
 *      struct maru_client_options options = {.size = sizeof options, .engine = "example"};
 *      struct maru_pool_options pool_options = {.size = sizeof pool_options};
 *      struct maru_schema schema = {sizeof schema, 65536, "kv-v1"};
 *      struct maru_key keys[2] = {{{{0}}, 0, 0}, {{{0}}, 0, 0}};
 *      maru_digest digests[2];
 *      maru_client *client;
 *      maru_namespace *ns;
 *      maru_pool *pool;
 *      maru_reservation runs[2];
 *      maru_lease *leases[2];
 *      int results[2], i;
 *
 *      pool_options.capacity_bytes = 4 << 20;
 *      pool_options.wait_populated = 1;
 *      if (check("open", maru_client_open(&options, &client)))
 *          return 1;
 *      if (check("namespace", maru_namespace_open(client, text, &ns)) ||
 *          check("describe", maru_client_describe(client, ns, &schema)) ||
 *          check("pool", maru_pool_open(client, &pool_options, &pool)))
 *          return 1;
 *
 *      // Store: the KV of each full chunk of 4 tokens under the digest of its prefix.
 *      maru_prefix_digests(text, prompt, 8, 4, NULL, digests);
 *      if (check("reserve", maru_reserve(pool, schema.object_bytes, 2, runs)))
 *          return 1;
 *      for (i = 0; i < 2; ++i) {
 *          memset(runs[i].data, 'a' + i, schema.object_bytes);
 *          keys[i].digest = digests[i];
 *      }
 *      if (check("commit", maru_commit(ns, pool, keys, runs, 2, results)))
 *          return 1;
 *
 *      // Load: as many leading chunks as there are, read in place.
 *      printf("%lld chunks are readable\n", (long long)maru_probe(ns, digests, 2, NULL, 0, NULL));
 *      if (check("acquire", maru_acquire(ns, digests, 2, NULL, MARU_PREFIX_ONLY, leases)))
 *          return 1;
 *      for (i = 0; i < 2 && leases[i]; ++i)
 *          printf("chunk %d: %u bytes of '%c'\n", i, (unsigned)maru_lease_length(leases[i]),
 *                 *(const char *)maru_lease_data(leases[i]));
 *      maru_lease_release(leases, 2);
 *      return check("close", maru_client_close(client));
 *  }
 */
#ifndef MARU_MARU_H
#define MARU_MARU_H

#include <maru/async.h>
#include <maru/blocks.h>
#include <maru/client.h>
#include <maru/cuda.h>
#include <maru/error.h>
#include <maru/key.h>
#include <maru/object.h>
#include <maru/paged.h>
#include <maru/pool.h>

#endif
