// Quotas used up, and generations of other times.
#include <unistd.h>

#include "tests/integration/hostile/hostile_test.h"

namespace maru::test {
namespace {

using wire::Status;

TEST_F(HostileTest, AsManySessionsAsThereMayBe) {
    attack([] {
        std::vector<Party> parties;
        int opened = 0, refused = 0;
        for (uint32_t i = 0; i < 100; ++i) {
            parties.emplace_back(connect_as(kAttackerUid, path()), 700 + i,
                                 "many" + std::to_string(i));
            require(parties.back().wire().hello(), "no hello");
            Status status = parties.back().open();
            opened += status == Status::Ok;
            refused += status == Status::Quota;
        }
        require(opened == 24 && refused == 76,
                std::to_string(opened) + " opened, " + std::to_string(refused) + " refused");
    });
}

TEST_F(HostileTest, AsManyBytesAndSegmentsAsThereMayBe) {
    attack([] {
        std::vector<Party> parties;
        uint64_t granted = 0;
        int quota = 0;
        for (uint32_t i = 0; i < 6; ++i) {
            parties.emplace_back(connect_as(kAttackerUid, path()), 800 + i,
                                 "bytes" + std::to_string(i));
            WireClient &wire = parties.back().wire();
            require(wire.hello() && parties.back().open() == Status::Ok, "no session");
            for (uint64_t key = 1; key < 80; ++key) {
                wire::OpenPoolRequest pool;
                pool.capacity_bytes = kSegmentBytes;
                pool.page_bytes = kPageBytes;
                pool.request_key = key;
                if (const auto *reply = wire.ask<wire::PoolReply>(pool)) {
                    granted += reply->capacity_bytes;
                    wire.call(wire::GrantSegmentRequest{reply->pool, 0});
                } else {
                    ++quota;
                }
            }
            for (uint64_t bytes : {UINT64_MAX, UINT64_MAX - 4095, uint64_t{1} << 63,
                                   uint64_t{1} << 40, uint64_t{0}, uint64_t{4097}}) {
                wire::OpenPoolRequest pool;
                pool.capacity_bytes = bytes;
                pool.page_bytes = kPageBytes;
                pool.request_key = 1000 + bytes % 977;
                require(!wire.ask<wire::PoolReply>(pool),
                        "a pool of " + std::to_string(bytes) + " bytes was granted");
            }
        }
        require(granted <= 100 * kSegmentBytes && granted <= 8u << 20 && quota > 0,
                std::to_string(granted) + " bytes were granted");
    });
}

TEST_F(HostileTest, AsManyLeasesAsThereMayBe) {
    attack([] {
        Party party = worker(path(), kAttackerUid, 900, "leases");
        party.store(1, 0);
        int ok = 0, quota = 0;
        for (int i = 0; i < 200; ++i) {
            Status status = party.acquire(1).status;
            ok += status == Status::Ok;
            quota += status == Status::Quota;
        }
        require(ok == 64 && quota == 136, std::to_string(ok) + " leases were given");
    });
}

TEST_F(HostileTest, AsManyNamespacesAsThereMayBe) {
    attack([] {
        Greeted client(path());
        require(client.ask<wire::SessionReply>(
                    wire::OpenSessionRequest{token_of(950), wire::Role::Scheduler, "names"}),
                "no session");
        int refused = 0;
        for (int i = 0; i < 100; ++i) {
            std::string text = "name " + std::to_string(i) + std::string(10'000, 'x');
            refused += client.status(wire::RegisterNamespaceRequest{text}) == Status::Quota;
        }
        // Of the eight that a uid may have here, one is the text that other cases use.
        require(refused >= 92, "only " + std::to_string(refused) + " were refused");
    });
    // Nobody else is short of them.
    surround([] { return run_child(kOwnerUid, [] { worker(path(), kOwnerUid, 951, "other"); }); });
}

TEST_F(HostileTest, MoreRequestsInFlightThanThereMayBe) {
    attack([] {
        Party party = worker(path(), kAttackerUid, 960, "in flight");
        party.store(1, 0);
        party.acquire(1);
        // A forced close waits for the lease, so none of these is answered.
        for (int i = 0; i < 400; ++i)
            party.wire().post(wire::ClosePoolRequest{party.pool, wire::ClosePhase::Force});
        // The last one must go, whatever room the socket has just now.
        uint64_t last = 0;
        for (int i = 0; last == 0 && i < 1'000; ++i) {
            last = party.wire().post(wire::UsageRequest{});
            if (last == 0)
                ::usleep(5'000);
        }
        const wire::Reply *reply = last ? party.wire().wait_reply(last, 5'000) : nullptr;
        const auto *only = reply ? std::get_if<wire::StatusOnly>(&reply->body) : nullptr;
        require(only && only->status == Status::Again,
                "a request over the limit was not answered AGAIN");
    });
}

TEST_F(HostileTest, BatchesOverTheLimit) {
    attack([] {
        Party party = worker(path(), kAttackerUid, 970, "batches");
        auto keys = digests(0, wire::kMaxProbeKeys + 1);
        require(party.wire().status(wire::ProbeRequest{party.ns, keys}) == Status::TooLarge,
                "a probe of too many keys was not TOO_LARGE");
        keys.resize(wire::kMaxProbeKeys);
        require(party.wire().ask<wire::ProbeReply>(wire::ProbeRequest{party.ns, keys}),
                "a probe of just as many keys as allowed was refused");
        require(party.wire().status(wire::ProbeRequest{party.ns, keys, {0, UINT32_MAX, 0, 1}}) !=
                    Status::Ok,
                "a manifest of 2^32 shards was accepted");
        std::vector<wire::ReplicaName> names(wire::kMaxBatchItems + 1);
        require(party.wire().status(wire::ReleaseRequest{names}) == Status::TooLarge,
                "a release of too many was not TOO_LARGE");
    });
}

// Names of memory that was reused, of memory that is not there yet, and operations of other times.
TEST_F(HostileTest, GenerationsOfTheFutureAndOfThePast) {
    attack([] {
        Party party = worker(path(), kAttackerUid, 980, "generations");
        party.store(1, 0);
        wire::AcquireResult lease = party.acquire(1);
        require(lease.status == Status::Ok, "not acquired");
        auto one = [&](auto request) {
            const auto *reply = party.wire().ask<wire::ItemStatusReply>(request);
            require(reply && reply->statuses.size() == 1, "no status: " + party.wire().message());
            return reply->statuses[0];
        };
        for (uint64_t generation : {lease.generation + 1, lease.generation - 1, uint64_t{0},
                                    UINT64_MAX, lease.generation + (uint64_t{1} << 32)}) {
            std::vector<wire::ReplicaName> names = {{lease.replica, generation}};
            require(one(wire::ReleaseRequest{names}) == Status::StaleGeneration, "release");
            require(one(wire::RetireRequest{names}) == Status::StaleGeneration, "retire");
            require(one(wire::ReclaimAckRequest{names}) == Status::StaleGeneration, "reclaim");
        }
        for (wire::Id replica : {lease.replica + (wire::Id{1} << 32), wire::Id{1}, UINT64_MAX}) {
            std::vector<wire::ReplicaName> names = {{replica, lease.generation}};
            require(one(wire::ReleaseRequest{names}) == Status::StaleEpoch, "release, epoch");
            require(one(wire::RetireRequest{names}) == Status::StaleEpoch, "retire, epoch");
        }
        auto commit = [&](uint64_t op, uint64_t offset, uint64_t generation) {
            std::vector<wire::CommitItem> items = {
                {{digest_of(77), 0, 0}, party.pool, offset, kObjectBytes, generation}};
            const auto *reply =
                party.wire().ask<wire::CommitReply>(wire::CommitRequest{party.ns, op, items});
            return reply ? reply->results[0].status : Status::Internal;
        };
        // Beside the replica, over it, beyond the pool, across the end of everything.
        require(commit(party.next_op++, 0, 1) == Status::Conflict, "an old generation");
        require(commit(party.next_op++, 0, UINT64_MAX) == Status::Conflict, "over a READY one");
        require(commit(party.next_op++, kPageBytes, 0) == Status::InvalidArgument, "generation 0");
        require(commit(party.next_op++, kSegmentBytes, 5) == Status::Conflict, "beyond the pool");
        require(commit(party.next_op++, UINT64_MAX - 4095, 5) == Status::Conflict, "wrapping");
        require(commit(party.next_op++, kPageBytes + 8, 5) == Status::Conflict, "misaligned");
        require(commit(UINT64_MAX, 0, 5) == Status::Internal, "the last operation of all");
        require(commit(uint64_t{1} << 40, 0, 5) == Status::Internal, "an operation of the future");
        // A page that once had the last generation of all can be used by nobody but its owner.
        require(commit(party.next_op++, 2 * kPageBytes, UINT64_MAX) == Status::Ok,
                "last generation");
        wire::Request stale;
        for (uint32_t epoch : {party.wire().epoch() + 1, party.wire().epoch() - 1, 0u}) {
            uint32_t right = party.wire().epoch();
            party.wire().set_epoch(epoch);
            require(party.wire().status(wire::UsageRequest{}) == Status::StaleEpoch, "epoch");
            party.wire().set_epoch(right);
        }
        require(one(wire::ReleaseRequest{std::vector<wire::ReplicaName>{
                    {lease.replica, lease.generation}}}) == Status::Ok,
                "the lease was lost");
    });
}

}  // namespace
}  // namespace maru::test
