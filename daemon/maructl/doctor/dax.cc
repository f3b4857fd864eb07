// DAX devices, as sysfs shows them. This version serves no pool on them, so nothing here is a problem.
#include <unistd.h>

#include "daemon/maructl/doctor/subject.h"
#include "libmaru/base/size_text.h"

namespace maru::maructl {

void check_dax(const Subject &subject, Findings &findings) {
    constexpr char kFolder[] = "/sys/bus/dax/devices/";
    const auto names = subject.host.list(kFolder);
    if (names.empty())
        findings.ok("dax", "there is no DAX device; CPU pools do not need one", "marud(8)");
    for (const std::string &name : names) {
        const uint64_t bytes = subject.host.number(kFolder + name + "/size").value_or(0);
        const std::string what = name + ", " + format_size(bytes);
        if (subject.host.link_name(kFolder + name + "/driver") == "kmem") {
            findings.add(
                "dax", Severity::Note,
                what + ", is in system-ram mode: the kernel uses it as ordinary memory",
                "If pools shall use it, run: daxctl reconfigure-device --mode=devdax " + name + ".",
                "marud(8), daxctl-reconfigure-device(1)");
        } else if (const int failed = subject.host.access("/dev/" + name, R_OK | W_OK)) {
            findings.add("dax", Severity::Note,
                         what + ", cannot be opened by you: " + errno_text(failed),
                         "If pools shall use it, give its node to a group by a udev rule, and put "
                         "marud's user into it.",
                         "marud(8), udev(7)");
        } else {
            findings.ok("dax", what + ", can be opened; this version makes no pools on it",
                        "marud(8)");
        }
    }
}

}  // namespace maru::maructl
