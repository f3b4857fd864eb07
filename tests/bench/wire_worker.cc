#include "tests/bench/wire_worker.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <stdexcept>

namespace maru::bench {

namespace {

constexpr size_t kInFlight = 8;

uint64_t mixed(uint64_t value) {  // a bijection of 64 bits without a pattern
    value ^= value >> 31;
    value *= 0x7fb5d329728ea185u;
    value ^= value >> 27;
    value *= 0x81dadef4bc2dd44du;
    return value ^ value >> 33;
}

}  // namespace

maru_digest WireWorker::digest(uint64_t number) {
    maru_digest made;
    for (uint64_t i = 0; i < 4; ++i) {
        const uint64_t word = mixed(4 * number + i + 1);
        std::memcpy(made.bytes + 8 * i, &word, sizeof word);
    }
    return made;
}

template <typename Body>
const Body &WireWorker::ask(wire::RequestBody body, const char *what) {
    const Body *reply = wire_.ask<Body>(std::move(body));
    if (!reply)
        throw std::runtime_error(std::string("marud refused ") + what + ": " + wire_.message());
    return *reply;
}

WireWorker::WireWorker(const std::string &socket_path, const std::string &engine,
                       const std::string &text, size_t replicas)
    : wire_(socket_path), replicas_(replicas) {
    if (!wire_.hello())
        throw std::runtime_error("marud refused hello: " + wire_.message());
    wire::OpenSessionRequest open;
    open.token[0] = 1;
    open.token[15] = 1;
    open.engine = engine;
    ask<wire::SessionReply>(open, "a session");
    namespace_ =
        ask<wire::NamespaceReply>(wire::RegisterNamespaceRequest{text}, "a namespace").namespace_id;
    if (wire_.status(wire::DescribeRequest{namespace_, kObjectBytes, "bench"}) != wire::Status::Ok)
        throw std::runtime_error("marud refused a schema: " + wire_.message());
    open_pool();
}

void WireWorker::open_pool() {
    wire::OpenPoolRequest request;
    request.capacity_bytes = replicas_ * kObjectBytes;
    request.page_bytes = kObjectBytes;
    request.request_key = 1;
    const auto reply = ask<wire::PoolReply>(request, "a pool");
    pool_ = reply.pool;
    first_generation_ = reply.first_generation;
    for (uint32_t segment = 0; segment < reply.segment_count; ++segment) {
        ask<wire::SegmentReply>(wire::GrantSegmentRequest{pool_, segment}, "a segment");
        wire_.fds().clear();
        if (wire_.status(wire::SegmentMappedRequest{pool_, segment}) != wire::Status::Ok)
            throw std::runtime_error("marud did not seal a segment: " + wire_.message());
    }
}

void WireWorker::commit_all(const std::function<void(size_t)> &progress) {
    struct Sent {
        uint64_t id;
        size_t end;
    };
    std::deque<Sent> sent;
    std::vector<wire::CommitItem> items;
    const auto receive = [&] {
        const wire::Reply *reply = wire_.wait_reply(sent.front().id);
        const auto *commit = reply ? std::get_if<wire::CommitReply>(&reply->body) : nullptr;
        if (!commit)
            throw std::runtime_error("marud refused a commit: " + wire_.message());
        for (const wire::CommitResult &result : commit->results)
            if (result.status != wire::Status::Ok)
                throw std::runtime_error(std::string("a commit gave ") +
                                         wire::status_name(result.status));
        wire_.set_acknowledged(sent.front().end);
        progress(sent.front().end);
        sent.pop_front();
    };
    for (size_t first = 0; first < replicas_; first += wire::kMaxBatchItems) {
        const size_t end = std::min<size_t>(replicas_, first + wire::kMaxBatchItems);
        items.clear();
        for (size_t i = first; i < end; ++i) {
            wire::CommitItem item;
            const maru_digest digest_now = digest(i);
            std::memcpy(item.key.digest.bytes.data(), digest_now.bytes, sizeof digest_now.bytes);
            item.pool = pool_;
            item.offset = i * kObjectBytes;
            item.length = kObjectBytes;
            item.generation = first_generation_ + i;
            items.push_back(item);
        }
        if (sent.size() == kInFlight)
            receive();
        uint64_t id;
        while ((id = wire_.post(wire::CommitRequest{namespace_, first + 1, items})) == 0) {
            if (sent.empty())
                throw std::runtime_error("marud closed the connection of a commit");
            receive();  // the socket took no more
        }
        sent.push_back({id, end});
    }
    while (!sent.empty())
        receive();
}

}  // namespace maru::bench
