// The pages that pool memory is made of: transparent huge pages of shared memory, and hugetlb pools.
#include <algorithm>

#include "daemon/maructl/doctor/subject.h"
#include "libmaru/base/size_text.h"
#include "libmaru/base/text_file.h"

namespace maru::maructl {

namespace {

constexpr char kShmemEnabled[] = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
constexpr char kHugePages[] = "/sys/kernel/mm/hugepages";

// "always within_size advise [never] deny force": the chosen one.
std::string chosen_word(const std::string &text) {
    const size_t begin = text.find('['), end = text.find(']', begin);
    return begin == text.npos || end == text.npos ? "" : text.substr(begin + 1, end - begin - 1);
}

}  // namespace

void check_shmem_thp(const Subject &subject, Findings &findings) {
    const char *check = "shmem-thp";
    const auto text = subject.host.text(kShmemEnabled);
    if (!text) {
        findings.add(check, Severity::Note,
                     "this kernel has no transparent huge pages for shared memory",
                     "Reserve huge pages (finding huge-pages) and open pools with them, or boot a "
                     "kernel that has them.");
        return;
    }
    const std::string value = chosen_word(*text);
    const bool collapses = subject.host.probes.collapse() == 0;
    if (value != "deny" && (value != "never" || collapses)) {
        findings.ok(
            check,
            std::string("shmem_enabled is ") + value +
                (value == "never" ? ", and MADV_COLLAPSE makes 2 MiB pages all the same" : ""));
        return;
    }
    findings.add(check, Severity::Warning,
                 "shmem_enabled is " + value +
                     ": pool memory stays in pages of 4 KiB, and copies are up to twice as slow",
                 std::string("Write 'advise' to ") + kShmemEnabled + ".", "madvise(2)");
}

void check_huge_pages(const Subject &subject, Findings &findings) {
    const char *check = "huge-pages";
    std::string found;
    bool some = false, free_large = false;
    for (const std::string &name : subject.host.list(kHugePages)) {
        constexpr std::string_view kPrefix = "hugepages-";
        if (name.rfind(kPrefix, 0) != 0)
            continue;
        const auto kib = leading_number(std::string_view(name).substr(kPrefix.size()));
        if (!kib)
            continue;
        const std::string folder = std::string(kHugePages) + "/" + name;
        const uint64_t total = subject.host.number(folder + "/nr_hugepages").value_or(0);
        const uint64_t free = subject.host.number(folder + "/free_hugepages").value_or(0);
        const uint64_t reserved = subject.host.number(folder + "/resv_hugepages").value_or(0);
        found += (found.empty() ? "" : "; ") + format_size(*kib * 1024) + ": " +
                 std::to_string(free - std::min(free, reserved)) + " free of " +
                 std::to_string(total);
        some = some || (*kib == 2048 && total > 0);
        free_large = free_large || (*kib == 2048 && free > reserved);
    }
    if (free_large) {
        findings.ok(check, found);
    } else if (some) {
        findings.add(check, Severity::Note, found + "; a new pool gets none",
                     "Raise vm.nr_hugepages, or let pools ask for MARU_HUGE_TRY: they then go on "
                     "with small pages.",
                     "maru_pool(3)");
    } else {
        findings.add(check, Severity::Note,
                     (found.empty() ? "this kernel has no hugetlb pages"
                                    : found + "; a pool with MARU_HUGE_REQUIRED cannot be opened"),
                     "If pools shall have them, set vm.nr_hugepages to their size in units of 2 "
                     "MiB; transparent huge pages need no such reservation.",
                     "maru_pool(3)");
    }
}

}  // namespace maru::maructl
