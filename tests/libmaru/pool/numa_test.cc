#include "libmaru/pool/numa.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>

namespace maru::pool {
namespace {

NumaCalls fake(int result, int current, int *bound) {
    return {[=](void *, size_t, int node) {
                *bound = node;
                return result;
            },
            [=] { return current; }};
}

TEST(Numa, OffBindsNothing) {
    int bound = -2;
    auto binding = bind_memory(nullptr, 0, wire::Numa::Off, 0, fake(0, 0, &bound));
    ASSERT_TRUE(binding);
    EXPECT_EQ(binding->node, -1);
    EXPECT_EQ(bound, -2);
}

TEST(Numa, BindsToTheNamedNodeOrTheCallers) {
    int bound = -2;
    auto named = bind_memory(nullptr, 0, wire::Numa::Strict, 3, fake(0, 1, &bound));
    ASSERT_TRUE(named);
    EXPECT_EQ(named->node, 3);
    EXPECT_EQ(bound, 3);
    auto own = bind_memory(nullptr, 0, wire::Numa::Auto, -1, fake(0, 1, &bound));
    ASSERT_TRUE(own);
    EXPECT_EQ(own->node, 1);
    EXPECT_EQ(own->warning, "");
}

// A32: a container refuses the call. Auto goes on and says so once; it never claims to be bound.
TEST(Numa, AutoGoesOnUnboundWithAWarningNamingTheErrno) {
    for (auto [code, name] : {std::pair{EPERM, "EPERM"}, {EINVAL, "EINVAL"}, {ENOSYS, "ENOSYS"}}) {
        int bound = -2;
        auto binding = bind_memory(nullptr, 0, wire::Numa::Auto, 2, fake(code, 0, &bound));
        ASSERT_TRUE(binding);
        EXPECT_EQ(binding->node, -1);
        EXPECT_NE(binding->warning.find(name), std::string::npos) << binding->warning;
        EXPECT_NE(binding->warning.find("node 2"), std::string::npos) << binding->warning;
    }
}

TEST(Numa, StrictFailsNamingTheErrno) {
    for (auto [code, name] : {std::pair{EPERM, "EPERM"}, {EINVAL, "EINVAL"}}) {
        int bound = -2;
        auto binding = bind_memory(nullptr, 0, wire::Numa::Strict, 2, fake(code, 0, &bound));
        ASSERT_FALSE(binding);
        EXPECT_EQ(binding.error().code, EOPNOTSUPP);
        EXPECT_NE(binding.error().message.find(name), std::string::npos);
    }
}

TEST(Numa, UnknownOwnNodeIsARefusalLikeAnother) {
    int bound = -2;
    EXPECT_TRUE(bind_memory(nullptr, 0, wire::Numa::Auto, -1, fake(0, -1, &bound)));
    EXPECT_FALSE(bind_memory(nullptr, 0, wire::Numa::Strict, -1, fake(0, -1, &bound)));
    EXPECT_EQ(bound, -2);
}

TEST(Numa, ImpossibleNodeIsAnArgumentError) {
    int bound = -2;
    EXPECT_EQ(bind_memory(nullptr, 0, wire::Numa::Auto, -2, fake(0, 0, &bound)).error().code,
              EINVAL);
    EXPECT_EQ(bind_memory(nullptr, 0, wire::Numa::Auto, 5000, fake(0, 0, &bound)).error().code,
              EINVAL);
}

// The real call: node 0 exists everywhere that binding works; a node far out never does.
TEST(Numa, TheSystemCallBindsOrIsReportedTruly) {
    void *memory =
        ::mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    auto binding = bind_memory(memory, 1 << 20, wire::Numa::Auto, 0);
    ASSERT_TRUE(binding);
    EXPECT_EQ(binding->node == 0, binding->warning.empty()) << binding->warning;
    EXPECT_FALSE(bind_memory(memory, 1 << 20, wire::Numa::Strict, 1000));
    ::munmap(memory, 1 << 20);
}

}  // namespace
}  // namespace maru::pool
