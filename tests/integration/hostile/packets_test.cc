// Packets that are no messages, and messages in the wrong order.
#include <sys/socket.h>

#include <cstring>
#include <random>

#include "libmaru/wire/codec.h"
#include "tests/integration/hostile/hostile_test.h"
#include "tests/libmaru/wire/samples.h"

namespace maru::test {
namespace {

using wire::Status;

using Bytes = std::vector<std::byte>;

Bytes encoded(const wire::Request &request) {
    static wire::Encoder encoder;
    auto frame = encoder.request(request);
    require(static_cast<bool>(frame), "a request cannot be encoded");
    return Bytes(frame->begin(), frame->end());
}

Bytes usage_frame(const WireClient &client, uint64_t id) {
    wire::Request request;
    request.id = id;
    request.epoch = client.epoch();
    request.body = wire::UsageRequest{};
    return encoded(request);
}

// Whether it still goes is marud's to decide.
void send(WireClient &client, const Bytes &bytes) {
    [[maybe_unused]] auto sent = wire::send_packet(client.fd(), bytes);
}

void ends(WireClient &client, const std::string &what) {
    require(client.wait_end(5'000), what + ": the connection stays open");
}

// It may be answered or not; marud must not mind.
void send_alone(const Bytes &bytes) {
    Greeted client(HostileTest::path());
    send(client, bytes);
}

TEST_F(HostileTest, PacketsOfOneByteAreNoMessages) {
    attack([] {
        Greeted client(HostileTest::path());
        for (std::byte byte : usage_frame(client, 7))
            send(client, {byte});
        ends(client, "a message in packets of one byte");
    });
}

TEST_F(HostileTest, AnEmptyPacketIsTheEnd) {
    attack([] {
        Greeted client(HostileTest::path());
        send(client, {});
        ends(client, "an empty packet");
    });
}

TEST_F(HostileTest, EveryTruncationAndTailOfAMessage) {
    attack([] {
        Greeted probe(HostileTest::path());
        Bytes frame = usage_frame(probe, 9);
        for (size_t cut = 0; cut < frame.size(); ++cut)
            send_alone(Bytes(frame.begin(), frame.begin() + static_cast<long>(cut)));
        for (size_t tail : {size_t{1}, size_t{7}, size_t{8}, size_t{4096}, size_t{90'000}}) {
            Bytes longer = frame;
            longer.resize(frame.size() + tail, std::byte{0xa5});
            send_alone(longer);
        }
    });
}

TEST_F(HostileTest, HeadersThatClaimTooMuch) {
    attack([] {
        auto header = [](std::vector<uint32_t> words) {
            Bytes bytes(std::max<size_t>(words.size() * 4, 64));
            std::memcpy(bytes.data(), words.data(), words.size() * 4);
            return bytes;
        };
        for (const Bytes &bytes : {header({0, 1u << 27}),          // one segment of 1 GiB
                                   header({0x7fffffff, 1, 1, 1}),  // 2^31 segments
                                   header({0xffffffff, 0, 0, 0}),  // 2^32, which wraps around
                                   header({1, 2, 2, 0}), header({0, 0})}) {
            Greeted client(HostileTest::path());
            send(client, bytes);
            ends(client, "a header that claims too much");
        }
        Greeted client(HostileTest::path());
        send(client, Bytes(wire::kMaxFrameBytes + 4096));
        ends(client, "a packet over the limit");
    });
}

TEST_F(HostileTest, TenThousandRandomPackets) {
    attack([] {
        std::mt19937_64 random(1);
        std::vector<Bytes> samples;
        wire::test::Sampler sampler;
        wire::test::for_each_request(
            sampler, [&](const wire::Request &request) { samples.push_back(encoded(request)); });
        std::unique_ptr<WireClient> client;
        for (int i = 0; i < 10'000; ++i) {
            if (!client || i % 8 == 0)
                client = std::make_unique<Greeted>(path());
            Bytes bytes;
            if (i % 4 == 0) {
                bytes.resize(random() % 512);
                for (std::byte &byte : bytes)
                    byte = static_cast<std::byte>(random());
            } else {  // nearly right
                bytes = samples[random() % samples.size()];
                for (int flips = 1 + static_cast<int>(random() % 4); flips > 0; --flips)
                    bytes[random() % bytes.size()] ^= static_cast<std::byte>(1 << random() % 8);
            }
            send(*client, bytes);
        }
    });
}

// Every request, at each point of a connection's life at which it may not be said.
TEST_F(HostileTest, EveryRequestInTheWrongOrder) {
    attack([] {
        wire::test::Sampler sampler;
        auto refused = [](WireClient &client, const wire::Request &request, const char *when) {
            const wire::Reply *reply = client.call(request.body);
            std::string what = std::string(wire::request_name(request.body)) + " " + when;
            require(reply, what + " was not answered");
            const auto *only = std::get_if<wire::StatusOnly>(&reply->body);
            require(only && only->status != Status::Ok && !only->message.empty(),
                    what + " was accepted");
        };
        wire::test::for_each_request(sampler, [&](const wire::Request &request) {
            WireClient fresh(path());
            if (std::holds_alternative<wire::HelloRequest>(request.body))
                return;
            refused(fresh, request, "before hello");
            require(fresh.hello(), "hello after a refusal");
            refused(fresh, {.body = wire::HelloRequest{}}, "twice");
            refused(fresh, {.body = wire::HelloProofRequest{1}}, "unasked");
        });
        // With a session that is whole: what belongs to the middle of an attach.
        Party party = worker(path(), kAttackerUid, 200, "order");
        for (const wire::RequestBody &body :
             {wire::RequestBody(wire::AttachPoolRequest{}),
              wire::RequestBody(wire::RepublishRequest{}),
              wire::RequestBody(wire::AttachLeasesRequest{}),
              wire::RequestBody(wire::AttachDoneRequest{}),
              wire::RequestBody(wire::AttachRequest{party.token, wire::Role::Worker, "order"}),
              wire::RequestBody(
                  wire::OpenSessionRequest{token_of(201), wire::Role::Worker, "other"}),
              wire::RequestBody(wire::CloseSessionRequest{}),  // its pool is open
              wire::RequestBody(wire::SegmentMappedRequest{party.pool, 5})})
            refused(party.wire(), {.body = body}, "with a session");
        auto finish = party.wire().ask<wire::ClosePoolReply>(
            wire::ClosePoolRequest{party.pool, wire::ClosePhase::Finish});
        require(!finish, "a pool was finished before it was drained");
        // In the middle of an attach: what needs a whole session.
        Greeted other(path());
        require(other.call(
                    wire::AttachRequest{party.token, wire::Role::Worker, "order", other.epoch()}),
                "no answer to attach");
        std::vector<wire::CommitItem> items(1);
        for (const wire::RequestBody &body :
             {wire::RequestBody(wire::CommitRequest{party.ns, 1, items}),
              wire::RequestBody(wire::GrantSegmentRequest{party.pool, 0}),
              wire::RequestBody(wire::CloseSessionRequest{})})
            refused(other, {.body = body}, "in the middle of an attach");
        require(other.status(wire::AttachDoneRequest{}) == Status::Ok, "attach was not finished");
    });
}

}  // namespace
}  // namespace maru::test
