// A28: whatever a request can name of somebody else, it is refused, and nothing changed.
//
// The cases are looked up by the type of each request in the variant: one that names something and
// has no case does not compile.
#include <type_traits>

#include "daemon/protocol/request_rules.h"
#include "tests/daemon/protocol/harness.h"

namespace maru::test {
namespace {

using wire::Status;

struct Parties {
    explicit Parties(bool same_uid)
        : owner(world, world.peer(1000, 10)),
          intruder(world, world.peer(same_uid ? 1000 : 1001, 11)),
          owner_uid_is_shared(same_uid) {
        owner.open(1, "a");
        intruder.open(2, "b");
        ns = owner.name("model");
        intruder_ns = intruder.name("model");  // the owner's, if the uid is
        owner.describe(ns);
        intruder.describe(intruder_ns);
        pool = owner.pool(4);
        owner.commit_one(ns, 1, Client::item(pool, 1, 0, 1));
        auto leased = owner.acquire(ns, {1})[0];
        name = {leased.replica, leased.generation};
        owner.call(wire::HeartbeatRequest{});
    }
    World world;
    Client owner, intruder;
    bool owner_uid_is_shared;
    wire::Id ns = 0, intruder_ns = 0, pool = 0;
    wire::ReplicaName name;
};

bool denied(const Answer &answer) {
    return answer.refused(Status::Denied) && !answer.message.empty();
}
bool item_denied(const Answer &answer) { return answer.statuses == std::vector{Status::Denied}; }

// Sends the owner's name over the intruder's connection; true: refused as it must be.
template <typename Request>
bool intrude(Parties &);

template <>
bool intrude<wire::OpenSessionRequest>(Parties &p) {
    Client fresh(p.world, p.intruder.peer);
    return denied(fresh.open(1, "a"));  // the right token over the wrong connection
}
template <>
bool intrude<wire::AttachRequest>(Parties &p) {
    Client fresh(p.world, p.intruder.peer);
    return denied(fresh.attach(1, "a")) && fresh.attach(77, "a").refused(Status::NotFound);
}
template <>
bool intrude<wire::AttachPoolRequest>(Parties &p) {
    p.world.restart(false);
    p.intruder.attach(2, "b");
    std::vector<AttachedDescriptor> stolen = {
        {true, false, 4 * 4096, World::identity({p.pool, 0})}};
    bool refused = denied(p.intruder.call(
        wire::AttachPoolRequest{p.pool, 4 * 4096, 4 * 4096, 4096, 0, 1, 1}, stolen));
    return refused && p.world.service->adopted_descriptors()[0].pool == 0;
}
template <>
bool intrude<wire::RepublishRequest>(Parties &p) {
    p.world.restart(true);
    p.intruder.attach(2, "b");
    wire::Id ns = p.intruder.name("model");
    p.intruder.describe(ns);
    std::vector<wire::RepublishItem> items = {{Client::item(p.pool, 1, 0, 1), ns, 1, 0}};
    bool refused = item_denied(p.intruder.call(wire::RepublishRequest{items}));
    return refused && p.world.service->counters().replicas == 0;
}
template <>
bool intrude<wire::AttachLeasesRequest>(Parties &p) {
    p.intruder.vanish();
    p.intruder.attach(2, "b");
    std::vector<wire::LeaseItem> items = {{p.name.replica, p.name.generation, 1}};
    // It never had that lease; whose it is, is not told.
    bool refused =
        p.intruder.call(wire::AttachLeasesRequest{items}).statuses == std::vector{Status::NotFound};
    p.intruder.call(wire::AttachDoneRequest{});
    return refused;
}
template <>
bool intrude<wire::HeartbeatRequest>(Parties &p) {
    std::vector<wire::PoolGauge> gauges = {{p.pool, 4096, 0, 0, 0}};
    return denied(p.intruder.call(wire::HeartbeatRequest{gauges})) &&
           p.owner.call(wire::UsageRequest{p.pool}).as<wire::UsageReply>().usage.populated_bytes ==
               0;
}
template <>
bool intrude<wire::GrantSegmentRequest>(Parties &p) {
    Answer answer = p.intruder.call(wire::GrantSegmentRequest{p.pool, 0});
    return denied(answer) && answer.segments.empty();
}
template <>
bool intrude<wire::SegmentMappedRequest>(Parties &p) {
    return denied(p.intruder.call(wire::SegmentMappedRequest{p.pool, 0}));
}
template <>
bool intrude<wire::ClosePoolRequest>(Parties &p) {
    return denied(p.intruder.close_pool(p.pool, wire::ClosePhase::Drain)) &&
           denied(p.intruder.close_pool(p.pool, wire::ClosePhase::Force)) &&
           denied(p.intruder.close_pool(p.pool, wire::ClosePhase::Finish)) &&
           denied(p.intruder.close_pool(p.pool, wire::ClosePhase::Leave));
}
template <>
bool intrude<wire::CommitRequest>(Parties &p) {
    std::vector<wire::CommitItem> items = {Client::item(p.pool, 9, 1, 9)};
    bool own_namespace =
        p.owner_uid_is_shared ||
        p.intruder.call(wire::CommitRequest{p.ns, 1, items}).refused(Status::NotFound);
    return own_namespace &&
           p.intruder.commit_one(p.intruder_ns, 1, items[0]).status == Status::Denied;
}
// A namespace is its whole uid's; what is in it may still be another session's.
bool served_to_its_uid(Parties &p, const Answer &answer) {
    return p.owner_uid_is_shared ? answer.status == Status::Ok : answer.refused(Status::NotFound);
}
template <>
bool intrude<wire::DescribeRequest>(Parties &p) {
    return served_to_its_uid(p, p.intruder.call(wire::DescribeRequest{p.ns, 4096, "raw"}));
}
template <>
bool intrude<wire::ProbeRequest>(Parties &p) {
    std::vector<wire::Digest> keys = {digest(1)};
    Answer answer = p.intruder.call(wire::ProbeRequest{p.ns, keys});
    return served_to_its_uid(p, answer) &&
           (!p.owner_uid_is_shared || answer.as<wire::ProbeReply>().prefix == 0);
}
template <>
bool intrude<wire::AcquireRequest>(Parties &p) {
    std::vector<wire::Digest> keys = {digest(1)};
    return served_to_its_uid(p, p.intruder.call(wire::AcquireRequest{p.ns, keys}));
}
template <>
bool intrude<wire::ListRequest>(Parties &p) {
    return served_to_its_uid(p,
                             p.intruder.call(wire::ListRequest{wire::ListKind::Objects, 0, p.ns}));
}
template <>
bool intrude<wire::ExplainRequest>(Parties &p) {
    return served_to_its_uid(p,
                             p.intruder.call(wire::ExplainRequest{p.ns, {digest(1), 0, 0}, "a"}));
}
template <>
bool intrude<wire::ReleaseRequest>(Parties &p) {
    // A lease is found by its holder: the intruder has none on it.
    return p.intruder.release(p.name) == Status::NotFound;
}
template <>
bool intrude<wire::RetireRequest>(Parties &p) {
    return p.intruder.retire(p.name) == Status::Denied;
}
template <>
bool intrude<wire::ReclaimAckRequest>(Parties &p) {
    return p.intruder.reclaim_ack(p.name) == Status::Denied;
}
template <>
bool intrude<wire::UsageRequest>(Parties &p) {
    // Usage is shown to the whole uid, as List is.
    Answer answer = p.intruder.call(wire::UsageRequest{p.pool});
    return p.owner_uid_is_shared ? !denied(answer) : denied(answer);
}
template <>
bool intrude<wire::AdminRetireRequest>(Parties &p) {
    if (p.owner_uid_is_shared)
        return true;  // the right of one's own uid
    wire::Key key{digest(1), 0, 0};
    return p.intruder.call(wire::AdminRetireRequest{p.ns, key}).refused(Status::NotFound) &&
           p.intruder.call(wire::AdminRetireRequest{p.ns, std::nullopt}).refused(Status::NotFound);
}

template <>
bool intrude<wire::MapSegmentRequest>(Parties &p) {
    Answer answer = p.intruder.call(wire::MapSegmentRequest{p.name});
    return answer.refused(Status::NotFound) && answer.segments.empty();
}
template <>
bool intrude<wire::RetireSegmentRequest>(Parties &p) {
    // It is private; SharedTest has those that are not.
    return p.intruder.call(wire::RetireSegmentRequest{p.pool, 0}).refused(Status::NotFound);
}

template <typename Request>
void check_request(bool same_uid) {
    constexpr RequestRule rule = RuleOf<Request>::kRule;
    if constexpr (rule.names != Names::Nothing) {
        SCOPED_TRACE(rule.name);
        Parties parties(same_uid);
        auto before = parties.world.service->counters();
        bool restarted = std::is_same_v<Request, wire::AttachPoolRequest> ||
                         std::is_same_v<Request, wire::RepublishRequest>;
        EXPECT_TRUE(intrude<Request>(parties));
        parties.world.check();
        auto after = parties.world.service->counters();
        EXPECT_EQ(after.reserved_bytes, before.reserved_bytes);
        if (restarted)
            return;
        EXPECT_EQ(after.replicas, before.replicas);
        EXPECT_EQ(after.leases, before.leases);
        EXPECT_EQ(after.sessions, before.sessions);
        // The owner still has all of it.
        EXPECT_EQ(parties.owner.probe(parties.ns, {1}), 1u);
        EXPECT_EQ(parties.owner.release(parties.name), Status::Ok);
        EXPECT_EQ(
            parties.owner.commit_one(parties.ns, 2, Client::item(parties.pool, 5, 2, 5)).status,
            Status::Ok);
    }
}

template <typename... Requests>
void check_all(const std::variant<Requests...> *, bool same_uid) {
    (check_request<Requests>(same_uid), ...);
}

TEST(Ownership, A28NoRequestReachesWhatAnotherUidOwns) {
    check_all(static_cast<wire::RequestBody *>(nullptr), false);
}

TEST(Ownership, A28NoRequestReachesWhatAnotherSessionOfTheSameUidOwns) {
    check_all(static_cast<wire::RequestBody *>(nullptr), true);
}

}  // namespace
}  // namespace maru::test
