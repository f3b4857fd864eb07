/*
 * Tests of the C interface, written in C99 through the public headers only.
 *
 * A test is a function of a fresh marud; a failed assertion ends that test. Each file exports one
 * table of tests; capi_runner.cc hands them to GoogleTest.
 */
#ifndef MARU_TESTS_CAPI_TEST_H
#define MARU_TESTS_CAPI_TEST_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <maru/maru.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The marud of this test. */
const char *marud_socket(void);
void marud_kill(void);    /* SIGKILL */
void marud_start(void);   /* until it serves */
void marud_restart(void); /* both: another life; the descriptors are kept for it */
void marud_forget(void);  /* the kept descriptors are dropped, as without a service manager */
void marud_signal(int number);
int marud_pid(void);

struct capi_test {
    const char *name;
    void (*run)(void);
    const char *config; /* of marud; NULL: the default of these tests */
};
struct capi_suite {
    const char *name;
    const struct capi_test *tests;
    size_t count;
};
#define CAPI_SUITE(suite_name, table)                                      \
    const struct capi_suite capi_suite_##suite_name = {#suite_name, table, \
                                                       sizeof(table) / sizeof((table)[0])}

/* Ends the test. */
void capi_fail(const char *file, int line, const char *text);
void capi_fail_int(const char *file, int line, const char *text, long long got, long long wanted);
void capi_skip(const char *why);

#define assert_true(condition)                         \
    do {                                               \
        if (!(condition))                              \
            capi_fail(__FILE__, __LINE__, #condition); \
    } while (0)
#define assert_int_equal(got, wanted)                                              \
    do {                                                                           \
        const long long got_ = (long long)(got), wanted_ = (long long)(wanted);    \
        if (got_ != wanted_)                                                       \
            capi_fail_int(__FILE__, __LINE__, #got " is " #wanted, got_, wanted_); \
    } while (0)
/* The message names what was wrong. */
#define assert_message(part)                                              \
    do {                                                                  \
        if (!strstr(maru_last_error(), part))                             \
            capi_fail(__FILE__, __LINE__, "the message contains " #part); \
    } while (0)
/* Looks again and again for what another thread or process brings about, at most 10 s. */
void capi_pause(void);
#define assert_eventually(condition)                                 \
    do {                                                             \
        int tries_ = 10000;                                          \
        while (!(condition) && tries_-- > 0)                         \
            capi_pause();                                            \
        if (tries_ < 0)                                              \
            capi_fail(__FILE__, __LINE__, "eventually " #condition); \
    } while (0)

/* Numbers that two threads share; C99 has no atomics of its own. */
#define shared_get(number) __atomic_load_n(&(number), __ATOMIC_SEQ_CST)
#define shared_set(number, value) __atomic_store_n(&(number), (value), __ATOMIC_SEQ_CST)
#define shared_add(number) __atomic_add_fetch(&(number), 1, __ATOMIC_SEQ_CST)

/* ThreadSanitizer ends a process that forks and then starts threads. */
#if defined(__SANITIZE_THREAD__)
#define NO_THREADS_AFTER_FORK 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define NO_THREADS_AFTER_FORK 1
#endif
#endif
#ifndef NO_THREADS_AFTER_FORK
#define NO_THREADS_AFTER_FORK 0
#endif

/* ---- a worker: one client, one namespace, one pool ---- */

#define OBJECT_BYTES ((uint64_t)16384)
#define PAGE_BYTES ((uint64_t)4096)

struct worker {
    maru_client *client;
    maru_namespace *ns;
    maru_pool *pool;
};

struct maru_client_options client_options(const char *engine);
struct maru_pool_options pool_options(uint64_t capacity);
void open_client(struct worker *worker, const char *engine, const char *text);
void open_worker(struct worker *worker, const char *engine, uint64_t pool_bytes);
void close_worker(struct worker *worker);

maru_digest digest_of(uint32_t number);
struct maru_key key_of(uint32_t number);
/* Bytes that only this object has at this offset. */
void fill(void *bytes, uint32_t number, uint64_t length);
int is_filled(const void *bytes, uint32_t number, uint64_t length);

/* Results of the one item, as in maru_store() and maru_load(); 1 for a wrong byte. */
int store_one(struct worker *worker, uint32_t number);
int load_one(struct worker *worker, uint32_t number);
maru_lease *acquire_one(struct worker *worker, uint32_t number);
int64_t probe_one(struct worker *worker, uint32_t number);
struct maru_pool_info info_of(maru_pool *pool);
struct maru_client_info client_info_of(maru_client *client);

#ifdef __cplusplus
}
#endif
#endif
