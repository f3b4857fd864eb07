// Replies that are lost, late, or of another size than asked, between libmaru and a real marud.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "tests/integration/known_failures/raw_worker.h"
#include "tests/integration/known_failures/worker.h"
#include "tests/integration/socket_proxy.h"

namespace maru::test {
namespace {

using wire::Status;

TEST(KnownFailures, A16_ALostCommitReplyIsRetriedWithTheFirstResult) {
    Marud marud;
    marud.start();
    SocketProxy proxy(marud.socket());
    std::atomic<uint64_t> lost_request{0};
    std::atomic<int> lost{0};
    proxy.set_rule([&](const SocketProxy::Message &message) {
        const auto *commit = message.asks<wire::CommitRequest>();
        if (commit && commit->first_op == 7 && lost == 0)
            lost_request = message.request->id;
        if (message.answers<wire::CommitReply>() && message.reply()->id == lost_request &&
            lost++ == 0)
            return SocketProxy::drop();
        return SocketProxy::pass();
    });
    RawWorker worker(proxy.path(), 1, "engine");
    worker.open();
    worker.open_pool(1 << 20);
    worker.map_segments();
    for (uint32_t op = 1; op < 7; ++op)
        ASSERT_EQ(worker.commit(op, worker.item(op, op, op)).status, Status::Ok);
    const auto item = worker.item(7, 7, 7);
    const uint64_t id = worker.client().post(wire::CommitRequest{worker.ns(), 7, {&item, 1}});
    ASSERT_EQ(worker.client().wait_reply(id, 500), nullptr);
    ASSERT_EQ(lost, 1);
    const auto before = worker.usage();
    EXPECT_EQ(before.replicas, 7u);
    const auto located = worker.acquire(7);
    ASSERT_EQ(located.status, Status::Ok) << "the commit itself was done";
    for (int retry = 0; retry < 3; ++retry) {
        const auto again = worker.commit(7, item);
        EXPECT_EQ(again.status, Status::Ok);
        EXPECT_EQ(again.replica, located.replica);
        const auto same = worker.acquire(7);
        EXPECT_EQ(same.replica, located.replica);
        EXPECT_EQ(same.generation, item.generation);
    }
    auto other = item;
    other.length = 2048;
    EXPECT_EQ(worker.commit(7, other).status, Status::Conflict);
    other = item;
    other.key.shard = 1;
    EXPECT_EQ(worker.commit(7, other).status, Status::Conflict);
    const auto after = worker.usage();
    EXPECT_EQ(after.replicas, 7u);
    EXPECT_EQ(after.allocated_bytes, before.allocated_bytes);
    EXPECT_EQ(after.ready_bytes, before.ready_bytes);
}

// The same through libmaru, which retries by itself: in whatever way the reply is lost.
TEST(KnownFailures, A16_LibmaruSettlesALostCommitReplyByItself) {
    Marud marud;
    marud.start();
    SocketProxy proxy(marud.socket());
    Worker worker({.socket = proxy.path(), .timeout_ms = 500});
    uint32_t key = 0;
    for (const auto &loss : {SocketProxy::drop(), SocketProxy::lose_connection()}) {
        for (const bool on_the_way_back : {true, false}) {
            SCOPED_TRACE(testing::Message()
                         << (loss.end_connection ? "with" : "without") << " the connection, "
                         << (on_the_way_back ? "reply" : "request"));
            ++key;
            std::atomic<int> lost{0};
            proxy.set_rule([&](const SocketProxy::Message &message) {
                const bool hit = on_the_way_back ? message.answers<wire::CommitReply>() != nullptr
                                                 : message.asks<wire::CommitRequest>() != nullptr;
                return hit && lost++ == 0 ? loss : SocketProxy::pass();
            });
            const int result = worker.store(key);
            EXPECT_TRUE(result == 0 || result == -EINPROGRESS) << maru_error_name(result);
            // Whatever was said: settled in the end, exactly one replica, charged once. A lost
            // request is only known to be lost when its connection has ended.
            if (!loss.end_connection && !on_the_way_back)
                proxy.drop_connections();
            EXPECT_TRUE(
                eventually([&] { return worker.client_info().unknown_commits == 0; }, 30'000));
            EXPECT_TRUE(eventually([&] { return worker.probe(key) == 1; }));
            EXPECT_EQ(lost > 0, true);
            EXPECT_EQ(worker.pool_info().ready_bytes, key * kPage);
            EXPECT_EQ(worker.pool_info().allocated_bytes, key * kPage);
            EXPECT_EQ(worker.pool_info().quarantined_bytes, 0u);
            EXPECT_EQ(query_status(marud.socket()).replicas, key);
            EXPECT_EQ(worker.store(key), -EEXIST);
            maru_lease *lease = worker.acquire(key);
            EXPECT_TRUE(worker.shows(lease, key));
            EXPECT_EQ(worker.release(lease), 0);
            proxy.set_rule(nullptr);
        }
    }
}

TEST(KnownFailures, A17_ALateReplyIsNobodysAndTheConnectionStaysGood) {
    Marud marud;
    marud.start();
    SocketProxy proxy(marud.socket());
    Worker worker({.socket = proxy.path(), .timeout_ms = 500, .pool_bytes = 1 << 20});
    ASSERT_EQ(worker.store(1), 0);
    std::atomic<int> probes{0};
    proxy.set_rule([&](const SocketProxy::Message &message) {
        const bool first = message.answers<wire::ProbeReply>() && probes++ == 0;
        return first ? SocketProxy::delay(1500) : SocketProxy::pass();
    });
    const auto begin = now();
    EXPECT_EQ(worker.probe(1), -ETIMEDOUT);
    const int64_t took = since_ms(begin);
    EXPECT_GE(took, 400);
    EXPECT_LE(took, 900) << "500 ms, on a busy machine";
    while (since_ms(begin) < 600)
        pause_ms(5);
    EXPECT_EQ(worker.probe(2), 0);
    EXPECT_LT(since_ms(begin), 1500) << "too slow to show anything";
    // While the late one arrives, misses stay misses and hits stay hits.
    while (proxy.late_deliveries() == 0 || since_ms(begin) < 2000) {
        ASSERT_EQ(worker.probe(2), 0);
        ASSERT_EQ(worker.probe(1), 1);
    }
    EXPECT_EQ(proxy.connections(), 1);
    EXPECT_EQ(worker.client_info().reconnects, 0u);
}

// The deadline covers what cannot even be sent.
TEST(KnownFailures, A17_TheDeadlineCoversTheSendAsWell) {
    Marud marud;
    marud.start();
    SocketProxy proxy(marud.socket());
    Worker worker({.socket = proxy.path(), .timeout_ms = 500});
    ASSERT_EQ(worker.store(1), 0);
    proxy.hold_clients(true);
    std::vector<maru_digest> many(200'000);
    for (size_t i = 0; i < many.size(); ++i)
        many[i] = digest_of(static_cast<uint32_t>(i) + 1000);
    many[0] = digest_of(1);
    const auto begin = now();
    EXPECT_EQ(maru_probe(worker.ns, many.data(), many.size(), nullptr, 0, nullptr), -ETIMEDOUT);
    EXPECT_LE(since_ms(begin), 1500);
    proxy.hold_clients(false);
    EXPECT_TRUE(eventually([&] { return worker.probe(1) == 1; }));
    EXPECT_EQ(maru_probe(worker.ns, many.data(), 100, nullptr, 0, nullptr), 1);
    EXPECT_EQ(proxy.connections(), 1);
}

// A reply with the wrong number of items, made of a real one.
template <typename Reply, typename Item>
SocketProxy::Verdict resized(const SocketProxy::Message &message, std::span<const Item> items,
                             int change) {
    std::vector<Item> changed(items.begin(), items.end());
    changed.resize(static_cast<size_t>(static_cast<int>(items.size()) + change),
                   items.empty() ? Item{} : items[0]);
    Reply body;
    if constexpr (std::is_same_v<Reply, wire::ItemStatusReply>)
        body.statuses = changed;
    else
        body.results = changed;
    wire::Reply reply;
    reply.id = message.reply()->id;
    reply.body = body;
    return SocketProxy::replace(reply);
}

TEST(KnownFailures, A59_AnAcquireWithAnotherCountUsesNoItem) {
    Marud marud;
    marud.start();
    SocketProxy proxy(marud.socket());
    Worker worker({.socket = proxy.path()});
    for (uint32_t key = 0; key < 4; ++key)
        ASSERT_EQ(worker.store(key), 0);
    for (const int change : {-1, 1}) {
        std::atomic<int> answered{0};
        proxy.set_rule([&](const SocketProxy::Message &message) {
            const auto *reply = message.answers<wire::AcquireReply>();
            return reply && answered++ == 0
                       ? resized<wire::AcquireReply>(message, reply->results, change)
                       : SocketProxy::pass();
        });
        const maru_digest digests[] = {digest_of(0), digest_of(1), digest_of(2), digest_of(3)};
        maru_lease *leases[4] = {};
        EXPECT_EQ(maru_acquire(worker.ns, digests, 4, nullptr, 0, leases), -EPROTO);
        for (maru_lease *lease : leases)
            EXPECT_EQ(lease, nullptr);
        EXPECT_EQ(worker.client_info().leases, 0u);
        // What marud gave and nobody knows of is given back.
        EXPECT_TRUE(eventually([&] { return query_status(marud.socket()).leases == 0; }));
        EXPECT_TRUE(eventually([&] { return worker.client_info().state == MARU_STATE_ATTACHED; }));
    }
    proxy.set_rule(nullptr);
    EXPECT_EQ(worker.retire(1), 0);
    const auto leases = worker.acquire_all(0, 4);
    EXPECT_EQ(leases[1], nullptr);
    for (const uint32_t key : {0, 2, 3})
        EXPECT_TRUE(worker.shows(leases[key], key)) << key;
    EXPECT_EQ(maru_lease_release(leases.data(), leases.size()), 0);
}

TEST(KnownFailures, A59_ACommitOrRetireWithAnotherCountUsesNoItem) {
    Marud marud;
    marud.start();
    SocketProxy proxy(marud.socket());
    Worker worker({.socket = proxy.path()});
    uint32_t first = 0;
    for (const int change : {-1, 1}) {
        std::atomic<int> answered{0};
        proxy.set_rule([&](const SocketProxy::Message &message) {
            if (const auto *reply = message.answers<wire::CommitReply>(); reply && answered++ == 0)
                return resized<wire::CommitReply>(message, reply->results, change);
            return SocketProxy::pass();
        });
        maru_reservation runs[4];
        maru_key keys[4];
        for (uint32_t i = 0; i < 4; ++i) {
            ASSERT_EQ(worker.fill(first + i, &runs[i]), 0);
            keys[i] = key_of(first + i);
        }
        int results[4] = {1, 1, 1, 1};
        maru_commit(worker.ns, worker.pool, keys, runs, 4, results);
        for (const int result : results)
            EXPECT_TRUE(result == 0 || result == -EINPROGRESS) << maru_error_name(result);
        EXPECT_TRUE(eventually([&] { return worker.client_info().unknown_commits == 0; }, 30'000));
        EXPECT_TRUE(
            eventually([&] { return worker.pool_info().ready_bytes == (first + 4) * kPage; }));
        for (uint32_t i = 0; i < 4; ++i) {
            maru_lease *lease = worker.acquire(first + i);
            EXPECT_TRUE(worker.shows(lease, first + i)) << first + i;
            EXPECT_EQ(worker.release(lease), 0);
        }
        first += 4;
    }
    for (const int change : {-1, 1}) {
        std::atomic<int> retires{0};
        std::atomic<uint64_t> request{0};
        proxy.set_rule([&](const SocketProxy::Message &message) {
            if (message.asks<wire::RetireRequest>() && retires++ == 0)
                request = message.request->id;
            const auto *reply = message.answers<wire::ItemStatusReply>();
            return reply && message.reply()->id == request
                       ? resized<wire::ItemStatusReply>(message, reply->statuses, change)
                       : SocketProxy::pass();
        });
        const uint32_t from = change < 0 ? 0 : 4;
        maru_key keys[4];
        for (uint32_t i = 0; i < 4; ++i)
            keys[i] = key_of(from + i);
        int results[4] = {1, 1, 1, 1};
        maru_retire(worker.ns, keys, 4, results);
        // No item is taken from the odd reply; libmaru asks on its own, and the pages come back once.
        EXPECT_TRUE(eventually([&] {
            const auto info = worker.pool_info();
            return info.ready_bytes == (4 - from) * kPage && info.retiring_bytes == 0 &&
                   info.allocated_bytes == info.ready_bytes;
        })) << worker.pool_info().allocated_bytes;
        for (uint32_t i = 0; i < 4; ++i)
            EXPECT_EQ(worker.probe(from + i), 0);
    }
    proxy.set_rule(nullptr);
    EXPECT_TRUE(eventually([&] { return query_status(marud.socket()).replicas == 0; }));
}

TEST(KnownFailures, A59_AProbeWithAnotherCountIsNoAnswer) {
    Marud marud;
    marud.start();
    SocketProxy proxy(marud.socket());
    Worker worker({.socket = proxy.path()});
    ASSERT_EQ(worker.store(0), 0);
    ASSERT_EQ(worker.store(2), 0);
    const maru_digest digests[] = {digest_of(0), digest_of(1), digest_of(2), digest_of(3)};
    // A bitmap says how many only in whole bytes: so 4 keys, and 12 answers, none, or a prefix of 5.
    const std::vector<uint8_t> all = {0xff, 0xff};
    for (const auto &[prefix, bytes] : {std::pair{4u, 2u}, {4u, 0u}, {5u, 1u}}) {
        proxy.set_rule([&, prefix = prefix, bytes = bytes](const SocketProxy::Message &message) {
            if (!message.answers<wire::ProbeReply>())
                return SocketProxy::pass();
            wire::Reply reply;
            reply.id = message.reply()->id;
            reply.body = wire::ProbeReply{prefix, std::span(all).first(bytes), {}};
            return SocketProxy::replace(reply);
        });
        uint8_t bitmap = 0;
        EXPECT_EQ(maru_probe(worker.ns, digests, 4, nullptr, 0, &bitmap), -EPROTO)
            << prefix << ", " << bytes;
        EXPECT_EQ(bitmap, 0);
    }
    proxy.set_rule(nullptr);
    uint8_t bitmap = 0;
    EXPECT_EQ(maru_probe(worker.ns, digests, 4, nullptr, 0, &bitmap), 1);
    EXPECT_EQ(bitmap, 0b0101);
}

}  // namespace
}  // namespace maru::test
