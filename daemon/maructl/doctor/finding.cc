#include "daemon/maructl/doctor/finding.h"

#include <algorithm>
#include <cassert>

namespace maru::maructl {

const char *severity_name(Severity severity) {
    static constexpr const char *kNames[] = {"ok", "note", "warning", "problem"};
    return kNames[static_cast<size_t>(severity)];
}

void Findings::add(std::string check, Severity severity, std::string found, std::string remedy,
                   const char *pages) {
    assert((severity == Severity::Ok) == remedy.empty());
    std::string man = "maru-host(7)";
    if (pages)
        man += std::string(", ") + pages;
    all_.push_back(
        {std::move(check), severity, std::move(found), std::move(remedy), std::move(man)});
}

size_t Findings::count(Severity severity) const {
    return static_cast<size_t>(std::count_if(all_.begin(), all_.end(), [&](const Finding &finding) {
        return finding.severity == severity;
    }));
}

}  // namespace maru::maructl
