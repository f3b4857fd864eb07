/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the fake share. */
#ifndef MARU_TESTS_FAKE_LIBMARU_H
#define MARU_TESTS_FAKE_LIBMARU_H

#include <maru/maru.h>

#define API __attribute__((visibility("default")))

struct maru_pool {
    maru_client *client;
    unsigned char *base;
    uint64_t capacity, used, reserved;
};

/* -@code, with @text as this thread's message. */
int fake_fail(int code, const char *text);

#endif
