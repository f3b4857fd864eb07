// Limits of this process, and of marud's, as the kernel enforces them.
#include "daemon/maructl/doctor/subject.h"
#include "libmaru/base/size_text.h"
#include "libmaru/base/text_file.h"

namespace maru::maructl {

namespace {

// A segment is 256 MiB by default, so this many are a pool of 128 GiB, beside an engine's own files.
constexpr uint64_t kWorkerDescriptors = 1024;
// One for each segment and each connection of everybody.
constexpr uint64_t kMarudDescriptors = 4096;
// Ordinary for a desktop session; a registered buffer of an SSD tier is larger.
constexpr uint64_t kLockedBytes = 64 << 20;

// The soft limit; UINT64_MAX: unlimited.
std::optional<uint64_t> soft_limit(const std::string &limits, const std::string &name) {
    size_t at = limits.find(name);
    if (at == limits.npos)
        return std::nullopt;
    at = limits.find_first_not_of(' ', at + name.size());
    if (at == limits.npos)
        return std::nullopt;
    const std::string_view rest = std::string_view(limits).substr(at);
    if (rest.rfind("unlimited", 0) == 0)
        return UINT64_MAX;
    return leading_number(rest);
}

void judge_memlock(const std::string &check, const std::string &who, const std::string &limits,
                   Findings &findings) {
    const auto bytes = soft_limit(limits, "Max locked memory");
    if (!bytes)
        return;
    if (*bytes >= kLockedBytes) {
        findings.ok(
            check, who + " may lock " + (*bytes == UINT64_MAX ? "any memory" : format_size(*bytes)),
            "getrlimit(2)");
        return;
    }
    findings.add(check, Severity::Note,
                 who + " may lock " + format_size(*bytes) +
                     "; CPU pools lock nothing, buffers registered with io_uring are counted",
                 "If storage shall be used, set LimitMEMLOCK=infinity in the unit, or memlock in "
                 "/etc/security/limits.conf.",
                 "getrlimit(2), systemd.exec(5)");
}

void judge_descriptors(const std::string &check, const std::string &who, const std::string &limits,
                       uint64_t enough, const char *use, Findings &findings) {
    const auto count = soft_limit(limits, "Max open files");
    if (!count)
        return;
    const std::string found = who + " may open " +
                              (*count == UINT64_MAX ? "any number of" : std::to_string(*count)) +
                              " descriptors; " + use;
    if (*count >= enough)
        findings.ok(check, found, "getrlimit(2)");
    else
        findings.add(check, Severity::Warning, found,
                     "Set LimitNOFILE= in the unit, or raise ulimit -n, to " +
                         std::to_string(enough) + " or more.",
                     "getrlimit(2), systemd.exec(5)");
}

}  // namespace

void check_limits(const Subject &subject, Findings &findings) {
    const std::string own = subject.host.text("/proc/self/limits").value_or("");
    judge_memlock("memlock", "this process", own, findings);
    judge_descriptors("descriptors", "this process", own, kWorkerDescriptors,
                      "a worker needs one for each segment of its pools", findings);
    if (!subject.marud.answered)
        return;
    const std::string pid = std::to_string(subject.marud.pid);
    const auto limits = subject.host.text("/proc/" + pid + "/limits");
    if (!limits) {
        findings.add("descriptors-marud", Severity::Note,
                     "the limits of marud (process " + pid + ") cannot be read from here",
                     "Ask again on the host itself, outside of the container.", "proc(5)");
        return;
    }
    const std::string marud = "marud (process " + pid + ")";
    judge_memlock("memlock-marud", marud, *limits, findings);
    judge_descriptors("descriptors-marud", marud, *limits, kMarudDescriptors,
                      "it needs one for each segment and each connection of all users", findings);
}

}  // namespace maru::maructl
