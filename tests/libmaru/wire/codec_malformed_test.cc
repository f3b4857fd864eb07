// Whatever arrives: an error or a message, never an exception, a crash or a long time.
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "libmaru/wire/codec.h"
#include "tests/libmaru/wire/samples.h"

namespace maru::wire {
namespace {

using namespace test;

std::vector<FrameCopy> frames_of_every_kind() {
    Sampler sampler;
    Encoder encoder;
    std::vector<FrameCopy> frames;
    for_each_request(sampler, [&](Request &r) { frames.emplace_back(*encoder.request(r)); });
    for_each_reply(sampler, [&](Reply &r) { frames.emplace_back(*encoder.reply(r)); });
    Event event;
    sampler.fill(event);
    frames.emplace_back(*encoder.event(event));
    return frames;
}

// Decodes both ways; an error must have a text. Reads through every view, for the sanitizers.
void decode_both(Decoder &decoder, std::span<const std::byte> frame) {
    Encoder encoder;
    if (const Request *request = decoder.request(frame))
        ASSERT_TRUE(encoder.request(*request).ok() || frame.size() > kMaxFrameBytes / 2);
    else
        ASSERT_FALSE(decoder.error().message.empty());
    if (const ServerMessage *message = decoder.server_message(frame)) {
        if (const Reply *reply = std::get_if<Reply>(message))
            static_cast<void>(encoder.reply(*reply));
        else
            static_cast<void>(encoder.event(*std::get_if<Event>(message)));
    } else {
        ASSERT_FALSE(decoder.error().message.empty());
    }
}

TEST(CodecMalformed, EveryTruncationIsRefused) {
    Decoder decoder;
    for (FrameCopy &frame : frames_of_every_kind())
        for (size_t n = 0; n < frame.size(); ++n) {
            FrameCopy cut(frame.first(n));
            ASSERT_EQ(decoder.request(cut), nullptr);
            ASSERT_FALSE(decoder.error().message.empty());
            ASSERT_EQ(decoder.server_message(cut), nullptr);
        }
}

// The id lies in the first words, so that a client learns which of its requests was cut.
TEST(CodecMalformed, ATruncatedRequestIsRefusedByItsId) {
    Sampler sampler;
    Encoder encoder;
    Decoder decoder;
    CommitRequest commit;
    commit.items = sampler.records<CommitItem>(100);
    FrameCopy frame(*encoder.request({77, 1, 2, commit}));
    ASSERT_EQ(decoder.request(frame.first(frame.size() - 800)), nullptr);
    EXPECT_EQ(decoder.error().request_id, 77u);
    EXPECT_EQ(decoder.error().status, Status::Protocol);
    ASSERT_EQ(decoder.request(frame.first(12)), nullptr);
    EXPECT_EQ(decoder.error().request_id, 0u);
}

TEST(CodecMalformed, TrailingBytesAreRefused) {
    Encoder encoder;
    Decoder decoder;
    FrameCopy frame(*encoder.request({1, 2, 3, ReloadRequest{}}));
    std::vector<std::byte> longer(frame.data(), frame.data() + frame.size());
    longer.resize(longer.size() + 8);
    FrameCopy copy(longer);
    EXPECT_EQ(decoder.request(copy), nullptr);
    EXPECT_EQ(decoder.error().status, Status::Protocol);
}

TEST(CodecMalformed, RandomFramesAreRefusedOrDecoded) {
    std::mt19937_64 random(20240607);
    Decoder decoder;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 10'000; ++i) {
        std::vector<std::byte> bytes(random() % 512);
        for (auto &byte : bytes)
            byte = static_cast<std::byte>(random());
        FrameCopy frame(bytes);
        if (i % 2 && frame.size() >= 8) {  // half of them with a table that fits
            const uint32_t table[2] = {0, static_cast<uint32_t>(frame.size() / 8 - 1)};
            std::memcpy(frame.data(), table, sizeof table);
            decode_both(decoder, frame.first(frame.size() / 8 * 8));
        } else {
            decode_both(decoder, frame);
        }
    }
    // Microseconds each; a minute would mean that one of them runs away.
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(CodecMalformed, EverySingleFlippedBitIsRefusedOrDecoded) {
    Decoder decoder;
    for (FrameCopy &frame : frames_of_every_kind())
        for (size_t bit = 0; bit < frame.size() * 8; ++bit) {
            frame.data()[bit / 8] ^= std::byte{1} << (bit % 8);
            decode_both(decoder, frame);
            frame.data()[bit / 8] ^= std::byte{1} << (bit % 8);
        }
}

TEST(CodecMalformed, SegmentBombsAreRefused) {
    Decoder decoder;
    for (uint32_t count : {1u, 511u, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
        std::vector<std::byte> bytes(4096);
        std::memcpy(bytes.data(), &count, sizeof count);
        FrameCopy frame(bytes);
        ASSERT_EQ(decoder.request(frame), nullptr);
        EXPECT_EQ(decoder.error().status, Status::Protocol);
        EXPECT_EQ(decoder.error().request_id, 0u);
        EXPECT_NE(decoder.error().message.find(std::to_string(uint64_t{count} + 1) + " segments"),
                  std::string::npos)
            << decoder.error().message;
    }
}

// A list of 2^29 - 1 elements without a body costs no bytes; each must still be paid for.
TEST(CodecMalformed, ListsOfNothingAreRefused) {
    Encoder encoder;
    Decoder decoder;
    ListReply list;
    list.rows = std::vector<LeaseRow>(1);
    FrameCopy frame(*encoder.reply({5, list}));
    // Every word is tried as a list pointer of 2^29 - 1 void elements, and as one of as many structs.
    for (uint64_t pointer : {0xfffffff800000001ull, 0xffffffff00000001ull}) {
        for (size_t at = 8; at + 8 <= frame.size(); at += 8) {
            uint64_t old;
            std::memcpy(&old, frame.data() + at, 8);
            std::memcpy(frame.data() + at, &pointer, 8);
            decode_both(decoder, frame);
            std::memcpy(frame.data() + at, &old, 8);
        }
    }
}

TEST(CodecMalformed, TooLargeAFrameIsRefusedByItsId) {
    Sampler sampler;
    Encoder encoder;
    Decoder decoder;
    FrameCopy small(*encoder.request({78, 1, 2, ReloadRequest{}}));
    std::vector<std::byte> bytes(small.data(), small.data() + small.size());
    bytes.resize(kMaxFrameBytes + 8);
    const auto words = static_cast<uint32_t>(bytes.size() / 8 - 1);
    std::memcpy(bytes.data() + 4, &words, sizeof words);
    FrameCopy frame(bytes);
    ASSERT_EQ(decoder.request(frame), nullptr);
    EXPECT_EQ(decoder.error().status, Status::TooLarge);
    EXPECT_EQ(decoder.error().request_id, 78u);
    EXPECT_NE(decoder.error().message.find("98304"), std::string::npos);
    // As it arrives in a buffer of the limit's size: cut, with the larger size in its table.
    ASSERT_EQ(decoder.request(frame.first(kMaxFrameBytes)), nullptr);
    EXPECT_EQ(decoder.error().status, Status::TooLarge);
    EXPECT_EQ(decoder.error().request_id, 78u);
}

TEST(CodecMalformed, AnIdOfZeroEndsTheConnection) {
    Encoder encoder;
    Decoder decoder;
    ASSERT_EQ(decoder.request(*encoder.request({0, 1, 2, ReloadRequest{}})), nullptr);
    EXPECT_EQ(decoder.error().status, Status::Protocol);
    EXPECT_EQ(decoder.error().request_id, 0u);
}

TEST(CodecMalformed, ADecoderGoesOnAfterAnError) {
    Encoder encoder;
    Decoder decoder;
    FrameCopy garbage(std::vector<std::byte>(64, std::byte{0xff}));
    EXPECT_EQ(decoder.request(garbage), nullptr);
    const Request *request = decoder.request(*encoder.request({9, 1, 2, ProbeRequest{}}));
    ASSERT_TRUE(request) << decoder.error().message;
    EXPECT_EQ(request->id, 9u);
}

}  // namespace
}  // namespace maru::wire
