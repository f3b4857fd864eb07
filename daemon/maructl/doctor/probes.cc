// Tries of kernel features on objects that exist for the try alone. A header of Debian 12 does not
// name all of them; the numbers are ABI.
#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "daemon/maructl/doctor/host.h"
#include "libmaru/base/unique_fd.h"
#include "libmaru/pool/numa.h"
#include "libmaru/pool/segment.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace maru::maructl {

namespace {

int result(long returned) { return returned < 0 ? errno : 0; }

UniqueFd make_memfd(unsigned flags = 0) {
    return UniqueFd(::memfd_create("maru-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags));
}

// As a pool's segment: shared memory of a memfd at a multiple of 2 MiB.
class Memory {
  public:
    explicit Memory(size_t bytes) : bytes_(2 * bytes) {
        const UniqueFd fd = make_memfd();
        if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
            return;
        void *room = ::mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (room == MAP_FAILED)
            return;
        room_ = room;
        size_t space = bytes_;
        void *at = room;
        if (!std::align(pool::kHugePageBytes, bytes, at, space))
            return;
        if (::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd.get(), 0) !=
            MAP_FAILED)
            data_ = at;
    }
    ~Memory() {
        if (room_)
            ::munmap(room_, bytes_);
    }
    Memory(const Memory &) = delete;
    void *data() const { return data_; }

  private:
    size_t bytes_;
    void *room_ = nullptr;
    void *data_ = nullptr;
};

int try_seal_future_write() {
    const UniqueFd fd = make_memfd();
    return fd ? result(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE)) : errno;
}

int try_memfd_noexec_seal() { return make_memfd(MFD_NOEXEC_SEAL) ? 0 : errno; }

int try_pidfd() {
    const UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
    return fd ? 0 : errno;
}

int try_peer_pidfd() {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return errno;
    const UniqueFd one(pair[0]), other(pair[1]);
    int fd = -1;
    socklen_t length = sizeof fd;
    const int failed = result(::getsockopt(one.get(), SOL_SOCKET, SO_PEERPIDFD, &fd, &length));
    const UniqueFd pidfd(fd);
    return failed;
}

int try_pass_rights() {
    const UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const int off = 0;
    return fd ? result(::setsockopt(fd.get(), SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof off)) : errno;
}

int try_populate_write() {
    const Memory memory(pool::kHugePageBytes);
    return memory.data() ? result(::madvise(memory.data(), 4096, MADV_POPULATE_WRITE)) : ENOMEM;
}

int try_collapse() {
    const Memory memory(pool::kHugePageBytes);
    if (!memory.data())
        return ENOMEM;
    if (const int failed =
            result(::madvise(memory.data(), pool::kHugePageBytes, MADV_POPULATE_WRITE)))
        return failed;
    return result(::madvise(memory.data(), pool::kHugePageBytes, MADV_COLLAPSE));
}

int try_bind_memory() {
    const Memory memory(pool::kHugePageBytes);
    if (!memory.data())
        return ENOMEM;
    const pool::NumaCalls &calls = pool::system_numa();
    const int node = calls.current_node();
    return node < 0 ? ENOSYS : calls.bind(memory.data(), pool::kHugePageBytes, node);
}

int try_access(const std::string &path, int mode) {
    return result(::faccessat(AT_FDCWD, path.c_str(), mode, AT_EACCESS));
}

}  // namespace

Probes system_probes() {
    Probes probes;
    probes.seal_future_write = try_seal_future_write;
    probes.memfd_noexec_seal = try_memfd_noexec_seal;
    probes.pidfd = try_pidfd;
    probes.peer_pidfd = try_peer_pidfd;
    probes.pass_rights = try_pass_rights;
    probes.populate_write = try_populate_write;
    probes.collapse = try_collapse;
    probes.bind_memory = try_bind_memory;
    probes.io_uring = probe_io_uring;
    probes.access = try_access;
    return probes;
}

}  // namespace maru::maructl
