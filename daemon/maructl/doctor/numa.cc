#include "daemon/maructl/doctor/subject.h"

namespace maru::maructl {

void check_numa(const Subject &subject, Findings &findings) {
    size_t nodes = 0;
    for (const std::string &name : subject.host.list("/sys/devices/system/node"))
        if (name.rfind("node", 0) == 0 && name.find_first_not_of("0123456789", 4) == name.npos &&
            name.size() > 4)
            ++nodes;
    const std::string count =
        nodes == 0 ? "no NUMA nodes are shown"
                   : std::to_string(nodes) + (nodes == 1 ? " NUMA node" : " NUMA nodes");
    const int failed = subject.host.probes.bind_memory();
    if (failed == 0) {
        findings.ok("numa", count + "; memory can be bound to a node", "mbind(2)");
        return;
    }
    // With one node there is nothing to choose.
    findings.add(
        "numa", nodes > 1 ? Severity::Warning : Severity::Note,
        count + "; memory cannot be bound to a node: mbind gave " + errno_text(failed),
        "Let the container's system call filter pass mbind (Docker does with CAP_SYS_NICE), "
        "or start each engine with its memory on its node already; pools with "
        "MARU_NUMA_STRICT cannot be opened until then.",
        "mbind(2), maru_pool(3)");
}

}  // namespace maru::maructl
