// The metrics of a real marud: what they say after a known workload, and that a thousand sessions leave
// no trace in them.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstring>
#include <set>

#include "daemon/metrics/exposition.h"
#include "libmaru/base/clock.h"
#include "tests/integration/scrape.h"
#include "tests/integration/wire_client.h"

namespace maru::test {
namespace {

constexpr uint64_t kSegment = 1 << 20, kPage = 64 << 10;

void expect_counters_grow(const Numbers &before, const Numbers &after) {
    ASSERT_EQ(before.size(), after.size());
    for (const auto &[name, value] : before) {
        ASSERT_TRUE(after.count(name)) << name;
        bool counter = name.find("_total") != name.npos || name.find("_bucket") != name.npos ||
                       name.find("_count") != name.npos || name.find("_sum") != name.npos;
        if (counter) {
            EXPECT_GE(after.at(name), value) << name;
        }
    }
}

// What libmaru does, as far as marud can see: the memory itself is never touched here.
class Worker {
  public:
    Worker(const Marud &marud, uint32_t token) : client_(marud.socket()) {
        std::memcpy(token_.data(), &token, sizeof token);
        token_[15] = 1;
    }
    bool open() {
        wire::OpenSessionRequest request;
        request.token = token_;
        request.engine = "secret-engine-name";
        return client_.hello() && good(request);
    }
    bool open_pool() {
        wire::OpenPoolRequest request;
        request.capacity_bytes = kSegment;
        request.page_bytes = kPage;
        request.request_key = 1;
        const auto *pool = client_.ask<wire::PoolReply>(request);
        if (!pool)
            return false;
        pool_ = pool->pool;
        bool made = good(wire::GrantSegmentRequest{pool_, 0});
        client_.fds().clear();
        return made && good(wire::SegmentMappedRequest{pool_, 0});
    }
    bool describe() {
        const auto *ns =
            client_.ask<wire::NamespaceReply>(wire::RegisterNamespaceRequest{"secret-namespace"});
        if (!ns)
            return false;
        namespace_ = ns->namespace_id;
        return good(wire::DescribeRequest{namespace_, kPage, "raw"});
    }
    wire::CommitItem item(uint8_t key, uint64_t page, uint64_t generation) const {
        wire::CommitItem item;
        item.key.digest = digest(key);
        item.pool = pool_;
        item.offset = page * kPage;
        item.length = kPage;
        item.generation = generation;
        return item;
    }
    static wire::Digest digest(uint8_t key) {
        wire::Digest digest;
        digest.bytes[0] = key;
        digest.bytes[31] = 0x5a;
        return digest;
    }
    bool close() {
        return good(wire::ClosePoolRequest{pool_, wire::ClosePhase::Drain}) &&
               good(wire::ClosePoolRequest{pool_, wire::ClosePhase::Finish}) && leave();
    }
    bool leave() { return good(wire::CloseSessionRequest{}); }
    bool good(wire::RequestBody body) {
        return client_.status(std::move(body)) == wire::Status::Ok;
    }
    WireClient &client() { return client_; }
    wire::Id ns() const { return namespace_; }

