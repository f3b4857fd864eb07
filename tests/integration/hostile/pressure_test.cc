// Too much of everything: floods, clients that do not read, storms of connections, clients that
// leave at the worst moment or stop in the middle.
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <deque>

#include "libmaru/base/clock.h"
#include "tests/integration/hostile/hostile_test.h"

namespace maru::test {
namespace {

using wire::Status;

bool within(int64_t begin, int ms) { return monotonic_ns() - begin < int64_t{ms} * 1'000'000; }

std::deque<Greeted> crowd(size_t count) {
    std::deque<Greeted> clients;
    for (size_t i = 0; i < count; ++i)
        clients.emplace_back(HostileTest::path());
    return clients;
}

// The dearest request there is: as many keys and as many objects as one may ask for.
wire::ProbeRequest dear_probe(wire::Id ns, const std::vector<wire::Digest> &keys) {
    return {ns, keys, {0, 8, 0, 4}};
}

TEST_F(HostileTest, AFloodOfRequestsWithoutReading) {
    attack([] {
        std::deque<Greeted> clients = crowd(16);
        int64_t begin = monotonic_ns();
        while (within(begin, 2'000))
            for (WireClient &client : clients)
                for (int i = 0; i < 64; ++i)
                    client.post(wire::ListRequest{wire::ListKind::Sessions});
    });
}

TEST_F(HostileTest, AFloodOfDearRequests) {
    attack([] {
        std::vector<Party> parties;
        auto keys = digests(1000, wire::kMaxProbeKeys);
        for (uint32_t i = 0; i < 20; ++i) {
            parties.emplace_back(connect_as(kAttackerUid, path()), 300 + i,
                                 "flood" + std::to_string(i));
            require(parties[i].wire().hello() && parties[i].open() == Status::Ok, "no session");
            parties[i].use_namespace();
        }
        int64_t begin = monotonic_ns();
        while (within(begin, 2'500))
            for (Party &party : parties)
                while (party.wire().post(dear_probe(party.ns, keys)) && within(begin, 2'500)) {
                }
    });
}

TEST_F(HostileTest, AFloodFromAsManyConnectionsAsThereMayBe) {
    attack([] {
        std::deque<Greeted> clients = crowd(480);
        int64_t begin = monotonic_ns();
        while (within(begin, 2'000))
            for (WireClient &client : clients)
                for (int i = 0; i < 16; ++i)
                    client.post(wire::ListRequest{wire::ListKind::Namespaces});
    });
}

TEST_F(HostileTest, ClientsThatNeverRead) {
    attack([] {
        std::deque<Greeted> clients = crowd(64);
        for (WireClient &client : clients)
            for (int i = 0; i < 4096 && client.post(wire::ListRequest{wire::ListKind::Pools});
                 ++i) {
            }
        ::usleep(1'500'000);
    });
}

TEST_F(HostileTest, AStormOfConnections) {
    attack([] {
        for (int i = 0; i < 4'000; ++i) {
            WireClient client(path());
            if (i % 2)
                client.post(wire::HelloRequest{});
        }
        // More than one user may have: the last ones are closed at once, the first ones live.
        std::deque<WireClient> clients;
        for (int i = 0; i < 600; ++i)
            clients.emplace_back(path());
        // Which of them are served, and just how many, depends on how far the storm before is worked
        // off; afterwards there is room again.
        size_t living = 0;
        for (WireClient &client : clients)
            living += client.hello();
        require(living <= 512, std::to_string(living) + " of 600 were served");
        clients.clear();
        int64_t begin = monotonic_ns();
        for (;;) {
            WireClient client(path());
            if (client.hello())
                break;
            require(within(begin, 10'000), "nobody is served after the storm");
            ::usleep(10'000);
        }
    });
}

TEST_F(HostileTest, LeavingBetweenARequestAndItsReply) {
    attack([] {
        for (uint32_t i = 0; i < 300; ++i) {
            Greeted client(path());
            client.post(wire::OpenSessionRequest{token_of(400 + i % 4), wire::Role::Worker,
                                                 "leaver" + std::to_string(i % 4)});
            if (i % 3 == 0)
                continue;
            wire::OpenPoolRequest pool;
            pool.capacity_bytes = kSegmentBytes;
            pool.page_bytes = kPageBytes;
            pool.request_key = 1;
            const wire::Reply *reply = client.call(pool);
            if (!reply)
                continue;
            const auto *opened = std::get_if<wire::PoolReply>(&reply->body);
            if (!opened)
                continue;
            wire::Id id = opened->pool;
            client.post(wire::GrantSegmentRequest{id, 0});
            if (i % 3 == 1)
                client.post(wire::SegmentMappedRequest{id, 0});
            client.post(wire::ClosePoolRequest{id, wire::ClosePhase::Force});
        }
    });
}

// Stopped with requests in flight, replies unread and a pool mapped; killed while it is stopped.
TEST_F(HostileTest, AClientThatIsStopped) {
    attack(
        [] {
            Party party = worker(path(), kAttackerUid, 500, "stopped");
            party.store(5, 0);
            party.acquire(5);
            std::deque<Greeted> clients = crowd(4);
            for (WireClient &client : clients)
                for (int i = 0; i < 2'000 && client.post(wire::ListRequest{}); ++i) {
                }
            ::raise(SIGSTOP);
        },
        [](pid_t child) {
            int status = 0;
            ::waitpid(child, &status, WUNTRACED);
            if (WIFSTOPPED(status)) {
                ::usleep(7'000'000);  // longer than a session's time-out
                ::kill(child, SIGKILL);
                ::kill(child, SIGCONT);
            }
        });
}

// A forked child has the connection and the mapping of its parent, but not its identity.
TEST_F(HostileTest, ForkWithALiveSession) {
    attack([] {
        Party party = worker(path(), kAttackerUid, 600, "forked");
        party.store(7, 0);
        require(party.acquire(7).status == Status::Ok, "not acquired");
        pid_t child = ::fork();
        require(child >= 0, "no fork");
        if (child == 0) {
            int wrong = 0;
            try {
                WireClient fresh(path());
                wrong |= !fresh.hello();
                wrong |= fresh.status(wire::AttachRequest{party.token, wire::Role::Worker, "forked",
                                                          fresh.epoch()}) != Status::Denied;
                wrong |= fresh.status(wire::OpenSessionRequest{party.token, wire::Role::Worker,
                                                               "forked"}) != Status::Denied;
                // The engine is its parent's.
                wrong |= fresh.status(wire::OpenSessionRequest{token_of(601), wire::Role::Worker,
                                                               "forked"}) != Status::Busy;
            } catch (const std::exception &) {
                wrong = 1;
            }
            ::_exit(wrong);
        }
        int status = 0;
        ::waitpid(child, &status, 0);
        require(WIFEXITED(status) && WEXITSTATUS(status) == 0,
                "a forked child was taken for its parent");
        require(party.acquire(7).status == Status::Ok, "the parent lost its session to a child");
        // This one keeps the mapping when we are gone: the bytes stay charged until it ends, too.
        if (::fork() == 0) {
            ::usleep(1'000'000);
            ::_exit(0);
        }
    });
}

}  // namespace
}  // namespace maru::test
