// What this processor offers and this operating system saves across a context switch.
#pragma once

#include <string>

namespace maru::copy {

bool cpu_has_avx2();
bool cpu_has_avx512();  // avx512f with all its state
bool cpu_has_movdir64b();
bool cpu_has_clflushopt();
bool cpu_has_fast_movsb();  // without ERMS, rep movsb goes byte by byte

// Brand, family, model and stepping: one line, for the key of a cached choice.
std::string cpu_model();

}  // namespace maru::copy
