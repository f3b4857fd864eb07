#include "libmaru/copy/copy.h"

#include <stdlib.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "libmaru/copy/choice.h"

namespace maru::copy {

namespace {

std::atomic<const Choice *> chosen{nullptr};
std::atomic<bool> choosing{false};

Choice make_choice() {
    if (const char *name = ::secure_getenv("MARU_COPY_KERNEL"); name && *name) {
        const Kernel *kernel = find_kernel(name);
        if (kernel && kernel->supported())
            return uniform_choice(*kernel);
        std::fprintf(stderr, "maru: MARU_COPY_KERNEL=%s: this machine has", name);
        for (const Kernel &other : kernels())
            if (other.supported())
                std::fprintf(stderr, " %.*s", static_cast<int>(other.name.size()),
                             other.name.data());
        std::fprintf(stderr, "; calibrating instead\n");
    }
    const char *folder = ::secure_getenv("XDG_RUNTIME_DIR");
    return load_or_calibrate(folder && folder[0] == '/' ? folder : "");
}

// Never waits: while one thread measures, others copy with libc. A lock would hang for ever in the
// child of a process that forked in the middle of it.
const Choice &choice() {
    if (const Choice *made = chosen.load(std::memory_order_acquire))
        return *made;
    static const Choice fallback = uniform_choice(kernels().front());
    if (choosing.exchange(true))
        return fallback;
    static Choice made;  // written once, by the thread that set `choosing`
    made = make_choice();
    chosen.store(&made, std::memory_order_release);
    return made;
}

}  // namespace

void prepare() { choice(); }

const Kernel &chosen_kernel(Direction direction, size_t size) {
    if (size < kSmallBytes)
        return kernels().front();
    const Choice &made = choice();
    return *(direction == Direction::In ? made.in : made.out)[size_class(size)];
}

void copy_in(void *pool_memory, const void *source, size_t size) {
    chosen_kernel(Direction::In, size).copy(pool_memory, source, size);
}

void copy_out(void *destination, const void *pool_memory, size_t size) {
    chosen_kernel(Direction::Out, size).copy(destination, pool_memory, size);
}

void copy_in(void *pool_memory, const void *source, size_t size, size_t all) {
    chosen_kernel(Direction::In, size < kSmallBytes ? size : all).copy(pool_memory, source, size);
}

void copy_out(void *destination, const void *pool_memory, size_t size, size_t all) {
    chosen_kernel(Direction::Out, size < kSmallBytes ? size : all)
        .copy(destination, pool_memory, size);
}

}  // namespace maru::copy
