#include "libmaru/copy/cpu.h"

#include <cpuid.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

namespace maru::copy {

namespace {

struct Registers {
    unsigned a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf = 0) {
    Registers r;
    if (!__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d))
        return {};
    return r;
}

bool bit(unsigned value, int number) { return (value >> number) & 1; }

// The register state that the operating system saves (XCR0); 0 without XSAVE. cpuid alone would
// promise AVX where using it faults.
uint64_t saved_state() {
    if (!bit(cpuid(1).c, 27))
        return 0;
    uint32_t low, high;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return uint64_t{high} << 32 | low;
}

constexpr uint64_t kAvxState = 0x6;      // xmm, ymm
constexpr uint64_t kAvx512State = 0xe6;  // and masks, zmm low and high

struct Features {
    bool avx2, avx512, movdir64b, clflushopt, fast_movsb;
};

const Features &features() {
    static const Features found = [] {
        const Registers seven = cpuid(7);
        const uint64_t saved = saved_state();
        return Features{
            .avx2 = bit(seven.b, 5) && (saved & kAvxState) == kAvxState,
            .avx512 = bit(seven.b, 16) && (saved & kAvx512State) == kAvx512State,
            .movdir64b = bit(seven.c, 28),
            .clflushopt = bit(seven.b, 23),
            .fast_movsb = bit(seven.b, 9),
        };
    }();
    return found;
}

}  // namespace

bool cpu_has_avx2() { return features().avx2; }
bool cpu_has_avx512() { return features().avx512; }
bool cpu_has_movdir64b() { return features().movdir64b; }
bool cpu_has_clflushopt() { return features().clflushopt; }
bool cpu_has_fast_movsb() { return features().fast_movsb; }

std::string cpu_model() {
    char brand[49] = {};
    for (unsigned i = 0; i < 3; ++i) {
        const Registers r = cpuid(0x80000002 + i);
        std::memcpy(brand + 16 * i, &r, sizeof r);
    }
    for (char &c : brand)  // what a hypervisor puts there is its own affair: keep it one clean line
        if (c != '\0' && (c < ' ' || c > '~'))
            c = '?';
    char text[64];
    std::snprintf(text, sizeof text, "%.48s %08x", brand, cpuid(1).a);
    return text;
}

}  // namespace maru::copy
