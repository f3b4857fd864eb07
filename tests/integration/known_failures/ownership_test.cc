// Whatever names a region of another session is refused over a real connection, from another process.
//
// The requests are those of the schema: each kind that can name a pool or a session has a case here,
// or this file does not compile.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <sstream>
#include <type_traits>

#include "daemon/protocol/request_rules.h"
#include "tests/integration/known_failures/actor.h"
#include "tests/integration/known_failures/raw_worker.h"
#include "tests/integration/known_failures/worker.h"

namespace maru::test {
namespace {

using wire::Status;

constexpr uint8_t kOwnerToken = 1, kIntruderToken = 2;
constexpr uint64_t kBytes = 1 << 20;

struct Intruder {
    std::string socket;
    wire::Id pool = 0;          // the owner's
    wire::ReplicaName replica;  // the owner's, which it has a lease on
    wire::Token owner_token{};
    std::unique_ptr<RawWorker> own;
    int kept_fds = 0;

    WireClient &client() { return own->client(); }
    Status ask(wire::RequestBody body, std::vector<int> fds = {}) {
        const Status status = client().status(std::move(body), std::move(fds));
        kept_fds += static_cast<int>(client().fds().size());
        return status;
    }
    template <typename Request>
    Status ask_one(std::span<const wire::ReplicaName> names) {
        const auto *reply = client().ask<wire::ItemStatusReply>(Request{names});
        return reply && reply->statuses.size() == 1 ? reply->statuses[0] : Status::Internal;
    }
};

bool denied(Status status) { return status == Status::Denied; }
bool unknown(Status status) { return status == Status::NotFound; }

// True: refused as it must be.
template <typename Request>
bool intrude(Intruder &);

template <>
bool intrude<wire::OpenSessionRequest>(Intruder &i) {
    WireClient fresh(i.socket);
    wire::OpenSessionRequest request;
    request.engine = "owner";
    request.token = i.owner_token;  // the right one over the wrong connection
    if (!fresh.hello() || !denied(fresh.status(request)))
        return false;
    request.token[3] ^= 1;  // a wrong one
    return fresh.status(request) == Status::Busy;
}
template <>
bool intrude<wire::AttachRequest>(Intruder &i) {
    WireClient fresh(i.socket);
    wire::AttachRequest request;
    request.engine = "owner";
    request.token = i.owner_token;
    if (!fresh.hello())
        return false;
    request.old_epoch = fresh.epoch();
    if (!denied(fresh.status(request)))
        return false;
    request.token[3] ^= 1;
    return unknown(fresh.status(request));
}
template <>
bool intrude<wire::AttachPoolRequest>(Intruder &i) {
    // In the life of marud that made the pool nobody passes segments; with its own ones it tries.
    wire::AttachPoolRequest request;
    request.pool = i.pool;
    request.capacity_bytes = request.segment_bytes = kBytes;
    request.page_bytes = 4096;
    request.segment_count = 1;
    const Status status = i.ask(request);
    return denied(status) || status == Status::Protocol;
}
template <>
bool intrude<wire::RepublishRequest>(Intruder &i) {
    auto item = i.own->item(1, 0, 0);
    item.pool = i.pool;
    const wire::RepublishItem republish{item, i.own->ns(), 1, 0};
    const Status status = i.ask(wire::RepublishRequest{{&republish, 1}});
    return denied(status) || status == Status::Protocol;
}
template <>
bool intrude<wire::AttachLeasesRequest>(Intruder &i) {
    const uint32_t epoch = i.client().epoch();
    i.own->reconnect();
    if (i.own->attach(epoch) != Status::Ok)
        return false;
    const wire::LeaseItem item{i.replica.replica, i.replica.generation, 1};
    const auto *reply =
        i.client().ask<wire::ItemStatusReply>(wire::AttachLeasesRequest{{&item, 1}});
    const bool refused = reply && unknown(reply->statuses[0]);
    return i.client().status(wire::AttachDoneRequest{}) == Status::Ok && refused;
}
template <>
bool intrude<wire::HeartbeatRequest>(Intruder &i) {
    const wire::PoolGauge gauge{i.pool, 4096, 4096, 4096, 4096};
    return denied(i.ask(wire::HeartbeatRequest{{&gauge, 1}}));
}
template <>
bool intrude<wire::GrantSegmentRequest>(Intruder &i) {
    return denied(i.ask(wire::GrantSegmentRequest{i.pool, 0}));
}
template <>
bool intrude<wire::SegmentMappedRequest>(Intruder &i) {
    return denied(i.ask(wire::SegmentMappedRequest{i.pool, 0}));
}
template <>
bool intrude<wire::ClosePoolRequest>(Intruder &i) {
    return denied(i.ask(wire::ClosePoolRequest{i.pool, wire::ClosePhase::Drain})) &&
           denied(i.ask(wire::ClosePoolRequest{i.pool, wire::ClosePhase::Force})) &&
           denied(i.ask(wire::ClosePoolRequest{i.pool, wire::ClosePhase::Finish})) &&
           denied(i.ask(wire::ClosePoolRequest{i.pool, wire::ClosePhase::Leave}));
}
template <>
bool intrude<wire::CommitRequest>(Intruder &i) {
    auto item = i.own->item(9, 1, 9);
    item.pool = i.pool;
    return denied(i.own->commit(1, item).status);
}
template <>
bool intrude<wire::ReleaseRequest>(Intruder &i) {
    return unknown(i.ask_one<wire::ReleaseRequest>({&i.replica, 1}));
}
template <>
bool intrude<wire::RetireRequest>(Intruder &i) {
    return denied(i.ask_one<wire::RetireRequest>({&i.replica, 1}));
}
template <>
bool intrude<wire::ReclaimAckRequest>(Intruder &i) {
    return denied(i.ask_one<wire::ReclaimAckRequest>({&i.replica, 1}));
}
template <>
bool intrude<wire::MapSegmentRequest>(Intruder &i) {
    return unknown(i.ask(wire::MapSegmentRequest{i.replica}));
}
template <>
bool intrude<wire::RetireSegmentRequest>(Intruder &i) {
    return unknown(i.ask(wire::RetireSegmentRequest{i.pool, 0}));
}
// Of one's own uid these are allowed, and change nothing or are the operator's right.
template <>
bool intrude<wire::UsageRequest>(Intruder &i) {
    return i.ask(wire::UsageRequest{i.pool}) == Status::Ok;
}
template <>
bool intrude<wire::AdminRetireRequest>(Intruder &i) {
    return i.ask(wire::AdminRetireRequest{i.own->ns() + 100, std::nullopt}) != Status::Ok;
}

template <typename Request>
void try_one(Intruder &intruder, std::ostringstream &out) {
    // A namespace is its whole uid's, and this stranger is of the same; hostile/ has one of another.
    constexpr Names kNames = RuleOf<Request>::kRule.names;
    if constexpr (kNames != Names::Nothing && kNames != Names::Namespace) {
        if (!intrude<Request>(intruder))
            out << ' ' << RuleOf<Request>::kRule.name;
    }
}
template <typename... Requests>
void try_all(const std::variant<Requests...> *, Intruder &intruder, std::ostringstream &out) {
    (try_one<Requests>(intruder, out), ...);
}

// Arguments: socket, then the owner's pool, replica and generation. Answers with what got through.
void intruder(Stage &stage) {
    Intruder self;
    self.socket = stage.arguments[0];
    self.pool = std::stoull(stage.arguments[1]);
    self.replica = {std::stoull(stage.arguments[2]), std::stoull(stage.arguments[3])};
    self.owner_token[0] = kOwnerToken;
    self.owner_token[15] = 1;
    self.own = std::make_unique<RawWorker>(self.socket, kIntruderToken, "intruder");
    self.own->open();
    for (std::string command; stage.next(&command);) {
        std::ostringstream out;
        out << "got through:";
        try_all(static_cast<wire::RequestBody *>(nullptr), self, out);
        out << " descriptors: " << self.kept_fds;
        stage.answer(out.str());
    }
}
const ActorRole kIntruder("intruder", intruder);

TEST(KnownFailures, A28_NoRequestOfAnotherProcessReachesARegion) {
    Marud marud;
    marud.start();
    RawWorker owner(marud.socket(), kOwnerToken, "owner");
    owner.open();
    owner.open_pool(kBytes);
    owner.map_segments();
    const auto item = owner.item(1, 0, 0);
    ASSERT_EQ(owner.commit(1, item).status, Status::Ok);
    const auto leased = owner.acquire(1);
    ASSERT_EQ(leased.status, Status::Ok);
    const auto before = owner.usage();
    const size_t descriptors = marud.open_fds();
    struct stat file_before = {}, file_after = {};
    ASSERT_EQ(::fstat(owner.segment_fd(0), &file_before), 0);
    const int seals = ::fcntl(owner.segment_fd(0), F_GET_SEALS);
    {
        Actor other("intruder",
                    {marud.socket(), std::to_string(owner.pool().pool),
                     std::to_string(leased.replica), std::to_string(leased.generation)});
        EXPECT_EQ(other.ask("try"), "got through: descriptors: 0") << marud.log();
    }
    EXPECT_TRUE(eventually([&] { return marud.open_fds() <= descriptors; }));
    ASSERT_EQ(::fstat(owner.segment_fd(0), &file_after), 0);
    EXPECT_EQ(file_after.st_mode, file_before.st_mode);
    EXPECT_EQ(file_after.st_size, file_before.st_size);
    EXPECT_EQ(::fcntl(owner.segment_fd(0), F_GET_SEALS), seals);
    const auto after = owner.usage();
    EXPECT_EQ(std::memcmp(&after, &before, sizeof after), 0);
    EXPECT_EQ(owner.probe(1), 1u);
    EXPECT_EQ(owner.name_one<wire::ReleaseRequest>({leased.replica, leased.generation}),
              Status::Ok);
    EXPECT_EQ(owner.commit(2, owner.item(2, 1, 1)).status, Status::Ok);
}

}  // namespace
}  // namespace maru::test
