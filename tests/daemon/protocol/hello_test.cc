#include "tests/daemon/protocol/harness.h"

namespace maru::test {
namespace {

using wire::Status;

TEST(Hello, TellsEpochLimitsAndCapabilities) {
    World world;
    Client client(world, world.peer(1000, 10));
    auto hello = client.hello().as<wire::HelloReply>();
    EXPECT_EQ(hello.major, wire::kProtocolMajor);
    EXPECT_EQ(hello.epoch, 1001u);
    EXPECT_EQ(hello.uid, 1000u);
    EXPECT_EQ(hello.pid, 10u);
    EXPECT_EQ(hello.nonce, 0u);
    EXPECT_EQ(hello.capabilities, (std::vector<std::string_view>{
                                      "cpu_storage_v1", "shared_storage_v1", "engine_worker_v1"}));
    EXPECT_EQ(hello.limits.leases, world.config.max_leases_per_session);
    EXPECT_EQ(hello.limits.session_timeout_ms, 30'000u);
    EXPECT_EQ(hello.limits.heartbeat_ms, 10'000u);
    EXPECT_EQ(hello.version, "0.1.0");
}

TEST(Hello, VersionMismatchNamesBothVersionsAndMayBeTriedAgain) {
    World world;
    Client client(world, world.peer(1000, 10));
    client.connection = world.connect(client.peer);
    Answer answer = client.call(wire::HelloRequest{.major = 2, .minor = 5});
    EXPECT_TRUE(answer.refused(Status::VersionMismatch));
    EXPECT_EQ(answer.message, "the client speaks protocol 2.5, this marud 1.0");
    client.call(wire::HelloRequest{}).as<wire::HelloReply>();
}

TEST(Hello, ANewerMinorIsWelcome) {
    World world;
    Client client(world, world.peer(1000, 10));
    client.connection = world.connect(client.peer);
    client.call(wire::HelloRequest{.minor = 99}).as<wire::HelloReply>();
}

TEST(Hello, AMissingCapabilityIsNamed) {
    World world;
    Client client(world, world.peer(1000, 10));
    client.connection = world.connect(client.peer);
    Answer answer = client.call(
        wire::HelloRequest{.required_capabilities = {"cpu_storage_v1", "mixed_storage_v1"}});
    EXPECT_TRUE(answer.refused(Status::Unsupported));
    EXPECT_EQ(answer.message,
              "capability 'mixed_storage_v1' is not offered; this marud has cpu_storage_v1, "
              "shared_storage_v1, engine_worker_v1");
    EXPECT_TRUE(client.call(wire::HelloRequest{.required_capabilities = {"x"}})
                    .refused(Status::Unsupported));
    client.call(wire::HelloRequest{.required_capabilities = {"cpu_storage_v1"}})
        .as<wire::HelloReply>();
}

TEST(Hello, NamesAndCapabilityListsAreBounded) {
    World world;
    Client client(world, world.peer(1000, 10));
    client.connection = world.connect(client.peer);
    std::string long_name(65, 'x');
    EXPECT_TRUE(
        client.call(wire::HelloRequest{.client_name = long_name}).refused(Status::TooLarge));
    std::vector<std::string_view> many(33, "cpu_storage_v1");
    EXPECT_TRUE(
        client.call(wire::HelloRequest{.required_capabilities = many}).refused(Status::TooLarge));
}

TEST(Hello, IsSaidOnce) {
    World world;
    Client client(world, world.peer(1000, 10));
    client.hello();
    EXPECT_TRUE(client.call(wire::HelloRequest{}).refused(Status::Protocol));
}

TEST(HelloProof, TheNonceComesBeforeAnythingElse) {
    World world;
    Client client(world, world.peer(1000, 10));
    client.connection = world.connect(client.peer, 4242);
    auto hello = client.call(wire::HelloRequest{}).as<wire::HelloReply>();
    EXPECT_EQ(hello.nonce, 4242u);
    client.epoch = hello.epoch;
    EXPECT_TRUE(client.call(wire::StatusRequest{}).refused(Status::Protocol));
    EXPECT_TRUE(client.call(wire::OpenSessionRequest{token(1), wire::Role::Worker, "a"})
                    .refused(Status::Protocol));
    EXPECT_EQ(client.call(wire::HelloProofRequest{4242}).status, Status::Ok);
    client.call(wire::OpenSessionRequest{token(1), wire::Role::Worker, "a"})
        .as<wire::SessionReply>();
    EXPECT_TRUE(client.call(wire::HelloProofRequest{4242}).refused(Status::Protocol));
}

TEST(HelloProof, AWrongNonceIsTheEndOfTheConnection) {
    World world;
    Client client(world, world.peer(1000, 10));
    client.connection = world.connect(client.peer, 4242);
    client.epoch = client.call(wire::HelloRequest{}).as<wire::HelloReply>().epoch;
    uint64_t id = client.send(wire::HelloProofRequest{4243});
    EXPECT_TRUE(world.take(client.connection, id).refused(Status::Denied));
    EXPECT_TRUE(world.closed.contains(client.connection));
    // The shell tells it afterwards; and what was still in the socket is dropped without an answer.
    id = client.send(wire::HelloProofRequest{4242});
    EXPECT_FALSE(world.replied(client.connection, id));
    world.service->connection_closed(client.connection, world.now);
    world.check();
}

TEST(Hello, RequestIdZeroIsForEvents) {
    World world;
    Client client(world, world.peer(1000, 10));
    client.hello();
    client.next_id = 0;
    EXPECT_TRUE(client.call(wire::StatusRequest{}).refused(Status::Protocol));
}

TEST(Hello, AnUnknownConnectionIsNotAnswered) {
    World world;
    wire::Request request;
    request.id = 1;
    request.body = wire::HelloRequest{};
    world.service->handle(99, request, {}, world.now);
    world.service->refuse(99, 1, Status::Protocol, "no", world.now);
    world.service->connection_closed(99, world.now);
    EXPECT_TRUE(world.answers.empty());
}

TEST(Hello, TheShellsRefusalIsAnsweredAndCounted) {
    World world;
    Client client(world, world.peer(1000, 10));
    client.hello();
    world.service->refuse(client.connection, 77, Status::TooLarge, "2000 items; at most 1024",
                          world.now);
    Answer answer = world.take(client.connection, 77);
    EXPECT_TRUE(answer.refused(Status::TooLarge));
    EXPECT_EQ(world.service->counters().refused, 1u);
    EXPECT_EQ(world.service->counters().requests, 2u);
}

}  // namespace
}  // namespace maru::test
