#include "libmaru/copy/copy.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace maru::copy {
namespace {

TEST(Copy, BothDirectionsAreByteExactForEverySizeClass) {
    std::mt19937 random(3);
    for (size_t size : {size_t{0}, size_t{1}, size_t{4095}, size_t{4096}, size_t{70001},
                        size_t{2097152}, size_t{5000001}}) {
        std::vector<uint8_t> from(size), pool(size), to(size);
        for (auto &byte : from)
            byte = static_cast<uint8_t>(random());
        copy_in(pool.data(), from.data(), size);
        EXPECT_EQ(pool, from);
        copy_out(to.data(), pool.data(), size);
        EXPECT_EQ(to, from);
    }
}

TEST(Copy, RunsAreByteExactWhateverTheyAreAPartOf) {
    std::mt19937 random(4);
    std::vector<uint8_t> from(300000), pool(from.size()), to(from.size());
    for (auto &byte : from)
        byte = static_cast<uint8_t>(random());
    for (size_t all : {size_t{300000}, size_t{3} << 20, size_t{1} << 40}) {
        std::fill(pool.begin(), pool.end(), uint8_t{0});
        std::fill(to.begin(), to.end(), uint8_t{0});
        for (size_t at = 0, size = 1; at < from.size(); at += size, size = size * 3 % 40000 + 1) {
            size = std::min(size, from.size() - at);
            copy_in(&pool[at], &from[at], size, all);
            copy_out(&to[at], &pool[at], size, all);
        }
        EXPECT_EQ(to, from) << all;
    }
}

TEST(Copy, FirstUseByManyThreadsAtOnceIsSafe) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
        threads.emplace_back([i] {
            std::vector<uint8_t> from(200000, static_cast<uint8_t>(i)), to(200000);
            copy_in(to.data(), from.data(), from.size());
            EXPECT_EQ(to, from);
        });
    for (auto &thread : threads)
        thread.join();
}

TEST(Copy, SmallSizesAreLeftToLibc) {
    EXPECT_EQ(chosen_kernel(Direction::In, 100).name, "libc");
    EXPECT_EQ(chosen_kernel(Direction::Out, 4095).name, "libc");
}

// The choice is made once per process: a new one asks the environment again.
void expect_in_child(const std::string &value) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::setenv("MARU_COPY_KERNEL", value.c_str(), 1);
        ::execl("/proc/self/exe", "copy_test", "--gtest_filter=CopyChild.*",
                "--gtest_also_run_disabled_tests", "--gtest_brief=1", static_cast<char *>(nullptr));
        ::_exit(127);
    }
    int status = 1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << value;
}

TEST(Copy, EnvironmentNamesTheKernel) {
    for (const Kernel &kernel : kernels())
        if (kernel.supported())
            expect_in_child(std::string(kernel.name));
    expect_in_child("no_such_kernel");
    expect_in_child("");
}

// Runs only in the children of the test above.
TEST(CopyChild, DISABLED_UsesTheNamedKernelOrCalibrates) {
    const Kernel *named = find_kernel(::getenv("MARU_COPY_KERNEL"));
    for (Direction direction : {Direction::In, Direction::Out})
        for (size_t size : {4096u, 100000u, 4000000u}) {
            const Kernel &kernel = chosen_kernel(direction, size);
            EXPECT_TRUE(kernel.supported());
            if (named) {
                EXPECT_EQ(&kernel, named);
            }
        }
}

}  // namespace
}  // namespace maru::copy
