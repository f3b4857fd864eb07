#include "libmaru/base/duration_text.h"

#include <cerrno>
#include <iterator>

#include "libmaru/base/number_text.h"

namespace maru {

namespace {

constexpr int64_t kUs = 1'000, kMs = 1'000 * kUs, kS = 1'000 * kMs;
constexpr int64_t kMin = 60 * kS, kHour = 60 * kMin, kDay = 24 * kHour;

constexpr Unit kUnits[] = {
    {"ns", 1},   {"us", kUs},   {"ms", kMs},  {"s", kS},
    {"m", kMin}, {"min", kMin}, {"h", kHour}, {"d", kDay},
};

}  // namespace

Result<int64_t> parse_duration(std::string_view text, Zero zero) {
    const auto ns = parse_quantity(text, "duration", kUnits, "ns, us, ms, s, m, h, d", 0);
    if (!ns)
        return ns.error();
    if (*ns > INT64_MAX)
        return Error{ERANGE, "duration '" + std::string(text) + "': too large, at most 292 years"};
    if (*ns == 0 && zero == Zero::Refused)
        return Error{EINVAL, "duration '" + std::string(text) + "': must be at least 1 ns"};
    return static_cast<int64_t>(*ns);
}

std::string format_duration(int64_t ns) {
    if (ns < 0)
        return "-" + format_duration(ns == INT64_MIN ? INT64_MAX : -ns);
    struct Step {
        int64_t above, unit;
        const char *name;
        int64_t small_unit;  // 0: not shown
        const char *small_name;
    };
    static constexpr Step kSteps[] = {
        {kDay, kDay, "d", kHour, "h"}, {kHour, kHour, "h", kMin, "m"}, {kMin, kMin, "m", kS, "s"},
        {kS, kS, "s", 0, ""},          {kMs, kMs, "ms", 0, ""},        {kUs, kUs, "us", 0, ""},
    };
    for (const Step &step : kSteps) {
        if (ns < step.above)
            continue;
        std::string text = std::to_string(ns / step.unit) + step.name;
        if (step.small_unit)
            if (const int64_t rest = ns % step.unit / step.small_unit; rest > 0)
                text += " " + std::to_string(rest) + step.small_name;
        return text;
    }
    return std::to_string(ns) + "ns";
}

}  // namespace maru
