#include "tests/libmaru/client/fake_marud.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace maru::client {

using wire::Status;

namespace {
constexpr uint64_t kSegmentBytes = 2 * 1024 * 1024;
struct alignas(8) Buffer {
    std::byte bytes[wire::kMaxFrameBytes];
};
}  // namespace

FakeMarud::FakeMarud() {
    char folder[] = "/tmp/maru-fake-XXXXXX";
    folder_ = ::mkdtemp(folder);
    path_ = folder_ + "/marud.sock";
    listener_ = std::move(*wire::listen_seqpacket(path_, 0600));
    stop_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
    new_life();
    thread_ = std::thread([this] { serve(); });
}

FakeMarud::~FakeMarud() {
    const uint64_t one = 1;
    [[maybe_unused]] ssize_t n = ::write(stop_.get(), &one, sizeof one);
    thread_.join();
    ::unlink(path_.c_str());
    ::unlink((path_ + ".lock").c_str());
    ::rmdir(folder_.c_str());
}

void FakeMarud::new_life() {
    // Numbers begin again, so that a number of the old life would name something else in this one.
    ++epoch_;
    epoch_ |= 0x100;
    next_number_ = 1;
    namespaces_.clear();
    replicas_.clear();
    ledger_.clear();
    for (auto &[id, pool] : pools_)
        pool.segments.clear();
    pools_missing_ = true;
}

void FakeMarud::set_hook(Hook hook) {
    std::lock_guard lock(mutex_);
    hook_ = std::move(hook);
}

void FakeMarud::once(const std::string &request_name, Act act) {
    auto done = std::make_shared<bool>(false);
    set_hook([=](const wire::Request &request, int) {
        if (*done || request_name != wire::request_name(request.body))
            return Act::Normal;
        *done = true;
        return act;
    });
}

void FakeMarud::send(uint64_t request_id, const wire::ReplyBody &body, std::vector<int> fds) {
    std::lock_guard lock(mutex_);
    if (connections_.empty())
        return;
    auto frame = encoder_.reply({request_id, body});
    if (!frame)
        std::abort();
    (void)wire::send_packet(connections_.back()->fd.get(), *frame, fds);
}

void FakeMarud::send_event(const wire::Event &event) {
    std::lock_guard lock(mutex_);
    auto frame = encoder_.event(event);
    if (!connections_.empty())
        (void)wire::send_packet(connections_.back()->fd.get(), *frame);
}

void FakeMarud::restart(const std::string &text) {
    std::lock_guard lock(mutex_);
    connections_.clear();
    new_life();
    if (!text.empty())
        namespaces_[text] = wire::make_id(epoch_, next_number_++);
}

void FakeMarud::drop_connections() {
    std::lock_guard lock(mutex_);
    for (auto &connection : connections_)  // closed by the server's thread
        ::shutdown(connection->fd.get(), SHUT_RDWR);
}

int FakeMarud::count(const std::string &request_name) const {
    std::lock_guard lock(mutex_);
    auto found = counts_.find(request_name);
    return found == counts_.end() ? 0 : found->second;
}
std::map<std::string, int> FakeMarud::counts() const {
    std::lock_guard lock(mutex_);
    return counts_;
}
int FakeMarud::connections() const {
    std::lock_guard lock(mutex_);
    return connection_count_;
}
uint64_t FakeMarud::leases() const {
    std::lock_guard lock(mutex_);
    uint64_t leases = 0;
    for (auto &[id, replica] : replicas_)
        leases += replica.leases;
    return leases;
}
uint64_t FakeMarud::replicas() const {
    std::lock_guard lock(mutex_);
    return replicas_.size();
}
uint64_t FakeMarud::stale_names() const {
    std::lock_guard lock(mutex_);
    return stale_names_;
}

