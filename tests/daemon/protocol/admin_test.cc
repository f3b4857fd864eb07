#include "tests/daemon/protocol/harness.h"

namespace maru::test {
namespace {

using wire::ListKind;
using wire::Status;

struct AdminTest : testing::Test {
    AdminTest()
        : mine(world, world.peer(1000, 10)),
          theirs(world, world.peer(1001, 11)),
          admin(world, world.peer(0, 12, true)),
          user(world, world.peer(1000, 13)) {
        mine.open(1, "a");
        theirs.open(2, "b");
        ns = mine.name("model");
        mine.describe(ns);
        their_ns = theirs.name("model");  // the same text, and another namespace
        theirs.describe(their_ns);
        secret = theirs.name("their model");
        my_pool = mine.pool(8);
        their_pool = theirs.pool(8);
        mine.commit(ns, 1, {Client::item(my_pool, 1, 0, 1), Client::item(my_pool, 2, 1, 2)});
        theirs.commit(their_ns, 1, {Client::item(their_pool, 1, 0, 1)});
        lease = mine.acquire(ns, {1})[0];
        admin.hello();
        user.hello();
    }
    template <typename Row>
    std::vector<Row> list(Client &who, ListKind kind, wire::Id of = 0) {
        std::vector<Row> all;
        uint64_t cursor = 0;
        for (int pages = 0; pages < 1000; ++pages) {
            Answer answer = who.call(wire::ListRequest{kind, cursor, of});
            const auto &reply = answer.as<wire::ListReply>();
            const auto &rows = std::get<std::vector<Row>>(reply.rows);
            EXPECT_LE(rows.size(), wire::kMaxListRows);
            all.insert(all.end(), rows.begin(), rows.end());
            cursor = reply.next_cursor;
            if (!cursor)
                return all;
        }
        ADD_FAILURE() << "the listing does not end";
        return all;
    }
    wire::Key key(uint32_t number) { return {digest(number), 0, 0}; }
    World world;
    Client mine, theirs, admin, user;
    wire::Id ns = 0, their_ns = 0, secret = 0, my_pool = 0, their_pool = 0;
    wire::AcquireResult lease;
};

TEST_F(AdminTest, StatusNeedsNoSession) {
    world.pass(2 * kSec);
    auto status = admin.call(wire::StatusRequest{}).as<wire::StatusReply>();
    EXPECT_EQ(status.version, "0.1.0");
    EXPECT_EQ(status.epoch, 1001u);
    EXPECT_EQ(status.pid, 77u);
    EXPECT_EQ(status.uptime_ms, 2000u);
    EXPECT_TRUE(status.admin);
    EXPECT_EQ(status.sessions, 2u);
    EXPECT_EQ(status.attached, 2u);
    EXPECT_EQ(status.pools, 2u);
    EXPECT_EQ(status.namespaces, 3u);
    EXPECT_EQ(status.replicas, 3u);
    EXPECT_EQ(status.leases, 1u);
    EXPECT_EQ(status.host_limit_bytes, 64 * kMiB);
    EXPECT_EQ(status.host_reserved_bytes, 16 * 4096u);
    EXPECT_EQ(status.usage.reserved_bytes, 16 * 4096u);
    EXPECT_EQ(status.fdstore, "none");
    auto own = user.call(wire::StatusRequest{}).as<wire::StatusReply>();
    EXPECT_FALSE(own.admin);
    EXPECT_EQ(own.usage.reserved_bytes, 8 * 4096u);
}

TEST_F(AdminTest, EverybodySeesTheirOwnAndAdminsEverything) {
    EXPECT_EQ(list<wire::SessionRow>(admin, ListKind::Sessions).size(), 2u);
    auto sessions = list<wire::SessionRow>(user, ListKind::Sessions);
    ASSERT_EQ(sessions.size(), 1u);
    EXPECT_EQ(sessions[0].engine, "a");
    EXPECT_EQ(sessions[0].state, "attached");
    EXPECT_EQ(sessions[0].command, "python3");
    EXPECT_EQ(sessions[0].client_name, "test");
    EXPECT_EQ(sessions[0].pid, 10u);
    EXPECT_EQ(sessions[0].pools, 1u);
    EXPECT_EQ(sessions[0].leases, 1u);
    EXPECT_EQ(sessions[0].reserved_bytes, 8 * 4096u);

    EXPECT_EQ(list<wire::PoolRow>(admin, ListKind::Pools).size(), 2u);
    auto pools = list<wire::PoolRow>(user, ListKind::Pools);
    ASSERT_EQ(pools.size(), 1u);
    EXPECT_EQ(pools[0].pool, my_pool);
    EXPECT_EQ(pools[0].state, "open");
    EXPECT_EQ(pools[0].page_kind, "4K");
    EXPECT_EQ(pools[0].segments, 1u);
    EXPECT_EQ(pools[0].usage.replicas, 2u);

    EXPECT_EQ(list<wire::NamespaceRow>(admin, ListKind::Namespaces).size(), 3u);
    auto namespaces = list<wire::NamespaceRow>(user, ListKind::Namespaces);
    ASSERT_EQ(namespaces.size(), 1u);
    EXPECT_EQ(namespaces[0].text, "model");
    EXPECT_EQ(namespaces[0].object_bytes, 4096u);
    EXPECT_EQ(namespaces[0].uid, 1000u);

    EXPECT_EQ(list<wire::ObjectRow>(admin, ListKind::Objects).size(), 3u);
    auto objects = list<wire::ObjectRow>(user, ListKind::Objects);
    ASSERT_EQ(objects.size(), 2u);
    for (const auto &row : objects) {
        EXPECT_EQ(row.pool, my_pool);
        EXPECT_EQ(row.state, "ready");
        EXPECT_EQ(row.namespace_id, ns);
    }
    EXPECT_EQ(list<wire::ObjectRow>(admin, ListKind::Objects, secret).size(), 0u);
    EXPECT_EQ(list<wire::ObjectRow>(admin, ListKind::Objects, ns).size(), 2u);
    EXPECT_EQ(list<wire::ObjectRow>(admin, ListKind::Objects, their_ns).size(), 1u);
    EXPECT_TRUE(
        user.call(wire::ListRequest{ListKind::Objects, 0, their_ns}).refused(Status::NotFound));

    theirs.acquire(their_ns, {1});
    world.pass(3 * kSec);
    EXPECT_EQ(list<wire::LeaseRow>(admin, ListKind::Leases).size(), 2u);
    auto leases = list<wire::LeaseRow>(user, ListKind::Leases);
    ASSERT_EQ(leases.size(), 1u);
    EXPECT_EQ(leases[0].replica, lease.replica);
    EXPECT_EQ(leases[0].pid, 10u);
    EXPECT_EQ(leases[0].uid, 1000u);
    EXPECT_EQ(leases[0].command, "python3");
    EXPECT_EQ(leases[0].engine, "a");
    EXPECT_EQ(leases[0].count, 1u);
    EXPECT_EQ(leases[0].age_ms, 3000u);
}

TEST_F(AdminTest, ListingsArePagedAndEnd) {
    for (uint32_t i = 0; i < 200; ++i) {
        Client one(world, world.peer(2000 + i, 500 + i));
        one.open(static_cast<uint8_t>(10 + i), "many").as<wire::SessionReply>();
        wire::OpenPoolRequest pool{.capacity_bytes = 4096, .page_bytes = 4096, .request_key = 1};
        one.call(pool).as<wire::PoolReply>();
    }
    EXPECT_EQ(list<wire::SessionRow>(admin, ListKind::Sessions).size(), 202u);
    EXPECT_EQ(list<wire::PoolRow>(admin, ListKind::Pools).size(), 202u);
    // Texts are shown whole; a page ends before it outgrows a frame.
    for (int i = 0; i < 20; ++i)
        mine.name(std::string(16 * 1024 - 2, 'n') + std::to_string(10 + i));
    Answer first = admin.call(wire::ListRequest{ListKind::Namespaces});
    size_t bytes = 0;
    for (const auto &row :
         std::get<std::vector<wire::NamespaceRow>>(first.as<wire::ListReply>().rows))
        bytes += row.text.size();
    EXPECT_LE(bytes, 64 * 1024u);
    EXPECT_EQ(list<wire::NamespaceRow>(admin, ListKind::Namespaces).size(), 23u);
    EXPECT_TRUE(
        admin.call(wire::ListRequest{static_cast<ListKind>(99)}).refused(Status::InvalidArgument));
    EXPECT_TRUE(admin.call(wire::ListRequest{ListKind::Objects, 0, wire::make_id(1000, 1)})
                    .refused(Status::StaleEpoch));
    for (ListKind kind : {ListKind::Sessions, ListKind::Pools, ListKind::Namespaces})
        EXPECT_EQ(admin.call(wire::ListRequest{kind, UINT64_MAX}).as<wire::ListReply>().next_cursor,
                  0u);
}

TEST_F(AdminTest, UsageIsOnesOwn) {
    EXPECT_EQ(user.call(wire::UsageRequest{}).as<wire::UsageReply>().usage.ready_bytes, 2 * 4096u);
    EXPECT_EQ(user.call(wire::UsageRequest{}).as<wire::UsageReply>().limit_bytes, 48 * kMiB);
    user.call(wire::UsageRequest{my_pool}).as<wire::UsageReply>();
    EXPECT_TRUE(user.call(wire::UsageRequest{their_pool}).refused(Status::Denied));
    admin.call(wire::UsageRequest{their_pool}).as<wire::UsageReply>();
    EXPECT_TRUE(admin.call(wire::UsageRequest{4711}).refused(Status::NotFound));
}

TEST_F(AdminTest, RetireReachesEverybodysReplicasForAdminsAndOnesOwnForOthers) {
    auto count = user.call(wire::AdminRetireRequest{ns, key(1)}).as<wire::CountReply>();
    EXPECT_EQ(count.count, 1u);
    EXPECT_EQ(count.pending, 1u);  // leased
    EXPECT_EQ(theirs.probe(their_ns, {1}), 1u);
    EXPECT_EQ(mine.probe(ns, {1}), 0u);
    EXPECT_TRUE(
        user.call(wire::AdminRetireRequest{their_ns, std::nullopt}).refused(Status::NotFound));
    auto events = mine.events();
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].kind, wire::EventKind::Retired);
    mine.release({lease.replica, lease.generation});
    events = mine.events();
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].kind, wire::EventKind::Reclaim);

    count = admin.call(wire::AdminRetireRequest{ns, std::nullopt}).as<wire::CountReply>();
    EXPECT_EQ(count.count, 1u);
    EXPECT_EQ(count.pending, 0u);
    count = admin.call(wire::AdminRetireRequest{their_ns, std::nullopt}).as<wire::CountReply>();
    EXPECT_EQ(count.count, 1u);
    EXPECT_EQ(theirs.probe(their_ns, {1}), 0u);
    events = theirs.events();
    ASSERT_EQ(events.size(), 2u);
    EXPECT_EQ(events[0].kind, wire::EventKind::Retired);
    EXPECT_EQ(events[1].kind, wire::EventKind::Reclaim);
    ASSERT_EQ(events[1].items.size(), 1u);
    EXPECT_EQ(theirs.reclaim_ack(events[1].items[0]), Status::Ok);
    EXPECT_EQ(admin.call(wire::AdminRetireRequest{ns, std::nullopt}).as<wire::CountReply>().count,
              0u);
    EXPECT_EQ(user.call(wire::AdminRetireRequest{ns, std::nullopt}).as<wire::CountReply>().count,
              0u);
    EXPECT_TRUE(user.call(wire::AdminRetireRequest{wire::make_id(1, 1), std::nullopt})
                    .refused(Status::StaleEpoch));
}

