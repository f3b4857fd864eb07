// A28: whatever a request can name of somebody else, it gets a stranger nothing.
//
// The requests are those of the schema itself: a member of Message.body without an entry in the
// table fails the test, so a new message comes with its answer to the question of whose it is.
#include <capnp/schema.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <set>

#include "libmaru/wire/maru.capnp.h"
#include "tests/integration/hostile/strangers_table.h"

namespace maru::test {
namespace {

using wire::Status;

std::set<std::string> requests_of_the_schema() {
    auto message = capnp::Schema::from<wire::schema::Message>();
    std::set<std::string> names;
    for (auto field : message.getFieldByName("body").getType().asStruct().getUnionFields())
        names.insert(field.getProto().getName().cStr());
    return names;
}

TEST(Strangers, A28EveryRequestOfTheSchemaHasAnEntry) {
    std::set<std::string> entries;
    for (const auto &[name, entry] : strangers_table()) {
        entries.insert(name);
        EXPECT_EQ(entry.scope == Scope::None, entry.attempt == nullptr) << name;
    }
    EXPECT_EQ(requests_of_the_schema(), entries)
        << "a request needs an entry that tells how a stranger's ids are tried with it";
    EXPECT_EQ(requests_of_the_schema().size(), std::variant_size_v<wire::RequestBody>);
}

// The same request without any session: refused before anybody asks whose it is.
void without_a_session(const std::string &name) {
    static const std::map<std::string, wire::RequestBody> kBodies = [] {
        std::map<std::string, wire::RequestBody> bodies;
        bodies["attachPool"] = wire::AttachPoolRequest{};
        bodies["republish"] = wire::RepublishRequest{};
        bodies["attachLeases"] = wire::AttachLeasesRequest{};
        bodies["attachDone"] = wire::AttachDoneRequest{};
        bodies["describe"] = wire::DescribeRequest{1, 1, "raw"};
        bodies["heartbeat"] = wire::HeartbeatRequest{};
        bodies["registerNamespace"] = wire::RegisterNamespaceRequest{"x"};
        bodies["openPool"] = wire::OpenPoolRequest{};
        bodies["grantSegment"] = wire::GrantSegmentRequest{};
        bodies["segmentMapped"] = wire::SegmentMappedRequest{};
        bodies["closePool"] = wire::ClosePoolRequest{};
        bodies["closeSession"] = wire::CloseSessionRequest{};
        bodies["commit"] = wire::CommitRequest{};
        bodies["resolve"] = wire::ResolveRequest{};
        bodies["probe"] = wire::ProbeRequest{};
        bodies["acquire"] = wire::AcquireRequest{};
        bodies["release"] = wire::ReleaseRequest{};
        bodies["retire"] = wire::RetireRequest{};
        bodies["reclaimAck"] = wire::ReclaimAckRequest{};
        bodies["mapSegment"] = wire::MapSegmentRequest{};
        bodies["engineWorker"] = wire::EngineWorkerRequest{};
        return bodies;
    }();
    auto body = kBodies.find(name);
    require(body != kBodies.end(), name + " has no body to be tried without a session");
    Greeted client(HostileTest::path());
    // Its own attempt at somebody's session failed before, which is no session either.
    client.call(
        wire::AttachRequest{token_of(0xabcdef), wire::Role::Worker, "owner", client.epoch()});
    is(client.status(body->second), Status::Protocol, name + " without a session");
}

class StrangersTest : public HostileTest {
  protected:
    void try_all(bool same_uid);
    void try_shared(bool same_uid);
    static void close(Party &owner);
};

// Its pool and session, so that nothing of it is left.
void StrangersTest::close(Party &owner) {
    EXPECT_EQ(owner.wire().status(wire::ClosePoolRequest{owner.pool, wire::ClosePhase::Force}),
              Status::Ok);
    for (char *at : owner.mappings)
        ::munmap(at, kSegmentBytes);
    owner.mappings.clear();
    EXPECT_EQ(owner.wire().status(wire::ClosePoolRequest{owner.pool, wire::ClosePhase::Finish}),
              Status::Ok)
        << owner.wire().message();
    EXPECT_EQ(owner.wire().status(wire::CloseSessionRequest{}), Status::Ok);
}

void StrangersTest::try_all(bool same_uid) {
    uid_t uid = same_uid ? kOwnerUid : kAttackerUid;
    Party owner = worker(path(), kOwnerUid, same_uid ? 2001 : 2000, "owner");
    owner.store(1, 0);
    wire::AcquireResult lease = owner.acquire(1);
    ASSERT_EQ(lease.status, Status::Ok);
    Loot loot{owner.token,
              owner.wire().epoch(),
              owner.session,
              owner.ns,
              owner.pool,
              {lease.replica, lease.generation},
              owner.capacity,
              owner.segment_bytes,
              owner.segments[0].get(),
              same_uid || !is_root()};
    auto state = [&] {  // of the owner's things, as the owner sees them
        const auto *usage = owner.wire().ask<wire::UsageReply>(wire::UsageRequest{owner.pool});
        EXPECT_NE(usage, nullptr);
        wire::Usage u = usage ? usage->usage : wire::Usage{};
        return std::vector<uint64_t>{u.capacity_bytes, u.reserved_bytes,  u.allocated_bytes,
                                     u.ready_bytes,    u.retiring_bytes,  u.quarantined_bytes,
                                     u.pinned_bytes,   u.populated_bytes, u.replicas,
                                     u.leases};
    };
    uint32_t number = 2100;
    for (const auto &[name, entry] : strangers_table()) {
        SCOPED_TRACE(name);
        if (!entry.attempt)
            continue;
        // Its own token and engine: marud may not have heard of the last one's exit yet.
        ++number;
        auto before = state();
        EXPECT_EQ(run_child(uid,
                            [&, &name = name, &entry = entry] {
                                if (entry.needs_session)
                                    without_a_session(name);
                                Party intruder = worker(path(), uid, number, "intruder " + name);
                                entry.attempt(loot, intruder);
                            }),
                  "");
        EXPECT_EQ(state(), before);
        // All of it is still the owner's, and its bytes what they were.
        wire::AcquireResult again = owner.acquire(1);
        EXPECT_EQ(again.status, Status::Ok);
        EXPECT_EQ(again.replica, lease.replica);
        EXPECT_EQ(owner.mappings[0][0], 1);
        std::vector<wire::ReplicaName> names = {{again.replica, again.generation}};
        EXPECT_EQ(item(owner.wire(), wire::ReleaseRequest{names}), Status::Ok);
    }
    std::vector<wire::ReplicaName> names = {loot.lease};
    EXPECT_EQ(item(owner.wire(), wire::ReleaseRequest{names}), Status::Ok);
    close(owner);
}

// The owner's pool is of scope host: its uid may read what is in it, and nobody may do more.
void StrangersTest::try_shared(bool same_uid) {
    Party owner =
        worker(path(), kOwnerUid, same_uid ? 2401 : 2400, "sharing owner", wire::Scope::Host);
    owner.store(1, 0);
    wire::AcquireResult lease = owner.acquire(1);
    ASSERT_EQ(lease.status, Status::Ok);
    const wire::ReplicaName name{lease.replica, lease.generation};
    auto intrude = [&] {
        Party intruder =
            worker(path(), same_uid ? kOwnerUid : kAttackerUid, same_uid ? 2411 : 2410, "reader");
        WireClient &wire = intruder.wire();
        std::vector<wire::ReplicaName> names = {name};
        is(wire.status(wire::MapSegmentRequest{name}), Status::NotFound,
           "mapSegment of the owner's lease");
        require(wire.fds().empty(), "a descriptor was given for somebody else's lease");
        is(item(wire, wire::RetireRequest{names}), Status::Denied, "retire of the owner's replica");
        is(item(wire, wire::ReleaseRequest{names}), Status::NotFound, "release of the owner's");
        is(wire.status(wire::ClosePoolRequest{owner.pool, wire::ClosePhase::Leave}), Status::Denied,
           "leaving the owner's pool");
        is(wire.status(wire::GrantSegmentRequest{owner.pool, 0}), Status::Denied,
           "grantSegment of the owner's shared pool");
        std::vector<wire::CommitItem> items = {
            {{digest_of(9), 0, 0}, owner.pool, 8 * kPageBytes, kObjectBytes, 1000}};
        is(item(wire, wire::CommitRequest{intruder.ns, intruder.next_op++, items}), Status::Denied,
           "commit into the owner's shared pool");
        wire::AcquireResult mine = intruder.acquire(1);
        if (!same_uid) {
            is(mine.status, Status::Miss, "acquire of another uid's shared object");
            is(wire.status(wire::RetireSegmentRequest{owner.pool, 0}), Status::Denied,
               "retireSegment of another uid's pool");
            is(wire.status(wire::RetireSegmentRequest{owner.pool, 7}), Status::NotFound,
               "retireSegment of what there is not");
            return;
        }
        is(mine.status, Status::Ok, "acquire of its uid's shared object");
        const wire::ReplicaName own{mine.replica, mine.generation};
        const auto *view = wire.ask<wire::ViewReply>(wire::MapSegmentRequest{own});
        require(view && wire.fds().size() == 1, "no view of what it has a lease on");
        const int fd = wire.fds()[0].get();
        require(
            ::mmap(nullptr, kSegmentBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED,
            "a reader's descriptor can be mapped writable");
        void *at = ::mmap(nullptr, kSegmentBytes, PROT_READ, MAP_SHARED, fd, 0);
        require(at != MAP_FAILED && *static_cast<const char *>(at) == 1,
                "a reader cannot read the owner's bytes");
        // It ends here with its lease and its view.
    };
    EXPECT_EQ(run_child(same_uid ? kOwnerUid : kAttackerUid, intrude), "");
    wire::AcquireResult again = owner.acquire(1);
    EXPECT_EQ(again.replica, lease.replica);
    EXPECT_EQ(owner.mappings[0][0], 1);
    std::vector<wire::ReplicaName> both = {name, name};
    EXPECT_NE(owner.wire().ask<wire::ItemStatusReply>(wire::ReleaseRequest{both}), nullptr);
    close(owner);
}

TEST_F(StrangersTest, A28SharedMemoryIsReadByItsUid) {
    surround([this] {
        try_shared(true);
        return std::string();
    });
}

TEST_F(StrangersTest, A28SharedMemoryOfAnotherUid) {
    if (!is_root())
        GTEST_SKIP() << "needs root, to be two users";
    surround([this] {
        try_shared(false);
        return std::string();
    });
}

TEST_F(StrangersTest, A28NothingOfAnotherSessionOfTheSameUid) {
    surround([this] {
        try_all(true);
        return std::string();
    });
}

TEST_F(StrangersTest, A28NothingOfAnotherUid) {
    if (!is_root())
        GTEST_SKIP() << "needs root, to be two users";
    surround([this] {
        try_all(false);
        return std::string();
    });
}

// What is only asked in the middle of an attach after a restart, with the owner's own descriptor.
TEST(Strangers, A28NothingAfterARestart) {
    MarudOptions options;
    options.config = "[cpu]\nhost_bytes = \"64M\"\nsegment_bytes = \"64K\"\n";
    options.fdstore = false;
    options.socket_activation = true;
    Marud marud(options);
    marud.start();
    ::chmod(marud.directory().c_str(), 0755);
    Party owner = worker(marud.socket(), kOwnerUid, 1, "owner");
    owner.store(1, 0);
    int to_child[2], to_parent[2];
    ASSERT_EQ(::pipe(to_child), 0);
    ASSERT_EQ(::pipe(to_parent), 0);
    uid_t uid = is_root() ? kAttackerUid : kOwnerUid;
    auto intrude = [&] {
        Party intruder = worker(marud.socket(), uid, 2, "intruder");
        char byte = 0;
        require(::write(to_parent[1], &byte, 1) == 1 && ::read(to_child[0], &byte, 1) == 1,
                "no word from the test");
        Greeted fresh(marud.socket());
        require(fresh.ask<wire::AttachReply>(wire::AttachRequest{
                    intruder.token, wire::Role::Worker, "intruder", intruder.wire().epoch()}),
                "its own session cannot be re-attached: " + fresh.message());
        wire::AttachPoolRequest theirs{
            owner.pool, owner.capacity, owner.segment_bytes, kPageBytes, 0, 1, 1};
        is(fresh.status(theirs, {owner.segments[0].get()}), Status::Denied,
           "attachPool of the owner's pool with its own descriptor");
        is(fresh.status(theirs, {intruder.segments[0].get()}), Status::Denied,
           "attachPool of the owner's pool");
        theirs.pool = intruder.pool;
        is(fresh.status(theirs, {owner.segments[0].get()}), Status::InvalidArgument,
           "attachPool of ours with the owner's descriptor");
        const auto *named =
            fresh.ask<wire::NamespaceReply>(wire::RegisterNamespaceRequest{"hostile"});
        require(named, "no namespace");
        wire::Id ns = named->namespace_id;
        is(fresh.status(wire::DescribeRequest{ns, kObjectBytes, "raw"}), Status::Ok, "describe");
        std::vector<wire::RepublishItem> items = {
            {{{digest_of(1), 0, 0}, owner.pool, 0, kObjectBytes, 1}, ns, 1, 0}};
        is(item(fresh, wire::RepublishRequest{items}), Status::Denied,
           "republish into the owner's pool");
    };
    EXPECT_EQ(run_child(uid, intrude, 60'000,
                        [&](pid_t) {
                            char byte = 0;
                            EXPECT_EQ(::read(to_parent[0], &byte, 1), 1);
                            marud.restart();
                            EXPECT_EQ(::write(to_child[1], &byte, 1), 1);
                        }),
              "");
    std::unique_ptr<WireClient> connection = connect_as(kOwnerUid, marud.socket());
    WireClient &fresh = *connection;
    ASSERT_TRUE(fresh.hello());
    ASSERT_NE(fresh.ask<wire::AttachReply>(wire::AttachRequest{owner.token, wire::Role::Worker,
                                                               "owner", owner.wire().epoch()}),
              nullptr)
        << fresh.message();
    EXPECT_EQ(fresh.status({wire::AttachPoolRequest{owner.pool, owner.capacity, owner.segment_bytes,
                                                    kPageBytes, 0, 1, 1}},
                           {owner.segments[0].get()}),
              Status::Ok)
        << fresh.message();
    EXPECT_EQ(fresh.status(wire::AttachDoneRequest{}), Status::Ok);
    for (int end : {to_child[0], to_child[1], to_parent[0], to_parent[1]})
        ::close(end);
}

}  // namespace
}  // namespace maru::test
