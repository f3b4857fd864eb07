#include "tests/replay/trace.h"

#include <gtest/gtest.h>

#include <sstream>

namespace maru::replay {
namespace {

TEST(Trace, ReadsTheMembersOfALine) {
    auto request = parse_trace_line(
        R"({"timestamp": 27, "input_length": 6758, "output_length": 500, "hash_ids": [0, 46, 47]})");
    ASSERT_TRUE(request);
    EXPECT_EQ(request->timestamp_ms, 27u);
    EXPECT_EQ(request->input_tokens, 6758u);
    EXPECT_EQ(request->output_tokens, 500u);
    EXPECT_EQ(request->blocks, (std::vector<uint32_t>{0, 46, 47}));
}

TEST(Trace, SkipsMembersItDoesNotKnow) {
    auto request = parse_trace_line(
        R"({"x":{"a":[1,-2.5e3,{"b":null}],"c":"q\"]"},"hash_ids":[],"output_length":1,"input_length":2,"timestamp":3,"y":true})");
    ASSERT_TRUE(request) << request.error().message;
    EXPECT_TRUE(request->blocks.empty());
}

TEST(Trace, NamesWhatIsWrongWithALine) {
    struct Case {
        const char *line, *message;
    } cases[] = {
        {R"()", "expected '{'"},
        {R"({"timestamp": -1})", "a whole number from 0"},
        {R"({"timestamp": 1.5})", "a whole number from 0"},
        {R"({"timestamp": 1)", "expected '}'"},
        {R"({"timestamp": 1, "timestamp": 2})", "each member once, not 'timestamp' again"},
        {R"({"timestamp": 1, "input_length": 2, "output_length": 3})", "hash_ids"},
        {R"({"timestamp": 1, "input_length": 2, "output_length": 3, "hash_ids": [1, 4294967296]})",
         "4294967295"},
        {R"({"timestamp": 1, "input_length": 2, "output_length": 3, "hash_ids": [1 2]})", "','"},
        {R"({"timestamp": 1, "input_length": 2, "output_length": 3, "hash_ids": [1]} x)",
         "the end of the line"},
        {R"({"time)", "closing"},
        {R"({"x":[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]})", "a value"},
    };
    for (const auto &c : cases) {
        auto request = parse_trace_line(c.line);
        ASSERT_FALSE(request) << c.line;
        if (std::string(c.message) != "','") {
            EXPECT_NE(request.error().message.find(c.message), std::string::npos)
                << c.line << " -> " << request.error().message;
        }
    }
}

TEST(Trace, EveryTruncationOfALineIsAnError) {
    std::string line =
        R"({"timestamp": 27, "input_length": 6758, "output_length": 500, "hash_ids": [0, 46, 47]})";
    for (size_t n = 0; n < line.size(); ++n)
        EXPECT_FALSE(parse_trace_line(std::string_view(line).substr(0, n))) << n;
}

TEST(Trace, ErrorsOfAFileNameTheLine) {
    std::istringstream in(
        "{\"timestamp\":5,\"input_length\":1,\"output_length\":1,\"hash_ids\":[1]}\n\n"
        "{\"timestamp\":4,\"input_length\":1,\"output_length\":1,\"hash_ids\":[1]}\n");
    auto trace = read_trace(in, "t.jsonl");
    ASSERT_FALSE(trace);
    EXPECT_EQ(trace.error().message, "t.jsonl:3: timestamp goes back");
    EXPECT_FALSE(read_trace_file("/nonexistent/trace"));
}

TEST(Trace, GeneratedTraceIsReadBackTheSame) {
    auto trace = generate_trace(300, 7);
    std::stringstream text;
    write_trace(text, trace);
    auto again = read_trace(text, "generated");
    ASSERT_TRUE(again);
    ASSERT_EQ(again->size(), 300u);
    for (size_t i = 0; i < trace.size(); ++i)
        EXPECT_EQ((*again)[i].blocks, trace[i].blocks);
    auto ideal = ideal_hits(trace);
    EXPECT_GT(ideal.hit_blocks * 10, ideal.blocks * 2);
    EXPECT_LT(ideal.hit_blocks, ideal.blocks);
}

TEST(Trace, IdealCountsOnlyUnbrokenPrefixes) {
    std::vector<TraceRequest> trace(3);
    trace[0].blocks = {1, 2, 3};
    trace[1].blocks = {1, 9, 3};  // 3 after another prefix is another block
    trace[2].blocks = {1, 9, 3, 4};
    auto ideal = ideal_hits(trace);
    EXPECT_EQ(ideal.blocks, 10u);
    EXPECT_EQ(ideal.hit_blocks, 4u);
    EXPECT_EQ(ideal.hit_requests, 2u);
}

}  // namespace
}  // namespace maru::replay
