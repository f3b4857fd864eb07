// A world without files for Service: what it asks is recorded, and answered by hand or by pump().
#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/protocol/service.h"

namespace maru::test {

inline constexpr TimeNs kMs = 1'000'000;
inline constexpr TimeNs kSec = 1'000'000'000;
inline constexpr uint64_t kMiB = 1 << 20;

// A reply that owns what it points to. Batch results are in the vectors, the rest in `body`.
struct Answer {
    uint64_t id = 0;
    wire::ReplyBody body;
    wire::Status status = wire::Status::Ok;  // of StatusOnly and ClosePoolReply
    std::string message;
    uint64_t detail = 0;
    std::vector<wire::CommitResult> results;  // commit, resolve
    std::vector<wire::AcquireResult> acquired;
    std::vector<wire::Status> statuses;
    std::vector<wire::Id> replicas;
    std::vector<uint8_t> bitmap;
    std::vector<SegmentRef> segments;

    template <typename Body>
    const Body &as() const {
        const Body *found = std::get_if<Body>(&body);
        if (!found) {
            ADD_FAILURE() << "another reply: index " << body.index() << ", status "
                          << static_cast<uint32_t>(status) << ", " << message;
            static const Body nothing{};
            return nothing;
        }
        return *found;
    }
    bool refused(wire::Status with) const {
        return std::holds_alternative<wire::StatusOnly>(body) && status == with;
    }
};

struct SeenEvent {
    wire::EventKind kind;
    std::vector<wire::ReplicaName> items;
    std::string message;
};

class World : public Effects {
  public:
    explicit World(ServiceConfig base = default_config()) : config(std::move(base)) { start(); }

    static ServiceConfig default_config() {
        ServiceConfig config;
        config.epoch = 1001;
        config.pid = 77;
        config.version = "0.1.0";
        config.max_objects = 1 << 16;
        config.host_cpu_bytes = 64 * kMiB;
        config.uid_cpu_bytes = 48 * kMiB;
        config.worker_cpu_bytes = 32 * kMiB;
        config.segment_bytes = 4 * kMiB;
        config.session_timeout = 30 * kSec;
        return config;
    }

    // ---- lives of marud
    void start() { service = std::make_unique<Service>(config, *this, now); }
    // kill -9 and a new life. `keep_descriptors`: a descriptor store exists.
    void restart(bool keep_descriptors) {
        service.reset();
        connections.clear();
        creating.clear();
        sealing.clear();
        proving.clear();
        if (!keep_descriptors)
            held.clear();
        ++config.epoch;
        start();
        auto facts = objects;
        std::vector<SegmentRef> kept;
        for (const RecordedAdoption &adopted : adoptions_in(facts))
            if (held.contains(adopted.segment))
                kept.push_back(adopted.segment);
        service->restore_objects(facts, kept, now, sessions_lost);
        auto saved = records;
        for (const auto &[id, record] : saved) {
            std::vector<SegmentRef> mine;
            for (const auto &pool : record.pools)
                for (uint32_t i = 0; i < pool.segments.size(); ++i)
                    if (held.contains({pool.pool, i}))
                        mine.push_back({pool.pool, i});
            auto process = processes.find({record.pid, record.start_time});
            bool alive = process != processes.end();
            service->restore(record, mine, alive ? process->second : 0, alive, now);
        }
        service->restored(now);
        objects = service->object_records();
    }

