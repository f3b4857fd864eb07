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
#include "tests/integration/hostile/hostile_test.h"

namespace maru::test {
namespace {

using wire::Status;

// What the stranger knows: everything that can be known, right to the last bit.
struct Loot {
    wire::Token token{};
    uint32_t epoch = 0;
    wire::Id session = 0, ns = 0, pool = 0;
    wire::ReplicaName lease;
    uint64_t capacity = 0, segment_bytes = 0;
    int segment = -1;  // a descriptor of the owner's memory, inherited
    bool same_uid = false;
};

// Of one item of a batch.
Status item(WireClient &client, const wire::RequestBody &body) {
    const wire::Reply *reply = client.call(body);
    if (!reply)
        return Status::Internal;
    if (const auto *items = std::get_if<wire::ItemStatusReply>(&reply->body))
        return items->statuses.empty() ? Status::Internal : items->statuses[0];
    if (const auto *commit = std::get_if<wire::CommitReply>(&reply->body))
        return commit->results.empty() ? Status::Internal : commit->results[0].status;
    const auto *only = std::get_if<wire::StatusOnly>(&reply->body);
    return only ? only->status : Status::Ok;
}

void is(Status got, Status wanted, const std::string &what) {
    require(got == wanted, what + " was answered " + wire::status_name(got) + ", not " +
                               wire::status_name(wanted));
}

enum class Scope { None, Session, Namespace, Pool, Replica, Uid, Admin };

// `intruder` has a session, a namespace of the same text and a pool of its own.
using Try = void (*)(const Loot &, Party &intruder);

struct Entry {
    Scope scope;
    bool needs_session;  // without one it is PROTOCOL, whoever asks
    Try attempt;         // nullptr: it can name nothing of anybody
};

// A namespace belongs to a uid; inside of it, whose copy is read is still asked.
void whose_namespace(const Loot &loot, Status got, const std::string &what) {
    is(got, loot.same_uid ? Status::Ok : Status::NotFound, what);
}

const std::map<std::string, Entry> kTable = {
    {"hello", {Scope::None, false, nullptr}},
    {"helloProof", {Scope::None, false, nullptr}},
    {"openSession",
     {Scope::Session, false,
      [](const Loot &loot, Party &) {
          Greeted fresh(HostileTest::path());
          is(fresh.status(wire::OpenSessionRequest{loot.token, wire::Role::Worker, "owner"}),
             Status::Denied, "openSession with the owner's token");
      }}},
    {"attach",
     {Scope::Session, false,
      [](const Loot &loot, Party &) {
          Greeted fresh(HostileTest::path());
          auto attach = [&](const wire::Token &token) {
              return fresh.status(
                  wire::AttachRequest{token, wire::Role::Worker, "owner", loot.epoch});
          };
          is(attach(loot.token), Status::Denied, "attach with the owner's token");
          is(attach(token_of(0xabcdef)), Status::NotFound, "attach with a wrong token");
      }}},
    // These three are only served between Attach and AttachDone: see AfterARestart below, and
    // the session that re-attaches here in the same life of marud.
    {"attachPool",
     {Scope::Pool, true,
      [](const Loot &loot, Party &intruder) {
          is(intruder.wire().status(wire::AttachPoolRequest{
                 loot.pool, loot.capacity, loot.segment_bytes, kPageBytes, 0, 1, 1}),
             Status::Protocol, "attachPool of the owner's pool");
      }}},
    {"republish",
     {Scope::Pool, true,
      [](const Loot &loot, Party &intruder) {
          std::vector<wire::RepublishItem> items = {
              {{{digest_of(1), 0, 0}, loot.pool, 0, kObjectBytes, 1}, intruder.ns, 1, 0}};
          is(item(intruder.wire(), wire::RepublishRequest{items}), Status::Protocol,
             "republish into the owner's pool");
      }}},
    {"attachLeases",
     {Scope::Replica, true,
      [](const Loot &loot, Party &intruder) {
          Greeted fresh(HostileTest::path());
          require(fresh.ask<wire::AttachReply>(wire::AttachRequest{
                      intruder.token, wire::Role::Worker, intruder.engine, fresh.epoch()}),
                  "its own session cannot be re-attached");
          std::vector<wire::LeaseItem> items = {{loot.lease.replica, loot.lease.generation, 1}};
          is(item(fresh, wire::AttachLeasesRequest{items}), Status::NotFound,
             "attachLeases of the owner's lease");
          is(fresh.status(wire::AttachDoneRequest{}), Status::Ok, "attachDone");
      }}},
    {"attachDone", {Scope::None, true, nullptr}},
    {"describe",
     {Scope::Namespace, true,
      [](const Loot &loot, Party &intruder) {
          whose_namespace(
              loot, intruder.wire().status(wire::DescribeRequest{loot.ns, kObjectBytes, "raw"}),
              "describe of the owner's namespace");
      }}},
    {"heartbeat",
     {Scope::Pool, true,
      [](const Loot &loot, Party &intruder) {
          std::vector<wire::PoolGauge> gauges = {{loot.pool, 4096, 4096, 4096, 4096}};
          is(intruder.wire().status(wire::HeartbeatRequest{gauges}), Status::Denied,
             "a gauge of the owner's pool");
      }}},
    {"registerNamespace",
     {Scope::Uid, true,
      [](const Loot &loot, Party &intruder) {
          require((intruder.ns == loot.ns) == loot.same_uid,
                  "a text of two users is not two namespaces");
      }}},
    {"openPool", {Scope::None, true, nullptr}},
    {"grantSegment",
     {Scope::Pool, true,
      [](const Loot &loot, Party &intruder) {
          is(intruder.wire().status(wire::GrantSegmentRequest{loot.pool, 0}), Status::Denied,
             "grantSegment of the owner's pool");
          require(intruder.wire().fds().empty(), "a descriptor of the owner's pool was given");
      }}},
    {"segmentMapped",
     {Scope::Pool, true,
      [](const Loot &loot, Party &intruder) {
          is(intruder.wire().status(wire::SegmentMappedRequest{loot.pool, 0}), Status::Denied,
             "segmentMapped of the owner's pool");
      }}},
    {"closePool",
     {Scope::Pool, true,
      [](const Loot &loot, Party &intruder) {
          for (wire::ClosePhase phase : {wire::ClosePhase::Drain, wire::ClosePhase::Force,
                                         wire::ClosePhase::Finish, wire::ClosePhase::Leave})
              is(intruder.wire().status(wire::ClosePoolRequest{loot.pool, phase}), Status::Denied,
                 "closePool of the owner's pool");
      }}},
    {"closeSession", {Scope::None, true, nullptr}},
    {"commit",
     {Scope::Pool, true,
      [](const Loot &loot, Party &intruder) {
          std::vector<wire::CommitItem> items = {
              {{digest_of(9), 0, 0}, loot.pool, 8 * kPageBytes, kObjectBytes, 1000}};
          is(item(intruder.wire(), wire::CommitRequest{intruder.ns, intruder.next_op++, items}),
             Status::Denied, "commit into the owner's pool");
          if (!loot.same_uid)
              is(item(intruder.wire(), wire::CommitRequest{loot.ns, intruder.next_op++, items}),
                 Status::NotFound, "commit into the owner's namespace");
      }}},
    {"resolve", {Scope::None, true, nullptr}},  // operations are numbered per session
    {"probe",
     {Scope::Namespace, true,
      [](const Loot &loot, Party &intruder) {
          auto keys = digests(1, 1);
          const wire::Reply *reply = intruder.wire().call(wire::ProbeRequest{loot.ns, keys});
          require(reply, "no answer to a probe");
          if (const auto *probed = std::get_if<wire::ProbeReply>(&reply->body))
              require(loot.same_uid && probed->prefix == 0, "a probe hit the owner's copy");
          else
              whose_namespace(loot, std::get<wire::StatusOnly>(reply->body).status, "probe");
      }}},
    {"acquire",
     {Scope::Namespace, true,
      [](const Loot &loot, Party &intruder) {
          auto keys = digests(1, 1);
          const wire::Reply *reply = intruder.wire().call(wire::AcquireRequest{loot.ns, keys});
          require(reply, "no answer to acquire");
          if (const auto *acquired = std::get_if<wire::AcquireReply>(&reply->body))
              require(loot.same_uid && acquired->results[0].status == Status::Miss,
                      "acquire gave the owner's copy");
          else
              whose_namespace(loot, std::get<wire::StatusOnly>(reply->body).status, "acquire");
      }}},
    {"release",
     {Scope::Replica, true,
      [](const Loot &loot, Party &intruder) {
          std::vector<wire::ReplicaName> names = {loot.lease};
          // A lease is found by its holder, who is the owner.
          is(item(intruder.wire(), wire::ReleaseRequest{names}), Status::NotFound,
             "release of the owner's lease");
      }}},
    {"retire",
     {Scope::Replica, true,
      [](const Loot &loot, Party &intruder) {
          std::vector<wire::ReplicaName> names = {loot.lease};
          is(item(intruder.wire(), wire::RetireRequest{names}), Status::Denied,
             "retire of the owner's replica");
      }}},
    {"reclaimAck",
     {Scope::Replica, true,
      [](const Loot &loot, Party &intruder) {
          std::vector<wire::ReplicaName> names = {loot.lease};
          is(item(intruder.wire(), wire::ReclaimAckRequest{names}), Status::Denied,
             "reclaimAck of the owner's replica");
      }}},
    // More of it, with memory that is shared, in A28...SharedMemory below.
    {"mapSegment",
     {Scope::Replica, true,
      [](const Loot &loot, Party &intruder) {
          is(intruder.wire().status(wire::MapSegmentRequest{loot.lease}), Status::NotFound,
             "mapSegment of the owner's lease");
          require(intruder.wire().fds().empty(), "a descriptor of the owner's pool was given");
      }}},
    {"retireSegment",
     {Scope::Uid, false,
      [](const Loot &loot, Party &intruder) {
          // A private pool is no shared one, for its own uid either.
          is(intruder.wire().status(wire::RetireSegmentRequest{loot.pool, 0}), Status::NotFound,
             "retireSegment of the owner's pool");
      }}},
    // It names nothing: whose engine is asked about is the session's own.
    {"engineWorker", {Scope::None, true, nullptr}},
    // What is asked about, not changed, is one's uid's: of another's pool nothing is told.
    {"usage",
     {Scope::Uid, false,
      [](const Loot &loot, Party &intruder) {
          is(intruder.wire().status(wire::UsageRequest{loot.pool}),
             loot.same_uid ? Status::Ok : Status::Denied, "usage of the owner's pool");
      }}},
    {"status", {Scope::None, false, nullptr}},
    {"list",
     {Scope::Uid, false,
      [](const Loot &loot, Party &intruder) {
          for (wire::ListKind kind :
               {wire::ListKind::Sessions, wire::ListKind::Pools, wire::ListKind::Namespaces,
                wire::ListKind::Objects, wire::ListKind::Leases}) {
              uint64_t cursor = 0;
              bool seen = false;
              do {
                  const auto *page =
                      intruder.wire().ask<wire::ListReply>(wire::ListRequest{kind, cursor, 0});
                  require(page, "no listing");
                  std::visit(
                      [&](const auto &rows) {
                          for (const auto &row : rows) {
                              if constexpr (requires { row.session; })
                                  seen |= row.session == loot.session;
                              else if constexpr (requires { row.pool; })
                                  seen |= row.pool == loot.pool;
                              else
                                  seen |= row.namespace_id == loot.ns;
                          }
                      },
                      page->rows);
                  cursor = page->next_cursor;
              } while (cursor);
              require(seen == loot.same_uid, "a listing of kind " +
                                                 std::to_string(static_cast<int>(kind)) +
                                                 (seen ? " shows another uid's" : " hides ours"));
          }
          whose_namespace(
              loot, intruder.wire().status(wire::ListRequest{wire::ListKind::Objects, 0, loot.ns}),
              "list of the owner's namespace");
      }}},
    {"explain",
     {Scope::Uid, false,
      [](const Loot &loot, Party &intruder) {
          whose_namespace(
              loot,
              intruder.wire().status(wire::ExplainRequest{loot.ns, {digest_of(1), 0, 0}, "owner"}),
              "explain of the owner's object");
          if (!loot.same_uid && is_root())
              is(intruder.wire().status(
                     wire::ExplainRequest{loot.ns, {digest_of(1), 0, 0}, "owner", kOwnerUid}),
                 Status::Denied, "explain for another uid");
      }}},
    {"adminRetire",
     {Scope::Uid, false,
      [](const Loot &loot, Party &intruder) {
          if (loot.same_uid)
              return;  // of one's own uid it is a right
          is(intruder.wire().status(
                 wire::AdminRetireRequest{loot.ns, wire::Key{digest_of(1), 0, 0}}),
             Status::NotFound, "adminRetire of the owner's object");
          is(intruder.wire().status(wire::AdminRetireRequest{loot.ns, std::nullopt}),
             Status::NotFound, "adminRetire of the owner's namespace");
      }}},
    {"drain",
     {Scope::Admin, false,
      [](const Loot &, Party &intruder) {
          if (is_root())  // else marud's own uid asks, which is an admin
              is(intruder.wire().status(wire::DrainRequest{true}), Status::Denied, "drain");
      }}},
    {"reload",
     {Scope::Admin, false,
      [](const Loot &, Party &intruder) {
          if (is_root())
              is(intruder.wire().status(wire::ReloadRequest{}), Status::Denied, "reload");
      }}},
};

std::set<std::string> requests_of_the_schema() {
    auto message = capnp::Schema::from<wire::schema::Message>();
    std::set<std::string> names;
    for (auto field : message.getFieldByName("body").getType().asStruct().getUnionFields())
        names.insert(field.getProto().getName().cStr());
    return names;
}

TEST(Strangers, A28EveryRequestOfTheSchemaHasAnEntry) {
    std::set<std::string> entries;
    for (const auto &[name, entry] : kTable) {
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
    for (const auto &[name, entry] : kTable) {
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
