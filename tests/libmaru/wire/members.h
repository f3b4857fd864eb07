// The members of an aggregate, so that tests fill and compare every field of every message: one that
// the codec forgets is found without anybody listing it.
#pragma once

#include <cstddef>
#include <tuple>
#include <utility>

#include "libmaru/wire/messages.h"

namespace maru::wire::test {

struct Anything {
    template <typename T>
    operator T() const;
};

template <typename T, size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
    return requires { T{(static_cast<void>(I), Anything{})...}; };
}

template <typename T, size_t N = 21>
constexpr size_t count_members() {
    static_assert(N > 0, "an aggregate of more than 21 members, or none at all");
    if constexpr (takes<T>(std::make_index_sequence<N>()))
        return N;
    else
        return count_members<T, N - 1>();
}

template <typename T>
inline constexpr size_t kMembers = count_members<T>();
// An optional or a variant takes Anything in two ways, so these are counted by hand.
template <>
inline constexpr size_t kMembers<AdminRetireRequest> = 2;
template <>
inline constexpr size_t kMembers<ListReply> = 2;

template <typename T>
constexpr auto members(T &v) {
    constexpr size_t n = kMembers<std::remove_const_t<T>>;
#define MARU_TEST_MEMBERS(N, ...)     \
    if constexpr (n == N) {           \
        auto &[__VA_ARGS__] = v;      \
        return std::tie(__VA_ARGS__); \
    } else
    MARU_TEST_MEMBERS(1, a)
    MARU_TEST_MEMBERS(2, a, b)
    MARU_TEST_MEMBERS(3, a, b, c)
    MARU_TEST_MEMBERS(4, a, b, c, d)
    MARU_TEST_MEMBERS(5, a, b, c, d, e)
    MARU_TEST_MEMBERS(6, a, b, c, d, e, f)
    MARU_TEST_MEMBERS(7, a, b, c, d, e, f, g)
    MARU_TEST_MEMBERS(8, a, b, c, d, e, f, g, h)
    MARU_TEST_MEMBERS(9, a, b, c, d, e, f, g, h, i)
    MARU_TEST_MEMBERS(10, a, b, c, d, e, f, g, h, i, j)
    MARU_TEST_MEMBERS(11, a, b, c, d, e, f, g, h, i, j, k)
    MARU_TEST_MEMBERS(12, a, b, c, d, e, f, g, h, i, j, k, l)
    MARU_TEST_MEMBERS(13, a, b, c, d, e, f, g, h, i, j, k, l, m)
    MARU_TEST_MEMBERS(14, a, b, c, d, e, f, g, h, i, j, k, l, m, o)
    MARU_TEST_MEMBERS(15, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p)
    MARU_TEST_MEMBERS(16, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q)
    MARU_TEST_MEMBERS(17, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r)
    MARU_TEST_MEMBERS(18, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s)
    MARU_TEST_MEMBERS(19, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t)
    MARU_TEST_MEMBERS(20, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u)
    MARU_TEST_MEMBERS(21, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u, w)
    static_assert(n <= 21);
#undef MARU_TEST_MEMBERS
}

}  // namespace maru::wire::test
