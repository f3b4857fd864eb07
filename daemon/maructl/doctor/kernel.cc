// Kernel features, each tried: a version number says nothing about a kernel with patches, a container
// or a system call filter.
#include <cerrno>

#include "daemon/maructl/doctor/subject.h"

namespace maru::maructl {

namespace {

struct Feature {
    const char *check;
    std::function<int()> Probes::*probe;
    Severity without;
    const char *what;
    const char *remedy;  // when it is missing
    const char *pages;
};

constexpr char kFilter[] =
    "; inside a container or a unit, let its system call filter (seccomp) pass the call";

constexpr Feature kFeatures[] = {
    {"seal-future-write", &Probes::seal_future_write, Severity::Problem,
     "memfds take F_SEAL_FUTURE_WRITE",
     "Boot Linux 5.1 or later: without this seal marud cannot prove that memory is unused",
     "fcntl(2)"},
    {"pidfd", &Probes::pidfd, Severity::Problem, "pidfd_open works",
     "Boot Linux 5.3 or later: marud learns the end of a process by its pidfd", "pidfd_open(2)"},
    {"so-peerpidfd", &Probes::peer_pidfd, Severity::Note,
     "SO_PEERPIDFD names the process behind a connection",
     "Nothing needs to be done: before Linux 6.5 hello proves with a number who is calling",
     "unix(7)"},
    {"so-passrights", &Probes::pass_rights, Severity::Note,
     "SO_PASSRIGHTS refuses descriptors that nobody asked for",
     "Nothing needs to be done: before Linux 6.16 marud closes such descriptors one by one",
     "unix(7)"},
    {"memfd-noexec-seal", &Probes::memfd_noexec_seal, Severity::Note,
     "memfds can be made not executable",
     "Nothing needs to be done: before Linux 6.3 pool memory is only not mapped executable",
     "memfd_create(2)"},
    {"madv-populate-write", &Probes::populate_write, Severity::Problem, "MADV_POPULATE_WRITE works",
     "Boot Linux 5.14 or later: pools are populated with it, and a store must not meet a hole",
     "madvise(2)"},
    {"madv-collapse", &Probes::collapse, Severity::Note,
     "MADV_COLLAPSE makes 2 MiB pages of pool memory",
     "Boot Linux 6.1 or later with transparent huge pages, and see the finding shmem-thp; pools "
     "keep small pages otherwise",
     "madvise(2)"},
};

}  // namespace

void check_kernel(const Subject &subject, Findings &findings) {
    for (const Feature &feature : kFeatures) {
        const int failed = (subject.host.probes.*feature.probe)();
        if (failed == 0) {
            findings.ok(feature.check, feature.what, feature.pages);
            continue;
        }
        std::string remedy = feature.remedy;
        if (failed == EPERM || failed == ENOSYS)
            remedy += kFilter;
        findings.add(
            feature.check, feature.without,
            std::string("not so: ") + feature.what + "; the try gave " + errno_text(failed),
            remedy + ".", feature.pages);
    }
}

}  // namespace maru::maructl
