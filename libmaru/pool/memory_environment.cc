#include "libmaru/pool/memory_environment.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <string_view>
#include <utility>
#include <vector>

#include "libmaru/base/text_file.h"
#include "libmaru/pool/segment.h"

namespace maru::pool {

namespace {

void tighten(Headroom &headroom, uint64_t bytes, std::string where) {
    if (bytes < headroom.bytes)
        headroom = {bytes, std::move(where)};
}

class SystemMemory final : public MemoryEnvironment {
  public:
    SystemMemory(const std::string &root, const std::string &process)
        : root_(root), process_(root + "/proc/" + process) {}

    Headroom headroom(int node) override {
        Headroom headroom;
        if (auto text = read_text_file(root_ + "/proc/meminfo"))
            if (auto kib = number_after(*text, "MemAvailable:"))
                tighten(headroom, *kib * 1024, "host");
        if (node >= 0)
            tighten_by_node(headroom, node);
        tighten_by_cgroups(headroom);
        return headroom;
    }

    int advise(void *memory, size_t bytes, int advice) override {
        return ::madvise(memory, bytes, advice) == 0 ? 0 : errno;
    }

    Backing backing(std::span<const MemoryRange> ranges) override;

  private:
    void tighten_by_node(Headroom &headroom, int node) {
        const std::string name = "node" + std::to_string(node);
        auto text = read_text_file(root_ + "/sys/devices/system/node/" + name + "/meminfo");
        if (!text)
            return;
        auto free = number_after(*text, "MemFree:");
        if (!free)
            return;
        // Page cache that nobody used lately gives way without harm.
        const uint64_t cache = number_after(*text, "Inactive(file):").value_or(0);
        tighten(headroom, (*free + cache) * 1024, "NUMA node " + std::to_string(node));
    }

    void tighten_by_cgroups(Headroom &headroom) {
        auto text = read_text_file(process_ + "/cgroup");
        if (!text)
            return;
        for (std::string_view rest = *text; !rest.empty();) {
            const std::string_view line = rest.substr(0, rest.find('\n'));
            rest.remove_prefix(std::min(rest.size(), line.size() + 1));
            // hierarchy:controllers:path
            const size_t first = line.find(':');
            const size_t second = first == line.npos ? first : line.find(':', first + 1);
            if (second == line.npos)
                continue;
            const std::string_view controllers = line.substr(first + 1, second - first - 1);
            const std::string path(line.substr(second + 1));
            if (line.substr(0, first) == "0" && controllers.empty()) {
                walk(headroom, root_ + "/sys/fs/cgroup", path, kVersion2);
                walk(headroom, root_ + "/sys/fs/cgroup/unified", path, kVersion2);
            } else if (("," + std::string(controllers) + ",").find(",memory,") !=
                       std::string::npos) {
                walk(headroom, root_ + "/sys/fs/cgroup/memory", path, kVersion1);
            }
        }
    }

    struct Files {
        const char *limit, *soft_limit, *usage, *cache;
    };
    // Above memory.high the kernel slows the process down to a crawl: a limit as good as memory.max.
    static constexpr Files kVersion2 = {"/memory.max", "/memory.high", "/memory.current",
                                        "inactive_file "};
    static constexpr Files kVersion1 = {"/memory.limit_in_bytes", nullptr, "/memory.usage_in_bytes",
                                        "total_inactive_file "};

    // From the process's own cgroup up to the mount, in a container the container's own.
    static void walk(Headroom &headroom, const std::string &mount, std::string path,
                     const Files &files) {
        if (path.find("/..") != std::string::npos)
            path.clear();  // outside of this cgroup namespace: only the mount is ours to read
        for (;;) {
            if (!path.empty() && path.back() == '/')
                path.pop_back();
            const std::string folder = mount + path;
            auto limit = read_number_file(folder + files.limit);
            if (files.soft_limit)
                if (auto soft = read_number_file(folder + files.soft_limit))
                    limit = std::min(limit.value_or(UINT64_MAX), *soft);
            if (limit) {
                const uint64_t used = read_number_file(folder + files.usage).value_or(0);
                // A process that has read its model's weights is charged their page cache, up to its limit.
                uint64_t cache = 0;
                if (auto stat = read_text_file(folder + "/memory.stat"))
                    cache = std::min(number_after(*stat, files.cache).value_or(0), used);
                const uint64_t held = used - cache;
                tighten(headroom, *limit > held ? *limit - held : 0,
                        "cgroup '" + (path.empty() ? "/" : path) + "'");
            }
            if (path.empty())
                return;
            path.resize(path.rfind('/') == path.npos ? 0 : path.rfind('/'));
        }
    }

    const std::string root_, process_;
};

Backing SystemMemory::backing(std::span<const MemoryRange> ranges) {
    Backing backing;
    const auto base_page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    backing.page_bytes = base_page;
    std::vector<std::pair<uintptr_t, uintptr_t>> spans;
    for (const MemoryRange &range : ranges) {
        const auto begin = reinterpret_cast<uintptr_t>(range.data);
        spans.emplace_back(begin, begin + range.bytes);
    }
    std::sort(spans.begin(), spans.end());
    std::FILE *file = std::fopen((process_ + "/smaps").c_str(), "re");
    if (!file)
        return backing;
    char line[512];
    bool ours = false;
    while (!spans.empty() && std::fgets(line, sizeof line, file)) {
        uintptr_t begin = 0, end = 0;
        uint64_t kib = 0;
        if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) {
            // Mappings are listed by address: behind the last range the rest need not be made.
            if (begin >= spans.back().second)
                break;
            auto after =
                std::upper_bound(spans.begin(), spans.end(), std::pair{begin, UINTPTR_MAX});
            ours = (after != spans.end() && after->first < end) ||
                   (after != spans.begin() && std::prev(after)->second > begin);
        } else if (!ours) {
            continue;
        } else if (std::sscanf(line, "Rss: %" SCNu64, &kib) == 1) {
            backing.resident_bytes += kib * 1024;
        } else if (std::sscanf(line, "ShmemPmdMapped: %" SCNu64, &kib) == 1) {
            backing.huge_bytes += kib * 1024;
        } else if (std::sscanf(line, "Shared_Hugetlb: %" SCNu64, &kib) == 1 ||
                   std::sscanf(line, "Private_Hugetlb: %" SCNu64, &kib) == 1) {
            backing.resident_bytes += kib * 1024;
            backing.huge_bytes += kib * 1024;
        } else if (std::sscanf(line, "Swap: %" SCNu64, &kib) == 1) {
            backing.swapped_bytes += kib * 1024;
        }
    }
    std::fclose(file);
    if (backing.huge_bytes > 0 && backing.huge_bytes * 2 >= backing.resident_bytes)
        backing.page_bytes = kHugePageBytes;
    return backing;
}

}  // namespace

std::unique_ptr<MemoryEnvironment> system_memory(const std::string &root,
                                                 const std::string &process) {
    return std::make_unique<SystemMemory>(root, process);
}

}  // namespace maru::pool
