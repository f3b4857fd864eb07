// The hot messages without Cap'n Proto: the same bytes, and the same meaning of any bytes.
#include "libmaru/wire/flat_frame.h"

#include <gtest/gtest.h>

#include <random>

#include "libmaru/wire/codec.h"
#include "tests/libmaru/wire/samples.h"

namespace maru::wire {
namespace {

using namespace test;

// Each kind with blobs of `n` records, or of as many as may be if that is less.
template <typename Fn>
void for_each_hot_request(Sampler &sampler, uint32_t n, Fn &&fn) {
    const auto most = std::min(n, kMaxBatchItems), keys = std::min(n, kMaxProbeKeys);
    Manifest manifest{3, 1, 0x80000000u, 1}, pair{0, 1, 7, 2};
    const RequestBody bodies[] = {
        ProbeRequest{5, sampler.records<Digest>(keys), {}, true, 0},
        ProbeRequest{~uint64_t{0}, sampler.records<Digest>(keys), pair, false, 9},
        AcquireRequest{5, sampler.records<Digest>(most), manifest, true},
        AcquireRequest{1, sampler.records<Digest>(most / 2), pair, false},
        CommitRequest{7, ~uint64_t{0} - kMaxBatchItems, sampler.records<CommitItem>(most)},
        ReleaseRequest{sampler.records<ReplicaName>(most)},
    };
    for (const RequestBody &body : bodies)
        fn(Request{0x8877665544332211u, 0xfedcba98u, 0x1122334455667788u, body});
}

template <typename Fn>
void for_each_hot_reply(Sampler &sampler, uint32_t n, Fn &&fn) {
    const auto most = std::min(n, kMaxBatchItems), bits = std::min(n, kMaxProbeKeys / 8);
    const ReplyBody bodies[] = {
        ProbeReply{kMaxProbeKeys, sampler.records<uint8_t>(bits), ProbeReason::Pending},
        ProbeReply{0, sampler.records<uint8_t>(bits), ProbeReason::None},
        AcquireReply{sampler.records<AcquireResult>(most)},
        CommitReply{sampler.records<CommitResult>(most)},
        ItemStatusReply{sampler.records<Status>(most), {}},
        ItemStatusReply{sampler.records<Status>(most), sampler.records<Id>(most)},
    };
    for (const ReplyBody &body : bodies)
        fn(Reply{0x8877665544332211u, body});
}

bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

class FlatFrame : public testing::Test {
  protected:
    // What both decoders say of these bytes as a request and as what marud says is the same.
    void expect_same_meaning(std::span<const std::byte> frame) {
        const Request *request = flat_decoder_.request(frame), *known = decoder_.request(frame);
        ASSERT_EQ(!request, !known) << decoder_.error().message;
        if (request) {
            ASSERT_TRUE(same(*request, *known));
        } else {
            ASSERT_EQ(flat_decoder_.error().message, decoder_.error().message);
            ASSERT_EQ(flat_decoder_.error().status, decoder_.error().status);
            ASSERT_EQ(flat_decoder_.error().request_id, decoder_.error().request_id);
        }
        const ServerMessage *message = flat_decoder_.server_message(frame);
        const ServerMessage *known_message = decoder_.server_message(frame);
        ASSERT_EQ(!message, !known_message) << decoder_.error().message;
        if (message)
            ASSERT_TRUE(same(*message, *known_message));
        else
            ASSERT_EQ(flat_decoder_.error().message, decoder_.error().message);
    }

