#include "daemon/config/nearest.h"

#include <gtest/gtest.h>

namespace maru {
namespace {

TEST(Nearest, CountsInsertionsDeletionsChangesAndSwaps) {
    EXPECT_EQ(edit_distance("timeout", "timeout"), 0u);
    EXPECT_EQ(edit_distance("", "abc"), 3u);
    EXPECT_EQ(edit_distance("abc", ""), 3u);
    EXPECT_EQ(edit_distance("timeot", "timeout"), 1u);
    EXPECT_EQ(edit_distance("tiemout", "timeout"), 1u);  // neighbours swapped
    EXPECT_EQ(edit_distance("tymeouts", "timeout"), 2u);
    EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(Nearest, LongNamesAreCut) { EXPECT_EQ(edit_distance(std::string(100'000, 'a'), "a"), 255u); }

}  // namespace
}  // namespace maru
