// libFuzzer target: sequences of frames from two clients, as marud takes them: hello in any order,
// descriptors with anything, connections that end and come back, processes that exit.
//
// The input is a list of records: a head of four bytes (what, descriptors, length) and a frame. A
// frame goes through the decoder as in marud. Its epoch and its ids are put right in most records,
// or no random frame would pass beyond the first checks. After each step Service must find itself
// consistent, and every request must be answered at most once.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <set>
#include <vector>

#include "daemon/protocol/service.h"
#include "libmaru/wire/codec.h"

namespace {

using namespace maru;

constexpr uint32_t kEpoch = 77;

[[noreturn]] void wrong(const std::string &what) {
    std::fprintf(stderr, "%s\n", what.c_str());
    std::abort();
}

// Answers the wishes later, in the order of asking; segments are numbers.
class Shell final : public Effects {
  public:
    struct Wish {
        enum { Create, Seal, Prove } what;
        SegmentRef segment;
    };

    void reply(ConnectionId to, const wire::Reply &reply,
               std::span<const SegmentRef> segments) override {
        if (closed.count(to))
            wrong("a reply to a connection that is closed");
        if (!encoder_.reply(reply))
            wrong("a reply that does not fit in a frame");
        if (asked.erase(reply.id) == 0)
            wrong("a reply that nobody asked for");
        for (const SegmentRef &segment : segments)
            if (!held.count(segment))
                wrong("a descriptor that marud has not");
        // What the client learns, for its next requests.
        if (const auto *name = std::get_if<wire::NamespaceReply>(&reply.body))
            namespaces.learn(name->namespace_id);
        if (const auto *pool = std::get_if<wire::PoolReply>(&reply.body))
            pools.learn(pool->pool);
        if (const auto *commit = std::get_if<wire::CommitReply>(&reply.body))
            for (const auto &result : commit->results)
                replicas.learn(result.replica);
        if (const auto *acquired = std::get_if<wire::AcquireReply>(&reply.body))
            for (const auto &result : acquired->results)
                replicas.learn(result.replica);
    }
    void event(ConnectionId to, const wire::Event &event) override {
        if (closed.count(to) || !encoder_.event(event))
            wrong("an event to a closed connection, or too large");
    }
    void close_connection(ConnectionId connection, std::string_view) override {
        closed.insert(connection);
    }
    void create_segment(SegmentRef segment, const SegmentSpec &) override {
        wishes.push_back({Wish::Create, segment});
    }
    void seal_segment(SegmentRef segment) override { wishes.push_back({Wish::Seal, segment}); }
    void prove_segment(SegmentRef segment) override { wishes.push_back({Wish::Prove, segment}); }
    void drop_segment(SegmentRef segment) override { held.erase(segment); }
    // Some records cannot be written, as on a full runtime directory.
    Result<void> save_session(const SessionRecord &) override {
        return ++saved_ % 17 == 0 ? Result<void>(Error{28, "write a record"}) : Result<void>();
    }
    void remove_session(wire::Id) override {}
    void record_objects(std::span<const ObjectRecord>) override {}
    void reload() override {}
    void log(int, std::string_view, wire::Id) override {}

    // What clients have been told exists, or existed.
    struct Known {
        std::vector<wire::Id> ids;
        void learn(wire::Id id) {
            if (id != 0 && ids.size() < 64)
                ids.push_back(id);
        }
        wire::Id operator[](uint64_t choice) const {
            return ids.empty() ? wire::make_id(kEpoch, 1) : ids[choice % ids.size()];
        }
    } namespaces, pools, replicas;

    std::deque<Wish> wishes;
    std::set<SegmentRef> held;
    std::set<ConnectionId> closed;
    std::set<uint64_t> asked;

