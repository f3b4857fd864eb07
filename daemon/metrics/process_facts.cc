#include "daemon/metrics/process_facts.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

namespace maru::metrics {
namespace {

uint64_t nanoseconds(const timeval &time) {
    return static_cast<uint64_t>(time.tv_sec) * kS + static_cast<uint64_t>(time.tv_usec) * kUs;
}

struct CloseFile {
    void operator()(FILE *file) const { std::fclose(file); }
    void operator()(DIR *directory) const { ::closedir(directory); }
};

// 0: not known.
uint64_t count_descriptors() {
    struct stat info = {};
    // Linux 6.2 and newer tell the number as the size.
    if (::stat("/proc/self/fd", &info) == 0 && info.st_size > 0)
        return static_cast<uint64_t>(info.st_size);
    std::unique_ptr<DIR, CloseFile> directory(::opendir("/proc/self/fd"));
    if (!directory)
        return 0;
    uint64_t entries = 0;
    while (::readdir(directory.get()))
        ++entries;
    return entries > 3 ? entries - 3 : 0;  // ".", ".." and the directory itself
}

}  // namespace

ProcessFacts read_process_facts(const ProcessFacts &last) {
    ProcessFacts facts = last;
    rusage usage = {};
    if (::getrusage(RUSAGE_SELF, &usage) == 0)
        facts.cpu_ns = nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime);
    rlimit limit = {};
    if (::getrlimit(RLIMIT_NOFILE, &limit) == 0)
        facts.max_fds = limit.rlim_cur;
    unsigned long long total = 0, resident = 0;
    std::unique_ptr<FILE, CloseFile> memory(std::fopen("/proc/self/statm", "re"));
    if (memory && std::fscanf(memory.get(), "%llu %llu", &total, &resident) == 2) {
        const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
        facts.virtual_bytes = total * page;
        facts.resident_bytes = resident * page;
    }
    memory.reset();
    if (uint64_t count = count_descriptors())
        facts.open_fds = count;
    return facts;
}

}  // namespace maru::metrics