void FakeMarud::serve() {
    wire::Decoder decoder;
    auto buffer = std::make_unique<Buffer>();
    for (;;) {
        std::vector<pollfd> fds = {{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
        {
            std::lock_guard lock(mutex_);
            for (auto &connection : connections_)
                fds.push_back({connection->fd.get(), POLLIN, 0});
        }
        // restart() closes descriptors that are polled: look again often.
        if (::poll(fds.data(), fds.size(), 5) < 0)
            continue;
        if (fds[0].revents)
            return;
        std::lock_guard lock(mutex_);
        if (fds[1].revents & POLLIN) {
            UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
            if (fd) {
                auto connection = std::make_unique<Connection>();
                connection->number = ++connection_count_;
                connection->fd = std::move(fd);
                connections_.push_back(std::move(connection));
            }
        }
        for (size_t i = 0; i < connections_.size(); ++i) {
            const int fd = connections_[i]->fd.get();
            auto packet = wire::receive_packet(fd, buffer->bytes);
            if (!packet) {
                if (packet.error().code != EAGAIN)
                    connections_.erase(connections_.begin() + static_cast<long>(i--));
                continue;
            }
            const wire::Request *request = decoder.request(packet->bytes);
            if (!request) {
                std::fprintf(stderr, "fake marud: %s\n", decoder.error().message.c_str());
                std::abort();
            }
            handle(*request, *connections_[i], std::move(packet->fds));
            if (i >= connections_.size())
                break;
        }
    }
}

void FakeMarud::handle(const wire::Request &request, Connection &connection,
                       std::vector<UniqueFd> fds) {
    ++counts_[wire::request_name(request.body)];
    const Act act = hook_ ? hook_(request, connection.number) : Act::Normal;
    mute_ = act != Act::Normal;
    if (act == Act::Normal || act == Act::DoSilently || act == Act::CloseAfter ||
        act == Act::DieAfter)
        carry_out(request, connection, fds);
    mute_ = false;
    if (act == Act::CloseBefore || act == Act::CloseAfter)
        connections_.erase(std::find_if(connections_.begin(), connections_.end(),
                                        [&](auto &c) { return c.get() == &connection; }));
    else if (act == Act::DieBefore || act == Act::DieAfter)
        restart();
}

void FakeMarud::reply(uint64_t id, wire::ReplyBody body, std::vector<int> fds) {
    if (!mute_)
        send(id, body, std::move(fds));
}

bool FakeMarud::stale(wire::Id id) {
    if (wire::id_epoch(id) == epoch_)
        return false;
    ++stale_names_;
    return true;
}

FakeMarud::Replica *FakeMarud::find(const wire::ReplicaName &name, Status *status) {
    *status = Status::Ok;
    auto found = replicas_.find(name.replica);
    if (stale(name.replica))
        *status = Status::StaleEpoch;
    else if (found == replicas_.end())
        *status = Status::NotFound;
    else if (found->second.item.generation != name.generation)
        *status = Status::StaleGeneration;
    return *status == Status::Ok ? &found->second : nullptr;
}

wire::CommitResult FakeMarud::commit_one(wire::Id ns, const wire::CommitItem &item) {
    for (auto &[id, replica] : replicas_) {
        const uint64_t a = item.offset, b = replica.item.offset;
        if (item.pool == replica.item.pool && a < b + replica.item.length && b < a + item.length)
            return {0, Status::Conflict, 0};
        if (replica.ns == ns && replica.item.key == item.key && !replica.retiring)
            return {id, Status::AlreadyPresent, 0};
    }
    const wire::Id id = wire::make_id(epoch_, next_number_++);
    replicas_[id] = {ns, item, 0, false};
    return {id, Status::Ok, 0};
}

void FakeMarud::carry_out(const wire::Request &request, Connection &connection,
                          std::vector<UniqueFd> &fds) {
    const uint64_t id = request.id;
    auto ok = [&] { reply(id, wire::StatusOnly{}); };
    auto each = [&](auto items, auto fn) {
        std::vector<Status> statuses;
        for (const auto &item : items)
            statuses.push_back(fn(item));
        reply(id, wire::ItemStatusReply{statuses, {}});
    };
    if (!std::holds_alternative<wire::HelloRequest>(request.body) && request.epoch != epoch_)
        return reply(id, wire::StatusOnly{Status::StaleEpoch, "epoch", 0});

    if (std::holds_alternative<wire::HelloRequest>(request.body)) {
        wire::HelloReply hello;
        hello.epoch = epoch_;
        hello.uid = 1000;
        hello.capabilities = {"cpu_storage_v1"};
        hello.limits.leases = 65536;
        hello.limits.heartbeat_ms = heartbeat_ms;
        hello.version = "fake";
        reply(id, hello);
    } else if (std::get_if<wire::OpenSessionRequest>(&request.body)) {
        known_session_ = true;
        session_ = wire::make_id(epoch_, next_number_++);
        session_epoch_ = epoch_;
        pools_missing_ = false;
        reply(id, wire::SessionReply{session_, false});
    } else if (std::get_if<wire::AttachRequest>(&request.body)) {
        connection.same_as_opened = false;
        if (!known_session_)
            return reply(id, wire::StatusOnly{Status::NotFound, "no such session", 0});
        wire::AttachReply attach;
        attach.session = session_;
        attach.same_life = !pools_missing_;
        if (pools_missing_)
            for (auto &[pool, state] : pools_)
                attach.missing_pools.push_back(pool);
        attach_leases_.clear();
        reply(id, attach);
    } else if (const auto *attach = std::get_if<wire::AttachPoolRequest>(&request.body)) {
        auto &pool = pools_[attach->pool];
        if (fds.size() != attach->segment_count)
            return reply(id, wire::StatusOnly{Status::InvalidArgument, "descriptors", 0});
        for (uint32_t i = 0; i < attach->segment_count; ++i)
            pool.segments[attach->first_segment + i] = std::move(fds[i]);
        ok();
    } else if (const auto *republish = std::get_if<wire::RepublishRequest>(&request.body)) {
        std::vector<Status> statuses;
        std::vector<wire::Id> ids;
        for (const auto &item : republish->items) {
            if (stale(item.namespace_id)) {
                statuses.push_back(Status::StaleEpoch);
                ids.push_back(0);
                continue;
            }
            wire::CommitResult result;
            for (auto &[known, replica] : replicas_)  // told before: the same again
                if (replica.item.pool == item.item.pool &&
                    replica.item.offset == item.item.offset &&
                    replica.item.generation == item.item.generation)
                    result = {known, Status::Ok, 0};
            if (result.replica == 0)
                result = commit_one(item.namespace_id, item.item);
            if (result.status == Status::Ok) {
                replicas_[result.replica].leases = item.lease_count;
                replicas_[result.replica].retiring = item.retiring;
            }
            statuses.push_back(result.status);
            ids.push_back(result.replica);
        }
        reply(id, wire::ItemStatusReply{statuses, ids});
    } else if (const auto *leases = std::get_if<wire::AttachLeasesRequest>(&request.body)) {
        each(leases->items, [&](const wire::LeaseItem &item) {
            attach_leases_[item.replica] = item.count;
            auto found = replicas_.find(item.replica);
            return found != replicas_.end() && found->second.leases >= item.count
                       ? Status::Ok
                       : Status::NotFound;
        });
    } else if (std::get_if<wire::AttachDoneRequest>(&request.body)) {
        if (!pools_missing_)
            for (auto &[replica, state] : replicas_)
                state.leases = attach_leases_.count(replica) ? attach_leases_[replica] : 0;
        pools_missing_ = false;
        ok();
    } else if (std::get_if<wire::DescribeRequest>(&request.body) ||
               std::get_if<wire::HeartbeatRequest>(&request.body) ||
               std::get_if<wire::CloseSessionRequest>(&request.body)) {
        ok();
    } else if (const auto *ns = std::get_if<wire::RegisterNamespaceRequest>(&request.body)) {
        auto [found, added] = namespaces_.try_emplace(std::string(ns->text));
        if (added)
            found->second = wire::make_id(epoch_, next_number_++);
        reply(id, wire::NamespaceReply{found->second});
    } else if (const auto *open = std::get_if<wire::OpenPoolRequest>(&request.body)) {
        wire::Id pool = 0;
        for (auto &[known, state] : pools_)
            if (state.request_key == open->request_key)
                pool = known;
        if (pool == 0) {
            pool = wire::make_id(epoch_, next_number_++);
            pools_[pool].capacity = open->capacity_bytes;
            pools_[pool].segment_bytes = std::min(open->capacity_bytes, kSegmentBytes);
            pools_[pool].request_key = open->request_key;
        }
        const Pool &state = pools_[pool];
        reply(id,
              wire::PoolReply{pool, state.capacity, state.segment_bytes,
                              static_cast<uint32_t>((state.capacity - 1) / state.segment_bytes + 1),
                              uint64_t{wire::id_number(pool)} << 32 | 1});
    } else if (const auto *grant = std::get_if<wire::GrantSegmentRequest>(&request.body)) {
        Pool &pool = pools_[grant->pool];
        const uint64_t bytes =
            std::min(pool.segment_bytes, pool.capacity - grant->segment * pool.segment_bytes);
        UniqueFd &fd = pool.segments[grant->segment];
        if (!fd) {
            fd = UniqueFd(::memfd_create("fake-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING));
            if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
                std::abort();
            ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
        }
        reply(id, wire::SegmentReply{bytes, false}, {fd.get()});
    } else if (const auto *mapped = std::get_if<wire::SegmentMappedRequest>(&request.body)) {
        auto &segments = pools_[mapped->pool].segments;
        if (!segments.count(mapped->segment))
            return reply(id, wire::StatusOnly{Status::InvalidArgument, "not granted", 0});
        ::fcntl(segments[mapped->segment].get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
        ok();
    } else if (const auto *close = std::get_if<wire::ClosePoolRequest>(&request.body)) {
        if (!pools_.count(close->pool))
            return reply(id, wire::StatusOnly{Status::NotFound, "no such pool", 0});
        uint64_t held = 0;
        for (auto &[replica, state] : replicas_)
            held += state.item.pool == close->pool ? state.leases : 0;
        if (close->phase == wire::ClosePhase::Finish) {
            if (!pools_[close->pool].closing)
                return reply(id, wire::StatusOnly{Status::InvalidArgument, "not drained", 0});
            for (auto &[index, fd] : pools_[close->pool].segments)
                if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE) != 0)
                    return reply(id, wire::ClosePoolReply{Status::Busy, 0, "still mapped"});
            std::erase_if(replicas_, [&](auto &r) { return r.second.item.pool == close->pool; });
            pools_.erase(close->pool);
            return reply(id, wire::ClosePoolReply{});
        }
        if (held > 0)
            return reply(id, wire::ClosePoolReply{Status::Busy, held, "leases"});
        pools_[close->pool].closing = true;
        reply(id, wire::ClosePoolReply{});
    } else if (const auto *commit = std::get_if<wire::CommitRequest>(&request.body)) {
        if (stale(commit->namespace_id))
            return reply(id, wire::StatusOnly{Status::StaleEpoch, "namespace", 0});
        std::vector<wire::CommitResult> results;
        for (size_t i = 0; i < commit->items.size(); ++i) {
            auto [entry, added] = ledger_.try_emplace(commit->first_op + i);
            if (added)
                entry->second = commit_one(commit->namespace_id, commit->items[i]);
            results.push_back(entry->second);
        }
        reply(id, wire::CommitReply{results});
    } else if (const auto *resolve = std::get_if<wire::ResolveRequest>(&request.body)) {
        std::vector<wire::CommitResult> results;
        for (uint32_t i = 0; i < resolve->count; ++i) {
            auto found = ledger_.find(resolve->first_op + i);
            if (found == ledger_.end()) {
                const Status unseen = connection.same_as_opened ? Status::Unknown : Status::Absent;
                if (unseen == Status::Absent)
                    ledger_[resolve->first_op + i] = {0, Status::Absent, 0};
                results.push_back({0, unseen, 0});
            } else {
                results.push_back(found->second);
                if (results.back().status == Status::Ok)
                    results.back().status = Status::Committed;
            }
        }
        reply(id, wire::ResolveReply{results});
    } else if (const auto *probe = std::get_if<wire::ProbeRequest>(&request.body)) {
        if (stale(probe->namespace_id))
            return reply(id, wire::StatusOnly{Status::StaleEpoch, "namespace", 0});
        std::vector<uint8_t> bits((probe->keys.size() + 7) / 8);
        uint32_t prefix = 0;
        for (size_t i = 0; i < probe->keys.size(); ++i)
            for (auto &[replica, state] : replicas_)
                if (state.ns == probe->namespace_id && state.item.key.digest == probe->keys[i] &&
                    !state.retiring) {
                    bits[i / 8] |= static_cast<uint8_t>(1u << (i % 8));
                    prefix += prefix == i;
                    break;
                }
        reply(id, wire::ProbeReply{prefix, bits, wire::ProbeReason::None});
    } else if (const auto *acquire = std::get_if<wire::AcquireRequest>(&request.body)) {
        if (stale(acquire->namespace_id))
            return reply(id, wire::StatusOnly{Status::StaleEpoch, "namespace", 0});
        std::vector<wire::AcquireResult> results;
        for (const auto &digest : acquire->keys) {
            wire::AcquireResult result;
            for (auto &[replica, state] : replicas_)
                if (state.ns == acquire->namespace_id && state.item.key.digest == digest &&
                    !state.retiring) {
                    ++state.leases;
                    result = {replica,
                              state.item.pool,
                              state.item.offset,
                              state.item.length,
                              state.item.generation,
                              Status::Ok,
                              0};
                    break;
                }
            results.push_back(result);
        }
        reply(id, wire::AcquireReply{results});
    } else if (const auto *release = std::get_if<wire::ReleaseRequest>(&request.body)) {
        std::vector<wire::ReplicaName> drained;
        each(release->items, [&](const wire::ReplicaName &name) {
            Status status;
            Replica *replica = find(name, &status);
            if (replica && replica->leases == 0)
                return Status::NotFound;
            if (replica && --replica->leases == 0 && replica->retiring)
                drained.push_back(name);
            return status;
        });
        if (!drained.empty())
            send_event({wire::EventKind::Reclaim, drained, {}});
    } else if (const auto *retire = std::get_if<wire::RetireRequest>(&request.body)) {
        each(retire->items, [&](const wire::ReplicaName &name) {
            Status status;
            Replica *replica = find(name, &status);
            if (!replica)
                return status;
            replica->retiring = true;
            return replica->leases ? Status::Pending : Status::Ok;
        });
    } else if (const auto *ack = std::get_if<wire::ReclaimAckRequest>(&request.body)) {
        each(ack->items, [&](const wire::ReplicaName &name) {
            Status status;
            Replica *replica = find(name, &status);
            if (!replica)
                return status;
            if (!replica->retiring)
                return Status::InvalidArgument;
            if (replica->leases)
                return Status::Busy;
            replicas_.erase(name.replica);
            return Status::Ok;
        });
    } else {
        reply(id, wire::StatusOnly{Status::Protocol, "not known to the fake", 0});
    }
}

}  // namespace maru::client