    Peer peer(uint32_t uid, uint32_t pid, bool admin = false) {
        uint64_t start_time = 100 + pid;
        auto [found, added] = processes.try_emplace({pid, start_time}, next_process);
        next_process += added;
        return {uid, uid, pid, start_time, found->second, admin, "python3"};
    }
    void kill(uint32_t pid) {
        auto found = processes.find({pid, 100 + pid});
        ASSERT_NE(found, processes.end());
        ProcessId64 process = found->second;
        processes.erase(found);
        service->process_exited(process, now);
    }
    ConnectionId connect(const Peer &who, uint64_t nonce = 0) {
        ConnectionId id = next_connection++;
        connections.insert(id);
        service->connection_opened(id, who, nonce, now);
        return id;
    }
    void disconnect(ConnectionId id) {
        if (connections.erase(id))
            service->connection_closed(id, now);
    }
    void pass(TimeNs duration) {
        TimeNs end = now + duration;
        while (service->next_deadline() <= end) {
            now = std::max(now, service->next_deadline());
            service->tick(now);
            pump();
            check();
        }
        now = end;
    }
    // What marud itself slept through.
    void stall(TimeNs gap) {
        now += gap;
        service->stalled(gap, now);
    }
    // Answers everything that Service asked, as a well-behaved kernel would.
    void pump() {
        while (!creating.empty() || !sealing.empty() || !proving.empty()) {
            if (!creating.empty()) {
                SegmentRef ref = creating.front().first;
                creating.pop_front();
                if (create_error) {
                    service->on_segment_created(ref, Error{create_error, "memfd_create"}, now);
                    continue;
                }
                held.insert(ref);
                service->on_segment_created(ref, Service::CreatedSegment{false, identity(ref)},
                                            now);
            } else if (!sealing.empty()) {
                SegmentRef ref = sealing.front();
                sealing.pop_front();
                Result<void> result;
                if (seal_error)
                    result = Error{seal_error, "F_ADD_SEALS"};
                service->on_segment_sealed(ref, result, now);
            } else {
                SegmentRef ref = proving.front();
                proving.pop_front();
                auto proof = refusing.contains(ref) ? Service::Proof::Refused
                             : mapped.contains(ref) ? Service::Proof::StillMapped
                                                    : Service::Proof::Proven;
                service->on_segment_proven(ref, proof, now);
            }
        }
    }
    void check() { ASSERT_EQ(service->check_invariants(), ""); }
    static SegmentIdentity identity(SegmentRef ref) {
        return {9, (ref.pool << 8) + ref.segment + 1};
    }

    // ---- Effects
    void reply(ConnectionId to, const wire::Reply &reply,
               std::span<const SegmentRef> segments) override {
        ASSERT_TRUE(connections.contains(to)) << "a reply to a closed connection";
        Answer answer;
        answer.id = reply.id;
        answer.body = reply.body;
        answer.segments.assign(segments.begin(), segments.end());
        auto keep = [](auto &to_vector, const auto &span) {
            to_vector.assign(span.begin(), span.end());
        };
        if (auto *status = std::get_if<wire::StatusOnly>(&reply.body)) {
            answer.status = status->status;
            answer.message = status->message;
            answer.detail = status->detail;
            EXPECT_EQ(status->status == wire::Status::Ok, status->message.empty())
                << "a refusal says why: " << static_cast<uint32_t>(status->status);
        } else if (auto *close = std::get_if<wire::ClosePoolReply>(&reply.body)) {
            answer.status = close->status;
            answer.message = close->message;
            answer.detail = close->leases;
        } else if (auto *commit = std::get_if<wire::CommitReply>(&reply.body)) {
            keep(answer.results, commit->results);
        } else if (auto *resolve = std::get_if<wire::ResolveReply>(&reply.body)) {
            keep(answer.results, resolve->results);
        } else if (auto *acquire = std::get_if<wire::AcquireReply>(&reply.body)) {
            keep(answer.acquired, acquire->results);
        } else if (auto *items = std::get_if<wire::ItemStatusReply>(&reply.body)) {
            keep(answer.statuses, items->statuses);
            keep(answer.replicas, items->replicas);
        } else if (auto *probe = std::get_if<wire::ProbeReply>(&reply.body)) {
            keep(answer.bitmap, probe->bitmap);
        }
        answers[{to, reply.id}] = std::move(answer);
    }
    void event(ConnectionId to, const wire::Event &event) override {
        ASSERT_TRUE(connections.contains(to)) << "an event to a closed connection";
        events[to].push_back(
            {event.kind, {event.items.begin(), event.items.end()}, std::string(event.message)});
    }
    void close_connection(ConnectionId connection, std::string_view) override {
        connections.erase(connection);
        closed.insert(connection);
    }
    void create_segment(SegmentRef segment, const SegmentSpec &spec) override {
        EXPECT_FALSE(held.contains(segment));
        creating.push_back({segment, spec});
    }
    void seal_segment(SegmentRef segment) override {
        EXPECT_TRUE(held.contains(segment));
        sealing.push_back(segment);
    }
    void prove_segment(SegmentRef segment) override {
        EXPECT_TRUE(held.contains(segment));
        proving.push_back(segment);
        ++proofs_asked;
    }
    void drop_segment(SegmentRef segment) override { EXPECT_EQ(held.erase(segment), 1u); }
    Result<void> save_session(const SessionRecord &record) override {
        if (save_error && saves_before_error-- <= 0) {
            unsaved.insert(record.session);
            return Error{save_error, "write a record"};
        }
        unsaved.erase(record.session);
        records[record.session] = record;
        return {};
    }
    void remove_session(wire::Id session) override {
        EXPECT_EQ(records.erase(session) | unsaved.erase(session), 1u);
    }
    void record_objects(std::span<const ObjectRecord> facts) override {
        objects.insert(objects.end(), facts.begin(), facts.end());
    }
    void reload() override { ++reloads; }
    void log(int, std::string_view message, wire::Id) override { logged.emplace_back(message); }

