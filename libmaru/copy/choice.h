// Which kernel copies which size in which direction, and how that is found out and kept.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "libmaru/copy/copy.h"

namespace maru::copy {

// Below kSmallBytes libc's own dispatch is best and not worth a measurement.
inline constexpr size_t kSmallBytes = 4 * 1024;
inline constexpr size_t kSizeClasses = 3;
inline constexpr size_t kClassEnds[kSizeClasses - 1] = {32 * 1024, 512 * 1024};  // inclusive

constexpr size_t size_class(size_t size) {
    size_t index = 0;
    while (index < kSizeClasses - 1 && size > kClassEnds[index])
        ++index;
    return index;
}

struct Choice {
    std::array<const Kernel *, kSizeClasses> in{};
    std::array<const Kernel *, kSizeClasses> out{};
};

// One kernel for everything.
Choice uniform_choice(const Kernel &kernel);

// Measures, in some 60 milliseconds, with source and target out of the caches; a load together with the
// reader's first pass over the target.
Choice calibrate();

// The text of a cached choice, and its strict inverse: another boot or processor, an unknown or
// unsupported kernel, or any other byte out of place is no choice.
std::string format_choice(const Choice &choice, std::string_view boot_id, std::string_view cpu);
std::optional<Choice> parse_choice(std::string_view text, std::string_view boot_id,
                                   std::string_view cpu);

// The choice kept in `folder`, or a new one, which is then kept there. An empty folder keeps nothing.
Choice load_or_calibrate(const std::string &folder);

}  // namespace maru::copy
