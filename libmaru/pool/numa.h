// Binds a pool's memory to a NUMA node, as far as the machine lets us.
//
// To be called after mapping and before population. Containers often refuse the call, and a read-only
// question does not predict it: so the binding itself is tried, and never claimed when refused.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "libmaru/base/result.h"
#include "libmaru/wire/messages.h"

namespace maru::pool {

struct Binding {
    int node = -1;        // -1: unbound
    std::string warning;  // Auto only: why it is unbound; to be shown once
};

struct NumaCalls {
    // mbind(2), MPOL_BIND to one node: 0 or an errno.
    std::function<int(void *memory, size_t bytes, int node)> bind;
    // The node this thread runs on, or -1.
    std::function<int()> current_node;
};
const NumaCalls &system_numa();

// node -1: the caller's own. Strict and refused: EOPNOTSUPP naming the errno. Off: {-1, ""}.
Result<Binding> bind_memory(void *memory, size_t bytes, wire::Numa mode, int node,
                            const NumaCalls &calls = system_numa());

}  // namespace maru::pool