TEST_F(AdminTest, WhatWasRetiredWhileItsOwnerWasAwayIsToldLater) {
    mine.release({lease.replica, lease.generation});
    mine.vanish();
    admin.call(wire::AdminRetireRequest{ns, key(2)});
    mine.attach(1, "a");
    mine.call(wire::AttachDoneRequest{});
    auto events = mine.events();
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].kind, wire::EventKind::Reclaim);
    EXPECT_EQ(events[0].items.size(), 1u);
}

TEST_F(AdminTest, WholeNamespaceRetireOfManyIsToldInBatches) {
    wire::Id big = mine.pool(3000, 5);
    std::vector<wire::CommitItem> items;
    for (uint32_t i = 0; i < 2500; ++i) {
        items.push_back(Client::item(big, 1000 + i, i, 100 + i));
        if (items.size() == 1000 || i == 2499) {
            mine.commit(ns, 100 + i + 1 - items.size(), items);
            items.clear();
        }
    }
    for (uint64_t expected : {wire::kMaxRetired, wire::kMaxRetired, 2502 - 2 * wire::kMaxRetired}) {
        const Answer answer = user.call(wire::AdminRetireRequest{ns, std::nullopt});
        EXPECT_EQ(answer.as<wire::CountReply>().count, expected);
    }
    size_t retired = 0, reclaim = 0;
    for (const SeenEvent &event : mine.events()) {
        EXPECT_LE(event.items.size(), wire::kMaxBatchItems);
        (event.kind == wire::EventKind::Retired ? retired : reclaim) += event.items.size();
    }
    EXPECT_EQ(retired, 2502u);
    EXPECT_EQ(reclaim, 2501u);  // one is read
}