    bool replied(ConnectionId to, uint64_t id) const { return answers.contains({to, id}); }
    Answer take(ConnectionId to, uint64_t id) {
        auto found = answers.find({to, id});
        if (found == answers.end()) {
            ADD_FAILURE() << "no answer to request " << id;
            return {};
        }
        Answer answer = std::move(found->second);
        answers.erase(found);
        return answer;
    }

    ServiceConfig config;
    TimeNs now = 1000 * kSec;
    std::unique_ptr<Service> service;
    std::set<ConnectionId> connections, closed;
    std::map<std::pair<ConnectionId, uint64_t>, Answer> answers;
    std::map<ConnectionId, std::vector<SeenEvent>> events;
    std::deque<std::pair<SegmentRef, SegmentSpec>> creating;
    std::deque<SegmentRef> sealing, proving;
    std::set<SegmentRef> held, mapped, refusing;
    std::map<wire::Id, SessionRecord> records;
    std::vector<ObjectRecord> objects;
    std::map<std::pair<uint32_t, uint64_t>, ProcessId64> processes;
    std::vector<std::string> logged;
    int create_error = 0, seal_error = 0, reloads = 0;
    int save_error = 0, saves_before_error = 0;
    bool sessions_lost = false;  // at a restart
    std::set<wire::Id> unsaved;  // save_session failed last
    uint64_t proofs_asked = 0;
    ConnectionId next_connection = 1;
    ProcessId64 next_process = 500;
};

inline wire::Token token(uint8_t first) {
    wire::Token made{};
    made[0] = first;
    made[15] = 1;
    return made;
}

inline wire::Digest digest(uint32_t number) {
    wire::Digest made;
    for (size_t i = 0; i < 4; ++i)
        made.bytes[i] = static_cast<uint8_t>(number >> (8 * i));
    made.bytes[31] = 7;
    return made;
}

// One process with one connection at a time.
struct Client {
    World &world;
    Peer peer;
    ConnectionId connection = 0;
    uint32_t epoch = 0;
    wire::Id session = 0;  // of the last open that was not refused
    uint64_t next_id = 1;
    uint64_t acknowledged = 0;

    Client(World &w, const Peer &who) : world(w), peer(who) {}

    uint64_t send(wire::RequestBody body, std::span<const AttachedDescriptor> descriptors = {}) {
        wire::Request request;
        request.id = next_id++;
        request.epoch = std::holds_alternative<wire::HelloRequest>(body) ? 0 : epoch;
        request.acknowledged_op = acknowledged;
        request.body = std::move(body);
        world.service->handle(connection, request, descriptors, world.now);
        return request.id;
    }
    Answer call(wire::RequestBody body, std::span<const AttachedDescriptor> descriptors = {}) {
        uint64_t id = send(std::move(body), descriptors);
        world.pump();
        world.check();
        return world.take(connection, id);
    }
    Answer hello() {
        connection = world.connect(peer);
        Answer answer = call(wire::HelloRequest{.client_name = "test"});
        epoch = answer.as<wire::HelloReply>().epoch;
        return answer;
    }
    Answer open(uint8_t secret, std::string_view engine, wire::Role role = wire::Role::Worker) {
        if (!connection || !world.connections.contains(connection))
            hello();
        Answer answer = call(wire::OpenSessionRequest{token(secret), role, engine});
        if (const auto *opened = std::get_if<wire::SessionReply>(&answer.body))
            session = opened->session;
        return answer;
    }
    Answer attach(uint8_t secret, std::string_view engine, uint64_t lowest_unanswered = 0,
                  wire::Role role = wire::Role::Worker) {
        uint32_t old_epoch = epoch;
        hello();
        return call(wire::AttachRequest{token(secret), role, engine, old_epoch, lowest_unanswered});
    }
    void vanish() { world.disconnect(connection); }

