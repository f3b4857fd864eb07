#include "daemon/maructl/doctor/io_uring_probe.h"

#include <linux/io_uring.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "libmaru/base/unique_fd.h"

// Linux 6.0 and 6.1.
#ifndef IORING_SETUP_SINGLE_ISSUER
#define IORING_SETUP_SINGLE_ISSUER (1U << 12)
#endif
#ifndef IORING_SETUP_DEFER_TASKRUN
#define IORING_SETUP_DEFER_TASKRUN (1U << 13)
#endif

namespace maru::maructl {

namespace {

constexpr unsigned kEntries = 4;

// The ring is not mapped: nothing is submitted.
UniqueFd set_up(unsigned flags, io_uring_params *ret_params) {
    *ret_params = {};
    ret_params->flags = flags;
    return UniqueFd(static_cast<int>(::syscall(SYS_io_uring_setup, kEntries, ret_params)));
}

void look_for_operations(int ring, std::vector<std::string> &missing) {
    struct Operation {
        unsigned code;
        const char *name;
    };
    static constexpr Operation kNeeded[] = {
        {IORING_OP_READ, "READ"},
        {IORING_OP_WRITE, "WRITE"},
        {IORING_OP_READ_FIXED, "READ_FIXED"},
        {IORING_OP_WRITE_FIXED, "WRITE_FIXED"},
        {IORING_OP_FSYNC, "FSYNC"},
        {IORING_OP_ASYNC_CANCEL, "ASYNC_CANCEL"},
    };
    constexpr unsigned kMaxOperations = 256;
    alignas(io_uring_probe) unsigned char
        memory[sizeof(io_uring_probe) + kMaxOperations * sizeof(io_uring_probe_op)] = {};
    auto *probe = reinterpret_cast<io_uring_probe *>(memory);
    const bool told =
        ::syscall(SYS_io_uring_register, ring, IORING_REGISTER_PROBE, probe, kMaxOperations) == 0;
    if (!told)
        missing.emplace_back("REGISTER_PROBE");
    for (const Operation &operation : kNeeded)
        if (told && (operation.code > probe->last_op ||
                     !(probe->ops[operation.code].flags & IO_URING_OP_SUPPORTED)))
            missing.emplace_back(operation.name);
}

}  // namespace

IoUringProbe probe_io_uring() {
    IoUringProbe out;
    io_uring_params params;
    const UniqueFd ring = set_up(0, &params);
    if (!ring) {
        out.error = errno;
        return out;
    }
    look_for_operations(ring.get(), out.missing);
    // Completions are never dropped when their queue is full.
    if (!(params.features & IORING_FEAT_NODROP))
        out.missing.emplace_back("FEAT_NODROP");
    out.defer_taskrun =
        bool(set_up(IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, &params));
    return out;
}

}  // namespace maru::maructl
