#include "libmaru/base/divisor.h"

#include <gtest/gtest.h>

namespace maru {
namespace {

TEST(Divisor, DividesAsTheProcessorDoes) {
    for (uint64_t by : {uint64_t{1}, uint64_t{3}, uint64_t{4096}, uint64_t{4097},
                        uint64_t{70} << 12, uint64_t{1} << 63, ~uint64_t{0}}) {
        const Divisor divisor(by);
        EXPECT_EQ(divisor.value(), by);
        for (uint64_t number : {uint64_t{0}, uint64_t{1}, by - 1, by, by + 1, 3 * by,
                                uint64_t{1} << 63, ~uint64_t{0}}) {
            EXPECT_EQ(divisor.quotient(number), number / by) << number << " by " << by;
            EXPECT_EQ(divisor.remainder(number), number % by) << number << " by " << by;
            EXPECT_EQ(divisor.ceiling(number), number / by + (number % by != 0))
                << number << " by " << by;
        }
    }
}

}  // namespace
}  // namespace maru