    wire::Id name(std::string_view text) {
        return call(wire::RegisterNamespaceRequest{text}).as<wire::NamespaceReply>().namespace_id;
    }
    Answer describe(wire::Id ns, uint64_t bytes = 4096, std::string_view format = "raw") {
        return call(wire::DescribeRequest{ns, bytes, format});
    }
    // A namespace, described, and a pool of `pages` pages of 4 KiB that is ready for commits.
    wire::Id pool(uint64_t pages, uint64_t key = 1, uint32_t page_bytes = 4096) {
        Answer answer = call(wire::OpenPoolRequest{
            .capacity_bytes = pages * page_bytes, .page_bytes = page_bytes, .request_key = key});
        const auto &made = answer.as<wire::PoolReply>();
        for (uint32_t i = 0; i < made.segment_count; ++i) {
            EXPECT_EQ(call(wire::GrantSegmentRequest{made.pool, i}).segments.size(), 1u);
            EXPECT_EQ(call(wire::SegmentMappedRequest{made.pool, i}).status, wire::Status::Ok);
        }
        return made.pool;
    }
    static wire::CommitItem item(wire::Id pool, uint32_t key, uint64_t page, uint64_t generation,
                                 uint64_t length = 4096) {
        return {{digest(key), 0, 0}, pool, page * 4096, length, generation};
    }
    Answer commit(wire::Id ns, uint64_t op, std::vector<wire::CommitItem> items) {
        return call(wire::CommitRequest{ns, op, items});
    }
    wire::CommitResult commit_one(wire::Id ns, uint64_t op, const wire::CommitItem &one) {
        Answer answer = commit(ns, op, {one});
        if (answer.results.size() != 1) {
            ADD_FAILURE() << "commit refused: " << static_cast<uint32_t>(answer.status) << " "
                          << answer.message;
            return {};
        }
        return answer.results[0];
    }
    Answer resolve(uint64_t first, uint32_t count) {
        return call(wire::ResolveRequest{first, count});
    }
    uint32_t probe(wire::Id ns, std::vector<uint32_t> numbers) {
        std::vector<wire::Digest> keys;
        for (uint32_t number : numbers)
            keys.push_back(digest(number));
        return call(wire::ProbeRequest{ns, keys, {}, false}).as<wire::ProbeReply>().prefix;
    }
    std::vector<wire::AcquireResult> acquire(wire::Id ns, std::vector<uint32_t> numbers) {
        std::vector<wire::Digest> keys;
        for (uint32_t number : numbers)
            keys.push_back(digest(number));
        return call(wire::AcquireRequest{ns, keys, {}, false}).acquired;
    }
    wire::Status release(const wire::ReplicaName &which) {
        Answer answer = call(wire::ReleaseRequest{std::span(&which, 1)});
        return answer.statuses.empty() ? answer.status : answer.statuses[0];
    }
    wire::Status retire(const wire::ReplicaName &which) {
        Answer answer = call(wire::RetireRequest{std::span(&which, 1)});
        return answer.statuses.empty() ? answer.status : answer.statuses[0];
    }
    wire::Status reclaim_ack(const wire::ReplicaName &which) {
        Answer answer = call(wire::ReclaimAckRequest{std::span(&which, 1)});
        return answer.statuses.empty() ? answer.status : answer.statuses[0];
    }
    Answer close_pool(wire::Id pool_id, wire::ClosePhase phase) {
        return call(wire::ClosePoolRequest{pool_id, phase});
    }
    std::vector<SeenEvent> events() { return std::exchange(world.events[connection], {}); }
};

}  // namespace maru::test
