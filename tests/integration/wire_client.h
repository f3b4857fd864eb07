// A client that speaks the wire and nothing more: what libmaru hides, a test of marud wants to see.
//
// One request at a time; events that arrive meanwhile are kept. A reply is valid until the next
// call.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "libmaru/wire/codec.h"
#include "libmaru/wire/packet_socket.h"

namespace maru::test {

class WireClient {
  public:
    // Throws std::runtime_error when nobody listens within five seconds.
    explicit WireClient(const std::string &path);

    // The reply, or nullptr when the connection ended or `timeout_ms` passed.
    const wire::Reply *call(wire::RequestBody body, std::vector<int> fds = {},
                            int timeout_ms = 10'000);
    // Only sends; the id of the request. 0: the connection ended, or the socket took no more.
    uint64_t post(wire::RequestBody body, const std::vector<int> &fds = {});
    const wire::Reply *wait_reply(uint64_t id, int timeout_ms = 10'000);
    bool hello();  // and takes the epoch
    // Waits for an event of this kind.
    bool wait_event(wire::EventKind kind, int timeout_ms);
    bool wait_end(int timeout_ms);  // until marud has closed the connection

    // The body of a reply if it is of this type.
    template <typename Body>
    const Body *ask(wire::RequestBody body, std::vector<int> fds = {}) {
        const wire::Reply *reply = call(std::move(body), std::move(fds));
        return reply ? std::get_if<Body>(&reply->body) : nullptr;
    }
    // Of a StatusOnly reply; Ok for any other body; Internal without one.
    wire::Status status(wire::RequestBody body, std::vector<int> fds = {});
    const std::string &message() const { return message_; }  // of the last StatusOnly

    int fd() const { return socket_.get(); }
    uint32_t epoch() const { return epoch_; }
    void set_epoch(uint32_t epoch) { epoch_ = epoch; }
    // The watermark of the requests that follow.
    void set_acknowledged(uint64_t op) { acknowledged_ = op; }
    std::vector<UniqueFd> &fds() { return fds_; }  // that came with the last packet
    void close() { socket_.reset(); }

  private:
    // The next message; nullptr at the end of the connection or of the time.
    const wire::ServerMessage *receive(int timeout_ms);

    UniqueFd socket_;
    wire::Encoder encoder_;
    wire::Decoder decoder_;
    std::unique_ptr<std::byte[]> buffer_;
    std::vector<UniqueFd> fds_;
    std::deque<wire::EventKind> events_;
    std::string message_;
    uint32_t epoch_ = 0;
    uint64_t next_id_ = 1, acknowledged_ = 0;
    bool ended_ = false;
};

}  // namespace maru::test
