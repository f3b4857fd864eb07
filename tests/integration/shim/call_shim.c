/*
 * LD_PRELOAD library that fails libc calls on demand, as the mapped file of rules says.
 *
 * It sees what goes through libc's dynamic symbols, syscall(2) included. It does not see what libc
 * calls inside itself (fopen's open, for example) and what a program does with an instruction of its
 * own. Errors it makes up are returned before the real call is made, so that nothing has happened.
 */
/* With it the headers rename open to open64 and so on, and here both are wanted under their own names. */
#undef _FILE_OFFSET_BITS
#undef _FORTIFY_SOURCE

#include "tests/integration/shim/call_shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define EXPORT __attribute__((visibility("default")))

static struct shim_control *control;

/* By system call: none of the functions below may be called before the rules are there. */
__attribute__((constructor)) static void map_control(void) {
    const char *path = getenv(SHIM_VARIABLE);
    if (!path)
        return;
    long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0)
        return;
    struct stat info;
    struct shim_control *mapped = MAP_FAILED;
    if (fstat((int)fd, &info) == 0 && (size_t)info.st_size >= sizeof *mapped)
        mapped = (struct shim_control *)syscall(SYS_mmap, NULL, sizeof *mapped,
                                                PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    if (mapped != MAP_FAILED && mapped->magic == SHIM_MAGIC)
        control = mapped;
}

/* The next definition of `name`: libc's, or a sanitizer's. */
static void *next(const char *name, void **cache) {
    void *found = __atomic_load_n(cache, __ATOMIC_ACQUIRE);
    if (!found) {
        found = dlsym(RTLD_NEXT, name);
        if (!found)
            abort();
        __atomic_store_n(cache, found, __ATOMIC_RELEASE);
    }
    return found;
}
/* A data pointer is not a function pointer in ISO C; POSIX says that it may be stored as one. */
#define NEXT(type, name)                               \
    __extension__({                                    \
        static void *cache_;                           \
        void *found_ = next(name, &cache_);            \
        __typeof__(type) function_;                    \
        memcpy(&function_, &found_, sizeof function_); \
        function_;                                     \
    })

/* Counts the call; nonzero: it is to fail, errno is set. */
static int fails(enum shim_call call, const char *path) {
    if (!control)
        return 0;
    struct shim_rule *rule = &control->rules[call];
    __atomic_add_fetch(&rule->calls, 1, __ATOMIC_RELAXED);
    int error = __atomic_load_n(&rule->error, __ATOMIC_ACQUIRE);
    if (error == 0)
        return 0;
    if (rule->match[0] != '\0' && (!path || !strstr(path, rule->match)))
        return 0;
    if (__atomic_load_n(&rule->skip, __ATOMIC_RELAXED) > 0 &&
        __atomic_fetch_sub(&rule->skip, 1, __ATOMIC_RELAXED) > 0)
        return 0;
    int count = __atomic_load_n(&rule->count, __ATOMIC_RELAXED);
    if (count == 0 || (count > 0 && __atomic_fetch_sub(&rule->count, 1, __ATOMIC_RELAXED) <= 0))
        return 0;
    __atomic_add_fetch(&rule->failed, 1, __ATOMIC_RELAXED);
    errno = error;
    return 1;
}

/* ---- memory */

EXPORT int memfd_create(const char *name, unsigned flags) {
    if (fails(SHIM_MEMFD_CREATE, name))
        return -1;
    return NEXT(int (*)(const char *, unsigned), "memfd_create")(name, flags);
}

EXPORT int ftruncate(int fd, off_t length) {
    if (fails(SHIM_FTRUNCATE, NULL))
        return -1;
    return NEXT(int (*)(int, off_t), "ftruncate")(fd, length);
}
EXPORT int ftruncate64(int fd, off64_t length) { return ftruncate(fd, length); }

EXPORT int fallocate(int fd, int mode, off_t offset, off_t length) {
    if (fails(SHIM_FALLOCATE, NULL))
        return -1;
    return NEXT(int (*)(int, int, off_t, off_t), "fallocate")(fd, mode, offset, length);
}
EXPORT int fallocate64(int fd, int mode, off64_t offset, off64_t length) {
    return fallocate(fd, mode, offset, length);
}

EXPORT void *mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset) {
    if (fd >= 0 && fails(SHIM_MMAP_FD, NULL))
        return MAP_FAILED;
    return NEXT(void *(*)(void *, size_t, int, int, int, off_t), "mmap")(at, length, protection,
                                                                         flags, fd, offset);
}
EXPORT void *mmap64(void *at, size_t length, int protection, int flags, int fd, off64_t offset) {
    return mmap(at, length, protection, flags, fd, offset);
}

EXPORT int madvise(void *at, size_t length, int advice) {
    if ((advice == MADV_POPULATE_WRITE && length > 4096 && fails(SHIM_POPULATE_WRITE, NULL)) ||
        (advice == MADV_COLLAPSE && fails(SHIM_COLLAPSE, NULL)))
        return -1;
    return NEXT(int (*)(void *, size_t, int), "madvise")(at, length, advice);
}

/* ---- files */