  private:
    WireClient client_;
    wire::Token token_{};
    wire::Id pool_ = 0, namespace_ = 0;
};

TEST(Metrics, NumbersAreTrueAfterAKnownWorkload) {
    Marud marud({.config = kCpu});
    marud.start();
    const Numbers before = now(marud);
    Worker worker(marud, 7);
    ASSERT_TRUE(worker.open());
    ASSERT_TRUE(worker.describe());
    ASSERT_TRUE(worker.open_pool());

    std::vector<wire::CommitItem> items;
    for (uint8_t i = 0; i < 6; ++i)
        items.push_back(worker.item(i, i, i + 1u));
    items.push_back(worker.item(0, 6, 100));  // there already
    items.push_back(worker.item(9, 0, 101));  // over a READY one
    ASSERT_TRUE(worker.client().ask<wire::CommitReply>(wire::CommitRequest{worker.ns(), 1, items}));
    ASSERT_TRUE(worker.client().ask<wire::CommitReply>(
        wire::CommitRequest{worker.ns(), 1, items}));  // a retry

    std::vector<wire::Digest> keys;
    for (uint8_t i : {0, 1, 2, 77, 3, 4, 5, 78})
        keys.push_back(Worker::digest(i));
    ASSERT_TRUE(
        worker.client().ask<wire::ProbeReply>(wire::ProbeRequest{worker.ns(), keys, {}, false}));
    const auto *acquired =
        worker.client().ask<wire::AcquireReply>(wire::AcquireRequest{worker.ns(), keys, {}, false});
    ASSERT_TRUE(acquired);
    std::vector<wire::ReplicaName> leases;
    for (const wire::AcquireResult &one : acquired->results)
        if (one.status == wire::Status::Ok)
            leases.push_back({one.replica, one.generation});
    ASSERT_EQ(leases.size(), 6u);

    Numbers middle = now(marud);
    EXPECT_EQ(middle["maru_leases"], 6);
    EXPECT_EQ(middle["maru_objects"], 6);
    EXPECT_EQ(middle["maru_replicas"], 6);
    EXPECT_EQ(middle["maru_namespaces"], 1);
    EXPECT_EQ(middle["maru_sessions{role=\"worker\",state=\"attached\"}"], 1);
    EXPECT_EQ(middle["maru_pools{state=\"open\"}"], 1);
    const std::string here = "{medium=\"cpu\",tier=\"l1\",scope=\"worker\"}";
    EXPECT_EQ(middle["maru_capacity_bytes" + here], kSegment);
    EXPECT_EQ(middle["maru_reserved_bytes" + here], kSegment);
    EXPECT_EQ(middle["maru_ready_bytes" + here], 6 * kPage);
    EXPECT_EQ(middle["maru_ready_allocated_bytes" + here], 6 * kPage);
    EXPECT_EQ(middle["maru_charged_bytes"], kSegment);
    EXPECT_EQ(middle["maru_charge_limit_bytes"], 64 << 20);
    EXPECT_EQ(middle["maru_unproven_bytes"], 0);

    leases.push_back(leases[0]);  // once too often
    ASSERT_TRUE(worker.client().ask<wire::ItemStatusReply>(wire::ReleaseRequest{leases}));
    ASSERT_TRUE(worker.client().ask<wire::ItemStatusReply>(
        wire::RetireRequest{std::span(leases).first(2)}));
    ASSERT_TRUE(worker.client().ask<wire::ItemStatusReply>(
        wire::ReclaimAckRequest{std::span(leases).first(1)}));
    EXPECT_EQ(worker.client().status(wire::AttachDoneRequest{}), wire::Status::Protocol);
    ASSERT_TRUE(worker.close());
    worker.client().close();

    EXPECT_EQ(settle(marud, "maru_connections", 0), 0);
    Numbers after = now(marud);
    expect_counters_grow(before, middle);
    expect_counters_grow(middle, after);
    EXPECT_EQ(after["maru_commits_total{result=\"ok\"}"], 6);
    EXPECT_EQ(after["maru_commits_total{result=\"already_present\"}"], 1);
    EXPECT_EQ(after["maru_commits_total{result=\"conflict\"}"], 1);
    EXPECT_EQ(after["maru_commit_retries_total"], 8);
    EXPECT_EQ(after["maru_committed_bytes_total"], 6 * kPage);
    EXPECT_EQ(after["maru_probe_keys_total"], 8);
    EXPECT_EQ(after["maru_probe_hits_total"], 6);
    EXPECT_EQ(after["maru_probe_prefix_keys_total"], 3);
    EXPECT_EQ(after["maru_acquires_total{result=\"ok\"}"], 6);
    EXPECT_EQ(after["maru_acquires_total{result=\"miss\"}"], 2);
    EXPECT_EQ(after["maru_acquired_bytes_total"], 6 * kPage);
    EXPECT_EQ(after["maru_releases_total{result=\"ok\"}"], 6);
    EXPECT_EQ(after["maru_releases_total{result=\"not_found\"}"], 1);
    EXPECT_EQ(after["maru_retires_total{result=\"ok\"}"], 2);
    EXPECT_EQ(after["maru_reclaims_total{result=\"ok\"}"], 1);
    EXPECT_EQ(after["maru_requests_total{request=\"probe\",result=\"ok\"}"], 1);
    EXPECT_EQ(after["maru_requests_total{request=\"commit\",result=\"ok\"}"], 2);
    EXPECT_EQ(after["maru_requests_total{request=\"grant_segment\",result=\"ok\"}"], 1);
    EXPECT_EQ(after["maru_requests_total{request=\"close_pool\",result=\"ok\"}"], 2);
    EXPECT_EQ(after["maru_requests_total{request=\"close_session\",result=\"ok\"}"], 1);
    EXPECT_EQ(after["maru_requests_total{request=\"attach_done\",result=\"invalid\"}"], 1);
    EXPECT_EQ(after["maru_refusals_total{status=\"protocol\"}"], 1);
    EXPECT_EQ(after["maru_request_seconds_count{family=\"probe\"}"], 1);
    EXPECT_EQ(after["maru_request_seconds_count{family=\"commit\"}"], 2);
    EXPECT_EQ(after["maru_sessions_opened_total{role=\"worker\"}"], 1);
    EXPECT_EQ(after["maru_sessions_ended_total{how=\"closed\"}"], 1);
    EXPECT_EQ(after["maru_proof_attempts_total"], 1);
    EXPECT_EQ(after["maru_proofs_total{outcome=\"proven\"}"], 1);
    EXPECT_EQ(after["maru_proof_seconds_count"], 1);
    EXPECT_EQ(after["maru_connections_opened_total"], 1);
    EXPECT_EQ(after["maru_connections_closed_total{reason=\"peer\"}"], 1);
    EXPECT_EQ(after["maru_charged_bytes"], 0);
    EXPECT_EQ(after["maru_objects"], 0);
    EXPECT_GT(after["maru_loop_turn_seconds_count"], before.at("maru_loop_turn_seconds_count"));
    EXPECT_GE(after["maru_reaper_jobs_total"], 1);
    // Connections of scrapes come and go.
    EXPECT_NEAR(after["process_open_fds"], static_cast<double>(marud.open_fds()), 4);
    EXPECT_GT(after["process_start_time_seconds"], 1e9);
}

TEST(Metrics, WhatHappensToSessionsAndToMarudIsCounted) {
    Marud marud({.config = kCpu});
    marud.start();
    {
        Worker lost(marud, 1);
        ASSERT_TRUE(lost.open());
        ASSERT_TRUE(lost.open_pool());
    }  // its connection goes, its process does not
    EXPECT_EQ(settle(marud, "maru_sessions{role=\"worker\",state=\"detached\"}", 1), 1);
    EXPECT_EQ(now(marud)["maru_session_events_total{event=\"connection_lost\"}"], 1);
    EXPECT_GE(now(marud)["maru_fdstore_entries"], 2) << "the segment and the pidfd";

    marud.signal(SIGHUP);
    EXPECT_EQ(settle(marud, "maru_config_reloads_total{result=\"ok\"}", 1), 1);
    marud.set_config("[nonsense]\n");
    marud.signal(SIGHUP);
    EXPECT_EQ(settle(marud, "maru_config_reloads_total{result=\"failed\"}", 1), 1);
    marud.set_config(kCpu);

    WireClient garbage(marud.socket());
    ASSERT_EQ(::send(garbage.fd(), "garbage!", 8, MSG_NOSIGNAL), 8);
    EXPECT_TRUE(garbage.wait_end(kPatience));
    EXPECT_EQ(now(marud)["maru_connections_closed_total{reason=\"malformed\"}"], 1);

    marud.restart();  // the path of the dead one's socket is taken over
    Numbers after = now(marud);
    EXPECT_EQ(after["maru_sessions_restored_total"], 1);
    EXPECT_EQ(after["maru_sessions{role=\"worker\",state=\"recorded\"}"], 1);
    EXPECT_GE(after["maru_fdstore_entries"], 2);
    EXPECT_EQ(after["maru_charged_bytes"], kSegment);
    EXPECT_EQ(marud.stop(), 0);
    struct stat info;
    EXPECT_NE(::stat(metrics_socket(marud).c_str(), &info), 0) << "it goes with marud";
}

// ---- A79
// -----------------------------------------------------------------------------------------

std::set<std::string> names_of(const Numbers &numbers) {
    std::set<std::string> names;
    for (const auto &[name, value] : numbers)
        names.insert(name);
    return names;
}

// Without the numbers themselves, which have more digits when they are larger.
size_t size_without_numbers(const std::string &text) {
    size_t size = 0;
    auto read = metrics::read_exposition(text);
    for (const metrics::ReadFamily &family : *read) {
        size += family.head.size();
        for (const metrics::ReadSample &sample : family.samples)
            size += sample.line.size() - sample.value.size();
    }
    return size;
}

TEST(Metrics, AThousandSessionsWithPoolsLeaveNoSeriesBehind) {
    Marud marud({.config = kCpu});
    marud.start();
    auto one_life = [&](uint32_t token) {
        Worker worker(marud, token);
        return worker.open() && worker.describe() && worker.open_pool() && worker.close();
    };
    // The memory of the allocator and of tables settles with the first ones.
    for (uint32_t i = 1; i <= 100; ++i)
        ASSERT_TRUE(one_life(i)) << marud.log();
    std::string first = scrape(marud);
    Numbers before = numbers(first);
    for (uint32_t i = 101; i <= 1100; ++i)
        ASSERT_TRUE(one_life(i)) << i;
    ASSERT_EQ(settle(marud, "maru_connections", 0), 0);
    std::string last = scrape(marud);
    Numbers after = numbers(last);
    EXPECT_EQ(after["maru_sessions_ended_total{how=\"closed\"}"], 1100);
    EXPECT_EQ(after["maru_proofs_total{outcome=\"proven\"}"], 1100);
    EXPECT_EQ(names_of(before), names_of(after));
    EXPECT_EQ(size_without_numbers(first), size_without_numbers(last));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // these keep freed memory
    EXPECT_LT(after["process_resident_memory_bytes"],
              before["process_resident_memory_bytes"] + (2 << 20));
#endif
    EXPECT_EQ(settle(marud, "process_open_fds", before["process_open_fds"]),
              before["process_open_fds"]);
    for (const char *name : {"secret-engine", "secret-namespace", "5a5a", "metrics-test"})
        EXPECT_EQ(last.find(name), last.npos) << name;
}

}  // namespace
}  // namespace maru::test
