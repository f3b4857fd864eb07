#include <immintrin.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "libmaru/copy/choice.h"
#include "libmaru/copy/cpu.h"

namespace maru::copy {

namespace {

constexpr size_t kLine = 64;
constexpr size_t kSamples[kSizeClasses] = {16 * 1024, 256 * 1024, 2048 * 1024};
constexpr int kFinalists = 3;
constexpr int kHeats[kSizeClasses] = {8, 4,
                                      2};  // rounds of all; one alone would drop the best by chance
constexpr int kRounds[kSizeClasses] = {48, 16, 6};  // of the finalists

uint64_t now_ns() {
    timespec t;
    ::clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

__attribute__((target("clflushopt"))) void evict_unordered(const uint8_t *data, size_t size) {
    for (size_t i = 0; i < size; i += kLine)
        _mm_clflushopt(const_cast<uint8_t *>(data) + i);
}

// Cold memory without a buffer larger than the last-level cache, which may be hundreds of MiB.
void evict(const uint8_t *data, size_t size) {
    if (cpu_has_clflushopt())  // each clflush waits for the one before: 25 times slower
        evict_unordered(data, size);
    else
        for (size_t i = 0; i < size; i += kLine)
            _mm_clflush(data + i);
    _mm_mfence();
}

uint64_t read_all(const uint8_t *data, size_t size) {
    uint64_t sum = 0;
    for (size_t i = 0; i < size; i += sizeof sum) {
        uint64_t word;
        std::memcpy(&word, data + i, sizeof word);
        sum += word;
    }
    return sum;
}

struct Buffers {
    uint8_t *source, *target;
};

uint64_t time_once(const Kernel &kernel, Direction direction, const Buffers &buffers, size_t size) {
    // Both are far larger than the caches in the end: a pool, and an engine's memory.
    evict(buffers.source, size);
    evict(buffers.target, size);
    const uint64_t begin = now_ns();
    kernel.copy(buffers.target, buffers.source, size);
    if (direction == Direction::Out) {
        volatile uint64_t sink = read_all(buffers.target, size);
        (void)sink;
    }
    return now_ns() - begin;
}

const Kernel *fastest(Direction direction, size_t index, const Buffers &buffers) {
    struct Entry {
        const Kernel *kernel;
        uint64_t best;
    };
    std::vector<Entry> entries;
    const size_t size = kSamples[index];
    for (const Kernel &kernel : kernels())
        if (kernel.supported())
            entries.push_back({&kernel, UINT64_MAX});
    // Interleaved, and the least of each: another process on the core disturbs one round of one kernel.
    const auto race = [&](int rounds) {
        for (int round = 0; round < rounds; ++round)
            for (Entry &entry : entries)
                entry.best =
                    std::min(entry.best, time_once(*entry.kernel, direction, buffers, size));
    };
    race(kHeats[index]);
    auto by_time = [](const Entry &a, const Entry &b) { return a.best < b.best; };
    std::sort(entries.begin(), entries.end(), by_time);
    entries.resize(std::min<size_t>(entries.size(), kFinalists));
    race(kRounds[index]);
    return std::min_element(entries.begin(), entries.end(), by_time)->kernel;
}

}  // namespace

Choice uniform_choice(const Kernel &kernel) {
    Choice choice;
    choice.in.fill(&kernel);
    choice.out.fill(&kernel);
    return choice;
}

Choice calibrate() {
    constexpr size_t kBytes = kSamples[kSizeClasses - 1];
    void *memory =
        ::mmap(nullptr, 2 * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return uniform_choice(kernels().front());
    const Buffers buffers{static_cast<uint8_t *>(memory), static_cast<uint8_t *>(memory) + kBytes};
    std::memset(memory, 1, 2 * kBytes);  // pages first: not to be timed
    Choice choice;
    for (size_t i = 0; i < kSizeClasses; ++i) {
        choice.in[i] = fastest(Direction::In, i, buffers);
        choice.out[i] = fastest(Direction::Out, i, buffers);
    }
    ::munmap(memory, 2 * kBytes);
    return choice;
}

}  // namespace maru::copy
