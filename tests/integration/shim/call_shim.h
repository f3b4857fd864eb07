/*
 * What a preloaded call shim and the test that steers it share: one page of rules in a file.
 *
 * Each rule stands for one libc call (some only with certain arguments) and says which of its calls
 * fail, and how. A running process is steered by storing into the mapped file; nothing is read again.
 */
#ifndef MARU_TESTS_CALL_SHIM_H
#define MARU_TESTS_CALL_SHIM_H

#include <stdint.h>

/* Which file a process is steered by. Not set, or not of this layout: every call goes through. */
#define SHIM_VARIABLE "MARU_CALL_SHIM"
#define SHIM_MAGIC UINT64_C(0x6d616d6968733031)

enum shim_call {
    SHIM_MEMFD_CREATE,
    SHIM_FTRUNCATE,
    SHIM_FALLOCATE,
    SHIM_MMAP_FD,        /* with a descriptor: allocators and thread stacks have none */
    SHIM_POPULATE_WRITE, /* of more than one page: a huge page is made from one that is there */
    SHIM_COLLAPSE,
    SHIM_MBIND, /* mbind and set_mempolicy */
    SHIM_OPEN_READ,
    SHIM_OPEN_WRITE, /* open for writing */
    SHIM_WRITE,
    SHIM_RENAME,
    SHIM_FSYNC, /* fsync and fdatasync */
    SHIM_ACCEPT,
    SHIM_RECVMSG,
    SHIM_SENDMSG,     /* and send */
    SHIM_SENDMSG_FDS, /* those that carry descriptors */
    SHIM_EPOLL_ADD,
    SHIM_PIDFD_OPEN,
    SHIM_ADD_SEALS,
    SHIM_DUP, /* fcntl with F_DUPFD_CLOEXEC */
    SHIM_CALLS
};

struct shim_rule {
    int32_t error;   /* errno to fail with; 0: the rule is off */
    int32_t skip;    /* so many calls still succeed */
    int32_t count;   /* so many fail after that; negative: all */
    uint32_t calls;  /* seen so far, failed or not */
    uint32_t failed; /* of these */
    char match[108]; /* calls with a path: fail only if it contains this; "": any */
};

struct shim_control {
    uint64_t magic;
    int64_t realtime_offset_ns; /* added to what CLOCK_REALTIME says */
    struct shim_rule rules[SHIM_CALLS];
};

#endif
