#include "daemon/event/segment_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>

#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x0020
#endif

namespace maru {
namespace {

constexpr uint64_t kBytes = 4 << 20;

SegmentFile make() {
    auto file = make_segment_file("test", kBytes, wire::HugePages::Off);
    EXPECT_TRUE(file) << describe(file.error());
    return std::move(*file);
}

class Mapping {
  public:
    Mapping(int fd, int protection) {
        at_ = ::mmap(nullptr, kBytes, protection, MAP_SHARED, fd, 0);
    }
    ~Mapping() { unmap(); }
    bool ok() const { return at_ != MAP_FAILED; }
    char *bytes() { return static_cast<char *>(at_); }
    void unmap() {
        if (ok())
            ::munmap(at_, kBytes);
        at_ = MAP_FAILED;
    }

  private:
    void *at_;
};

TEST(SegmentFile, IsPrivateNotExecutableAndOfFixedSize) {
    SegmentFile file = make();
    struct stat info = {};
    ASSERT_EQ(::fstat(file.fd.get(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0600u);
    EXPECT_EQ(info.st_size, static_cast<off_t>(kBytes));
    EXPECT_EQ(info.st_blocks, 0) << "marud must not allocate what the worker pays";
    EXPECT_EQ(file.identity, (SegmentIdentity{info.st_dev, info.st_ino}));
    EXPECT_EQ(::ftruncate(file.fd.get(), 0), -1);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(::ftruncate(file.fd.get(), 2 * kBytes), -1);
    int seals = ::fcntl(file.fd.get(), F_GET_SEALS);
    EXPECT_EQ(seals & (F_SEAL_SHRINK | F_SEAL_GROW), F_SEAL_SHRINK | F_SEAL_GROW);
    EXPECT_EQ(seals & (F_SEAL_SEAL | F_SEAL_WRITE | F_SEAL_FUTURE_WRITE), 0);
    EXPECT_TRUE(::fcntl(file.fd.get(), F_GETFD) & FD_CLOEXEC);
}

TEST(SegmentFile, FutureWriteSealKeepsMappingsAndRefusesNewOnes) {
    SegmentFile file = make();
    Mapping writer(file.fd.get(), PROT_READ | PROT_WRITE);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(seal_future_write(file.fd.get()));
    ASSERT_TRUE(seal_future_write(file.fd.get())) << "asked again it is Ok";
    writer.bytes()[0] = 'x';
    EXPECT_FALSE(Mapping(file.fd.get(), PROT_READ | PROT_WRITE).ok());
    EXPECT_EQ(::pwrite(file.fd.get(), "y", 1, 0), -1);
    EXPECT_EQ(::fallocate(file.fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
    Mapping reader(file.fd.get(), PROT_READ);
    ASSERT_TRUE(reader.ok());
    EXPECT_EQ(reader.bytes()[0], 'x');
}

TEST(SegmentFile, WriteSealIsGrantedOnlyWhenNoMappingIsLeft) {
    SegmentFile file = make();
    Mapping writer(file.fd.get(), PROT_READ | PROT_WRITE);
    ASSERT_TRUE(seal_future_write(file.fd.get()));
    EXPECT_EQ(try_seal_write(file.fd.get()), WriteSeal::StillMapped);
    writer.unmap();
    EXPECT_EQ(try_seal_write(file.fd.get()), WriteSeal::Granted);
    EXPECT_EQ(try_seal_write(file.fd.get()), WriteSeal::Granted) << "once proven, proven for ever";
}

TEST(SegmentFile, SealedSealsAreNoProof) {
    SegmentFile file = make();
    ASSERT_TRUE(seal_future_write(file.fd.get()));
    ASSERT_EQ(::fcntl(file.fd.get(), F_ADD_SEALS, F_SEAL_SEAL), 0);
    EXPECT_EQ(try_seal_write(file.fd.get()), WriteSeal::Refused);
}

TEST(SegmentFile, SealedSealsRefuseTheFutureWriteSeal) {
    SegmentFile file = make();
    ASSERT_EQ(::fcntl(file.fd.get(), F_ADD_SEALS, F_SEAL_SEAL), 0);
    auto sealed = seal_future_write(file.fd.get());
    ASSERT_FALSE(sealed);
    EXPECT_EQ(sealed.error().code, EPERM);
}

TEST(SegmentFile, RefusesSizesThatAreNotPages) {
    for (uint64_t bytes : {uint64_t{0}, uint64_t{4095}, uint64_t{1} << 63}) {
        auto file = make_segment_file("test", bytes, wire::HugePages::Off);
        ASSERT_FALSE(file) << bytes;
        EXPECT_EQ(file.error().code, EINVAL);
    }
}

TEST(SegmentFile, HugePagesAreReservedOrRefusedNamingWhatIsFree) {
    std::ifstream free_file("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    uint64_t free_pages = 0;
    free_file >> free_pages;
    const uint64_t bytes = (free_pages + 1) * (2 << 20);
    auto required = make_segment_file("test", bytes, wire::HugePages::Required);
    ASSERT_FALSE(required);
    EXPECT_EQ(required.error().code, ENOMEM) << required.error().message;
    EXPECT_THAT(required.error().message, testing::HasSubstr("huge pages"));
    EXPECT_THAT(required.error().message, testing::HasSubstr(std::to_string(free_pages + 1)));
    EXPECT_THAT(required.error().message,
                testing::HasSubstr(std::to_string(free_pages) + " are free"));

    auto tried = make_segment_file("test", bytes, wire::HugePages::Try);
    ASSERT_TRUE(tried) << describe(tried.error());
    EXPECT_FALSE(tried->huge);

    auto odd = make_segment_file("test", 4096, wire::HugePages::Required);
    ASSERT_FALSE(odd);
    EXPECT_EQ(odd.error().code, EINVAL);

    if (free_pages == 0)
        GTEST_SKIP() << "no free huge pages: the rest needs two of 2 MiB";
    auto got = make_segment_file("test", 2 << 20, wire::HugePages::Required);
    ASSERT_TRUE(got) << describe(got.error());
    EXPECT_TRUE(got->huge);
    EXPECT_TRUE(inspect_descriptor(got->fd.get()).huge);
}

TEST(SegmentFile, InspectionTellsSegmentsFromAnythingElse) {
    SegmentFile file = make();
    AttachedDescriptor young = inspect_descriptor(file.fd.get());
    EXPECT_FALSE(young.sealed) << "not mapped yet, so nothing in it can be believed";
    EXPECT_EQ(young.identity, file.identity);
    ASSERT_TRUE(seal_future_write(file.fd.get()));
    AttachedDescriptor good = inspect_descriptor(file.fd.get());
    EXPECT_TRUE(good.sealed);
    EXPECT_FALSE(good.huge);
    EXPECT_EQ(good.bytes, kBytes);
    EXPECT_EQ(good.identity, file.identity);

    UniqueFd read_only(
        ::open(("/proc/self/fd/" + std::to_string(file.fd.get())).c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(read_only);
    EXPECT_FALSE(inspect_descriptor(read_only.get()).sealed);

    UniqueFd unsealed(::memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    UniqueFd no_sealing(::memfd_create("x", MFD_CLOEXEC));
    UniqueFd regular(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    int pipe_fds[2];
    ASSERT_EQ(::pipe2(pipe_fds, O_CLOEXEC), 0);
    UniqueFd pipe_read(pipe_fds[0]), pipe_write(pipe_fds[1]);
    for (int fd : {unsealed.get(), no_sealing.get(), regular.get(), pipe_read.get(), -1}) {
        AttachedDescriptor other = inspect_descriptor(fd);
        EXPECT_FALSE(other.sealed);
        EXPECT_EQ(other.bytes, 0u);
        EXPECT_EQ(other.identity, SegmentIdentity{});
    }
}

}  // namespace
}  // namespace maru
