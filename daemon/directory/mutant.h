// Planted bugs for the simulation: MARU_MUTANT(Name) is false in every build but the one of that
// mutant, where the simulation must find the fault it opens. -DMARU_MUTANT_NAME=Name selects one.
#pragma once

namespace maru {

#ifdef MARU_MUTANT_NAME
#define MARU_MUTANT_STRING2(x) #x
#define MARU_MUTANT_STRING(x) MARU_MUTANT_STRING2(x)
constexpr bool mutant_is(const char *name) {
    const char *chosen = MARU_MUTANT_STRING(MARU_MUTANT_NAME);
    while (*name && *name == *chosen)
        ++name, ++chosen;
    return *name == *chosen;
}
#define MARU_MUTANT(name) (::maru::mutant_is(#name))
#else
#define MARU_MUTANT(name) false
#endif

}  // namespace maru
