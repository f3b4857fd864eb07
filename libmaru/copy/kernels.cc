// The copy kernels. Each is compiled for its own instruction set by a function attribute, so that the
// library runs on any x86-64 and only what cpuid and the operating system offer is ever called.
//
// A streaming kernel writes whole aligned lines past the caches; what lies before the first and after
// the last such line is copied as usual. Its sfence orders both before anything that follows.
//
// Streaming kernels go through four pages side by side: the hardware prefetcher follows a stream per
// page and stops at its end, so four streams keep more reads in flight (13.4 instead of 10.5 GB/s on one
// Xeon, cold, with pages of 4 KiB and of 2 MiB alike). Software prefetches gained nothing.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "libmaru/copy/copy.h"
#include "libmaru/copy/cpu.h"

namespace maru::copy {

namespace {

constexpr size_t kLine = 64;
constexpr size_t kPage = 4096;
constexpr size_t kStreams = 4;
constexpr size_t kTurn = 2 * kLine;  // bytes of one stream before the next one's turn

struct Cursor {
    uint8_t *to;
    const uint8_t *from;
    size_t left;

    Cursor(void *destination, const void *source, size_t size)
        : to(static_cast<uint8_t *>(destination)),
          from(static_cast<const uint8_t *>(source)),
          left(size) {}

