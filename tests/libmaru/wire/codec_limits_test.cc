// Every field with a limit: at the limit it passes, beyond it the error names field and limit.
#include <gtest/gtest.h>

#include "libmaru/wire/capabilities.h"
#include "libmaru/wire/codec.h"
#include "libmaru/wire/frame_builder.h"
#include "libmaru/wire/maru.capnp.h"
#include "tests/libmaru/wire/samples.h"

namespace maru::wire {
namespace {

using namespace test;

class CodecLimits : public ::testing::Test {
  protected:
    Sampler sampler_;
    Encoder encoder_;
    Decoder decoder_;

    void passes(RequestBody body) {
        const auto frame = encoder_.request({41, 1, 2, std::move(body)});
        ASSERT_TRUE(frame.ok()) << frame.error().message;
        EXPECT_TRUE(decoder_.request(*frame)) << decoder_.error().message;
    }
    void passes_reply(ReplyBody body) {
        const auto frame = encoder_.reply({41, std::move(body)});
        ASSERT_TRUE(frame.ok()) << frame.error().message;
        EXPECT_TRUE(decoder_.server_message(*frame)) << decoder_.error().message;
    }
    void refused(RequestBody body, Status status, std::initializer_list<const char *> words) {
        const auto frame = encoder_.request({41, 1, 2, std::move(body)});
        ASSERT_TRUE(frame.ok()) << frame.error().message;
        EXPECT_EQ(decoder_.request(*frame), nullptr);
        expect_error(status, words);
    }
    void expect_error(Status status, std::initializer_list<const char *> words) {
        EXPECT_EQ(decoder_.error().status, status) << decoder_.error().message;
        EXPECT_EQ(decoder_.error().request_id, 41u);
        for (const char *word : words)
            EXPECT_NE(decoder_.error().message.find(word), std::string::npos)
                << decoder_.error().message << " lacks " << word;
    }
    // A message that the encoder would not make.
    template <typename Fill>
    std::span<const std::byte> raw(Fill &&fill) {
        const auto frame = buffer_.build<schema::Message>([&](schema::Message::Builder out) {
            out.setId(41);
            fill(out.getBody());
        });
        EXPECT_TRUE(frame.ok());
        return *frame;
    }
    FrameBuffer buffer_;
};

TEST_F(CodecLimits, BatchesOfTheMaximumFitInAFrameBothWays) {
    passes(CommitRequest{1, 1, sampler_.records<CommitItem>(kMaxBatchItems)});
    passes(RepublishRequest{sampler_.records<RepublishItem>(kMaxBatchItems)});
    passes(AttachLeasesRequest{sampler_.records<LeaseItem>(kMaxBatchItems)});
    passes(HeartbeatRequest{sampler_.records<PoolGauge>(kMaxBatchItems)});
    passes(ProbeRequest{1, sampler_.records<Digest>(kMaxProbeKeys), {}, false});
    passes(ProbeRequest{1, sampler_.records<Digest>(kMaxProbeKeys), {0, 32, 0, 1}, false});
    passes(AcquireRequest{1, sampler_.records<Digest>(kMaxBatchItems), {}, false});
    passes(ReleaseRequest{sampler_.records<ReplicaName>(kMaxBatchItems)});
    passes(RetireRequest{sampler_.records<ReplicaName>(kMaxBatchItems)});
    passes(ReclaimAckRequest{sampler_.records<ReplicaName>(kMaxBatchItems)});
    passes(ResolveRequest{1, kMaxBatchItems});
    passes_reply(CommitReply{sampler_.records<CommitResult>(kMaxBatchItems)});
    passes_reply(ResolveReply{sampler_.records<CommitResult>(kMaxBatchItems)});
    passes_reply(AcquireReply{sampler_.records<AcquireResult>(kMaxBatchItems)});
    passes_reply(ItemStatusReply{sampler_.records<Status>(kMaxBatchItems),
                                 sampler_.records<Id>(kMaxBatchItems)});
    passes_reply(ProbeReply{kMaxProbeKeys, sampler_.records<uint8_t>(kMaxProbeKeys / 8)});
    Event event{EventKind::Reclaim, sampler_.records<ReplicaName>(kMaxBatchItems), {}};
    const auto frame = encoder_.event(event);
    ASSERT_TRUE(frame.ok());
    EXPECT_TRUE(decoder_.server_message(*frame)) << decoder_.error().message;
}

TEST_F(CodecLimits, OneItemMoreIsTooLarge) {
    const size_t n = kMaxBatchItems + 1;
    refused(CommitRequest{1, 1, sampler_.records<CommitItem>(n)}, Status::TooLarge,
            {"items", "1025", "1024"});
    refused(RepublishRequest{sampler_.records<RepublishItem>(n)}, Status::TooLarge,
            {"items", "1024"});
    refused(AttachLeasesRequest{sampler_.records<LeaseItem>(n)}, Status::TooLarge,
            {"items", "1024"});
    refused(HeartbeatRequest{sampler_.records<PoolGauge>(n)}, Status::TooLarge, {"gauges", "1024"});
    refused(ProbeRequest{1, sampler_.records<Digest>(kMaxProbeKeys + 1), {}, false},
            Status::TooLarge, {"keys", "2049", "2048"});
    refused(AcquireRequest{1, sampler_.records<Digest>(n), {}, false}, Status::TooLarge,
            {"keys", "1024"});
    refused(ReleaseRequest{sampler_.records<ReplicaName>(n)}, Status::TooLarge, {"items", "1024"});
    refused(RetireRequest{sampler_.records<ReplicaName>(n)}, Status::TooLarge, {"items", "1024"});
    refused(ReclaimAckRequest{sampler_.records<ReplicaName>(n)}, Status::TooLarge,
            {"items", "1024"});
    refused(ResolveRequest{1, kMaxBatchItems + 1}, Status::TooLarge, {"count", "1024"});
}

TEST_F(CodecLimits, ManifestsAreCheckedWithTheKeys) {
    const auto keys = sampler_.records<Digest>(513);
    passes(AcquireRequest{1, keys.first(512), {0, 2, 0, 1}, false});
    refused(AcquireRequest{1, keys, {0, 2, 0, 1}, false}, Status::TooLarge, {"1026", "1024"});
    refused(AcquireRequest{1, keys.first(1), {0, 0, 0, 1}, false}, Status::InvalidArgument,
            {"manifest", "at least 1"});
    refused(ProbeRequest{1, keys.first(1), {0, 1, 0, 0}, false}, Status::InvalidArgument,
            {"manifest", "at least 1"});
    // 65536 * 65537 wraps around in 32 bits.
    refused(ProbeRequest{1, keys.first(1), {0, 65536, 0, 65537}, false}, Status::TooLarge,
            {"manifest", "65536"});
    refused(ProbeRequest{1, sampler_.records<Digest>(2), {0, 32769, 0, 1}, false}, Status::TooLarge,
            {"keys times objects", "65538", "65536"});
    refused(ProbeRequest{1, keys.first(1), {UINT32_MAX, 2, 0, 1}, false}, Status::InvalidArgument,
            {"manifest", "2^32"});
    passes(ProbeRequest{1, keys.first(1), {UINT32_MAX, 1, 0, 1}, false});
}

TEST_F(CodecLimits, OperationIdsDoNotWrapAround) {
    passes(CommitRequest{1, UINT64_MAX - 1, sampler_.records<CommitItem>(2)});
    refused(CommitRequest{1, UINT64_MAX, sampler_.records<CommitItem>(2)}, Status::InvalidArgument,
            {"first_op"});
    refused(ResolveRequest{UINT64_MAX, 2}, Status::InvalidArgument, {"first_op"});
}

TEST_F(CodecLimits, TextsHaveAShortestAndALongest) {
    const std::string longest(kMaxNamespaceBytes, 'n'), longer(kMaxNamespaceBytes + 1, 'n');
    passes(RegisterNamespaceRequest{longest});
    refused(RegisterNamespaceRequest{longer}, Status::TooLarge, {"text", "16385", "16384"});
    refused(RegisterNamespaceRequest{""}, Status::InvalidArgument, {"text", "empty"});
    const std::string engine(kMaxEngineIdBytes + 1, 'e');
    passes(OpenSessionRequest{{}, Role::Worker, std::string_view(engine).substr(1)});
    refused(OpenSessionRequest{{}, Role::Worker, engine}, Status::TooLarge, {"engine", "256"});
    refused(OpenSessionRequest{{}, Role::Worker, ""}, Status::InvalidArgument, {"engine"});
    refused(AttachRequest{{}, Role::Worker, engine, 0, 0}, Status::TooLarge, {"engine", "256"});
    refused(DescribeRequest{1, 2, engine}, Status::TooLarge, {"format", "256"});
    refused(DescribeRequest{1, 2, ""}, Status::InvalidArgument, {"format"});
    refused(ExplainRequest{1, {}, engine, 0}, Status::TooLarge, {"engine", "256"});
    const std::string name(kMaxClientNameBytes + 1, 'c');
    refused(HelloRequest{1, 0, name, {}}, Status::TooLarge, {"client_name", "64"});
    passes(HelloRequest{1, 0, "c", std::vector<std::string_view>(kMaxCapabilities, "cap_v1")});
    refused(HelloRequest{1, 0, "c", std::vector<std::string_view>(kMaxCapabilities + 1, "cap_v1")},
            Status::TooLarge, {"required_capabilities", "33", "32"});
    refused(HelloRequest{1, 0, "c", {""}}, Status::InvalidArgument, {"required_capabilities"});
}

TEST_F(CodecLimits, TextsAreUtf8WithoutNul) {
    const std::string_view bad[] = {
        std::string_view("a\0b", 3),
        "\x80",
        "\xc0\x80",
        "\xc3",
        "\xe0\x80\x80",
        "\xed\xa0\x80",
        "\xf0\x80\x80\x80",
        "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80",
        "\xff",
        "12345678\xc3",
        std::string_view("12345678\0", 9),
    };
    for (std::string_view text : bad)
        refused(RegisterNamespaceRequest{text}, Status::InvalidArgument, {"text", "UTF-8"});
    for (std::string_view text :
         {"a", "\xc3\xa4", "\xe2\x82\xac", "\xed\x9f\xbf", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf",
          "12345678\xc3\xa4"
          "12345678"})
        passes(RegisterNamespaceRequest{text});
}

TEST_F(CodecLimits, UnknownEnumValuesAreNamed) {
    refused(OpenSessionRequest{{}, static_cast<Role>(3), "e"}, Status::InvalidArgument,
            {"role", "3", "0 to 2"});
    OpenPoolRequest pool;
    pool.request_key = 1;
    passes(pool);
    auto with = [&](auto OpenPoolRequest::*field, uint16_t value) {
        OpenPoolRequest wrong = pool;
        wrong.*field = static_cast<std::decay_t<decltype(wrong.*field)>>(value);
        return wrong;
    };
    refused(with(&OpenPoolRequest::medium, 3), Status::InvalidArgument, {"medium", "3"});
    refused(with(&OpenPoolRequest::tier, 2), Status::InvalidArgument, {"tier", "2"});
    refused(with(&OpenPoolRequest::scope, 9), Status::InvalidArgument, {"scope", "9"});
    refused(with(&OpenPoolRequest::huge_pages, 3), Status::InvalidArgument, {"huge_pages"});
    refused(with(&OpenPoolRequest::numa, 65535), Status::InvalidArgument, {"numa", "65535"});
    refused(OpenPoolRequest{}, Status::InvalidArgument, {"request_key", "0"});
    refused(ClosePoolRequest{1, static_cast<ClosePhase>(4)}, Status::InvalidArgument, {"phase"});
    refused(ListRequest{static_cast<ListKind>(5), 0, 0}, Status::InvalidArgument, {"kind", "5"});
    auto retiring = sampler_.records<RepublishItem>(1);
    const_cast<RepublishItem &>(retiring[0]).retiring = 3;
    refused(RepublishRequest{retiring}, Status::InvalidArgument, {"retiring", "3"});
}

TEST_F(CodecLimits, RepliesAreCheckedTheSameWay) {
    auto refused_reply = [&](ReplyBody body, std::initializer_list<const char *> words) {
        const auto frame = encoder_.reply({41, std::move(body)});
        ASSERT_TRUE(frame.ok());
        EXPECT_EQ(decoder_.server_message(*frame), nullptr);
        expect_error(decoder_.error().status, words);
    };
    std::vector<CommitResult> results(1);
    results[0].status = static_cast<Status>(27);
    refused_reply(CommitReply{results}, {"status", "27", "0 to 26"});
    const Status status = static_cast<Status>(99);
    refused_reply(ItemStatusReply{{&status, 1}, {}}, {"statuses", "99"});
    refused_reply(StatusOnly{status, "", 0}, {"status", "99"});
    refused_reply(AcquireReply{sampler_.records<AcquireResult>(kMaxBatchItems + 1)}, {"1025"});
    refused_reply(ProbeReply{kMaxProbeKeys + 1, {}, ProbeReason::None}, {"prefix", "2048"});
    refused_reply(ProbeReply{0, sampler_.records<uint8_t>(257), ProbeReason::None},
                  {"bitmap", "256"});
    refused_reply(ItemStatusReply{sampler_.records<Status>(2), sampler_.records<Id>(1)},
                  {"replicas"});
    const std::string text(kMaxNamespaceBytes + 1, 'x');
    passes_reply(EngineWorkerReply{1, std::string_view(text).substr(1)});
    refused_reply(EngineWorkerReply{1, text}, {"namespace_text", "16385", "16384"});
    ListReply list;
    list.rows = std::vector<LeaseRow>(kMaxListRows + 1);
    refused_reply(list, {"rows", "129", "128"});
}

TEST_F(CodecLimits, BlobsAreWholeRecords) {
    const kj::byte bytes[100] = {};
    const auto odd = kj::arrayPtr(bytes, 71);
    EXPECT_EQ(decoder_.request(raw([&](auto body) { body.initCommit().setItems(odd); })), nullptr);
    expect_error(Status::InvalidArgument, {"items", "71 bytes", "72"});
    EXPECT_EQ(decoder_.request(raw([&](auto body) { body.initProbe().setKeys(odd); })), nullptr);
    expect_error(Status::InvalidArgument, {"keys", "32"});
    EXPECT_EQ(decoder_.request(raw([&](auto body) { body.initRelease().setItems(odd); })), nullptr);
    expect_error(Status::InvalidArgument, {"items", "16"});
    EXPECT_EQ(decoder_.request(raw([&](auto body) { body.initExplain().setKey(odd); })), nullptr);
    expect_error(Status::InvalidArgument, {"key", "40"});
    EXPECT_EQ(decoder_.request(raw([&](auto body) { body.initAdminRetire().setKey(odd); })),
              nullptr);
    expect_error(Status::InvalidArgument, {"key", "40"});
    for (unsigned size : {0u, 15u, 17u}) {
        const auto token = kj::arrayPtr(bytes, size);
        EXPECT_EQ(decoder_.request(raw([&](auto body) { body.initOpenSession().setToken(token); })),
                  nullptr);
        expect_error(Status::InvalidArgument, {"token", "exactly 16"});
        EXPECT_EQ(decoder_.request(raw([&](auto body) { body.initAttach().setToken(token); })),
                  nullptr);
        expect_error(Status::InvalidArgument, {"token", "exactly 16"});
    }
}

TEST_F(CodecLimits, AMessageOfALaterMinorIsUnsupported) {
    // The union's tag lies behind id, acknowledgedOp and epoch: bytes 20 and 21 of the struct,
    // which follows the table and the root pointer.
    FrameCopy frame(*encoder_.request({41, 1, 2, ReloadRequest{}}));
    uint16_t tag;
    std::memcpy(&tag, frame.data() + 16 + 20, sizeof tag);
    ASSERT_EQ(tag, RequestBody(ReloadRequest{}).index());
    tag = 500;
    std::memcpy(frame.data() + 16 + 20, &tag, sizeof tag);
    EXPECT_EQ(decoder_.request(frame), nullptr);
    expect_error(Status::Unsupported, {"request", "500"});
}

TEST(Names, EveryStatusAndRequestHasItsOwn) {
    EXPECT_STREQ(status_name(Status::Ok), "OK");
    EXPECT_STREQ(status_name(Status::AlreadyPresent), "ALREADY_PRESENT");
    EXPECT_STREQ(status_name(Status::Internal), "INTERNAL");
    EXPECT_STREQ(status_name(static_cast<Status>(27)), "status out of range");
    EXPECT_STREQ(request_name(HelloRequest{}), "hello");
    EXPECT_STREQ(request_name(CommitRequest{}), "commit");
    EXPECT_STREQ(request_name(ReclaimAckRequest{}), "reclaim_ack");
    EXPECT_STREQ(request_name(ReloadRequest{}), "reload");
}

TEST(Capabilities, OnlyWhatWorksIsOffered) {
    ASSERT_TRUE(find_capability(kCpuStorage));
    EXPECT_TRUE(find_capability(kCpuStorage)->offered);
    EXPECT_TRUE(find_capability(kSharedStorage)->offered);
    for (auto name : {kMixedStorage, kL2Storage})
        EXPECT_FALSE(find_capability(name)->offered);
    EXPECT_EQ(find_capability("cpu_storage_v2"), nullptr);
}

}  // namespace
}  // namespace maru::wire
