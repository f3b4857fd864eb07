// A proxy between clients and marud that loses, delays, doubles, cuts and rewrites messages.
//
// marud knows its peer as the process that called connect(), so it takes every client of the proxy
// for the process of the test: put clients of this process behind it only. Messages keep their order
// except for delayed ones, which others overtake. Descriptors travel with their message, or are
// taken from it; none is ever left open.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "libmaru/base/unique_fd.h"
#include "libmaru/wire/codec.h"
#include "libmaru/wire/packet_socket.h"

namespace maru::test {

class SocketProxy {
  public:
    enum class Direction { ToMarud, ToClient };

    // What a rule sees. Valid during the call.
    struct Message {
        Direction direction;
        int connection;  // counts from 1
        std::span<const std::byte> bytes;
        size_t descriptors;
        const wire::Request *request;       // ToMarud, if it is one
        const wire::ServerMessage *server;  // ToClient, if it is one

        // Shorthands for the usual rules; nullptr: it is something else.
        template <typename Body>
        const Body *asks() const {
            return request ? std::get_if<Body>(&request->body) : nullptr;
        }
        const wire::Reply *reply() const {
            return server ? std::get_if<wire::Reply>(server) : nullptr;
        }
        template <typename Body>
        const Body *answers() const {
            return reply() ? std::get_if<Body>(&reply()->body) : nullptr;
        }
    };

    // What becomes of it.
    struct Verdict {
        int copies = 1;  // 0: lost
        int delay_ms = 0;
        size_t keep_bytes = SIZE_MAX;                 // cut behind these
        bool strip_descriptors = false;               // the message goes on without them
        bool end_connection = false;                  // after it
        std::optional<std::vector<std::byte>> bytes;  // instead of its own
    };
    static Verdict pass() { return {}; }
    static Verdict drop() { return {.copies = 0}; }
    static Verdict duplicate() { return {.copies = 2}; }
    static Verdict delay(int ms) { return {.delay_ms = ms}; }
    static Verdict cut(size_t bytes) { return {.keep_bytes = bytes}; }
    static Verdict without_descriptors() { return {.strip_descriptors = true}; }
    static Verdict lose_connection() { return {.copies = 0, .end_connection = true}; }
    static Verdict replace(const wire::Reply &reply);

    explicit SocketProxy(std::string marud_socket);
    ~SocketProxy();
    SocketProxy(const SocketProxy &) = delete;
    SocketProxy &operator=(const SocketProxy &) = delete;

    const std::string &path() const { return path_; }  // where clients connect

    // Judges each message from now on, in the proxy's thread; none: all pass.
    using Rule = std::function<Verdict(const Message &)>;
    void set_rule(Rule rule);
    // While on, nothing is read from clients: their sends fill up and block.
    void hold_clients(bool on);
    void drop_connections();

    int connections() const { return connections_; }    // accepted so far
    uint64_t late_deliveries() const { return late_; }  // delayed messages that went out

  private:
    struct Outgoing {
        int64_t due_ns;
        bool late;
        std::vector<std::byte> bytes;
        std::vector<UniqueFd> fds;
        bool end_after = false;
    };
    struct Side {
        UniqueFd fd;
        std::deque<Outgoing> queue;  // to be sent to fd
        bool blocked = false;        // the socket takes no more now
    };
    struct Connection {
        int number = 0;
        Side client, marud;
        bool ended = false;
    };

    void serve();
    void accept_client();
    void read_side(Connection &connection, Direction direction);
    void judge(Connection &connection, Direction direction, wire::Packet packet);
    void flush(Connection &connection, Side &side);
    int64_t next_due() const;
    void wake();

    std::string marud_socket_, folder_, path_;
    UniqueFd listener_, wake_;
    std::atomic<bool> stop_{false}, hold_{false}, drop_{false};
    std::atomic<int> connections_{0};
    std::atomic<uint64_t> late_{0};
    std::mutex rule_mutex_;
    Rule rule_;
    std::list<Connection> pairs_;  // of the proxy's thread
    wire::Decoder decoder_;
    std::vector<uint64_t> buffer_;  // for alignment
    std::thread thread_;
};

}  // namespace maru::test