    // Copies what is before the next line of the destination.
    void align() {
        const size_t head = (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine;
        plain(head < left ? head : left);
    }
    void plain(size_t size) {
        if (size > 0)
            std::memcpy(to, from, size);
        advance(size);
    }
    void advance(size_t size) {
        to += size;
        from += size;
        left -= size;
    }
};

void copy_libc(void *destination, const void *source, size_t size) {
    if (size > 0)
        std::memcpy(destination, source, size);
    // glibc's large copies stream; whether they end with a fence is its own affair.
    _mm_sfence();
}

void copy_rep_movsb(void *destination, const void *source, size_t size) {
    asm volatile("rep movsb" : "+D"(destination), "+S"(source), "+c"(size) : : "memory");
}

__attribute__((target("avx2"))) void copy_avx2(void *destination, const void *source, size_t size) {
    Cursor at(destination, source, size);
    at.align();
    for (; at.left >= 4 * 32; at.advance(4 * 32)) {
        auto *from = reinterpret_cast<const __m256i *>(at.from);
        auto *to = reinterpret_cast<__m256i *>(at.to);
        const __m256i a = _mm256_loadu_si256(from), b = _mm256_loadu_si256(from + 1);
        const __m256i c = _mm256_loadu_si256(from + 2), d = _mm256_loadu_si256(from + 3);
        _mm256_store_si256(to, a);
        _mm256_store_si256(to + 1, b);
        _mm256_store_si256(to + 2, c);
        _mm256_store_si256(to + 3, d);
    }
    at.plain(at.left);
}

__attribute__((target("avx2"))) inline void turn_avx2_nt(uint8_t *target, const uint8_t *source) {
    auto *from = reinterpret_cast<const __m256i *>(source);
    auto *to = reinterpret_cast<__m256i *>(target);
    const __m256i a = _mm256_loadu_si256(from), b = _mm256_loadu_si256(from + 1);
    const __m256i c = _mm256_loadu_si256(from + 2), d = _mm256_loadu_si256(from + 3);
    _mm256_stream_si256(to, a);
    _mm256_stream_si256(to + 1, b);
    _mm256_stream_si256(to + 2, c);
    _mm256_stream_si256(to + 3, d);
}

__attribute__((target("avx2"))) void copy_avx2_nt(void *destination, const void *source,
                                                  size_t size) {
    Cursor at(destination, source, size);
    at.align();
    for (; at.left >= kStreams * kPage; at.advance(kStreams * kPage))
        for (size_t in_page = 0; in_page < kPage; in_page += kTurn)
            for (size_t stream = 0; stream < kStreams; ++stream)
                turn_avx2_nt(at.to + stream * kPage + in_page, at.from + stream * kPage + in_page);
    for (; at.left >= kTurn; at.advance(kTurn))
        turn_avx2_nt(at.to, at.from);
    at.plain(at.left);
    _mm_sfence();
}

__attribute__((target("avx512f"))) void copy_avx512(void *destination, const void *source,
                                                    size_t size) {
    Cursor at(destination, source, size);
    at.align();
    for (; at.left >= 4 * kLine; at.advance(4 * kLine)) {
        const __m512i a = _mm512_loadu_si512(at.from), b = _mm512_loadu_si512(at.from + kLine);
        const __m512i c = _mm512_loadu_si512(at.from + 2 * kLine);
        const __m512i d = _mm512_loadu_si512(at.from + 3 * kLine);
        _mm512_store_si512(at.to, a);
        _mm512_store_si512(at.to + kLine, b);
        _mm512_store_si512(at.to + 2 * kLine, c);
        _mm512_store_si512(at.to + 3 * kLine, d);
    }
    at.plain(at.left);
}

__attribute__((target("avx512f"))) inline void turn_avx512_nt(uint8_t *to, const uint8_t *from) {
    const __m512i a = _mm512_loadu_si512(from), b = _mm512_loadu_si512(from + kLine);
    _mm512_stream_si512(reinterpret_cast<__m512i *>(to), a);
    _mm512_stream_si512(reinterpret_cast<__m512i *>(to + kLine), b);
}

__attribute__((target("avx512f"))) void copy_avx512_nt(void *destination, const void *source,
                                                       size_t size) {
    Cursor at(destination, source, size);
    at.align();
    for (; at.left >= kStreams * kPage; at.advance(kStreams * kPage))
        for (size_t in_page = 0; in_page < kPage; in_page += kTurn)
            for (size_t stream = 0; stream < kStreams; ++stream)
                turn_avx512_nt(at.to + stream * kPage + in_page,
                               at.from + stream * kPage + in_page);
    for (; at.left >= kTurn; at.advance(kTurn))
        turn_avx512_nt(at.to, at.from);
    at.plain(at.left);
    _mm_sfence();
}

// A whole line in one store that needs no write-combining buffer to fill up.
__attribute__((target("movdir64b"))) inline void turn_movdir64b(uint8_t *to, const uint8_t *from) {
    _movdir64b(to, from);
    _movdir64b(to + kLine, from + kLine);
}

__attribute__((target("movdir64b"))) void copy_movdir64b(void *destination, const void *source,
                                                         size_t size) {
    Cursor at(destination, source, size);
    at.align();
    for (; at.left >= kStreams * kPage; at.advance(kStreams * kPage))
        for (size_t in_page = 0; in_page < kPage; in_page += kTurn)
            for (size_t stream = 0; stream < kStreams; ++stream)
                turn_movdir64b(at.to + stream * kPage + in_page,
                               at.from + stream * kPage + in_page);
    for (; at.left >= kTurn; at.advance(kTurn))
        turn_movdir64b(at.to, at.from);
    at.plain(at.left);
    _mm_sfence();
}

bool always() { return true; }

constexpr Kernel kKernels[] = {
    {"libc", always, copy_libc},
    {"rep_movsb", cpu_has_fast_movsb, copy_rep_movsb},
    {"avx2", cpu_has_avx2, copy_avx2},
    {"avx512", cpu_has_avx512, copy_avx512},
    {"avx2_nt", cpu_has_avx2, copy_avx2_nt},
    {"avx512_nt", cpu_has_avx512, copy_avx512_nt},
    {"movdir64b", cpu_has_movdir64b, copy_movdir64b},
};

}  // namespace

std::span<const Kernel> kernels() { return kKernels; }

const Kernel *find_kernel(std::string_view name) {
    for (const Kernel &kernel : kKernels)
        if (kernel.name == name)
            return &kernel;
    return nullptr;
}

}  // namespace maru::copy
