// Planted bugs for the simulation: each must be found by it, or it proves nothing.
//
// MARU_MUTANT(Name) is the constant false in every build but that of tests/sim, which compiles all
// of them in (-DMARU_MUTANTS) and chooses at most one at run time: one compilation serves them all.
// tests/sim/meson.build lists every name with the sentence it breaks. Those of the directory:
//   AcquireRetiring          impl.h      a RETIRING replica is never acquired
//   ForeignPrivateHit        impl.h      a private replica is read by its owner only
//   HiddenPoolHit            impl.h      a hidden or closing pool gives no hits
//   NamespaceOfAllUids       namespaces.cc  a namespace belongs to one uid
//   NamespaceMixUp           lookup.cc   equal keys of two namespaces are two objects
//   StaleEpochAccepted       impl.h      an id of an earlier life names nothing
//   StaleGenerationAccepted  impl.h      a name of memory that was reused names nothing
//   OverlapCommit            commit.cc   no page belongs to two replicas
//   OldGenerationCommit      commit.cc   the generations of a page only grow
//   PartialManifest          acquire.cc  a manifest is acquired as a whole or not at all
//   DoubleReleaseAccepted    release.cc  a release ends a lease of the caller or nothing
//   ReuseBeforeRelease       retire.cc   a page is not reused before its last reader is done
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
inline uint64_t chosen_mutant = 0;   // set before the first Service is made
inline uint64_t mutant_reached = 0;  // how often the chosen point was evaluated
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
