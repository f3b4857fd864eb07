/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libmaru.so.0 without a marud, for tests of the Python binding alone.
 *
 * It keeps objects in this process, needs no memory behind large pools (sparse mappings), fails
 * where the real library is hard to make fail, and fills memory with 0xdd as soon as the ABI allows
 * its reuse, so that a view which outlives its lease reads wrong bytes at once. One lock, no
 * threads.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake_libmaru.h"

enum { OBJECTS = 4096, LEASES = 4096, DONE = 256 };

struct object {
    maru_namespace *ns;
    struct maru_key key;
    unsigned char *data;
    uint64_t length, generation;
    unsigned leases;
    int used, retired;
};
struct maru_client {
    pid_t pid;
    unsigned leases, reserved;
};
struct maru_namespace {
    maru_client *client;
    char text[256];
};
struct maru_lease {
    maru_client *client;
    struct object *object;
};
struct maru_queue {
    maru_client *client;
    int fd;
    unsigned done;
    struct maru_completion completions[DONE];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct object objects[OBJECTS];
static struct maru_lease leases[LEASES];
static uint64_t generation = UINT64_C(1) << 40;
static _Thread_local char message[512];

int fake_fail(int code, const char *text) {
    snprintf(message, sizeof(message), "%s", text);
    return -code;
}
static int check(const maru_client *client) {
    if (client == NULL)
        return fake_fail(EINVAL, "client is NULL");
    return client->pid == getpid() ? 0 : fake_fail(EOWNERDEAD, "fake: this is a forked child");
}

API const char *maru_last_error(void) { return message; }
API const char *maru_error_name(int result) { return result == 0 ? "OK" : "?"; }
API const char *maru_version(void) {
    const char *version = getenv("MARU_FAKE_VERSION");
    return version != NULL ? version : "0.1.0";
}

API int maru_client_open(const struct maru_client_options *options, maru_client **ret_client) {
    if (options->size != sizeof(*options) || options->engine == NULL || options->engine[0] == '\0')
        return fake_fail(EINVAL, "engine must have 1 to 256 bytes");
    if (strcmp(options->engine, "held") == 0)
        return fake_fail(EBUSY, "engine 'held' has a live worker: pid 4711 (vllm)");
    if (strncmp(options->engine, "errno ", 6) == 0) {
        char text[64];
        snprintf(text, sizeof(text), "fake: %s", options->engine);
        return fake_fail(atoi(options->engine + 6), text);
    }
    if (options->timeout_ms == 4000000000u && options->spin_us != 4000000001u)
        return fake_fail(EINVAL, "options arrived damaged");
    *ret_client = calloc(1, sizeof(**ret_client));
    (*ret_client)->pid = getpid();
    return 0;
}
API int maru_client_close(maru_client *client) {
    if (check(client) < 0)
        return -EOWNERDEAD;
    if (client->leases != 0 || client->reserved != 0)
        return fake_fail(EBUSY, "leases or reservations live");
    free(client);
    return 0;
}
API int maru_client_info(maru_client *client, struct maru_client_info *info) {
    if (check(client) < 0)
        return -EOWNERDEAD;
    info->epoch = 0xfffffffe;
    info->session = UINT64_C(0xfffffffe00000003);
    info->leases = client->leases;
    info->reconnects = info->republished = info->unknown_commits = 0;
    info->state = MARU_STATE_ATTACHED;
    info->uid = (uint32_t)getuid();
    info->probe_keys_max = 2048;
    memcpy(info->server_version, "fake", 5);
    return 0;
}
API int maru_client_set_timeout(maru_client *client, uint32_t timeout_ms) {
    (void)timeout_ms;
    return check(client);
}
API int maru_client_bind(maru_client *client, uint64_t session) {
    (void)session;
    return check(client);
}
/* What any client of this process described last. */
static char described[MARU_NAMESPACE_MAX + 1];
API int maru_client_worker(maru_client *client, uint64_t *ret_session, char *ret_text,
                           size_t size) {
    if (check(client) < 0)
        return -EOWNERDEAD;
    if (size <= MARU_NAMESPACE_MAX)
        return fake_fail(EINVAL, "size must be more than 16384");
    if (described[0] == '\0')
        return fake_fail(ENOENT, "the engine has no attached worker");
    *ret_session = UINT64_C(0xfffffffe00000003);
    snprintf(ret_text, size, "%s", described);
    return 0;
}
API int maru_client_has_capability(maru_client *client, const char *name) {
    return check(client) < 0 ? -EOWNERDEAD : strcmp(name, "cpu_storage_v1") == 0;
}
API int maru_namespace_open(maru_client *client, const char *text, maru_namespace **ret_ns) {
    if (check(client) < 0)
        return -EOWNERDEAD;
    *ret_ns = calloc(1, sizeof(**ret_ns));
    (*ret_ns)->client = client;
    snprintf((*ret_ns)->text, sizeof((*ret_ns)->text), "%s", text);
    return 0;
}
API int maru_client_describe(maru_client *client, maru_namespace *ns,
                             const struct maru_schema *schema) {
    if (check(client) < 0)
        return -EOWNERDEAD;
    if (schema->size != sizeof(*schema) || schema->object_bytes == 0 || ns->client != client)
        return fake_fail(EINVAL, "object_bytes must be at least 1");
    if (strcmp(schema->format, "other") == 0)
        return fake_fail(EMEDIUMTYPE, "the format differs");
    snprintf(described, sizeof(described), "%s", ns->text);
    return 0;
}

/* No hash: unequal inputs only have to give unequal digests. */
API int64_t maru_prefix_digests(const char *text, const uint32_t *tokens, size_t count,
                                uint32_t chunk, const maru_digest *parent, maru_digest *ret) {
    uint64_t state = UINT64_C(0xcbf29ce484222325);
    if (chunk == 0)
        return fake_fail(EINVAL, "chunk_tokens must be at least 1");
    for (const char *c = text; *c != '\0'; c++)
        state = (state ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    if (parent != NULL)
        memcpy(&state, parent->bytes, sizeof(state));
    for (size_t i = 0; i < count / chunk; i++) {
        for (size_t j = 0; j < chunk; j++)
            state = (state ^ tokens[i * chunk + j]) * UINT64_C(0x100000001b3);
        memset(&ret[i], 0, sizeof(ret[i]));
        memcpy(ret[i].bytes, &state, sizeof(state));
    }
    return (int64_t)(count / chunk);
}
API int maru_digest_format(const maru_digest *digest, char text[2 * MARU_DIGEST_BYTES + 1]) {
    for (int i = 0; i < MARU_DIGEST_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", digest->bytes[i]);
    return 0;
}
API int maru_digest_parse(const char *text, maru_digest *ret) {
    if (strlen(text) != 2 * MARU_DIGEST_BYTES)
        return fake_fail(EINVAL, "a digest has exactly 64 hexadecimal digits");
    for (int i = 0; i < MARU_DIGEST_BYTES; i++) {
        unsigned byte;
        if (sscanf(text + 2 * i, "%2x", &byte) != 1)
            return fake_fail(EINVAL, "a digest has exactly 64 hexadecimal digits");
        ret->bytes[i] = (uint8_t)byte;
    }
    return 0;
}

API int maru_pool_open(maru_client *client, const struct maru_pool_options *options,
                       maru_pool **ret_pool) {
    if (check(client) < 0)
        return -EOWNERDEAD;
    if (options->medium == MARU_MEDIUM_CXL)
        return fake_fail(EOPNOTSUPP, "medium cxl: this marud has no CXL");
    void *base = mmap(NULL, options->capacity_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return fake_fail(ENOMEM, "no memory");
    *ret_pool = calloc(1, sizeof(**ret_pool));
    **ret_pool = (maru_pool){client, base, options->capacity_bytes, 0, 0};
    return 0;
}
API int maru_pool_close(maru_pool *pool, uint32_t mode) {
    if (check(pool->client) < 0)
        return -EOWNERDEAD;
    if (pool->reserved != 0)
        return fake_fail(EBUSY, "reservations live");
    for (struct object *object = objects; object < objects + OBJECTS; object++) {
        int inside = object->used && object->data >= pool->base &&
                     object->data < pool->base + pool->capacity;
        if (inside && object->leases != 0)
            return fake_fail(mode == MARU_CLOSE_FORCED ? ETIMEDOUT : EBUSY, "1 lease lives");
        if (inside)
            object->used = 0;
    }
    munmap(pool->base, pool->capacity);
    free(pool);
    return 0;
}
API int maru_pool_info(maru_pool *pool, struct maru_pool_info *info) {
    if (check(pool->client) < 0)
        return -EOWNERDEAD;
    size_t size = info->size;
    memset(info, 0, sizeof(*info));
    info->size = size;
    info->id = UINT64_C(0xfffffffe00000001);
    info->capacity_bytes = pool->capacity;
    info->allocated_bytes = pool->used;
    info->page_bytes = 65536;
    info->numa_node = -1;
    info->populate_result = -ENOMEM;
    return 0;
}
API int maru_pool_wait_populated(maru_pool *pool, uint32_t timeout_ms) {
    (void)pool;
    return timeout_ms == 0 ? 0 : fake_fail(ETIMEDOUT, "still populating");
}
API int maru_reserve(maru_pool *pool, uint64_t length, size_t count, maru_reservation *ret) {
    if (check(pool->client) < 0)
        return -EOWNERDEAD;
    uint64_t pages = (length + 65535) / 65536 * 65536;
    pthread_mutex_lock(&lock);
    if (pages * count > pool->capacity - pool->used) {
        pthread_mutex_unlock(&lock);
        return fake_fail(ENOSPC, "pool is full");
    }
    for (size_t i = 0; i < count;
         i++, pool->used += pages, pool->reserved++, pool->client->reserved++)
        ret[i] = (maru_reservation){pool->base + pool->used, length, pool->used, ++generation};
    pthread_mutex_unlock(&lock);
    return 0;
}
API int maru_abort(maru_pool *pool, const maru_reservation *reservations, size_t count) {
    if (check(pool->client) < 0)
        return -EOWNERDEAD;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count; i++, pool->reserved--, pool->client->reserved--)
        memset(reservations[i].data, 0xdd,
               reservations[i].length < 65536 ? reservations[i].length : 65536);
    pthread_mutex_unlock(&lock);
    return 0;
}

static struct object *find(maru_namespace *ns, const struct maru_key *key) {
    for (struct object *object = objects; object < objects + OBJECTS; object++)
        if (object->used && !object->retired && strcmp(object->ns->text, ns->text) == 0 &&
            memcmp(&object->key, key, sizeof(*key)) == 0)
            return object;
    return NULL;
}
static struct maru_key key_of(const maru_digest *digest) {
    struct maru_key key;
    memset(&key, 0, sizeof(key));
    key.digest = *digest;
    return key;
}
static void drop(struct object *object) {
    if (object->retired && object->leases == 0) {
        memset(object->data, 0xdd, object->length < 65536 ? object->length : 65536);
        object->used = 0;
    }
}

API int64_t maru_probe(maru_namespace *ns, const maru_digest *digests, size_t count,
                       const struct maru_manifest *manifest, uint32_t flags, uint8_t *ret_bitmap) {
    int64_t prefix = 0;
    (void)manifest;
    if (check(ns->client) < 0)
        return -EOWNERDEAD;
    pthread_mutex_lock(&lock);
    if (ret_bitmap != NULL)
        memset(ret_bitmap, 0, (count + 7) / 8);
    for (size_t i = 0; i < count; i++) {
        struct maru_key key = key_of(&digests[i]);
        if (find(ns, &key) == NULL) {
            if ((flags & MARU_PREFIX_ONLY) != 0)
                break;
            continue;
        }
        if (ret_bitmap != NULL)
            ret_bitmap[i / 8] |= (uint8_t)(1u << i % 8);
        prefix += prefix == (int64_t)i;
    }
    pthread_mutex_unlock(&lock);
    return prefix;
}
API int maru_commit(maru_namespace *ns, maru_pool *pool, const struct maru_key *keys,
                    const maru_reservation *reservations, size_t count, int *ret_results) {
    if (check(pool->client) < 0)
        return -EOWNERDEAD;
    if (strcmp(ns->text, "refuse") == 0)
        return fake_fail(EINVAL, "namespace 'refuse' takes no commit");
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count; i++, pool->reserved--, pool->client->reserved--) {
        struct object *object = objects;
        ret_results[i] = find(ns, &keys[i]) != NULL ? -EEXIST : 0;
        if (ret_results[i] != 0)
            continue;
        while (object->used)
            object++;
        *object = (struct object){ns,
                                  keys[i],
                                  reservations[i].data,
                                  reservations[i].length,
                                  reservations[i].generation,
                                  0,
                                  1,
                                  0};
    }
    pthread_mutex_unlock(&lock);
    return 0;
}
API int64_t maru_store(maru_namespace *ns, maru_pool *pool, const struct maru_key *keys,
                       const void *const *buffers, uint64_t length, size_t count,
                       int *ret_results) {
    int64_t present = 0;
    for (size_t i = 0; i < count; i++) {
        maru_reservation run;
        ret_results[i] = maru_reserve(pool, length, 1, &run);
        if (ret_results[i] < 0)
            continue;
        memcpy(run.data, buffers[i], length);
        int result = maru_commit(ns, pool, &keys[i], &run, 1, &ret_results[i]);
        if (result < 0)
            return result;
        present++;
    }
    return present;
}
API int64_t maru_acquire(maru_namespace *ns, const maru_digest *digests, size_t count,
                         const struct maru_manifest *manifest, uint32_t flags, maru_lease **ret) {
    int64_t acquired = 0;
    (void)manifest;
    (void)flags;
    if (check(ns->client) < 0)
        return -EOWNERDEAD;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count; i++) {
        struct maru_key key = key_of(&digests[i]);
        struct object *object = find(ns, &key);
        struct maru_lease *lease = leases;
        ret[i] = NULL;
        if (object == NULL)
            continue;
        while (lease->object != NULL)
            lease++;
        *lease = (struct maru_lease){ns->client, object};
        object->leases++;
        ns->client->leases++;
        ret[i] = lease;
        acquired++;
    }
    pthread_mutex_unlock(&lock);
    return acquired;
}
API const void *maru_lease_data(const maru_lease *lease) { return lease->object->data; }
API uint64_t maru_lease_length(const maru_lease *lease) { return lease->object->length; }
API uint64_t maru_lease_generation(const maru_lease *lease) { return lease->object->generation; }
API int maru_lease_release(maru_lease *const *handles, size_t count) {
    int result = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count; i++) {
        struct object *object = handles[i] == NULL ? NULL : handles[i]->object;
        if (object == NULL) {
            result = fake_fail(ENOENT, "this lease was released before");
            continue;
        }
        handles[i]->client->leases--;
        handles[i]->object = NULL;
        object->leases--;
        drop(object);
    }
    pthread_mutex_unlock(&lock);
    return result;
}
API int64_t maru_load(maru_namespace *ns, const maru_digest *digests, size_t count,
                      const struct maru_manifest *manifest, uint32_t flags, void *const *buffers,
                      uint64_t length, int *ret_results) {
    int64_t loaded = 0;
    for (size_t i = 0; i < count; i++) {
        maru_lease *lease;
        int64_t got = maru_acquire(ns, &digests[i], 1, manifest, flags, &lease);
        if (got < 0)
            return got;
        ret_results[i] = lease == NULL                     ? -ENOENT
                         : lease->object->length != length ? -EMEDIUMTYPE
                                                           : 0;
        if (ret_results[i] == 0) {
            memcpy(buffers[i], lease->object->data, length);
            loaded++;
        }
        if (lease != NULL)
            maru_lease_release(&lease, 1);
    }
    return loaded;
}
API int64_t maru_retire(maru_namespace *ns, const struct maru_key *keys, size_t count,
                        int *ret_results) {
    int64_t retired = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count; i++) {
        struct object *object = find(ns, &keys[i]);
        ret_results[i] = object == NULL ? -ENOENT : 0;
        if (object == NULL)
            continue;
        object->retired = 1;
        drop(object);
        retired++;
    }
    pthread_mutex_unlock(&lock);
    return retired;
}
API void maru_copy_in(void *pool_memory, const void *source, size_t length) {
    memcpy(pool_memory, source, length);
}
API void maru_copy_out(void *destination, const void *pool_memory, size_t length) {
    memcpy(destination, pool_memory, length);
}