    Sampler sampler_;
    Encoder encoder_{HotMessages::ByCapnp}, flat_encoder_;
    Decoder decoder_{HotMessages::ByCapnp}, flat_decoder_;
};

// Sizes whose blobs end within a word, on it, and at the limit; and none at all.
constexpr uint32_t kSizes[] = {0, 1, 2, 3, 5, 8, 64, kMaxBatchItems, kMaxProbeKeys};

TEST_F(FlatFrame, WhatIsWrittenIsWhatCapnProtoWrites) {
    for (const uint32_t n : kSizes) {
        SCOPED_TRACE(n);
        for_each_hot_request(sampler_, n, [&](const Request &request) {
            SCOPED_TRACE(request_name(request.body));
            alignas(8) static std::byte space[kMaxFrameBytes];
            ASSERT_GT(flat::write(request, space), 0u);
            EXPECT_TRUE(same_bytes(*flat_encoder_.request(request), *encoder_.request(request)));
        });
        for_each_hot_reply(sampler_, n, [&](const Reply &reply) {
            SCOPED_TRACE(reply.body.index());
            alignas(8) static std::byte space[kMaxFrameBytes];
            ASSERT_GT(flat::write(reply, space), 0u);
            EXPECT_TRUE(same_bytes(*flat_encoder_.reply(reply), *encoder_.reply(reply)));
        });
    }
}

TEST_F(FlatFrame, WhatIsBuiltAfterwardsFindsNoneOfItsBytes) {
    const Request large{1, 2, 3,
                        ProbeRequest{1, sampler_.records<Digest>(kMaxProbeKeys), {}, true}};
    for_each_request(sampler_, [&](Request &request) {
        ASSERT_TRUE(flat_encoder_.request(large).ok());
        EXPECT_TRUE(same_bytes(*flat_encoder_.request(request), *encoder_.request(request)));
    });
    for_each_reply(sampler_, [&](Reply &reply) {
        ASSERT_TRUE(flat_encoder_.request(large).ok());
        EXPECT_TRUE(same_bytes(*flat_encoder_.reply(reply), *encoder_.reply(reply)));
    });
}

TEST_F(FlatFrame, WhatCapnProtoWritesIsReadWithoutIt) {
    for (const uint32_t n : kSizes) {
        SCOPED_TRACE(n);
        for_each_hot_request(sampler_, n, [&](const Request &request) {
            SCOPED_TRACE(request_name(request.body));
            Request back;
            ASSERT_TRUE(flat::read(*encoder_.request(request), &back));
            EXPECT_TRUE(same(back, request));
        });
        for_each_hot_reply(sampler_, n, [&](const Reply &reply) {
            SCOPED_TRACE(reply.body.index());
            ServerMessage back;
            ASSERT_TRUE(flat::read(*encoder_.reply(reply), &back));
            EXPECT_TRUE(same(std::get<Reply>(back), reply));
        });
    }
}

TEST_F(FlatFrame, OtherMessagesAreLeftToCapnProto) {
    size_t read = 0;
    for_each_request(sampler_, [&](Request &request) {
        Request back;
        read += flat::read(*encoder_.request(request), &back);
        expect_same_meaning(*encoder_.request(request));
    });
    EXPECT_EQ(read, 4u);
    for_each_reply(sampler_, [&](Reply &reply) { expect_same_meaning(*encoder_.reply(reply)); });
}

TEST_F(FlatFrame, AFrameThatDiffersInOneBitMeansWhatCapnProtoSays) {
    const auto flip_each = [&](std::span<const std::byte> frame) {
        FrameCopy copy(frame);
        for (size_t bit = 0; bit < 8 * copy.size(); ++bit) {
            copy.data()[bit / 8] ^= std::byte(1 << bit % 8);
            ASSERT_NO_FATAL_FAILURE(expect_same_meaning(copy)) << "bit " << bit;
            copy.data()[bit / 8] ^= std::byte(1 << bit % 8);
        }
    };
    for (const uint32_t n : {0, 1, 3}) {
        for_each_hot_request(sampler_, n, [&](const Request &request) {
            SCOPED_TRACE(request_name(request.body));
            flip_each(*encoder_.request(request));
        });
        for_each_hot_reply(sampler_, n, [&](const Reply &reply) {
            SCOPED_TRACE(reply.body.index());
            flip_each(*encoder_.reply(reply));
        });
    }
}

TEST_F(FlatFrame, AFrameOfAnotherLengthMeansWhatCapnProtoSays) {
    const auto cut_each = [&](std::span<const std::byte> frame) {
        // Longer by a word, too; with the table of before and with one that fits.
        std::vector<std::byte> longer(frame.begin(), frame.end());
        longer.resize(frame.size() + 16);
        FrameCopy copy(longer);
        for (size_t size = 0; size <= longer.size(); ++size) {
            ASSERT_NO_FATAL_FAILURE(expect_same_meaning(copy.first(size))) << size << " bytes";
            if (size < 8)
                continue;
            FrameCopy said(copy.first(size));
            const auto words = static_cast<uint32_t>(size / 8 - 1);
            std::memcpy(said.data() + 4, &words, sizeof words);
            ASSERT_NO_FATAL_FAILURE(expect_same_meaning(said)) << size << " bytes as said";
        }
    };
    for_each_hot_request(sampler_, 2, [&](const Request &r) { cut_each(*encoder_.request(r)); });
    for_each_hot_reply(sampler_, 3, [&](const Reply &r) { cut_each(*encoder_.reply(r)); });
}

TEST_F(FlatFrame, WordsOfOneFrameInAnotherMeanWhatCapnProtoSays) {
    std::vector<FrameCopy> frames;
    for (const uint32_t n : {0, 1, 2, 5}) {
        for_each_hot_request(sampler_, n,
                             [&](const Request &r) { frames.emplace_back(*encoder_.request(r)); });
        for_each_hot_reply(sampler_, n,
                           [&](const Reply &r) { frames.emplace_back(*encoder_.reply(r)); });
    }
    std::mt19937 random(1);
    const auto below = [&](size_t n) {
        return std::uniform_int_distribution<size_t>(0, n - 1)(random);
    };
    for (int i = 0; i < 100'000; ++i) {
        FrameCopy frame = frames[below(frames.size())];
        for (size_t swaps = 1 + below(3); swaps > 0; --swaps) {
            FrameCopy &other = frames[below(frames.size())];
            const size_t to = below(frame.size() / 8), from = below(other.size() / 8);
            std::memcpy(frame.data() + 8 * to, other.data() + 8 * from, 8);
        }
        ASSERT_NO_FATAL_FAILURE(expect_same_meaning(frame)) << "change " << i;
    }
}

TEST_F(FlatFrame, WhatIsOverALimitIsRefusedInTheSameWords) {
    const RequestBody bodies[] = {
        ProbeRequest{1, sampler_.records<Digest>(kMaxProbeKeys + 1), {}, true},
        ProbeRequest{1, sampler_.records<Digest>(kMaxProbeKeys), {0, 33, 0, 1}, true},
        ProbeRequest{1, sampler_.records<Digest>(1), {0, 0, 0, 1}, true},
        ProbeRequest{1, sampler_.records<Digest>(1), {~0u, 2, 0, 1}, true},
        AcquireRequest{1, sampler_.records<Digest>(kMaxBatchItems + 1), {}, true},
        AcquireRequest{1, sampler_.records<Digest>(kMaxBatchItems), {0, 1, 0, 2}, true},
        CommitRequest{1, ~uint64_t{0}, sampler_.records<CommitItem>(2)},
        CommitRequest{1, 1, sampler_.records<CommitItem>(kMaxBatchItems + 1)},
        ReleaseRequest{sampler_.records<ReplicaName>(kMaxBatchItems + 1)},
    };
    for (const RequestBody &body : bodies) {
        SCOPED_TRACE(request_name(body));
        const Request request{1, 2, 3, body};
        Request back;
        ASSERT_TRUE(encoder_.request(request).ok());
        EXPECT_FALSE(flat::read(*encoder_.request(request), &back));
        expect_same_meaning(*encoder_.request(request));
    }
    std::vector<Status> unknown(3, static_cast<Status>(99));
    const Reply reply{1, ItemStatusReply{unknown, {}}};
    ServerMessage back;
    EXPECT_FALSE(flat::read(*encoder_.reply(reply), &back));
    expect_same_meaning(*encoder_.reply(reply));
}

TEST_F(FlatFrame, WhatDoesNotFitIsRefusedAsBefore) {
    const Request request{1, 2, 3, CommitRequest{1, 1, sampler_.records<CommitItem>(1400)}};
    const auto flat = flat_encoder_.request(request), known = encoder_.request(request);
    ASSERT_FALSE(flat.ok());
    ASSERT_FALSE(known.ok());
    EXPECT_EQ(flat.error().message, known.error().message);
}

}  // namespace
}  // namespace maru::wire
