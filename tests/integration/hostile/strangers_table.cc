#include "tests/integration/hostile/strangers_table.h"

namespace maru::test {

using wire::Status;

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

namespace {

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

}  // namespace

const std::map<std::string, Entry> &strangers_table() { return kTable; }

}  // namespace maru::test
