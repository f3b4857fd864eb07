// Copies between a caller's buffers and a pool, with the kernel that suits this machine, the size and
// the direction.
//
// No kernel wins everywhere (non-temporal stores are 2x libc on cold memory of one machine, 0.4x on
// hot memory of another), so the choice comes from a calibration of some 50 milliseconds, made at the
// first copy and kept per boot in $XDG_RUNTIME_DIR. MARU_COPY_KERNEL=NAME overrides it.
// Any size and alignment; ranges must not overlap. Every function may be called from any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace maru::copy {

// Into a pool. Ends with the fence that publication needs: a commit sent afterwards never names
// bytes that another core cannot see yet.
void copy_in(void *pool_memory, const void *source, size_t size);
// Out of a pool, for a reader that follows at once.
void copy_out(void *destination, const void *pool_memory, size_t size);
// Runs that are parts of `all` bytes: with the kernel for those, as the caches see all of them.
void copy_in(void *pool_memory, const void *source, size_t size, size_t all);
void copy_out(void *destination, const void *pool_memory, size_t size, size_t all);

// Makes the choice now instead of at the first copy. Idempotent.
void prepare();

// ---- the kernels, for the benchmark and the tests -----------------------------------------------

struct Kernel {
    std::string_view name;
    bool (*supported)();  // this processor and this operating system
    // Ends with the fence its stores need.
    void (*copy)(void *destination, const void *source, size_t size);
};

// All that this build knows, libc first. Calling one that is not supported is an illegal instruction.
std::span<const Kernel> kernels();
// nullptr: no kernel of that name.
const Kernel *find_kernel(std::string_view name);

enum class Direction { In, Out };
// What copy_in or copy_out uses for this size.
const Kernel &chosen_kernel(Direction direction, size_t size);

}  // namespace maru::copy
