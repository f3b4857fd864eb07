#include "libmaru/pool/memory_environment.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <filesystem>
#include <fstream>

#include "libmaru/pool/segment.h"

namespace maru::pool {
namespace {

// A tree with the files of /proc and /sys that are asked for.
class FakeRoot {
  public:
    FakeRoot() {
        std::string name = (std::filesystem::temp_directory_path() / "maru-memory-XXXXXX").string();
        path_ = ::mkdtemp(name.data());
    }
    ~FakeRoot() { std::filesystem::remove_all(path_); }
    FakeRoot &file(const std::string &path, const std::string &text) {
        const auto full = std::filesystem::path(path_ + path);
        std::filesystem::create_directories(full.parent_path());
        std::ofstream(full) << text;
        return *this;
    }
    Headroom headroom(int node = -1) const { return system_memory(path_)->headroom(node); }

  private:
    std::string path_;
};

TEST(MemoryEnvironment, TakesWhatTheHostHasAvailable) {
    FakeRoot root;
    root.file("/proc/meminfo", "MemTotal:  100 kB\nMemFree:  7 kB\nMemAvailable:      42 kB\n");
    EXPECT_EQ(root.headroom().bytes, 42u * 1024);
    EXPECT_EQ(root.headroom().where, "host");
}

TEST(MemoryEnvironment, NothingReadableIsNoLimit) {
    FakeRoot root;
    EXPECT_EQ(root.headroom(0).bytes, UINT64_MAX);
    root.file("/proc/meminfo", "rubbish").file("/proc/self/cgroup", "::\n\n0\n9:memory\n");
    EXPECT_EQ(root.headroom(0).bytes, UINT64_MAX);
}

TEST(MemoryEnvironment, WatchesTheBoundNodeOnly) {
    FakeRoot root;
    root.file("/proc/meminfo", "MemAvailable: 1000 kB\n")
        .file("/sys/devices/system/node/node1/meminfo",
              "Node 1 MemTotal:  900 kB\nNode 1 MemFree:  30 kB\nNode 1 Inactive(file):   5 kB\n");
    EXPECT_EQ(root.headroom(-1).bytes, 1000u * 1024);
    EXPECT_EQ(root.headroom(0).bytes, 1000u * 1024);
    EXPECT_EQ(root.headroom(1).bytes, 35u * 1024);
    EXPECT_EQ(root.headroom(1).where, "NUMA node 1");
}

TEST(MemoryEnvironment, TakesTheTightestCgroupAboveTheProcess) {
    FakeRoot root;
    root.file("/proc/meminfo", "MemAvailable: 1000000 kB\n")
        .file("/proc/self/cgroup", "0::/a/b/c\n")
        .file("/sys/fs/cgroup/a/memory.max", "100000\n")
        .file("/sys/fs/cgroup/a/memory.current", "70000\n")
        .file("/sys/fs/cgroup/a/b/memory.max", "max\n")
        .file("/sys/fs/cgroup/a/b/memory.current", "60000\n")
        .file("/sys/fs/cgroup/a/b/c/memory.max", "90000\n")
        .file("/sys/fs/cgroup/a/b/c/memory.current", "50000\n");
    EXPECT_EQ(root.headroom().bytes, 30000u);
    EXPECT_EQ(root.headroom().where, "cgroup '/a'");
    root.file("/sys/fs/cgroup/a/b/memory.high", "65000\n");
    EXPECT_EQ(root.headroom().bytes, 5000u);
    EXPECT_EQ(root.headroom().where, "cgroup '/a/b'");
    // Page cache that is not in use gives way; it is never counted twice.
    root.file("/sys/fs/cgroup/a/b/memory.stat", "anon 1\ninactive_file 20000\nactive_file 9\n");
    EXPECT_EQ(root.headroom().bytes, 25000u);
    root.file("/sys/fs/cgroup/a/memory.current", "100001\n");
    EXPECT_EQ(root.headroom().bytes, 0u);
}

TEST(MemoryEnvironment, ReadsTheContainersOwnLimitAtTheMount) {
    FakeRoot root;
    root.file("/proc/self/cgroup", "0::/\n")
        .file("/sys/fs/cgroup/memory.max", "5000\n")
        .file("/sys/fs/cgroup/memory.current", "1000\n");
    EXPECT_EQ(root.headroom().bytes, 4000u);
    EXPECT_EQ(root.headroom().where, "cgroup '/'");
    root.file("/proc/self/cgroup", "0::/../../elsewhere\n");
    EXPECT_EQ(root.headroom().bytes, 4000u);
}

TEST(MemoryEnvironment, ReadsVersion1Too) {
    FakeRoot root;
    root.file("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:hugetlb,memory:/docker/abc\n0::/\n")
        .file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "8000\n")
        .file("/sys/fs/cgroup/memory/memory.usage_in_bytes", "6000\n")
        .file("/sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 500\n");
    EXPECT_EQ(root.headroom().bytes, 2500u);
}

TEST(MemoryEnvironment, ThisMachineHasMemory) {
    auto memory = system_memory();
    const Headroom headroom = memory->headroom(0);
    EXPECT_GT(headroom.bytes, 0u);
    EXPECT_LT(headroom.bytes, UINT64_MAX);
    EXPECT_NE(headroom.where, "");
}

TEST(MemoryEnvironment, BackingCountsOnlyTheNamedRanges) {
    constexpr size_t kBytes = 8 << 20;
    auto map = [] {
        return ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    };
    void *touched = map(), *untouched = map();
    auto memory = system_memory();
    ASSERT_EQ(memory->advise(touched, kBytes, 23 /* MADV_POPULATE_WRITE */), 0);
    // Neighbouring mappings of one file are one line of smaps: these are two files.
    const MemoryRange first{touched, kBytes}, second{untouched, kBytes};
    EXPECT_EQ(memory->backing({&first, 1}).resident_bytes, kBytes);
    EXPECT_EQ(memory->backing({&second, 1}).resident_bytes, 0u);
    const MemoryRange both[] = {second, first};
    const Backing backing = memory->backing(both);
    EXPECT_EQ(backing.resident_bytes, kBytes);
    EXPECT_EQ(backing.swapped_bytes, 0u);
    EXPECT_EQ(backing.page_bytes == kHugePageBytes, backing.huge_bytes * 2 >= kBytes);
    EXPECT_EQ(memory->backing({}).resident_bytes, 0u);
    ::munmap(touched, kBytes);
    ::munmap(untouched, kBytes);
}

TEST(MemoryEnvironment, BackingReadsHugePagesAndSwap) {
    FakeRoot root;
    std::string name = (std::filesystem::temp_directory_path() / "maru-smaps-XXXXXX").string();
    const std::string path = ::mkdtemp(name.data());
    std::filesystem::create_directories(path + "/proc/self");
    std::ofstream(path + "/proc/self/smaps")
        << "00001000-00002000 rw-p 00000000 00:00 0 [heap]\nRss:   999 kB\nSwap:  999 kB\n"
           "00200000-00800000 rw-s 00000000 00:01 5 /memfd:maru (deleted)\nSize: 6144 kB\n"
           "KernelPageSize: 4 kB\nRss:   6000 kB\nShmemPmdMapped:  4096 kB\nSwap:  44 kB\n"
           "SwapPss: 1 kB\n00800000-00900000 r--p 00000000 00:00 0\nRss: 7 kB\n";
    const MemoryRange range{reinterpret_cast<void *>(0x200000), 0x600000};
    const Backing backing = system_memory(path)->backing({&range, 1});
    EXPECT_EQ(backing.resident_bytes, 6000u * 1024);
    EXPECT_EQ(backing.huge_bytes, 4096u * 1024);
    EXPECT_EQ(backing.swapped_bytes, 44u * 1024);
    EXPECT_EQ(backing.page_bytes, kHugePageBytes);
    std::filesystem::remove_all(path);
}

}  // namespace
}  // namespace maru::pool