static int open_fails(const char *path, int flags) {
    return fails((flags & O_ACCMODE) == O_RDONLY ? SHIM_OPEN_READ : SHIM_OPEN_WRITE, path);
}
static int needs_mode(int flags) {
    return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

EXPORT int open(const char *path, int flags, ...) {
    mode_t mode = 0;
    if (needs_mode(flags)) {
        va_list more;
        va_start(more, flags);
        mode = va_arg(more, mode_t);
        va_end(more);
    }
    if (open_fails(path, flags))
        return -1;
    return NEXT(int (*)(const char *, int, ...), "open")(path, flags, mode);
}
EXPORT int open64(const char *path, int flags, ...) {
    mode_t mode = 0;
    if (needs_mode(flags)) {
        va_list more;
        va_start(more, flags);
        mode = va_arg(more, mode_t);
        va_end(more);
    }
    if (open_fails(path, flags))
        return -1;
    return NEXT(int (*)(const char *, int, ...), "open64")(path, flags, mode);
}
EXPORT int openat(int directory, const char *path, int flags, ...) {
    mode_t mode = 0;
    if (needs_mode(flags)) {
        va_list more;
        va_start(more, flags);
        mode = va_arg(more, mode_t);
        va_end(more);
    }
    if (open_fails(path, flags))
        return -1;
    return NEXT(int (*)(int, const char *, int, ...), "openat")(directory, path, flags, mode);
}

EXPORT ssize_t write(int fd, const void *data, size_t length) {
    if (fails(SHIM_WRITE, NULL))
        return -1;
    return NEXT(ssize_t(*)(int, const void *, size_t), "write")(fd, data, length);
}

EXPORT int rename(const char *from, const char *to) {
    if (fails(SHIM_RENAME, from))
        return -1;
    return NEXT(int (*)(const char *, const char *), "rename")(from, to);
}

EXPORT int fsync(int fd) {
    if (fails(SHIM_FSYNC, NULL))
        return -1;
    return NEXT(int (*)(int), "fsync")(fd);
}
EXPORT int fdatasync(int fd) {
    if (fails(SHIM_FSYNC, NULL))
        return -1;
    return NEXT(int (*)(int), "fdatasync")(fd);
}

/* ---- sockets and events */

EXPORT int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags) {
    if (fails(SHIM_ACCEPT, NULL))
        return -1;
    return NEXT(int (*)(int, struct sockaddr *, socklen_t *, int), "accept4")(fd, address, length,
                                                                              flags);
}

EXPORT ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
    if (fails(SHIM_RECVMSG, NULL))
        return -1;
    return NEXT(ssize_t(*)(int, struct msghdr *, int), "recvmsg")(fd, message, flags);
}

EXPORT ssize_t send(int fd, const void *bytes, size_t length, int flags) {
    if (fails(SHIM_SENDMSG, NULL))
        return -1;
    return NEXT(ssize_t(*)(int, const void *, size_t, int), "send")(fd, bytes, length, flags);
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    if (fails(SHIM_SENDMSG, NULL) ||
        (message && message->msg_controllen > 0 && fails(SHIM_SENDMSG_FDS, NULL)))
        return -1;
    return NEXT(ssize_t(*)(int, const struct msghdr *, int), "sendmsg")(fd, message, flags);
}

EXPORT int epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event) {
    if (operation == EPOLL_CTL_ADD && fails(SHIM_EPOLL_ADD, NULL))
        return -1;
    return NEXT(int (*)(int, int, int, struct epoll_event *), "epoll_ctl")(epoll, operation, fd,
                                                                           event);
}

EXPORT int fcntl(int fd, int command, ...) {
    va_list more;
    va_start(more, command);
    void *argument = va_arg(more, void *);
    va_end(more);
    if ((command == F_ADD_SEALS && fails(SHIM_ADD_SEALS, NULL)) ||
        (command == F_DUPFD_CLOEXEC && fails(SHIM_DUP, NULL)))
        return -1;
    return NEXT(int (*)(int, int, ...), "fcntl")(fd, command, argument);
}
EXPORT int fcntl64(int fd, int command, ...) {
    va_list more;
    va_start(more, command);
    void *argument = va_arg(more, void *);
    va_end(more);
    return fcntl(fd, command, argument);
}

/* ---- what has no function of its own in libc, or is called past it */

EXPORT long syscall(long number, ...) {
    va_list more;
    va_start(more, number);
    long a = va_arg(more, long), b = va_arg(more, long), c = va_arg(more, long);
    long d = va_arg(more, long), e = va_arg(more, long), f = va_arg(more, long);
    va_end(more);
    if (((number == SYS_mbind || number == SYS_set_mempolicy) && fails(SHIM_MBIND, NULL)) ||
        (number == SYS_pidfd_open && fails(SHIM_PIDFD_OPEN, NULL)))
        return -1;
    return NEXT(long (*)(long, ...), "syscall")(number, a, b, c, d, e, f);
}

/* ---- the wall clock */

static int64_t realtime_offset(void) {
    return control ? __atomic_load_n(&control->realtime_offset_ns, __ATOMIC_RELAXED) : 0;
}

EXPORT int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = NEXT(int (*)(clockid_t, struct timespec *), "clock_gettime")(clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t total =
            (int64_t)now->tv_sec * 1000000000 + (int64_t)now->tv_nsec + realtime_offset();
        now->tv_sec = (time_t)(total / 1000000000);
        now->tv_nsec = (long)(total % 1000000000);
    }
    return result;
}

EXPORT int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int result = NEXT(int (*)(struct timeval *, void *), "gettimeofday")(now, zone);
    if (result == 0)
        now->tv_sec += (time_t)(realtime_offset() / 1000000000);
    return result;
}

EXPORT time_t time(time_t *ret) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (ret)
        *ret = now.tv_sec;
    return now.tv_sec;
}
