// Planted bugs for the simulation: each must be found by it, or it proves nothing.
//
// MARU_MUTANT(Name) is the constant false in every build but that of tests/sim, which compiles all
// of them in (-DMARU_MUTANTS) and chooses at most one at run time: one compilation serves them all.
// tests/sim/meson.build lists every name with the sentence it breaks.
#pragma once

#include <cstdint>

namespace maru {

#ifdef MARU_MUTANTS
constexpr uint64_t mutant_code(const char *name) {  // FNV-1a
    uint64_t code = 0xcbf29ce484222325;
    for (; *name; ++name)
        code = (code ^ static_cast<unsigned char>(*name)) * 0x100000001b3;
    return code;
}
inline uint64_t chosen_mutant = 0;     // set before the first Service is made
inline uint64_t mutant_reached = 0;    // how often the chosen point was evaluated
inline bool mutant_is(uint64_t code) {
    if (code != chosen_mutant)
        return false;
    ++mutant_reached;
    return true;
}
#define MARU_MUTANT(name) (::maru::mutant_is(::maru::mutant_code(#name)))
#else
#define MARU_MUTANT(name) false
#endif

}  // namespace maru
