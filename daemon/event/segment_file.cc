#include "daemon/event/segment_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

// Linux 6.3; headers of Debian 12 do not name it.
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace maru {
namespace {

constexpr uint64_t kHugePageBytes = 2 << 20;
constexpr char kHugePagesDir[] = "/sys/kernel/mm/hugepages/hugepages-2048kB/";

Result<UniqueFd> make_memfd(const std::string &name, unsigned flags) {
    flags |= MFD_CLOEXEC | MFD_ALLOW_SEALING;
    UniqueFd fd(::memfd_create(name.c_str(), flags | MFD_NOEXEC_SEAL));
    if (!fd && errno == EINVAL)  // before 6.3
        fd.reset(::memfd_create(name.c_str(), flags));
    if (!fd)
        return Error{errno, "memfd_create '" + name + "'"};
    return fd;
}

std::string read_number(const char *file) {
    std::string path = std::string(kHugePagesDir) + file;
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    char text[32] = {};
    ssize_t got = fd ? ::read(fd.get(), text, sizeof text - 1) : -1;
    std::string out(text, got > 0 ? static_cast<size_t>(got) : 0);
    while (!out.empty() && out.back() == '\n')
        out.pop_back();
    return out.empty() ? "none" : out;
}

// ENOMEM, whatever the kernel calls it: also where it has no pages of this size at all.
Error no_huge_pages(uint64_t bytes) {
    return Error{ENOMEM, "reserve huge pages: " + std::to_string(bytes / kHugePageBytes) +
                             " of 2 MiB are needed, " + read_number("free_hugepages") +
                             " are free of " + read_number("nr_hugepages") +
                             " (vm.nr_hugepages sets the number)"};
}

// A shared mapping without MAP_NORESERVE takes the pages into reserve or fails here, instead of a
// SIGBUS at the worker's first touch. The reservation stays with the file when the mapping goes.
Result<void> reserve_huge_pages(int fd, uint64_t bytes) {
    void *at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return no_huge_pages(bytes);
    ::munmap(at, bytes);
    return {};
}

Result<SegmentFile> finish(UniqueFd fd, const std::string &name, uint64_t bytes, bool huge) {
    // 0777 is the default, and would let any uid reopen the file through /proc.
    if (::fchmod(fd.get(), 0600) < 0)
        return Error{errno, "fchmod '" + name + "'"};
    if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) < 0)
        return Error{errno, "ftruncate '" + name + "' to " + std::to_string(bytes) + " bytes"};
    if (huge) {
        if (auto reserved = reserve_huge_pages(fd.get(), bytes); !reserved)
            return reserved.error();
    }
    if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
        return Error{errno, "seal the size of '" + name + "'"};
    SegmentIdentity identity = inspect_descriptor(fd.get()).identity;
    return SegmentFile{std::move(fd), identity, huge};
}

Result<SegmentFile> make_huge(const std::string &name, uint64_t bytes) {
    if (bytes % kHugePageBytes != 0)
        return Error{EINVAL, "segment '" + name + "' of " + std::to_string(bytes) +
                                 " bytes: huge pages need a multiple of 2097152"};
    auto fd = make_memfd(name, MFD_HUGETLB | MFD_HUGE_2MB);
    if (!fd)
        return fd.error().code == EMFILE || fd.error().code == ENFILE ? fd.error()
                                                                      : no_huge_pages(bytes);
    return finish(std::move(*fd), name, bytes, true);
}

}  // namespace

Result<SegmentFile> make_segment_file(const std::string &name, uint64_t bytes,
                                      wire::HugePages huge_pages) {
    if (bytes == 0 || bytes > INT64_MAX || bytes % 4096 != 0)
        return Error{EINVAL, "segment '" + name + "' of " + std::to_string(bytes) +
                                 " bytes: must be a positive multiple of 4096"};
    if (huge_pages != wire::HugePages::Off) {
        auto huge = make_huge(name, bytes);
        if (huge || huge_pages == wire::HugePages::Required)
            return huge;
    }
    auto fd = make_memfd(name, 0);
    if (!fd)
        return fd.error();
    return finish(std::move(*fd), name, bytes, false);
}

Result<void> seal_future_write(int fd) {
    if (::fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0)
        return {};
    int code = errno;
    // EPERM also when somebody added F_SEAL_SEAL first: then the seal may be there all the same.
    int seals = ::fcntl(fd, F_GET_SEALS);
    if (seals >= 0 && (seals & (F_SEAL_FUTURE_WRITE | F_SEAL_WRITE)))
        return {};
    return Error{code, "add F_SEAL_FUTURE_WRITE to a segment"};
}

bool sealed_against_writing(int fd) {
    int seals = ::fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_WRITE);
}

WriteSeal try_seal_write(int fd) {
    if (::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0)
        return WriteSeal::Granted;
    if (errno == EBUSY)
        return WriteSeal::StillMapped;
    int seals = ::fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_WRITE) ? WriteSeal::Granted : WriteSeal::Refused;
}

Result<UniqueFd> open_for_reading(int fd) {
    int seals = ::fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & (F_SEAL_FUTURE_WRITE | F_SEAL_WRITE)))
        return Error{EPERM, "open a segment for reading: it is not sealed against new writers"};
    std::string path = "/proc/self/fd/" + std::to_string(fd);
    UniqueFd reader(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!reader)
        return Error{errno, "open a segment for reading through '" + path + "'"};
    return reader;
}

AttachedDescriptor inspect_descriptor(int fd) {
    constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;
    AttachedDescriptor found;
    int seals = ::fcntl(fd, F_GET_SEALS);
    int flags = ::fcntl(fd, F_GETFL);
    if (seals < 0 || (seals & kSizeSeals) != kSizeSeals || flags < 0 ||
        (flags & O_ACCMODE) != O_RDWR)
        return found;
    struct stat info = {};
    struct statfs fs = {};
    if (::fstat(fd, &info) < 0 || ::fstatfs(fd, &fs) < 0)
        return found;
    found.sealed = (seals & F_SEAL_FUTURE_WRITE) != 0;
    found.huge = static_cast<unsigned long>(fs.f_type) == HUGETLBFS_MAGIC;
    found.bytes = static_cast<uint64_t>(info.st_size);
    found.identity = {info.st_dev, info.st_ino};
    return found;
}

}  // namespace maru
