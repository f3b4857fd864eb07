// What the population asks of the machine, behind an interface so that tests can run short of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace maru::pool {

struct MemoryRange {
    const void *data = nullptr;
    uint64_t bytes = 0;
};

// What really stands behind some mappings.
struct Backing {
    uint64_t page_bytes = 0;  // 2 MiB when most of it is mapped so, else the base page
    uint64_t huge_bytes = 0;  // in pages of 2 MiB
    uint64_t resident_bytes = 0;
    uint64_t swapped_bytes = 0;
};

// The tightest place to take memory from.
struct Headroom {
    uint64_t bytes = UINT64_MAX;
    std::string where;  // "host", "node 1", "cgroup '/a/b'": for the message
};

class MemoryEnvironment {
  public:
    virtual ~MemoryEnvironment() = default;
    // The least of: available on the host, free on the node (-1: not asked), left in every cgroup
    // above this process. What cannot be read does not count.
    virtual Headroom headroom(int node) = 0;
    // madvise(2): 0 or an errno.
    virtual int advise(void *memory, size_t bytes, int advice) = 0;
    // Reads the process's whole memory map once: not for every call of an API.
    virtual Backing backing(std::span<const MemoryRange> ranges) = 0;
};

// This machine. `root` is put before /proc and /sys, for tests; headroom() and backing() may be asked
// of another process by its id.
std::unique_ptr<MemoryEnvironment> system_memory(const std::string &root = "",
                                                 const std::string &process = "self");

}  // namespace maru::pool
