#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "libmaru/wire/codec.h"
#include "tests/libmaru/wire/samples.h"

namespace maru::wire {
namespace {

using namespace test;

TEST(CodecRoundTrip, EveryRequestComesBackWithEveryField) {
    Sampler sampler;
    Encoder encoder, again;
    Decoder decoder;
    size_t kinds = 0;
    for_each_request(sampler, [&](Request &request) {
        SCOPED_TRACE(request_name(request.body));
        const auto frame = encoder.request(request);
        ASSERT_TRUE(frame.ok()) << frame.error().message;
        EXPECT_EQ(frame->size() % 8, 0u);
        const Request *back = decoder.request(*frame);
        ASSERT_TRUE(back) << decoder.error().message;
        EXPECT_TRUE(same(request, *back));
        const auto second = again.request(*back);
        ASSERT_TRUE(second.ok());
        EXPECT_TRUE(std::equal(frame->begin(), frame->end(), second->begin(), second->end()));
        ++kinds;
    });
    EXPECT_EQ(kinds, std::variant_size_v<RequestBody>);
}

TEST(CodecRoundTrip, EveryReplyComesBackWithEveryField) {
    Sampler sampler;
    Encoder encoder;
    Decoder decoder;
    for_each_reply(sampler, [&](Reply &reply) {
        SCOPED_TRACE(reply.body.index());
        const auto frame = encoder.reply(reply);
        ASSERT_TRUE(frame.ok()) << frame.error().message;
        const ServerMessage *back = decoder.server_message(*frame);
        ASSERT_TRUE(back) << decoder.error().message;
        ASSERT_TRUE(std::holds_alternative<Reply>(*back));
        EXPECT_TRUE(same(reply, std::get<Reply>(*back)));
    });
}

TEST(CodecRoundTrip, EveryEventComesBackWithEveryField) {
    Sampler sampler;
    Encoder encoder;
    Decoder decoder;
    for (int kind = 0; kind <= static_cast<int>(EventKind::SegmentGone); ++kind) {
        Event event;
        sampler.fill(event);
        event.kind = static_cast<EventKind>(kind);
        const auto frame = encoder.event(event);
        ASSERT_TRUE(frame.ok());
        const ServerMessage *back = decoder.server_message(*frame);
        ASSERT_TRUE(back) << decoder.error().message;
        ASSERT_TRUE(std::holds_alternative<Event>(*back));
        EXPECT_TRUE(same(event, std::get<Event>(*back)));
    }
}

// Otherwise a field that is never set in samples.h would always compare equal.
TEST(CodecRoundTrip, EqualityNoticesOneChangedField) {
    Sampler sampler;
    CommitRequest a;
    sampler.fill(a);
    CommitRequest b = a;
    EXPECT_TRUE(same(a, b));
    std::vector<CommitItem> items(a.items.begin(), a.items.end());
    items[2].key.digest.bytes[31] ^= 1;
    b.items = items;
    EXPECT_FALSE(same(a, b));
}

TEST(CodecRoundTrip, EmptyMessagesComeBackEmpty) {
    Encoder encoder;
    Decoder decoder;
    const Request request{1, 0, 0, HelloRequest{}};
    const auto frame = encoder.request(request);
    ASSERT_TRUE(frame.ok());
    const Request *back = decoder.request(*frame);
    ASSERT_TRUE(back) << decoder.error().message;
    EXPECT_TRUE(same(request, *back));
    const Request retire{2, 7, 0, AdminRetireRequest{5, std::nullopt}};
    back = decoder.request(*encoder.request(retire));
    ASSERT_TRUE(back);
    EXPECT_FALSE(std::get<AdminRetireRequest>(back->body).key.has_value());
    const Reply reply{3, AcquireReply{}};
    const ServerMessage *message = decoder.server_message(*encoder.reply(reply));
    ASSERT_TRUE(message);
    EXPECT_TRUE(std::get<AcquireReply>(std::get<Reply>(*message).body).results.empty());
}

TEST(CodecRoundTrip, ASmallMessageAfterALargeOneCarriesNothingOfIt) {
    Sampler sampler;
    Encoder fresh, used;
    ProbeRequest probe;
    probe.keys = sampler.records<Digest>(kMaxProbeKeys);
    ASSERT_TRUE(used.request({1, 2, 3, probe}).ok());
    const Request small{4, 5, 6, ReloadRequest{}};
    const auto a = fresh.request(small), b = used.request(small);
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_TRUE(std::equal(a->begin(), a->end(), b->begin(), b->end()));
}

TEST(CodecRoundTrip, DecodedSpansLieInTheFrame) {
    Sampler sampler;
    Encoder encoder;
    Decoder decoder;
    ProbeRequest probe;
    probe.keys = sampler.records<Digest>(5);
    const auto frame = *encoder.request({1, 2, 3, probe});
    const Request *back = decoder.request(frame);
    ASSERT_TRUE(back);
    const auto *keys =
        reinterpret_cast<const std::byte *>(std::get<ProbeRequest>(back->body).keys.data());
    EXPECT_GE(keys, frame.data());
    EXPECT_LE(keys + 5 * sizeof(Digest), frame.data() + frame.size());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(keys) % 8, 0u);
}

TEST(CodecRoundTrip, EncoderRefusesWhatDoesNotFitAndGoesOn) {
    Encoder encoder;
    Decoder decoder;
    const std::string text(kMaxFrameBytes, 'x');
    const auto frame = encoder.request({1, 2, 3, RegisterNamespaceRequest{text}});
    ASSERT_FALSE(frame.ok());
    EXPECT_EQ(frame.error().code, EMSGSIZE);
    EXPECT_NE(frame.error().message.find("98304"), std::string::npos) << frame.error().message;
    EXPECT_TRUE(decoder.request(*encoder.request({1, 2, 3, RegisterNamespaceRequest{"n"}})));
}

TEST(CodecRoundTrip, RepliesRepairForeignText) {
    Encoder encoder;
    Decoder decoder;
    ListReply list;
    LeaseRow row;
    row.command = std::string("a\xff") + '\0' + "\xed\xa0\x80" + "\xc3\xa4";
    list.rows = std::vector<LeaseRow>{row};
    const ServerMessage *back = decoder.server_message(*encoder.reply({1, list}));
    ASSERT_TRUE(back) << decoder.error().message;
    const auto &rows =
        std::get<std::vector<LeaseRow>>(std::get<ListReply>(std::get<Reply>(*back).body).rows);
    EXPECT_EQ(rows[0].command, "a?????\xc3\xa4");
}

}  // namespace
}  // namespace maru::wire
