// Names, escapes and numbers as a scraper reads them.
#include "daemon/metrics/registry.h"

#include <gtest/gtest.h>

namespace maru::metrics {
namespace {

std::string text_of(const Registry &registry, Format format = Format::Text) {
    std::string text;
    registry.render(format, &text);
    return text;
}

TEST(Registry, ASampleHasItsFamilysNameLabelsAndNumber) {
    uint64_t hits = 7, misses = UINT64_MAX;
    Registry registry;
    registry.add({"maru_reads_total", Type::Counter, Unit::None, "Reads.", {"result", "tier"}},
                 {Series{{"hit", "l1"}, &hits}, Series{{"miss", "l1"}, &misses}});
    EXPECT_EQ(text_of(registry),
              "# HELP maru_reads_total Reads.\n"
              "# TYPE maru_reads_total counter\n"
              "maru_reads_total{result=\"hit\",tier=\"l1\"} 7\n"
              "maru_reads_total{result=\"miss\",tier=\"l1\"} 18446744073709551615\n");
    ++hits;
    EXPECT_NE(text_of(registry).find("{result=\"hit\",tier=\"l1\"} 8\n"), std::string::npos)
        << "numbers are read where they are counted";
    EXPECT_EQ(registry.samples(), 2u);
}

TEST(Registry, NanosecondsAreShownAsSecondsExactly) {
    uint64_t ns = 0;
    Registry registry;
    registry.add({"maru_age_seconds", Type::Gauge, Unit::Seconds, "Age.", {}}, &ns);
    auto shown = [&](uint64_t value) {
        ns = value;
        std::string text = text_of(registry);
        size_t at = text.rfind(' ');
        return text.substr(at + 1, text.size() - at - 2);
    };
    EXPECT_EQ(shown(0), "0");
    EXPECT_EQ(shown(1), "0.000000001");
    EXPECT_EQ(shown(1'500'000'000), "1.5");
    EXPECT_EQ(shown(12'000'000'000), "12");
    EXPECT_EQ(shown(1'796'034'393'089'918'521), "1796034393.089918521");
}

constexpr std::array<uint64_t, 2> kBounds = {1'000'000, 2'000'000'000};

TEST(Registry, BucketsAreCumulativeAndABoundBelongsToItsBucket) {
    Histogram<kBounds> time;
    time.observe(-5);  // a clock that went back counts as no time
    time.observe(1'000'000);
    time.observe(1'000'001);
    time.observe(3'000'000'000);
    EXPECT_EQ(time.count(), 4u);
    Registry registry;
    registry.add({"maru_time_seconds", Type::Histogram, Unit::Seconds, "Time.", {"kind"}},
                 {HistogramSeries{{"a"}, time.view()}});
    EXPECT_EQ(text_of(registry),
              "# HELP maru_time_seconds Time.\n"
              "# TYPE maru_time_seconds histogram\n"
              "maru_time_seconds_bucket{kind=\"a\",le=\"0.001\"} 2\n"
              "maru_time_seconds_bucket{kind=\"a\",le=\"2.0\"} 3\n"
              "maru_time_seconds_bucket{kind=\"a\",le=\"+Inf\"} 4\n"
              "maru_time_seconds_sum{kind=\"a\"} 3.002000001\n"
              "maru_time_seconds_count{kind=\"a\"} 4\n");
}

TEST(Registry, OpenMetricsNamesFamiliesUnitsAndTheEnd) {
    uint64_t one = 1;
    Registry registry;
    registry.add({"maru_build_info", Type::Info, Unit::None, "Build.", {"version"}},
                 {Series{{"0.1"}, &one}});
    registry.add({"maru_read_bytes_total", Type::Counter, Unit::Bytes, "Bytes \"read\".", {}},
                 &one);
    EXPECT_EQ(text_of(registry, Format::OpenMetrics),
              "# TYPE maru_build info\n"
              "# HELP maru_build Build.\n"
              "maru_build_info{version=\"0.1\"} 1\n"
              "# TYPE maru_read_bytes counter\n"
              "# UNIT maru_read_bytes bytes\n"
              "# HELP maru_read_bytes Bytes \\\"read\\\".\n"
              "maru_read_bytes_total 1\n"
              "# EOF\n");
    EXPECT_NE(text_of(registry).find("# TYPE maru_build_info gauge\n"), std::string::npos)
        << "the older format knows no info";
}

TEST(Registry, QuotesBackslashesAndLineEndsAreEscaped) {
    EXPECT_EQ(escape_label("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    EXPECT_EQ(escape_help("a\"b\\c\nd", Format::Text), "a\"b\\\\c\\nd");
    EXPECT_EQ(escape_help("a\"b", Format::OpenMetrics), "a\\\"b");
}

TEST(Registry, AFamilyThatPrometheusWouldMisreadIsRefused) {
    auto problem = [](std::string name, Type type, Unit unit, std::vector<std::string> labels = {},
                      std::string help = "Help.") {
        return problem_of({std::move(name), type, unit, std::move(help), std::move(labels)});
    };
    EXPECT_EQ(problem("maru_a", Type::Gauge, Unit::None), "");
    EXPECT_EQ(problem("maru_a_bytes_total", Type::Counter, Unit::Bytes, {"a", "b"}), "");
    EXPECT_NE(problem("", Type::Gauge, Unit::None), "");
    EXPECT_NE(problem("maru-a", Type::Gauge, Unit::None), "");
    EXPECT_NE(problem("1a", Type::Gauge, Unit::None), "");
    EXPECT_NE(problem("maru_a", Type::Counter, Unit::None), "");
    EXPECT_NE(problem("maru_a_total", Type::Gauge, Unit::None), "");
    EXPECT_NE(problem("maru_a", Type::Info, Unit::None), "");
    EXPECT_NE(problem("maru_a", Type::Gauge, Unit::Bytes), "");
    EXPECT_NE(problem("maru_a_seconds", Type::Gauge, Unit::Bytes), "");
    EXPECT_NE(problem("maru_a_bytes", Type::Gauge, Unit::None), "");
    EXPECT_NE(problem("maru_a_count", Type::Gauge, Unit::None), "");
    EXPECT_NE(problem("maru_a_bytes", Type::Histogram, Unit::Bytes), "");
    EXPECT_NE(problem("maru_a", Type::Gauge, Unit::None, {"le"}), "");
    EXPECT_NE(problem("maru_a", Type::Gauge, Unit::None, {"a", "a"}), "");
    EXPECT_NE(problem("maru_a", Type::Gauge, Unit::None, {"A"}), "");
    EXPECT_NE(problem("maru_a", Type::Gauge, Unit::None, {}, ""), "");
}

TEST(RegistryDeathTest, TheSameSeriesTwiceIsABug) {
    uint64_t one = 1;
    const Family family{"maru_a", Type::Gauge, Unit::None, "Help.", {"b"}};
    EXPECT_DEATH(Registry().add(family, {Series{{"x"}, &one}, Series{{"x"}, &one}}), "");
    EXPECT_DEATH(Registry().add(family, {Series{{"x", "y"}, &one}}), "");
    EXPECT_DEATH(
        {
            Registry registry;
            registry.add(family, {Series{{"x"}, &one}});
            registry.add(family, {Series{{"x"}, &one}});
        },
        "");
}

}  // namespace
}  // namespace maru::metrics
