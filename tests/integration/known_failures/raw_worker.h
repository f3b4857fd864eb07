// A worker that speaks the wire itself: for requests that libmaru never sends, names that have
// passed, and memory that nobody has to populate.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/integration/wire_client.h"

namespace maru::test {

class RawWorker {
  public:
    RawWorker(std::string socket, uint8_t token, std::string engine);
    ~RawWorker();  // unmaps; says nothing to marud
    RawWorker(const RawWorker &) = delete;
    RawWorker &operator=(const RawWorker &) = delete;

    // Each throws std::runtime_error with marud's message when it is refused.
    void open();  // session, namespace, schema
    void open_pool(uint64_t bytes, uint32_t page_bytes = 4096);
    void map_segments();  // all of them, granted, mapped and sealed

    wire::CommitItem item(uint32_t key, uint64_t page, uint64_t generation) const;
    wire::CommitResult commit(uint64_t op, const wire::CommitItem &item);
    wire::AcquireResult acquire(uint32_t key);
    uint32_t probe(uint32_t key);
    // The only status of a batch of one name.
    template <typename Request>
    wire::Status name_one(wire::ReplicaName name) {
        const auto *reply = client().ask<wire::ItemStatusReply>(Request{{&name, 1}});
        return reply && reply->statuses.size() == 1 ? reply->statuses[0] : wire::Status::Internal;
    }
    wire::Usage usage();
    void reconnect();  // a new connection with hello, and no session yet
    wire::Status attach(uint32_t old_epoch);

    WireClient &client() { return *client_; }
    wire::Id ns() const { return ns_; }
    const wire::PoolReply &pool() const { return pool_; }
    std::byte *memory(uint64_t offset) const;
    int segment_fd(size_t i) const { return segments_[i].get(); }
    uint64_t object_bytes = 4096;
    std::string text = "known-failures/raw";

  private:
    void need(bool good, const char *what);

    std::string socket_, engine_;
    wire::Token token_{};
    std::unique_ptr<WireClient> client_;
    wire::Id ns_ = 0;
    wire::PoolReply pool_;
    std::vector<UniqueFd> segments_;
    std::vector<std::pair<void *, size_t>> mappings_;
};

wire::Digest raw_digest(uint32_t key);

}  // namespace maru::test
