#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "libmaru/copy/copy.h"

namespace maru::copy {
namespace {

constexpr size_t kGuard = 128;

class EveryKernel : public testing::TestWithParam<size_t> {
  protected:
    void SetUp() override {
        kernel_ = &kernels()[GetParam()];
        if (!kernel_->supported())
            GTEST_SKIP() << "this machine has no " << kernel_->name;
        std::mt19937_64 random(7);
        for (auto &byte : source_)
            byte = static_cast<uint8_t>(random());
    }

    // Copies and looks at every byte of the target, and at the guards before and behind it.
    void check(size_t size, size_t to_offset, size_t from_offset) {
        uint8_t *to = target_.data() + 64 - reinterpret_cast<uintptr_t>(target_.data()) % 64 +
                      kGuard + to_offset;
        const uint8_t *from = source_.data() + from_offset;
        uint8_t *begin = to - kGuard;
        std::memset(begin, 0xa5, size + 2 * kGuard);
        kernel_->copy(to, from, size);
        ASSERT_EQ(std::memcmp(to, from, size), 0) << kernel_->name << " size " << size << " to +"
                                                  << to_offset << " from +" << from_offset;
        for (size_t i = 0; i < kGuard; ++i) {
            ASSERT_EQ(begin[i], 0xa5) << kernel_->name << " wrote before its target, size " << size;
            ASSERT_EQ(to[size + i], 0xa5)
                << kernel_->name << " wrote behind its target, size " << size;
        }
    }

    static constexpr size_t kMax = 3 * 1024 * 1024;
    const Kernel *kernel_ = nullptr;
    std::vector<uint8_t> source_ = std::vector<uint8_t>(kMax + 256);
    std::vector<uint8_t> target_ = std::vector<uint8_t>(kMax + 512);
};

TEST_P(EveryKernel, CopiesSmallSizesAtEveryAlignmentOfTheTarget) {
    for (size_t size = 0; size <= 300; ++size)
        for (size_t offset = 0; offset < 64; ++offset)
            check(size, offset, (offset * 7 + size) % 64);
}

TEST_P(EveryKernel, CopiesLargerOddSizesAtAllAlignments) {
    for (size_t size : {511u, 1023u, 4095u, 4097u, 10007u, 16383u, 16384u, 16449u, 33001u})
        for (size_t to = 0; to < 64; ++to)
            for (size_t from = 0; from<64; from += size> 5000 ? 9 : 5)
                check(size, to, from);
    for (size_t size : {65536u, 65537u, 1048575u, 2097152u, 2097153u, 3000001u})
        for (size_t offset : {0u, 1u, 31u, 33u, 63u})
            check(size, offset, 64 - offset);
}

// Exactly the named bytes: the target ends where the allocation ends, which ASan watches.
TEST_P(EveryKernel, TouchesNothingBesidesItsRanges) {
    for (size_t size : {1u, 63u, 64u, 65u, 127u, 128u, 255u, 256u, 257u, 1000u, 4096u}) {
        const std::vector<uint8_t> from(source_.begin(), source_.begin() + static_cast<long>(size));
        std::vector<uint8_t> to(size);
        kernel_->copy(to.data(), from.data(), size);
        EXPECT_EQ(to, from);
    }
}

INSTANTIATE_TEST_SUITE_P(Copy, EveryKernel, testing::Range<size_t>(0, kernels().size()),
                         [](const auto &test) { return std::string(kernels()[test.param].name); });

TEST(Kernels, AreFoundByTheirNamesWhichDiffer) {
    std::set<std::string_view> names;
    for (const Kernel &kernel : kernels()) {
        EXPECT_EQ(find_kernel(kernel.name), &kernel);
        names.insert(kernel.name);
    }
    EXPECT_EQ(names.size(), kernels().size());
    EXPECT_EQ(kernels().front().name, "libc");
    EXPECT_TRUE(kernels().front().supported());
    EXPECT_EQ(find_kernel("memcpy"), nullptr);
    EXPECT_EQ(find_kernel(""), nullptr);
}

TEST(Kernels, ZeroBytesNeedNoMemory) {
    for (const Kernel &kernel : kernels())
        if (kernel.supported())
            kernel.copy(nullptr, nullptr, 0);
}

}  // namespace
}  // namespace maru::copy