TEST_F(AdminTest, ALargePoolThatIsGoneIsForgottenInTurnsOfTheLoop) {
    const wire::Id big = mine.pool(5000, 5);
    std::vector<wire::CommitItem> items;
    for (uint32_t i = 0; i < 5000; ++i) {
        items.push_back(Client::item(big, 1000 + i, i, 100 + i));
        if (items.size() == 1000) {
            mine.commit(ns, 100 + i + 1 - items.size(), items);
            items.clear();
        }
    }
    const auto status = [&] { return admin.call(wire::StatusRequest{}).as<wire::StatusReply>(); };
    const uint64_t reserved = status().host_reserved_bytes;
    EXPECT_EQ(mine.close_pool(big, wire::ClosePhase::Force).status, Status::Ok);
    world.pass(0);  // what is retired in turns is retired: the turns below are asked for by Finish
    EXPECT_GE(status().usage.retiring_bytes, 5000u * 4096);
    EXPECT_GT(world.service->next_deadline(), world.now);
    EXPECT_EQ(mine.close_pool(big, wire::ClosePhase::Finish).status, Status::Ok);
    // Its memory is somebody else's from now; what was known of it goes after this.
    EXPECT_LT(status().host_reserved_bytes, reserved);
    EXPECT_GT(status().replicas, 2000u);
    for (int turns = 0; status().replicas > 3; ++turns) {
        ASSERT_LT(turns, 4);
        ASSERT_LE(world.service->next_deadline(), world.now);
        world.service->tick(world.now);
        world.check();
    }
    EXPECT_GT(world.service->next_deadline(), world.now);
}

