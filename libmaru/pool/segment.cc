#include "libmaru/pool/segment.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <string>

namespace maru::pool {

namespace {

constexpr int kNeededSeals = F_SEAL_SHRINK | F_SEAL_GROW;

Error refuse(int code, const std::string &what) { return Error{code, "pool segment: " + what}; }

// Alignment that the file's pages ask for; an error when it is not the file it should be.
Result<uint64_t> check(int fd, uint64_t bytes, bool huge, bool to_read) {
    struct stat status;
    if (::fstat(fd, &status) != 0)
        return refuse(errno, "stat its descriptor");
    if (!S_ISREG(status.st_mode))
        return refuse(EPROTO, "the descriptor is not of a regular file but of mode " +
                                  std::to_string(status.st_mode & S_IFMT));
    const int seals = ::fcntl(fd, F_GET_SEALS);
    if (seals < 0)
        return refuse(EPROTO, "the descriptor is not of a memfd: it has no seals");
    if ((seals & kNeededSeals) != kNeededSeals)
        return refuse(EPROTO, "its seals " + std::to_string(seals) + " lack SHRINK|GROW (" +
                                  std::to_string(kNeededSeals) +
                                  "): its size could change under a store");
    const bool sealed = (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0;
    if (sealed && !to_read)
        return refuse(EPROTO, "it is sealed against writing already");
    if (!sealed && to_read)
        return refuse(EPROTO, "it is not sealed against new writers: its bytes could change");
    const int flags = ::fcntl(fd, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) != (to_read ? O_RDONLY : O_RDWR))
        return refuse(EPROTO, to_read ? "the descriptor is not open for reading only"
                                      : "the descriptor is not open for reading and writing");
    if (bytes == 0 || static_cast<uint64_t>(status.st_size) != bytes)
        return refuse(EPROTO, "the file has " + std::to_string(status.st_size) +
                                  " bytes, announced were " + std::to_string(bytes));
    struct statfs filesystem;
    if (::fstatfs(fd, &filesystem) != 0)
        return refuse(errno, "ask for its filesystem");
    const bool is_huge = filesystem.f_type == HUGETLBFS_MAGIC;
    if (is_huge != huge)
        return refuse(EPROTO, std::string("the file is ") + (is_huge ? "" : "not ") +
                                  "of huge pages, announced was the contrary");
    const uint64_t page = is_huge ? static_cast<uint64_t>(filesystem.f_bsize) : 4096;
    if (bytes % page != 0)
        return refuse(EPROTO, std::to_string(bytes) + " bytes are not a multiple of its pages of " +
                                  std::to_string(page));
    return std::max(page, kHugePageBytes);
}

}  // namespace

Result<Segment> Segment::map(UniqueFd fd, uint64_t bytes, bool huge) {
    auto align = check(fd.get(), bytes, huge, false);
    if (!align)
        return align.error();
    return map_checked(std::move(fd), bytes, huge, *align, PROT_READ | PROT_WRITE);
}

Result<Segment> Segment::map_for_reading(UniqueFd fd, uint64_t bytes, bool huge) {
    auto align = check(fd.get(), bytes, huge, true);
    if (!align)
        return align.error();
    auto segment = map_checked(std::move(fd), bytes, huge, *align, PROT_READ);
    if (segment)
        segment->fd_.reset();
    return segment;
}

Result<Segment> Segment::map_checked(UniqueFd fd, uint64_t bytes, bool huge, uint64_t align,
                                     int protection) {
    // The kernel aligns to 2 MiB only by chance: reserve more, map inside, give the edges back.
    const uint64_t reserve_bytes = bytes + align;
    void *reserved = ::mmap(nullptr, reserve_bytes, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED)
        return refuse(errno, "reserve " + std::to_string(reserve_bytes) + " bytes of addresses");
    const auto begin = reinterpret_cast<uintptr_t>(reserved);
    const uintptr_t at = (begin + align - 1) / align * align;
    void *data = ::mmap(reinterpret_cast<void *>(at), bytes, protection, MAP_SHARED | MAP_FIXED,
                        fd.get(), 0);
    const int map_errno = errno;
    if (data == MAP_FAILED) {
        ::munmap(reserved, reserve_bytes);
        return refuse(map_errno, "map " + std::to_string(bytes) + " bytes shared");
    }
    if (at > begin)
        ::munmap(reserved, at - begin);
    // A hugetlb mapping ends on its own page size, so this edge is never inside it.
    const uintptr_t end = at + bytes, reserved_end = begin + reserve_bytes;
    if (reserved_end > end)
        ::munmap(reinterpret_cast<void *>(end), reserved_end - end);

    Segment segment(std::move(fd), static_cast<std::byte *>(data), bytes, huge);
    // A child that inherited the mapping would keep marud from proving that no writer is left.
    if (::madvise(data, bytes, MADV_DONTFORK) != 0)
        return refuse(errno, "keep it from forked children");
    // Advice: a core dump of an engine need not contain its whole cache.
    (void)::madvise(data, bytes, MADV_DONTDUMP);
    return segment;
}

Segment &Segment::operator=(Segment &&other) noexcept {
    if (this != &other) {
        if (data_)
            ::munmap(data_, bytes_);
        fd_ = std::move(other.fd_);
        data_ = std::exchange(other.data_, nullptr);
        bytes_ = other.bytes_;
        huge_ = other.huge_;
    }
    return *this;
}

Segment::~Segment() {
    if (data_)
        ::munmap(data_, bytes_);
}

}  // namespace maru::pool