  private:
    wire::Encoder encoder_;
    uint32_t saved_ = 0;
};

class Run {
  public:
    Run() : service_(config(), shell_, now_) {
        for (unsigned i = 0; i < 2; ++i)
            connect(i);
    }
    void step(uint8_t what, uint8_t fds, std::span<const std::byte> frame) {
        now_ += 1'000'000;
        unsigned who = what & 1;
        switch ((what >> 1) & 7) {
            case 0:
            case 1:
            case 2:
            case 3:
                say(who, what, fds, frame);
                break;
            case 4:
                fulfil(what & 0x10);
                break;
            case 5:
                hang_up(who);
                connect(who);
                break;
            case 6:
                now_ += (what & 0x10) ? 40'000'000'000 : 500'000'000;
                service_.tick(now_);
                break;
            default:
                exit(who);
        }
        bury();
        // It walks everything, so not after each: what is wrong stays wrong.
        if (++steps_ % 8 == 0)
            check();
    }
    void check() {
        if (std::string problem = service_.check_invariants(); !problem.empty())
            wrong(problem);
    }
    // Everybody goes, and nothing may remain.
    void finish() {
        check();
        for (unsigned who = 0; who < 2; ++who)
            exit(who);
        settle();
        retire_adopted();
        settle();
        const Service::Counters left = service_.counters();
        if (left.sessions || left.replicas || left.leases || left.reserved_bytes ||
            !shell_.held.empty())
            wrong(std::to_string(left.sessions) + " sessions, " + std::to_string(left.replicas) +
                  " replicas, " + std::to_string(left.leases) + " leases, " +
                  std::to_string(left.reserved_bytes) + " bytes, " +
                  std::to_string(shell_.held.size()) + " descriptors are left");
    }

