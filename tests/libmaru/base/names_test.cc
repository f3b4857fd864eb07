#include <gtest/gtest.h>
#include <time.h>

#include <cstdlib>
#include <set>
#include <string>
#include <utility>

#include "libmaru/base/clock.h"
#include "libmaru/base/nearest_name.h"
#include "libmaru/base/random.h"
#include "libmaru/base/socket_path.h"

namespace maru {
namespace {

constexpr std::string_view kKnown[] = {"capacity_bytes", "session", "status", "namespace", "pool"};

TEST(NearestName, FindsWhatWasProbablyMeant) {
    EXPECT_EQ(nearest_name("capcity_bytes", kKnown), "capacity_bytes");
    EXPECT_EQ(nearest_name("nmaespace", kKnown), "namespace");  // two neighbours swapped
    EXPECT_EQ(nearest_name("Session", kKnown), "session");
    EXPECT_EQ(nearest_name("sessions", kKnown), "session");
    EXPECT_EQ(nearest_name("stat", kKnown), "status");  // as a beginning
    EXPECT_EQ(nearest_name("ppol", kKnown), "pool");
}

TEST(NearestName, KeepsSilentWhereNothingIsNear) {
    EXPECT_EQ(nearest_name("frobnicate", kKnown), "");
    EXPECT_EQ(nearest_name("", kKnown), "");
    EXPECT_EQ(nearest_name("x", kKnown), "");
    EXPECT_EQ(nearest_name(std::string(100'000, 'p'), kKnown), "");
    EXPECT_EQ(suggestion("frobnicate", kKnown), "");
    EXPECT_EQ(suggestion("sesion", kKnown), ", did you mean 'session'?");
}

TEST(Random, TokensDifferAndEpochsAreNotZero) {
    std::set<std::array<uint8_t, 16>> tokens;
    for (int i = 0; i < 100; ++i) {
        tokens.insert(random_token());
        EXPECT_NE(random_epoch(), 0u);
        EXPECT_NE(random_nonce(), 0u);
    }
    EXPECT_EQ(tokens.size(), 100u);
}

TEST(Clock, NeverGoesBack) {
    const int64_t a = monotonic_ns(), b = boottime_ns();
    EXPECT_GT(a, 0);
    EXPECT_GE(monotonic_ns(), a);
    EXPECT_GE(boottime_ns(), b);
}

// Deadlines, sessions over a suspended machine, and processor time are three different clocks.
TEST(Clock, EachIsTheKernelsOfItsName) {
    const auto read = [](clockid_t clock) {
        timespec now{};
        EXPECT_EQ(::clock_gettime(clock, &now), 0);
        return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
    };
    const std::pair<int64_t (*)(), clockid_t> clocks[] = {
        {monotonic_ns, CLOCK_MONOTONIC},
        {boottime_ns, CLOCK_BOOTTIME},
        {thread_cpu_ns, CLOCK_THREAD_CPUTIME_ID},
    };
    for (const auto &[ours, clock] : clocks) {
        const int64_t before = read(clock), now = ours(), after = read(clock);
        EXPECT_LE(before, now) << clock;
        EXPECT_LE(now, after) << clock;
    }
}

TEST(SocketPath, WhatIsGivenThenTheEnvironmentThenTheUsualPlaces) {
    ::setenv("MARU_SOCKET", "/a/b", 1);
    ::setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
    EXPECT_EQ(socket_paths("/x"), std::vector<std::string>{"/x"});
    EXPECT_EQ(socket_paths(), std::vector<std::string>{"/a/b"});
    ::setenv("MARU_SOCKET", "", 1);
    EXPECT_EQ(socket_paths(),
              (std::vector<std::string>{"/run/maru/marud.sock", "/run/user/7/maru/marud.sock"}));
    ::unsetenv("XDG_RUNTIME_DIR");
    EXPECT_EQ(socket_paths(), std::vector<std::string>{"/run/maru/marud.sock"});
}

}  // namespace
}  // namespace maru
