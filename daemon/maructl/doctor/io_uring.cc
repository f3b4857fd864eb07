// Nothing of this version does I/O by io_uring; an SSD tier will, so this never is more than a note.
#include <cerrno>

#include "daemon/maructl/doctor/subject.h"

namespace maru::maructl {

namespace {

std::string why_refused(const Host &host, int error) {
    const uint64_t disabled = host.number("/proc/sys/kernel/io_uring_disabled").value_or(0);
    if (error == EPERM && disabled == 2)
        return "kernel.io_uring_disabled is 2: nobody may use it";
    if (error == EPERM && disabled == 1)
        return "kernel.io_uring_disabled is 1: only members of kernel.io_uring_group may use it";
    return "io_uring_setup gave " + errno_text(error);
}

std::string remedy(int error) {
    if (error == ENOSYS)
        return "If storage shall be used, boot a kernel with io_uring, and let the container's "
               "system call filter pass it.";
    if (error == ENOMEM)
        return "If storage shall be used, raise the limit of locked memory (finding memlock).";
    return "If storage shall be used, set kernel.io_uring_disabled to 0, or let the container's "
           "system call filter pass io_uring.";
}

}  // namespace

void check_io_uring(const Subject &subject, Findings &findings) {
    const IoUringProbe probe = subject.host.probes.io_uring();
    if (probe.error != 0) {
        findings.add("io-uring", Severity::Note,
                     why_refused(subject.host, probe.error) + "; CPU pools do not need it",
                     remedy(probe.error), "io_uring_setup(2)");
        return;
    }
    if (!probe.missing.empty()) {
        std::string names;
        for (const std::string &name : probe.missing)
            names += (names.empty() ? "" : ", ") + name;
        findings.add("io-uring", Severity::Note,
                     "io_uring works, but lacks " + names + "; CPU pools do not need it",
                     "If storage shall be used, boot a newer kernel.", "io_uring_register(2)");
        return;
    }
    findings.ok(
        "io-uring",
        std::string("io_uring works with all that an SSD tier needs; DEFER_TASKRUN ") +
            (probe.defer_taskrun ? "works" : "is not there, which costs some processor time"),
        "io_uring_setup(2)");
}

}  // namespace maru::maructl
