// Reading back what marud writes, and nothing else.
#include "daemon/metrics/exposition.h"

#include <gtest/gtest.h>

namespace maru::metrics {
namespace {

constexpr char kGood[] =
    "# HELP a_total Line\\nand \\\\ back.\n"
    "# TYPE a_total counter\n"
    "a_total{x=\"1\\\"2\",y=\"\"} 5\n"
    "# HELP b Help.\n"
    "# TYPE b histogram\n"
    "b_bucket{le=\"0.5\"} 1\n"
    "b_bucket{le=\"+Inf\"} 2\n"
    "b_sum 0.75\n"
    "b_count 2\n";

TEST(Exposition, FamiliesAndSamplesComeBackWithoutTheirEscapes) {
    auto read = read_exposition(kGood);
    ASSERT_TRUE(read.ok()) << read.error().message;
    ASSERT_EQ(read->size(), 2u);
    const ReadFamily &a = (*read)[0];
    EXPECT_EQ(a.name, "a_total");
    EXPECT_EQ(a.type, "counter");
    EXPECT_EQ(a.help, "Line\nand \\ back.");
    EXPECT_EQ(a.head, "# HELP a_total Line\\nand \\\\ back.\n# TYPE a_total counter");
    ASSERT_EQ(a.samples.size(), 1u);
    ASSERT_EQ(a.samples[0].labels.size(), 2u);
    EXPECT_EQ(a.samples[0].labels[0].second, "1\"2");
    EXPECT_EQ(a.samples[0].value, "5");
    EXPECT_EQ((*read)[1].samples.size(), 4u);
    EXPECT_EQ((*read)[1].samples[2].value, "0.75");
}

TEST(Exposition, AnythingElseIsRefusedWithItsLine) {
    const std::string head = "# HELP a Help.\n# TYPE a gauge\n";
    EXPECT_TRUE(read_exposition(head + "a 1\n").ok());
    for (const std::string &bad : {std::string(),
                                   std::string("a 1\n"),
                                   std::string("# TYPE a gauge\na 1\n"),
                                   std::string("# HELP a Help.\na 1\n"),
                                   head + "b 1\n",
                                   head + "a 1",
                                   head + "a -1\n",
                                   head + "a 1e5\n",
                                   head + "a  1\n",
                                   head + "a 1 123\n",
                                   head + "a{ 1\n",
                                   head + "a{b=1} 1\n",
                                   head + "a{b=\"1\"} NaN\n",
                                   head + "a{b=\"1} 1\n",
                                   head + "a{b=\"\\x\"} 1\n",
                                   head + "\n",
                                   head + "a 01\n",
                                   head + "a .5\n",
                                   head + "a 1\x1b[2J\n",
                                   head + head,
                                   std::string("# HELP a Help.\n# TYPE b gauge\n"),
                                   head + "# TYPE a gauge\n",
                                   head + "# comment\n",
                                   std::string("# HELP a Help.\n# TYPE a untyped\n"),
                                   std::string("# HELP a Help.\n# HELP b Help.\n"),
                                   std::string("<html>\n")}) {
        auto read = read_exposition(bad);
        EXPECT_FALSE(read.ok()) << bad;
        if (!read) {
            EXPECT_EQ(read.error().message.substr(0, 5), "line ") << bad;
        }
    }
}

}  // namespace
}  // namespace maru::metrics
