// Whether the memory that pools are to have is there: swap, overcommit, limits of control groups.
#include <algorithm>

#include "daemon/maructl/doctor/subject.h"
#include "libmaru/base/size_text.h"
#include "libmaru/base/text_file.h"
#include "libmaru/pool/memory_environment.h"
#include "libmaru/pool/populate.h"

namespace maru::maructl {

namespace {

uint64_t meminfo_bytes(const std::string &meminfo, const char *name) {
    return number_after(meminfo, name).value_or(0) * 1024;
}

void check_swap(const std::string &meminfo, Findings &findings) {
    const uint64_t total = meminfo_bytes(meminfo, "SwapTotal:");
    const uint64_t used = total - std::min(total, meminfo_bytes(meminfo, "SwapFree:"));
    if (total == 0)
        findings.ok("swap", "there is no swap: pool memory stays in memory", "swapon(8)");
    else
        findings.add("swap", used > 0 ? Severity::Warning : Severity::Note,
                     format_size(used) + " of " + format_size(total) +
                         " of swap are used; a load of swapped pool memory waits for the disk",
                     "Set MemorySwapMax=0 in the units of the engines, or lower vm.swappiness.",
                     "systemd.resource-control(5)");
}

void check_overcommit(const Host &host, const std::string &meminfo, Findings &findings) {
    const auto mode = host.number("/proc/sys/vm/overcommit_memory");
    if (!mode)
        return;
    if (*mode != 2) {
        findings.ok("overcommit", "vm.overcommit_memory is " + std::to_string(*mode), "proc(5)");
        return;
    }
    findings.add(
        "overcommit", Severity::Warning,
        "vm.overcommit_memory is 2: " + format_size(meminfo_bytes(meminfo, "Committed_AS:")) +
            " of " + format_size(meminfo_bytes(meminfo, "CommitLimit:")) +
            " are promised; pools stay smaller when the rest is used up",
        "Set vm.overcommit_memory to 0, or raise vm.overcommit_ratio.", "proc(5)");
}

// A worker pays for its pools: what they still lack must fit below the limits above the worker.
void check_worker(const Host &host, const WorkerFacts &worker, Findings &findings) {
    const uint64_t lacking =
        worker.capacity_bytes - std::min(worker.capacity_bytes, worker.populated_bytes);
    const std::string who =
        "engine '" + worker.engine + "' (process " + std::to_string(worker.pid) + ")";
    const pool::Headroom headroom =
        pool::system_memory(host.root(), std::to_string(worker.pid))->headroom(-1);
    if (headroom.bytes == UINT64_MAX)
        return;
    const std::string found = "the pools of " + who + " still lack " + format_size(lacking) + "; " +
                              headroom.where + " has " + format_size(headroom.bytes) + " left";
    if (lacking == 0 || headroom.bytes >= lacking + pool::kDefaultMarginBytes)
        findings.ok("cgroup-memory", found, "systemd.resource-control(5)");
    else
        findings.add(
            "cgroup-memory", Severity::Warning,
            found + ", and a margin of " + format_size(pool::kDefaultMarginBytes) +
                " is kept: they stay smaller",
            "Raise MemoryMax= (and MemoryHigh=) of the engine's unit or container, or make "
            "its pools smaller.",
            "systemd.resource-control(5), maru_pool(3)");
}

void check_budget(const Subject &subject, Findings &findings) {
    const pool::Headroom headroom = pool::system_memory(subject.host.root())->headroom(-1);
    if (headroom.bytes == UINT64_MAX)
        return;
    std::string found = headroom.where + " has " + format_size(headroom.bytes) + " left";
    const MarudFacts &marud = subject.marud;
    const uint64_t budget =
        marud.host_limit_bytes - std::min(marud.host_limit_bytes, marud.host_reserved_bytes);
    if (marud.answered)
        found += "; marud may still grant " + format_size(budget);
    if (!marud.answered || budget <= headroom.bytes)
        findings.ok("cgroup-memory", found, "marud.toml(5)");
    else
        findings.add("cgroup-memory", Severity::Note, found,
                     "Set cpu.host_bytes to what the host can spare for pools: a grant without "
                     "memory behind it leaves a pool smaller than asked for.",
                     "marud.toml(5)");
}

}  // namespace

void check_memory(const Subject &subject, Findings &findings) {
    const std::string meminfo = subject.host.text("/proc/meminfo").value_or("");
    check_swap(meminfo, findings);
    check_overcommit(subject.host, meminfo, findings);
    check_budget(subject, findings);
    for (const WorkerFacts &worker : subject.marud.workers)
        check_worker(subject.host, worker, findings);
}

}  // namespace maru::maructl
