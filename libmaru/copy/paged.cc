#include "libmaru/copy/paged.h"

#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

// The whole of XXH3 in this file, static: no libxxhash to find at run time.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "libmaru/copy/copy.h"
#include "libmaru/copy/runs.h"

namespace maru::copy {
namespace {

// A thread costs some 30 us to make and join; it should have at least ten times that to copy.
constexpr uint64_t kBytesPerThread = 8 << 20;
constexpr size_t kMaxThreads = 64;

size_t usable_processors() {
    cpu_set_t set;
    if (::sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    return static_cast<size_t>(CPU_COUNT(&set));
}

size_t thread_limit() {
    if (const char *text = ::secure_getenv("MARU_COPY_THREADS"); text && *text) {
        const std::string_view digits(text);
        size_t limit = 0;
        const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), limit);
        if (parsed.ec == std::errc{} && *parsed.ptr == '\0' && limit >= 1)
            return std::min(limit, kMaxThreads);
    }
    // Half of them: the engine's own threads wait for this copy, often by spinning.
    return std::clamp(usable_processors() / 2, size_t{1}, size_t{8});
}

// Runs step(0) ... step(count - 1), each once, on `threads` threads of which the caller is one.
template <typename Step>
void share(size_t count, size_t threads, const Step &step) {
    std::atomic<size_t> next{0};
    const auto work = [&] {
        for (size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1))
            step(i);
    };
    std::vector<std::thread> helpers;
    threads = std::min(threads, count);
    if (threads > 1) {
        helpers.reserve(threads - 1);
        // Signals are for the host program's own threads.
        sigset_t all, before;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before);
        try {
            for (size_t i = 1; i < threads; ++i)
                helpers.emplace_back(work);
        } catch (const std::system_error &) {
            // No more threads to be had: those that are there do it.
        }
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    work();
    for (auto &helper : helpers)
        helper.join();
}

// The processor's prefetcher begins anew in each page, and a run of few pages is over when it has.
void begin_reading(const char *from, uint64_t size) {
    constexpr uint64_t kLine = 64, kPage = 4096, kLines = 4, kPages = 4;
    for (uint64_t page = 0; page < std::min(size, kPages * kPage); page += kPage)
        for (uint64_t line = 0; line < kLines; ++line)
            __builtin_prefetch(from + page + line * kLine);
}

// Copies each run when the next one is known, whose beginning is then on its way.
template <typename Copy>
class OneBehind {
  public:
    explicit OneBehind(const Copy &copy) : copy_(copy) {}

    void add(const char *from, uint64_t offset, uint64_t size) {
        begin_reading(from, size);
        finish();
        from_ = from;
        offset_ = offset;
        size_ = size;
    }
    void finish() {
        if (size_ > 0)
            copy_(from_, offset_, size_);
        size_ = 0;
    }

  private:
    const Copy &copy_;
    const char *from_ = nullptr;
    uint64_t offset_ = 0, size_ = 0;
};

void write_checksum(const XXH128_hash_t &hash, uint8_t out[kChecksumBytes]) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, hash);
    static_assert(sizeof canonical.digest == kChecksumBytes);
    std::memcpy(out, canonical.digest, kChecksumBytes);
}

}  // namespace

size_t worthwhile_threads(uint64_t bytes) {
    static const size_t limit = thread_limit();
    return std::clamp<uint64_t>(bytes / kBytesPerThread, 1, limit);
}

void checksum(const void *bytes, size_t size, uint8_t out[kChecksumBytes]) {
    write_checksum(XXH3_128bits(bytes, size), out);
}

void gather(const PagedMemory &memory, const Transfer &transfer) {
    const size_t layers = memory.layers.size(), per_object = transfer.blocks_per_object;
    const uint64_t layer_bytes = per_object * memory.block_bytes;
    const uint64_t all = transfer.count * layers * layer_bytes;
    const size_t threads = transfer.threads ? transfer.threads : worthwhile_threads(all);
    const auto copy_layer = [&](size_t object, size_t layer, auto &&also) {
        char *to = static_cast<char *>(transfer.objects[object]) + layer * layer_bytes;
        const auto copy = [&](const char *from, uint64_t offset, uint64_t size) {
            copy_in(to + offset, from, size, all);
            also(from, size);
        };
        OneBehind runs(copy);
        for_each_run(memory, static_cast<char *>(memory.layers[layer]),
                     transfer.blocks + object * per_object, per_object,
                     [&](const char *from, uint64_t offset, uint64_t size) {
                         runs.add(from, offset, size);
                     });
        runs.finish();
    };
    if (!transfer.checksum) {
        share(transfer.count * layers, threads,
              [&](size_t i) { copy_layer(i / layers, i % layers, [](const char *, uint64_t) {}); });
        return;
    }
    // The engine's bytes are hashed, which the copy has just read: those in the pool may have bypassed
    // every cache.
    share(transfer.count, threads, [&](size_t object) {
        XXH3_state_t state;
        XXH3_INITSTATE(&state);
        XXH3_128bits_reset(&state);
        for (size_t layer = 0; layer < layers; ++layer)
            copy_layer(object, layer, [&](const char *from, uint64_t size) {
                XXH3_128bits_update(&state, from, size);
            });
        write_checksum(XXH3_128bits_digest(&state),
                       static_cast<uint8_t *>(transfer.objects[object]) + layers * layer_bytes);
        _mm_sfence();
    });
}

bool scatter(const PagedMemory &memory, const Transfer &transfer, int *results) {
    const size_t layers = memory.layers.size(), per_object = transfer.blocks_per_object;
    const uint64_t layer_bytes = per_object * memory.block_bytes;
    const uint64_t all = transfer.count * layers * layer_bytes;
    const size_t threads = transfer.threads ? transfer.threads : worthwhile_threads(all);
    const auto copy_layer = [&](size_t object, size_t layer) {
        const char *from =
            static_cast<const char *>(transfer.objects[object]) + layer * layer_bytes;
        for_each_run(memory, static_cast<char *>(memory.layers[layer]),
                     transfer.blocks + object * per_object, per_object,
                     [&](char *to, uint64_t offset, uint64_t size) {
                         copy_out(to, from + offset, size, all);
                     });
    };
    if (!transfer.checksum) {
        share(transfer.count * layers, threads,
              [&](size_t i) { copy_layer(i / layers, i % layers); });
        if (results)
            std::fill_n(results, transfer.count, 0);
        return true;
    }
    std::atomic<bool> good{true};
    share(transfer.count, threads, [&](size_t object) {
        const auto *bytes = static_cast<const uint8_t *>(transfer.objects[object]);
        uint8_t found[kChecksumBytes];
        checksum(bytes, layers * layer_bytes, found);
        const bool same = std::memcmp(found, bytes + layers * layer_bytes, kChecksumBytes) == 0;
        if (results)
            results[object] = same ? 0 : -EBADMSG;
        if (!same) {
            good = false;
            return;
        }
        for (size_t layer = 0; layer < layers; ++layer)
            copy_layer(object, layer);
    });
    return good;
}

}  // namespace maru::copy
