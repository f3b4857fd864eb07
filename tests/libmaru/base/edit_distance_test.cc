#include "libmaru/base/nearest_name.h"

#include <gtest/gtest.h>

namespace maru {
namespace {

TEST(EditDistance, CountsInsertionsDeletionsChangesAndSwaps) {
    EXPECT_EQ(edit_distance("timeout", "timeout"), 0u);
    EXPECT_EQ(edit_distance("", "abc"), 3u);
    EXPECT_EQ(edit_distance("abc", ""), 3u);
    EXPECT_EQ(edit_distance("timeot", "timeout"), 1u);
    EXPECT_EQ(edit_distance("tiemout", "timeout"), 1u);  // neighbours swapped
    EXPECT_EQ(edit_distance("tymeouts", "timeout"), 2u);
    EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(EditDistance, LongNamesAreCut) {
    EXPECT_EQ(edit_distance(std::string(100'000, 'a'), "a"), 255u);
}

}  // namespace
}  // namespace maru
