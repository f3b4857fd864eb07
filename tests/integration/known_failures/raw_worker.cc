#include "tests/integration/known_failures/raw_worker.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace maru::test {

using wire::Status;

wire::Digest raw_digest(uint32_t key) {
    wire::Digest digest;
    std::memcpy(digest.bytes.data(), &key, sizeof key);
    digest.bytes[31] = 0xa5;
    return digest;
}

RawWorker::RawWorker(std::string socket, uint8_t token, std::string engine)
    : socket_(std::move(socket)), engine_(std::move(engine)) {
    token_[0] = token;
    token_[15] = 1;
    reconnect();
}

RawWorker::~RawWorker() {
    for (const auto &[at, bytes] : mappings_)
        ::munmap(at, bytes);
}

void RawWorker::need(bool good, const char *what) {
    if (!good)
        throw std::runtime_error(std::string(what) + ": " + client_->message());
}

void RawWorker::reconnect() {
    client_ = std::make_unique<WireClient>(socket_);
    need(client_->hello(), "hello");
}

void RawWorker::open() {
    wire::OpenSessionRequest request;
    request.token = token_;
    request.engine = engine_;
    need(client_->status(request) == Status::Ok, "open session");
    const auto *ns = client_->ask<wire::NamespaceReply>(wire::RegisterNamespaceRequest{text});
    need(ns, "register namespace");
    ns_ = ns->namespace_id;
    need(client_->status(wire::DescribeRequest{ns_, object_bytes, "raw"}) == Status::Ok,
         "describe");
}

void RawWorker::open_pool(uint64_t bytes, uint32_t page_bytes) {
    wire::OpenPoolRequest request;
    request.capacity_bytes = bytes;
    request.page_bytes = page_bytes;
    request.request_key = 1;
    const auto *reply = client_->ask<wire::PoolReply>(request);
    need(reply, "open pool");
    pool_ = *reply;
}

void RawWorker::map_segments() {
    for (uint32_t i = 0; i < pool_.segment_count; ++i) {
        const auto *segment =
            client_->ask<wire::SegmentReply>(wire::GrantSegmentRequest{pool_.pool, i});
        need(segment && client_->fds().size() == 1, "grant segment");
        const size_t bytes = segment->bytes;
        UniqueFd fd = std::move(client_->fds()[0]);
        void *at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
        need(at != MAP_FAILED, "map");
        mappings_.emplace_back(at, bytes);
        segments_.push_back(std::move(fd));
        need(client_->status(wire::SegmentMappedRequest{pool_.pool, i}) == Status::Ok,
             "segment mapped");
    }
}

wire::CommitItem RawWorker::item(uint32_t key, uint64_t page, uint64_t generation) const {
    wire::CommitItem item;
    item.key.digest = raw_digest(key);
    item.pool = pool_.pool;
    item.offset = page * 4096;
    item.length = object_bytes;
    item.generation = pool_.first_generation + generation;
    return item;
}

wire::CommitResult RawWorker::commit(uint64_t op, const wire::CommitItem &item) {
    const auto *reply = client_->ask<wire::CommitReply>(wire::CommitRequest{ns_, op, {&item, 1}});
    return reply && reply->results.size() == 1 ? reply->results[0] : wire::CommitResult{};
}

wire::AcquireResult RawWorker::acquire(uint32_t key) {
    const wire::Digest digest = raw_digest(key);
    wire::AcquireRequest request;
    request.namespace_id = ns_;
    request.keys = {&digest, 1};
    const auto *reply = client_->ask<wire::AcquireReply>(request);
    need(reply && reply->results.size() == 1, "acquire");
    return reply->results[0];
}

uint32_t RawWorker::probe(uint32_t key) {
    const wire::Digest digest = raw_digest(key);
    wire::ProbeRequest request;
    request.namespace_id = ns_;
    request.keys = {&digest, 1};
    const auto *reply = client_->ask<wire::ProbeReply>(request);
    need(reply, "probe");
    return reply->prefix;
}

wire::Usage RawWorker::usage() {
    const auto *reply = client_->ask<wire::UsageReply>(wire::UsageRequest{pool_.pool});
    need(reply, "usage");
    return reply->usage;
}

Status RawWorker::attach(uint32_t old_epoch) {
    wire::AttachRequest request;
    request.token = token_;
    request.engine = engine_;
    request.old_epoch = old_epoch;
    return client_->status(request);
}

std::byte *RawWorker::memory(uint64_t offset) const {
    const size_t index = offset / pool_.segment_bytes;
    return static_cast<std::byte *>(mappings_.at(index).first) + offset % pool_.segment_bytes;
}

}  // namespace maru::test
