// Party: a client of marud under a uid of its choice, with what a worker has: a pool, replicas,
// leases. And the process that an attack runs in.
//
// Everything here throws Failed when a step that must succeed does not. An attack runs in a child
// process: what it leaves behind ends with it, as with any client that dies.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/integration/wire_client.h"

namespace maru::test {

struct Failed : std::runtime_error {
    using std::runtime_error::runtime_error;
};
// In a child there is no test framework: a false condition ends the attack with this text.
void require(bool truth, const std::string &what);

bool is_root();
inline constexpr uid_t kOwnerUid = 20'001, kAttackerUid = 20'002, kWitnessUid = 20'003;

// The calling thread connects as `uid` while this lives; without root it stays what it is. marud
// takes a peer's uid from the moment of connect().
class AsUid {
  public:
    explicit AsUid(uid_t uid);
    ~AsUid();
    AsUid(const AsUid &) = delete;
    AsUid &operator=(const AsUid &) = delete;
};
std::unique_ptr<WireClient> connect_as(uid_t uid, const std::string &socket);

// Connected and greeted.
class Greeted : public WireClient {
  public:
    explicit Greeted(const std::string &socket) : WireClient(socket) {
        require(hello(), "no hello");
    }
};

// Runs `attack` in a child process of `uid` (of ours without root); "" or what went wrong. A child
// that is not done within `timeout_ms` is killed, and that is an error, too. `meanwhile` runs here
// while the child does, with its pid.
std::string run_child(uid_t uid, const std::function<void()> &attack, int timeout_ms = 60'000,
                      const std::function<void(pid_t)> &meanwhile = {});

inline constexpr uint64_t kSegmentBytes = 64 << 10, kPageBytes = 4096, kObjectBytes = 4096;

wire::Token token_of(uint32_t number);
wire::Digest digest_of(uint32_t number);
std::vector<wire::Digest> digests(uint32_t first, uint32_t count);

class Party {
  public:
    Party(std::unique_ptr<WireClient> client, uint32_t token, std::string engine,
          wire::Role role = wire::Role::Worker);
    ~Party();
    Party(Party &&other) = default;  // leaves no mappings behind
    Party(const Party &) = delete;
    Party &operator=(const Party &) = delete;

    WireClient &wire() { return *client_; }
    wire::Status open();                               // after hello
    void done(wire::Status status, const char *what);  // Failed unless it is Ok
    void use_namespace(const std::string &text = "hostile");
    // All segments granted, mapped and sealed.
    void make_pool(uint64_t bytes = kSegmentBytes, wire::Scope scope = wire::Scope::Worker);
    // Writes object `number` into page `page` and commits it.
    void store(uint32_t number, uint32_t page);
    wire::AcquireResult acquire(uint32_t number);

    wire::Id session = 0, ns = 0, pool = 0;
    uint64_t next_generation = 0;
    uint64_t next_op = 1;
    uint64_t capacity = 0, segment_bytes = 0;
    wire::Token token{};
    std::string engine;
    std::vector<UniqueFd> segments;
    std::vector<char *> mappings;

  private:
    std::unique_ptr<WireClient> client_;
    wire::Role role_;
};

// Connected, greeted, with a session, a described namespace and a pool of one segment.
Party worker(const std::string &socket, uid_t uid, uint32_t token, const std::string &engine,
             wire::Scope scope = wire::Scope::Worker);

}  // namespace maru::test
