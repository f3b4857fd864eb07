#include "libmaru/pool/numa.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

namespace maru::pool {

namespace {

constexpr int kMaxNodes = 1024;  // the kernel's own largest configuration
constexpr int kWordBits = CHAR_BIT * sizeof(unsigned long);

// The system call itself: libmaru is loaded into engines, and libnuma would come along for this.
int bind_to_node(void *memory, size_t bytes, int node) {
    if (node < 0 || node >= kMaxNodes)
        return EINVAL;
    std::array<unsigned long, kMaxNodes / kWordBits> mask{};
    mask[static_cast<size_t>(node / kWordBits)] = 1ul << (node % kWordBits);
    // The kernel reads one bit less than it is told.
    const long failed =
        ::syscall(SYS_mbind, memory, bytes, MPOL_BIND, mask.data(), kMaxNodes + 1, 0);
    return failed != 0 ? errno : 0;
}

int node_of_caller() {
    unsigned cpu = 0, node = 0;
    return ::getcpu(&cpu, &node) == 0 ? static_cast<int>(node) : -1;
}

}  // namespace

const NumaCalls &system_numa() {
    static const NumaCalls calls{bind_to_node, node_of_caller};
    return calls;
}

Result<Binding> bind_memory(void *memory, size_t bytes, wire::Numa mode, int node,
                            const NumaCalls &calls) {
    if (mode == wire::Numa::Off)
        return Binding{};
    if (node < -1 || node >= kMaxNodes)
        return Error{EINVAL, "NUMA node " + std::to_string(node) + ": -1 (the caller's) to " +
                                 std::to_string(kMaxNodes - 1) + " are allowed"};
    int failed = 0;
    if (node == -1)
        node = calls.current_node();
    if (node == -1)
        failed = ENOSYS;
    else
        failed = calls.bind(memory, bytes, node);
    if (failed == 0)
        return Binding{node, ""};
    const char *name = ::strerrorname_np(failed);
    const std::string what = "bind pool memory to NUMA node " +
                             (node == -1 ? std::string("of this thread") : std::to_string(node)) +
                             ": mbind gave " + (name ? name : std::to_string(failed));
    if (mode == wire::Numa::Strict)
        return Error{EOPNOTSUPP, what};
    return Binding{-1, what + "; the pool stays unbound"};
}

}  // namespace maru::pool
