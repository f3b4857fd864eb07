#include "libmaru/pool/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace maru::pool {
namespace {

constexpr uint64_t kBytes = 4 * 1024 * 1024;

UniqueFd memfd(uint64_t bytes, int seals) {
    UniqueFd fd(::memfd_create("maru-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_TRUE(fd);
    EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
    return fd;
}

void expect_refused(UniqueFd fd, uint64_t bytes, bool huge, const std::string &word) {
    auto segment = Segment::map(std::move(fd), bytes, huge);
    ASSERT_FALSE(segment) << word;
    EXPECT_EQ(segment.error().code, EPROTO);
    EXPECT_NE(segment.error().message.find(word), std::string::npos) << segment.error().message;
}

TEST(Segment, MapsAlignedTo2MiBWritableAndShared) {
    for (uint64_t bytes : {kBytes, uint64_t{4096}, uint64_t{3 * 4096}}) {
        UniqueFd fd = memfd(bytes, F_SEAL_SHRINK | F_SEAL_GROW);
        const int number = fd.get();
        auto segment = Segment::map(std::move(fd), bytes, false);
        ASSERT_TRUE(segment) << segment.error().message;
        EXPECT_EQ(reinterpret_cast<uintptr_t>(segment->data()) % kHugePageBytes, 0u);
        EXPECT_EQ(segment->bytes(), bytes);
        EXPECT_EQ(segment->fd(), number);
        segment->data()[bytes - 1] = std::byte{42};
        char byte = 0;
        EXPECT_EQ(::pread(number, &byte, 1, static_cast<off_t>(bytes - 1)), 1);
        EXPECT_EQ(byte, 42);
    }
}

TEST(Segment, RefusesWhatItWasNotPromised) {
    expect_refused(memfd(kBytes, F_SEAL_SHRINK), kBytes, false, "SHRINK|GROW");
    expect_refused(memfd(kBytes, F_SEAL_GROW), kBytes, false, "SHRINK|GROW");
    expect_refused(memfd(kBytes, F_SEAL_SHRINK | F_SEAL_GROW), kBytes / 2, false, "announced");
    expect_refused(memfd(kBytes, F_SEAL_SHRINK | F_SEAL_GROW), kBytes * 2, false, "announced");
    expect_refused(memfd(0, F_SEAL_SHRINK | F_SEAL_GROW), 0, false, "announced");
    expect_refused(memfd(kBytes, F_SEAL_SHRINK | F_SEAL_GROW), kBytes, true, "huge pages");
    expect_refused(memfd(kBytes, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE), kBytes, false,
                   "sealed against writing");
    expect_refused(memfd(4097, F_SEAL_SHRINK | F_SEAL_GROW), 4097, false, "multiple");

    UniqueFd whole = memfd(kBytes, F_SEAL_SHRINK | F_SEAL_GROW);
    const std::string path = "/proc/self/fd/" + std::to_string(whole.get());
    expect_refused(UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), kBytes, false, "open for");
    expect_refused(UniqueFd(::open("/", O_RDONLY | O_CLOEXEC)), kBytes, false, "regular file");
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    UniqueFd unused(ends[1]);
    expect_refused(UniqueFd(ends[0]), kBytes, false, "regular file");
}

TEST(Segment, ClosedDescriptorIsAnErrorNotACrash) {
    auto segment = Segment::map(UniqueFd(), kBytes, false);
    ASSERT_FALSE(segment);
    EXPECT_EQ(segment.error().code, EBADF);
}

TEST(Segment, GoesOnAfterTheDaemonSealsFutureWrites) {
    auto segment = Segment::map(memfd(kBytes, F_SEAL_SHRINK | F_SEAL_GROW), kBytes, false);
    ASSERT_TRUE(segment);
    ASSERT_EQ(::fcntl(segment->fd(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
    EXPECT_EQ(::madvise(segment->data(), kBytes, 23 /* MADV_POPULATE_WRITE */), 0);
    segment->data()[kBytes - 1] = std::byte{1};
    EXPECT_EQ(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment->fd(), 0),
              MAP_FAILED);
}

TEST(Segment, ForkedChildDoesNotInheritTheMapping) {
    auto segment = Segment::map(memfd(kBytes, F_SEAL_SHRINK | F_SEAL_GROW), kBytes, false);
    ASSERT_TRUE(segment);
    const pid_t child = ::fork();
    if (child == 0) {
        unsigned char resident = 0;
        // mincore says ENOMEM where nothing is mapped.
        const bool gone = ::mincore(segment->data(), 4096, &resident) != 0 && errno == ENOMEM;
        ::_exit(gone ? 0 : 1);
    }
    int status = 1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

TEST(Segment, UnmapsExactlyItselfAndOnlyOnce) {
    unsigned char resident = 0;
    std::byte *data = nullptr;
    {
        auto segment = Segment::map(memfd(kBytes, F_SEAL_SHRINK | F_SEAL_GROW), kBytes, false);
        ASSERT_TRUE(segment);
        data = segment->data();
        Segment moved = std::move(*segment);
        EXPECT_EQ(moved.data(), data);
        EXPECT_EQ(::mincore(data, 4096, &resident), 0);
        // The edges of the reservation went back at once.
        EXPECT_NE(::mincore(data + kBytes, 4096, &resident) == 0 &&
                      ::mincore(data + kBytes + kHugePageBytes - 4096, 4096, &resident) == 0,
                  true);
    }
    EXPECT_NE(::mincore(data, 4096, &resident), 0);
}

}  // namespace
}  // namespace maru::pool
