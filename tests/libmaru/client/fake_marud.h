// FakeMarud: the other end of the socket, under the test's control.
//
// Answers like marud as far as the client can tell: one life at a time, namespaces, private pools of
// memfds, replicas, leases, a ledger. A hook sees each request first and may answer it itself, stay
// silent, or close the connection before or after the request was carried out.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "libmaru/base/unique_fd.h"
#include "libmaru/wire/codec.h"
#include "libmaru/wire/packet_socket.h"

namespace maru::client {

enum class Act {
    Normal,
    Silent,       // not carried out, not answered
    DoSilently,   // carried out, not answered
    CloseBefore,  // the connection ends; not carried out
    CloseAfter,   // carried out; the connection ends instead of a reply
    DieBefore,    // marud restarts
    DieAfter,     // carried out, then marud restarts
    Answered,     // by the hook
};

class FakeMarud {
  public:
    FakeMarud();
    ~FakeMarud();

    const std::string &path() const { return path_; }

    // `connection` counts from 1. Runs in the server's thread.
    using Hook = std::function<Act(const wire::Request &request, int connection)>;
    void set_hook(Hook hook);
    // The hook acts once, on the first request of this kind.
    void once(const std::string &request_name, Act act);
    // Sends a reply over the newest connection; from a hook or any thread.
    void send(uint64_t request_id, const wire::ReplyBody &body, std::vector<int> fds = {});
    void send_event(const wire::Event &event);
    // A new life: another epoch, numbers from 1 again, no connection. `text`: registered first.
    void restart(const std::string &text = "");
    void drop_connections();

    int count(const std::string &request_name) const;
    int connections() const;
    uint64_t leases() const;
    uint64_t replicas() const;
    uint64_t stale_names() const;  // ids of an earlier life that were used: must stay 0
    std::map<std::string, int> counts() const;

    std::atomic<uint32_t> heartbeat_ms{0};

  private:
    struct Connection {
        int number = 0;
        UniqueFd fd;
        bool same_as_opened = true;
    };
    struct Pool {
        uint64_t capacity = 0, segment_bytes = 0, request_key = 0;
        std::map<uint32_t, UniqueFd> segments;
        bool closing = false;
    };
    struct Replica {
        wire::Id ns = 0;
        wire::CommitItem item;
        uint64_t leases = 0;
        bool retiring = false;
    };
    void serve();
    void handle(const wire::Request &request, Connection &connection, std::vector<UniqueFd> fds);
    void carry_out(const wire::Request &request, Connection &connection,
                   std::vector<UniqueFd> &fds);
    void reply(uint64_t id, wire::ReplyBody body, std::vector<int> fds = {});
    wire::CommitResult commit_one(wire::Id ns, const wire::CommitItem &item);
    Replica *find(const wire::ReplicaName &name, wire::Status *status);
    void new_life();
    bool stale(wire::Id id);

    std::string folder_, path_;
    UniqueFd listener_, stop_;
    std::thread thread_;
    mutable std::recursive_mutex mutex_;
    Hook hook_;
    std::map<std::string, int> counts_;
    std::vector<std::unique_ptr<Connection>> connections_;
    int connection_count_ = 0;
    uint64_t stale_names_ = 0;

    uint32_t epoch_ = 0, next_number_ = 1;
    bool known_session_ = false;
    wire::Id session_ = 0;
    uint32_t session_epoch_ = 0;
    bool pools_missing_ = false;
    std::map<std::string, wire::Id> namespaces_;
    std::map<wire::Id, Pool> pools_;  // survive restarts, their segments do not
    std::map<wire::Id, Replica> replicas_;
    std::map<uint64_t, wire::CommitResult> ledger_;
    std::map<wire::Id, uint64_t> attach_leases_;
    wire::Encoder encoder_;

    // Of the request being handled.
    bool mute_ = false;
};

}  // namespace maru::client