TEST_F(AdminTest, DrainAndReloadAreForAdmins) {
    EXPECT_TRUE(user.call(wire::DrainRequest{true}).refused(Status::Denied));
    EXPECT_TRUE(user.call(wire::ReloadRequest{}).refused(Status::Denied));
    EXPECT_EQ(world.reloads, 0);
    EXPECT_EQ(admin.call(wire::ReloadRequest{}).status, Status::Ok);
    EXPECT_EQ(world.reloads, 1);
    EXPECT_EQ(admin.call(wire::DrainRequest{true}).status, Status::Ok);
    EXPECT_TRUE(admin.call(wire::StatusRequest{}).as<wire::StatusReply>().draining);
    EXPECT_EQ(mine.events().size(), 1u);
    EXPECT_EQ(admin.call(wire::DrainRequest{true}).status, Status::Ok);
    EXPECT_TRUE(mine.events().empty());
    EXPECT_EQ(admin.call(wire::DrainRequest{false}).status, Status::Ok);
    EXPECT_FALSE(admin.call(wire::StatusRequest{}).as<wire::StatusReply>().draining);
}

struct ExplainTest : AdminTest {
    wire::ExplainReply explain(Client &who, std::string_view engine, uint32_t uid = UINT32_MAX) {
        return who.call(wire::ExplainRequest{ns_of(uid), key(1), engine, uid})
            .as<wire::ExplainReply>();
    }
    wire::Id ns_of(uint32_t uid) const { return uid == 1001 ? their_ns : ns; }
};