API int maru_queue_open(maru_client *client, maru_queue **ret_queue) {
    if (check(client) < 0)
        return -EOWNERDEAD;
    *ret_queue = calloc(1, sizeof(**ret_queue));
    (*ret_queue)->client = client;
    (*ret_queue)->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return 0;
}
API int maru_queue_close(maru_queue *queue) {
    if (queue->done != 0)
        return fake_fail(EBUSY, "completions are not reaped");
    close(queue->fd);
    free(queue);
    return 0;
}
API int maru_queue_fd(maru_queue *queue) { return queue->fd; }
API int64_t maru_queue_reap(maru_queue *queue, struct maru_completion *ret, size_t max,
                            uint32_t timeout_ms) {
    uint64_t ignored;
    int64_t count = 0;
    (void)timeout_ms;
    pthread_mutex_lock(&lock);
    while (queue->done > 0 && (size_t)count < max)
        ret[count++] = queue->completions[--queue->done];
    if (queue->done == 0 && read(queue->fd, &ignored, sizeof(ignored)) < 0)
        ignored = 0;
    pthread_mutex_unlock(&lock);
    return count;
}
static int finish(maru_queue *queue, uint64_t user_data, int64_t result) {
    uint64_t one = 1;
    pthread_mutex_lock(&lock);
    queue->completions[queue->done++] = (struct maru_completion){user_data, result};
    pthread_mutex_unlock(&lock);
    return write(queue->fd, &one, sizeof(one)) < 0 ? -errno : 0;
}
/* Full at DONE: asked before the operation runs. */
static int full(maru_queue *queue) {
    pthread_mutex_lock(&lock);
    const int is = queue->done == DONE;
    pthread_mutex_unlock(&lock);
    return is ? fake_fail(EAGAIN, "too many in flight: reap first") : 0;
}
API int maru_probe_submit(maru_queue *queue, maru_namespace *ns, const maru_digest *digests,
                          size_t count, const struct maru_manifest *manifest, uint32_t flags,
                          uint8_t *ret_bitmap, uint64_t user_data) {
    int result = full(queue);
    return result < 0 ? result
                      : finish(queue, user_data,
                               maru_probe(ns, digests, count, manifest, flags, ret_bitmap));
}
API int maru_commit_submit(maru_queue *queue, maru_namespace *ns, maru_pool *pool,
                           const struct maru_key *keys, const maru_reservation *reservations,
                           size_t count, int *ret_results, uint64_t user_data) {
    int result = full(queue);
    return result < 0 ? result
                      : finish(queue, user_data,
                               maru_commit(ns, pool, keys, reservations, count, ret_results));
}
API int maru_acquire_submit(maru_queue *queue, maru_namespace *ns, const maru_digest *digests,
                            size_t count, const struct maru_manifest *manifest, uint32_t flags,
                            maru_lease **ret_leases, uint64_t user_data) {
    int result = full(queue);
    return result < 0 ? result
                      : finish(queue, user_data,
                               maru_acquire(ns, digests, count, manifest, flags, ret_leases));
}
API int maru_retire_submit(maru_queue *queue, maru_namespace *ns, const struct maru_key *keys,
                           size_t count, int *ret_results, uint64_t user_data) {
    int result = full(queue);
    return result < 0 ? result
                      : finish(queue, user_data, maru_retire(ns, keys, count, ret_results));
}
