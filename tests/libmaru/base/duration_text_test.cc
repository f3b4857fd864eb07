#include "libmaru/base/duration_text.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace maru {
namespace {

TEST(DurationText, TakesEveryUnit) {
    EXPECT_EQ(*parse_duration("30s"), 30'000'000'000);
    EXPECT_EQ(*parse_duration("500ms"), 500'000'000);
    EXPECT_EQ(*parse_duration("500 MS"), 500'000'000);
    EXPECT_EQ(*parse_duration("2m"), 120'000'000'000);
    EXPECT_EQ(*parse_duration("2min"), 120'000'000'000);
    EXPECT_EQ(*parse_duration("1.5h"), 5'400'000'000'000);
    EXPECT_EQ(*parse_duration("1d"), 86'400'000'000'000);
    EXPECT_EQ(*parse_duration("20us"), 20'000);
    EXPECT_EQ(*parse_duration("7ns"), 7);
    EXPECT_EQ(*parse_duration("0.333s"), 333'000'000);
    EXPECT_EQ(*parse_duration("0", Zero::Allowed), 0);
    EXPECT_EQ(*parse_duration("0ms", Zero::Allowed), 0);
}

TEST(DurationText, SaysWhatIsWrong) {
    struct Row {
        const char *text;
        int code;
        const char *reason;
    };
    const Row rows[] = {
        {"", EINVAL, "empty"},
        {"30", EINVAL, "needs a unit"},
        {"-1s", EINVAL, "negative"},
        {"3 weeks", EINVAL, "unknown unit 'weeks'"},
        {"0", EINVAL, "at least 1 ns"},
        {"0.1ns", EINVAL, "fraction"},
        {"300000d", ERANGE, "too large"},
        {"1m30s", EINVAL, "unknown unit 'm30s'"},
    };
    for (const Row &row : rows) {
        const auto ns = parse_duration(row.text);
        ASSERT_FALSE(ns.ok()) << row.text;
        EXPECT_EQ(ns.error().code, row.code) << row.text;
        EXPECT_NE(ns.error().message.find(row.reason), std::string::npos) << ns.error().message;
    }
}

TEST(DurationText, ShowsSpansForPeople) {
    EXPECT_EQ(format_duration(0), "0ns");
    EXPECT_EQ(format_duration(85'000), "85us");
    EXPECT_EQ(format_duration(250'999'999), "250ms");
    EXPECT_EQ(format_duration(12'000'000'000), "12s");
    EXPECT_EQ(format_duration(60'000'000'000), "1m");
    EXPECT_EQ(format_duration(303'000'000'000), "5m 3s");
    EXPECT_EQ(format_duration(7'500'000'000'000), "2h 5m");
    EXPECT_EQ(format_duration(273'600'000'000'000), "3d 4h");
    EXPECT_EQ(format_duration(-12'000'000'000), "-12s");
    EXPECT_EQ(format_duration(INT64_MIN), "-" + format_duration(INT64_MAX));
}

}  // namespace
}  // namespace maru