  private:
    void settle() {
        for (int i = 0; i < 2'000 && (!shell_.wishes.empty() || service_.counters().sessions);
             ++i) {
            now_ += 1'000'000'000;
            fulfil(true);
            service_.tick(now_);
            bury();
        }
    }
    // What outlived its worker goes only by hand.
    void retire_adopted() {
        const ConnectionId admin = ++next_connection_;
        service_.connection_opened(admin, {0, 0, 9, 5, ++next_process_, true, "fuzz"}, 0, now_);
        auto ask = [&](wire::RequestBody body, uint32_t epoch) {
            wire::Request request;
            request.id = ++next_request_;
            request.epoch = epoch;
            request.body = std::move(body);
            shell_.asked.insert(request.id);
            service_.handle(admin, request, {}, now_);
        };
        ask(wire::HelloRequest{}, 0);
        for (const RecordedAdoption &kept : adoptions_in(service_.object_records()))
            ask(wire::RetireSegmentRequest{kept.segment.pool, kept.segment.segment}, kEpoch);
        shell_.closed.insert(admin);
        service_.connection_closed(admin, now_);
    }
    static ServiceConfig config() {
        ServiceConfig config;
        config.epoch = kEpoch;
        config.host_cpu_bytes = 1 << 22;
        config.uid_cpu_bytes = 1 << 21;
        config.worker_cpu_bytes = 1 << 20;
        config.segment_bytes = 1 << 16;
        config.host_segment_bytes = 1 << 16;
        config.max_objects = 4096;
        config.max_leases_per_session = 64;
        config.max_namespaces = 8;
        config.max_namespaces_per_uid = 6;
        return config;
    }
    void connect(unsigned who) {
        if (process_[who] == 0)
            process_[who] = ++next_process_;
        connection_[who] = ++next_connection_;
        Peer peer{1000 + who, 1000 + who,    10 + static_cast<uint32_t>(process_[who]),
                  5,          process_[who], false,
                  "fuzz"};
        service_.connection_opened(connection_[who], peer, 0, now_);
    }
    void hang_up(unsigned who) {
        shell_.closed.insert(connection_[who]);
        service_.connection_closed(connection_[who], now_);
    }
    void exit(unsigned who) {
        hang_up(who);
        service_.process_exited(std::exchange(process_[who], 0), now_);
        connect(who);
    }
    // What Service closed is reported closed, and its client comes again.
    void bury() {
        for (unsigned who = 0; who < 2; ++who)
            if (shell_.closed.count(connection_[who])) {
                service_.connection_closed(connection_[who], now_);
                connect(who);
            }
    }
    void fulfil(bool well) {
        if (shell_.wishes.empty())
            return;
        Shell::Wish wish = shell_.wishes.front();
        shell_.wishes.pop_front();
        switch (wish.what) {
            case Shell::Wish::Create:
                if (well)
                    shell_.held.insert(wish.segment);
                service_.on_segment_created(
                    wish.segment,
                    well ? Result<Service::CreatedSegment>(Service::CreatedSegment{
                               false, {1, wish.segment.pool * 64 + wish.segment.segment}})
                         : Result<Service::CreatedSegment>(Error{12, "no memory"}),
                    now_);
                break;
            case Shell::Wish::Seal:
                service_.on_segment_sealed(
                    wish.segment, well ? Result<void>() : Result<void>(Error{1, "seal"}), now_);
                break;
            case Shell::Wish::Prove:
                service_.on_segment_proven(
                    wish.segment, well ? Service::Proof::Proven : Service::Proof::StillMapped,
                    now_);
        }
    }
    void say(unsigned who, uint8_t what, uint8_t fds, std::span<const std::byte> frame) {
        const wire::Request *decoded = decoder_.request(frame);
        const ConnectionId connection = connection_[who];
        if (!decoded) {
            if (uint64_t id = decoder_.error().request_id) {
                shell_.asked.insert(id);
                service_.refuse(connection, id, decoder_.error().status, decoder_.error().message,
                                now_);
            }
            return;
        }
        wire::Request request = *decoded;
        request.id = ++next_request_;  // unique among the unanswered, as marud asks of clients
        if (what & 0x20)
            request.epoch = kEpoch;
        if (what & 0x40)
            put_right(request.body, what);
        std::vector<AttachedDescriptor> descriptors(fds % 4);
        for (AttachedDescriptor &one : descriptors)
            one = {(fds & 4) != 0, (fds & 8) != 0, 1 << 16, {1, shell_.pools[fds] * 64}};
        shell_.asked.insert(request.id);
        service_.handle(connection, request, descriptors, now_);
        if (service_.adopted_descriptors().size() != descriptors.size())
            wrong("adopted_descriptors() is not as long as the descriptors were");
    }
    // Ids that exist in place of random ones; items that a decoded frame cannot have by chance.
    void put_right(wire::RequestBody &body, uint8_t choice) {
        std::visit(
            [&](auto &request) {
                if constexpr (requires { request.namespace_id; })
                    request.namespace_id = shell_.namespaces[choice];
                if constexpr (requires { request.pool; })
                    request.pool = shell_.pools[choice];
                if constexpr (requires { request.first_op; })
                    request.first_op = request.first_op % 64 + 1;
                if constexpr (requires { request.items; }) {
                    using Item = std::remove_const_t<
                        typename std::decay_t<decltype(request.items)>::element_type>;
                    static thread_local std::vector<Item> items;
                    items.assign(request.items.begin(), request.items.end());
                    for (Item &item : items) {
                        if constexpr (requires { item.replica; })
                            item.replica = shell_.replicas[item.replica];
                        if constexpr (requires { item.generation; })
                            item.generation %= 64;
                        if constexpr (requires { item.offset; }) {
                            item.pool = shell_.pools[item.pool];
                            item.offset = item.offset % 32 * 4096;
                            item.length = 4096;
                        }
                    }
                    request.items = items;
                }
                if constexpr (requires { request.object_bytes; })
                    request.object_bytes = 4096;
                if constexpr (
                    requires { request.capacity_bytes; } && requires { request.request_key; }) {
                    request.capacity_bytes = (request.capacity_bytes % 8 + 1) << 16;
                    request.page_bytes = 4096;
                    request.request_key = request.request_key % 4 + 1;
                    request.scope = choice & 1 ? wire::Scope::Host : wire::Scope::Worker;
                    request.medium = wire::Medium::Cpu;
                    request.tier = wire::Tier::L1;
                    request.huge_pages = wire::HugePages::Off;
                    request.numa = wire::Numa::Off;
                }
                if constexpr (requires { request.lease; }) {
                    request.lease.replica = shell_.replicas[request.lease.replica];
                    request.lease.generation %= 64;
                }
                if constexpr (requires { request.segment; })
                    request.segment %= 8;
            },
            body);
    }

    TimeNs now_ = 1'000'000'000;
    Shell shell_;
    Service service_;
    wire::Decoder decoder_;
    ConnectionId connection_[2] = {}, next_connection_ = 0;
    ProcessId64 process_[2] = {}, next_process_ = 0;
    uint64_t next_request_ = uint64_t{1} << 40;
    uint32_t steps_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Run run;
    for (int steps = 0; size >= 4 && steps < 128; ++steps) {
        size_t length = std::min<size_t>(data[2] | size_t{data[3]} << 8, size - 4);
        std::vector<uint64_t> words((length + 7) / 8);
        if (length)
            std::memcpy(words.data(), data + 4, length);
        run.step(data[0], data[1], {reinterpret_cast<const std::byte *>(words.data()), length});
        data += 4 + length;
        size -= 4 + length;
    }
    run.finish();
    return 0;
}
