// What marud's sandbox allows and forbids, tried from inside: one line "NAME RESULT" each, where
// RESULT is "ok" or the name of the errno. Started by ExecStartPre= of the very unit, so that it runs
// under everything the unit sets.
//
//   sandbox-probe PID     PID: a process of another user, whose /proc entries must be readable
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21U << 26)
#endif

static void tell(const char *name, long result) {
    int code = errno;
    printf("probe %s %s\n", name, result >= 0 ? "ok" : strerrorname_np(code));
}

static long sealed_memfd(unsigned flags) {
    int fd = (int)syscall(SYS_memfd_create, "probe", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
    char *data;
    if (fd < 0 || ftruncate(fd, 2 << 20) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
        return -1;
    data = mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        return -1;
    data[0] = 1;
    munmap(data, 2 << 20);
    return fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL);
}

static long io_uring(void) {
    // As large as struct io_uring_params, which old headers lack.
    unsigned params[30] = {0};
    long fd = syscall(SYS_io_uring_setup, 8, params);
    // One no-op by hand would need both rings; the registration call shows the second of three.
    if (fd >= 0 && syscall(SYS_io_uring_enter, fd, 0, 0, 0, NULL, 0) < 0)
        return -1;
    return fd;
}

static long read_of(const char *form, const char *pid) {
    char path[64], text[64];
    int fd;
    snprintf(path, sizeof path, form, pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -1 : read(fd, text, sizeof text);
}

static long lock_file(const char *directory) {
    char path[256];
    int fd;
    snprintf(path, sizeof path, "%s/probe", directory ? directory : "/nonexistent");
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || fallocate(fd, 0, 0, 4096) < 0)
        return -1;
    return unlink(path);
}

int main(int argc, char **argv) {
    const char *pid = argc > 1 ? argv[1] : "self";
    void *code;
    setvbuf(stdout, NULL, _IOLBF, 0);
    // marud's trade.
    tell("memfd", sealed_memfd(0));
    tell("memfd-huge", sealed_memfd(MFD_HUGETLB | MFD_HUGE_2MB));
    tell("io_uring", io_uring());
    tell("unix", socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    tell("pidfd", syscall(SYS_pidfd_open, atoi(pid), 0));
    tell("proc-stat", read_of("/proc/%s/stat", pid));
    tell("proc-comm", read_of("/proc/%s/comm", pid));
    tell("meminfo", read_of("/proc/meminfo", pid));
    tell("own-directory", lock_file(getenv("RUNTIME_DIRECTORY")));
    // Not marud's.
    tell("inet", socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    tell("netlink", socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0));
    tell("etc", open("/etc/maru-probe", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    tell("shadow", open("/etc/shadow", O_RDONLY | O_CLOEXEC));
    tell("mount", mount("none", "/tmp", "tmpfs", 0, NULL));
    tell("namespace", syscall(SYS_unshare, 0x10000000));
    tell("chown", syscall(SYS_chown, "/tmp", 0, 0));
    tell("setuid", syscall(SYS_setuid, 0));
    tell("nice", syscall(SYS_setpriority, 0, 0, 0));
    tell("bpf", syscall(SYS_bpf, 0, NULL, 0));
    tell("keyring", syscall(SYS_add_key, "user", "probe", "x", 1, -3));
    code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    tell("code", code == MAP_FAILED ? -1 : 0);
    return 0;
}