TEST_F(ExplainTest, SaysWhichReplicaIsReadAndWhyTheOthersAreNot) {
    Client neighbour(world, world.peer(1000, 14));  // another engine of the same uid
    neighbour.open(3, "c");
    neighbour.name("model");
    neighbour.describe(ns);
    wire::Id its_pool = neighbour.pool(8);
    neighbour.commit(ns, 1, {Client::item(its_pool, 1, 0, 1)});
    for (Client *who : {&admin, &user}) {
        auto reply = explain(*who, "a", 1000);
        EXPECT_TRUE(reply.hit);
        EXPECT_EQ(reply.summary, "hit for engine 'a' (uid 1000)");
        ASSERT_EQ(reply.replicas.size(), 2u);  // what another uid has is in another namespace
        for (const auto &row : reply.replicas) {
            EXPECT_EQ(row.eligible, row.pool == my_pool);
            EXPECT_EQ(row.reason,
                      row.pool == my_pool ? "readable" : "private to engine 'c' (uid 1000)");
        }
    }
    EXPECT_TRUE(user.call(wire::ExplainRequest{their_ns, key(1), "a"}).refused(Status::NotFound));
    EXPECT_TRUE(user.call(wire::ExplainRequest{ns, key(1), "b", 1001}).refused(Status::Denied));
    EXPECT_TRUE(user.call(wire::ExplainRequest{ns, key(1), ""}).refused(Status::InvalidArgument));
}

TEST_F(ExplainTest, EveryReasonForAMissHasItsWords) {
    auto reason = [&] {
        auto reply = explain(user, "a");
        EXPECT_FALSE(reply.hit);
        return reply.replicas.empty() ? "" : reply.replicas[0].reason;
    };
    EXPECT_EQ(explain(user, "nobody").summary,
              "miss: no worker is attached to engine 'nobody' (uid 1000)");
    EXPECT_EQ(explain(user, "nobody").replicas[0].reason, "private to engine 'a' (uid 1000)");
    world.pass(32 * kSec);
    EXPECT_EQ(reason(), "its owner has been silent since 32 s ago");
    mine.vanish();
    world.pass(3 * kSec);
    EXPECT_EQ(reason(), "its owner detached 3 s ago");
    mine.attach(1, "a");
    EXPECT_EQ(reason(), "its owner is re-attaching since 0 s ago");
    std::vector<wire::LeaseItem> held = {{lease.replica, lease.generation, 1}};
    mine.call(wire::AttachLeasesRequest{held});
    mine.call(wire::AttachDoneRequest{});
    EXPECT_TRUE(explain(user, "a").hit);
    uint64_t forced = mine.send(wire::ClosePoolRequest{my_pool, wire::ClosePhase::Force});
    EXPECT_FALSE(world.replied(mine.connection, forced));
    EXPECT_EQ(reason(), "retiring: 1 leases are left");
    mine.release({lease.replica, lease.generation});
    EXPECT_EQ(explain(user, "a").summary, "miss: no replica is readable by engine 'a' (uid 1000)");
}

TEST_F(ExplainTest, AClosingPoolAndADeadOwnerAreNamed) {
    mine.release({lease.replica, lease.generation});
    mine.close_pool(my_pool, wire::ClosePhase::Drain);
    EXPECT_EQ(explain(user, "a").replicas[0].reason, "its pool is closing");
    world.mapped.insert({my_pool, 0});
    mine.vanish();
    Client next(world, world.peer(1000, 40));
    next.open(9, "a");
    EXPECT_EQ(explain(user, "a").replicas[0].reason,
              "its owner was fenced 0 s ago: another worker has the engine");
    world.kill(10);
    EXPECT_EQ(explain(user, "a").replicas[0].reason,
              "its owner exited 0 s ago; its memory is being proven free");
}

TEST_F(ExplainTest, AgreesWithWhatAProbeFinds) {
    auto agrees = [&](Client &who, std::string_view engine, uint32_t uid) {
        EXPECT_EQ(explain(admin, engine, uid).hit, who.probe(ns_of(uid), {1}) == 1u);
    };
    agrees(mine, "a", 1000);
    agrees(theirs, "b", 1001);
    user.call(wire::AdminRetireRequest{ns, key(1)});
    agrees(mine, "a", 1000);
    agrees(theirs, "b", 1001);
    theirs.close_pool(their_pool, wire::ClosePhase::Drain);
    agrees(theirs, "b", 1001);
}

}  // namespace
}  // namespace maru::test
