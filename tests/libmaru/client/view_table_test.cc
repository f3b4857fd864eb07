// Views: what a reader maps is what it was told of, and reading costs the file nothing.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "libmaru/client/view_table.h"

namespace maru::client {
namespace {

constexpr uint64_t kBytes = 16 << 20;
constexpr uint64_t kMiB = 1 << 20;

// As marud makes it: some of it written, sealed; readers get a descriptor of their own.
class File {
  public:
    explicit File(const std::vector<std::pair<uint64_t, char>> &written)
        : fd_(::memfd_create("view-test", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
        EXPECT_EQ(::ftruncate(fd_.get(), kBytes), 0);
        for (const auto &[offset, fill] : written) {
            const std::string bytes(kMiB, fill);
            EXPECT_EQ(::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)),
                      static_cast<ssize_t>(bytes.size()));
        }
        EXPECT_EQ(
            ::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE), 0);
    }
    UniqueFd to_read() const {
        return UniqueFd(
            ::open(("/proc/self/fd/" + std::to_string(fd_.get())).c_str(), O_RDONLY | O_CLOEXEC));
    }
    uint64_t allocated() const {
        struct stat status {};
        EXPECT_EQ(::fstat(fd_.get(), &status), 0);
        return static_cast<uint64_t>(status.st_blocks) * 512;
    }

  private:
    UniqueFd fd_;
};

// Resident bytes of the mapping that `at` lies in.
uint64_t resident(const void *at) {
    const auto address = reinterpret_cast<uintptr_t>(at);
    FILE *maps = std::fopen("/proc/self/smaps", "re");
    if (!maps)
        return 0;
    char line[512];
    bool inside = false;
    uint64_t kib = 0, found = 0;
    while (std::fgets(line, sizeof line, maps)) {
        uintptr_t begin = 0, end = 0;
        char mode[5];
        if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &begin, &end, mode) == 3)
            inside = begin <= address && address < end;
        else if (inside && std::sscanf(line, "Rss: %" SCNu64, &kib) == 1)
            found = kib << 10;
    }
    std::fclose(maps);
    return found;
}

class ViewTableTest : public testing::Test {
  protected:
    static constexpr wire::Id kPool = 5;
    View *map(const File &file, uint64_t offset = 0, uint32_t segment = 0) {
        auto mapped = table_.map({kPool, segment, offset, kBytes, false}, file.to_read());
        EXPECT_TRUE(mapped) << mapped.error().message;
        return mapped ? *mapped : nullptr;
    }
    void populate() {
        std::mutex mutex;
        std::unique_lock lock(mutex);
        for (int steps = 0; table_.populate_step(lock); ++steps)
            ASSERT_LT(steps, 1000);
    }
    ViewTable table_;
};

TEST_F(ViewTableTest, PopulatesWhatIsWrittenAndNothingElse) {
    const File file({{4 * kMiB, 'a'}, {5 * kMiB, 'b'}, {11 * kMiB, 'c'}});
    const uint64_t before = file.allocated();
    ASSERT_GE(before, 3 * kMiB);
    View *view = map(file);
    ASSERT_TRUE(view);
    EXPECT_EQ(resident(view->at(0)), 0u);
    populate();
    EXPECT_EQ(file.allocated(), before);  // a hole that is read becomes memory of the file
    EXPECT_EQ(resident(view->at(0)), 3 * kMiB);
    EXPECT_EQ(*reinterpret_cast<const char *>(view->at(5 * kMiB)), 'b');
    EXPECT_EQ(*reinterpret_cast<const char *>(view->at(11 * kMiB)), 'c');
    EXPECT_EQ(file.allocated(), before);
}

TEST_F(ViewTableTest, AFileThatNobodyHasWrittenStaysEmpty) {
    const File file({});
    View *view = map(file);
    ASSERT_TRUE(view);
    populate();
    EXPECT_EQ(file.allocated(), 0u);
    EXPECT_EQ(resident(view->at(0)), 0u);
}

TEST_F(ViewTableTest, WhatIsRetiredStaysReadableAndIsNotFound) {
    const File first({{0, 'a'}}), second({{0, 'b'}});
    View *old = map(first);
    ASSERT_TRUE(old);
    table_.use(*old);
    table_.retire(*old);
    EXPECT_EQ(table_.find(kPool, 0, 1), nullptr);
    // Another file in the same place, while the first is read.
    View *now = map(second);
    ASSERT_TRUE(now);
    EXPECT_EQ(table_.find(kPool, 0, 1), now);
    EXPECT_EQ(table_.size(), 2u);
    EXPECT_EQ(static_cast<char>(*old->at(0)), 'a');
    EXPECT_EQ(static_cast<char>(*now->at(0)), 'b');
    table_.retire(*old);  // again: nothing
    table_.leave(*old);
    EXPECT_EQ(table_.size(), 1u);
    EXPECT_EQ(table_.find(kPool, 0, 1), now);
    populate();
    table_.gone(kPool, 0);
    EXPECT_EQ(table_.size(), 0u);
}

TEST_F(ViewTableTest, ANewerFileTakesThePlaceOfAnEarlierOne) {
    const File first({{0, 'a'}}), second({{0, 'b'}});
    View *old = map(first);
    table_.use(*old);
    View *now = map(second);
    EXPECT_EQ(table_.find(kPool, 0, 1), now);
    EXPECT_EQ(static_cast<char>(*old->at(0)), 'a');
    table_.leave(*old);
    EXPECT_EQ(table_.size(), 1u);
    populate();
    EXPECT_EQ(static_cast<char>(*now->at(0)), 'b');
}

TEST_F(ViewTableTest, OnlyWhatIsUsedOutlivesAConnection) {
    const File file({{0, 'a'}});
    View *used = map(file, 0, 0);
    map(file, kBytes, 1);
    table_.use(*used);
    table_.forget_unused();
    EXPECT_EQ(table_.find(kPool, 0, 1), used);
    EXPECT_EQ(table_.find(kPool, kBytes, 1), nullptr);
    populate();
    table_.leave(*used);
    EXPECT_EQ(table_.size(), 1u);
}

}  // namespace
}  // namespace maru::client
