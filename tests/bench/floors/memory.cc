#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "libmaru/base/unique_fd.h"
#include "libmaru/digest/sha256.h"
#include "tests/bench/floors/floors.h"
#include "tests/bench/suite.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace maru::bench {

namespace {

constexpr size_t kHuge = 2 << 20;

UniqueFd new_memfd(size_t bytes) {
    UniqueFd fd(::memfd_create("maru-bench", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
        throw std::runtime_error("memfd of " + size_text(bytes) + ": " + std::strerror(errno));
    return fd;
}

// Aligned to 2 MiB, so that such pages are possible.
void *map_shared(int fd, size_t bytes) {
    void *room = ::mmap(nullptr, bytes + kHuge, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        throw std::runtime_error("mmap: no room for " + size_text(bytes));
    const uintptr_t begin = reinterpret_cast<uintptr_t>(room);
    const uintptr_t aligned = (begin + kHuge - 1) / kHuge * kHuge;
    // What is left over at both ends is given back; the mapping stands alone then.
    if (aligned > begin)
        ::munmap(room, aligned - begin);
    if (aligned < begin + kHuge)
        ::munmap(reinterpret_cast<void *>(aligned + bytes), begin + kHuge - aligned);
    void *data = ::mmap(reinterpret_cast<void *>(aligned), bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_FIXED, fd, 0);
    if (data == MAP_FAILED)
        throw std::runtime_error("mmap of a memfd of " + size_text(bytes));
    return data;
}

double populate_ns(size_t bytes) {
    const UniqueFd fd = new_memfd(bytes);
    void *data = map_shared(fd.get(), bytes);
    const uint64_t begin = now_ns();
    const int result = ::madvise(data, bytes, MADV_POPULATE_WRITE);
    const double ns = static_cast<double>(now_ns() - begin);
    ::munmap(data, bytes);
    if (result != 0)
        throw NotMeasurable("MADV_POPULATE_WRITE is refused here");
    return ns;
}

}  // namespace

std::string size_text(size_t bytes) {
    if (bytes >= size_t{1} << 30 && bytes % (size_t{1} << 30) == 0)
        return std::to_string(bytes >> 30) + " GiB";
    return bytes >= 1 << 20 ? std::to_string(bytes >> 20) + " MiB"
                            : std::to_string(bytes >> 10) + " KiB";
}

const char *pages_text(Pages pages) { return pages == Pages::Base ? "4 KiB pages" : "2 MiB pages"; }

SharedMemory::SharedMemory(size_t bytes, Pages pages) : bytes_(bytes) {
    const UniqueFd fd = new_memfd(bytes);
    data_ = static_cast<uint8_t *>(map_shared(fd.get(), bytes));
    if (pages == Pages::Huge)
        for (size_t at = 0; at + kHuge <= bytes; at += kHuge) {
            data_[at] = 1;
            if (::madvise(data_ + at, kHuge, MADV_COLLAPSE) != 0) {
                const int error = errno;
                ::munmap(data_, bytes_);
                throw NotMeasurable(std::string("no 2 MiB pages of shared memory here: ") +
                                    std::strerror(error));
            }
        }
    std::memset(data_, 2, bytes);
}
SharedMemory::~SharedMemory() { ::munmap(data_, bytes_); }

EngineMemory::EngineMemory(size_t bytes) : bytes_(bytes) {
    void *data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
        throw std::bad_alloc();
    data_ = static_cast<uint8_t *>(data);
    std::memset(data_, 1, bytes);
}
EngineMemory::~EngineMemory() { ::munmap(data_, bytes_); }

__attribute__((noinline)) uint64_t read_all(const uint8_t *data, size_t size) {
    uint64_t sums[4] = {};
    for (size_t at = 0; at + 32 <= size; at += 32)
        for (size_t i = 0; i < 4; ++i) {
            uint64_t word;
            std::memcpy(&word, data + at + 8 * i, sizeof word);
            sums[i] += word;
        }
    return sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
}

double raw_hash_us(size_t bytes, int turns) {
    std::vector<uint8_t> data(bytes, 7);
    std::vector<double> times;
    for (int i = 0; i < turns; ++i) {
        digest::Sha256State state = digest::kSha256Initial;
        const uint64_t begin = now_ns();
        digest::sha256_compress()(state, data.data(), data.size() / 64);
        times.push_back(us_since(begin));
        data[0] = static_cast<uint8_t>(state[0]);
    }
    return median(times);
}

double populate_gb_per_s(size_t bytes) { return static_cast<double>(bytes) / populate_ns(bytes); }
double populate_us(size_t bytes) { return populate_ns(bytes) / 1e3; }

double seal_us(size_t bytes) {
    const UniqueFd fd = new_memfd(bytes);
    void *data = map_shared(fd.get(), bytes);
    std::memset(data, 1, bytes);
    ::munmap(data, bytes);
    const uint64_t begin = now_ns();
    const int result = ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE);
    const double us = us_since(begin);
    if (result != 0)
        throw std::runtime_error("F_SEAL_WRITE: " + std::string(std::strerror(errno)));
    return us;
}

double teardown_ms(size_t bytes) {
    int ready[2];
    if (::pipe(ready) != 0)
        throw std::runtime_error("pipe");
    const pid_t child = ::fork();
    if (child == 0) {
        const int fd = ::memfd_create("maru-bench", MFD_CLOEXEC);
        if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) != 0)
            ::_exit(1);
        void *data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (data == MAP_FAILED)
            ::_exit(1);
        std::memset(data, 1, bytes);
        (void)!::write(ready[1], "", 1);
        for (;;)
            ::pause();
    }
    ::close(ready[1]);
    char byte;
    const bool is_ready = ::read(ready[0], &byte, 1) == 1;
    ::close(ready[0]);
    const uint64_t begin = now_ns();
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const double ms = us_since(begin) / 1e3;
    if (!is_ready)
        throw std::runtime_error("a process that maps " + size_text(bytes) + " did not start");
    return ms;
}

}  // namespace maru::bench
