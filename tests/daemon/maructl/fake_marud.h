// The other end of maructl's socket: answers each request by a function, in a thread of its own.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "daemon/maructl/run.h"
#include "libmaru/wire/codec.h"
#include "libmaru/wire/packet_socket.h"

namespace maru::maructl::test {

class FakeMarud {
  public:
    static constexpr uint32_t kEpoch = 0x5eed;
    // nullopt: no answer. Hello is answered by the fake itself, unless `hello` is set.
    using Answer = std::function<std::optional<wire::ReplyBody>(const wire::Request &)>;

    explicit FakeMarud(Answer answer) : answer_(std::move(answer)) {}
    ~FakeMarud() {
        if (server_)  // closed only when its reader has ended
            ::shutdown(server_->get(), SHUT_RDWR);
        if (thread_.joinable())
            thread_.join();
    }

    uint64_t nonce = 0;
    bool event_before_reply = false;
    bool hang_up = false;

    OpenSocket opener() {
        return [this](const Options &, int64_t) -> Result<UniqueFd> {
            int fds[2];
            if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
                std::abort();
            server_ = std::make_unique<UniqueFd>(fds[1]);
            thread_ = std::thread([this, fd = fds[1]] { serve(fd); });
            return UniqueFd(fds[0]);
        };
    }

    // Of every request so far: its name, and its epoch as it should be.
    std::vector<std::string> requests() {
        if (thread_.joinable())
            thread_.join();
        return requests_;
    }

  private:
    void serve(int fd) {
        wire::Encoder encoder;
        wire::Decoder decoder;
        alignas(8) std::array<std::byte, wire::kMaxFrameBytes> buffer;
        for (;;) {
            if (!wire::wait_socket(fd, POLLIN, INT64_MAX))
                return;
            const auto packet = wire::receive_packet(fd, buffer);
            if (!packet)
                return;  // maructl has ended
            const wire::Request *request = decoder.request(packet->bytes);
            if (!request)
                std::abort();
            requests_.emplace_back(wire::request_name(request->body));
            const bool hello = std::holds_alternative<wire::HelloRequest>(request->body);
            if (request->epoch != (hello ? 0 : kEpoch))
                requests_.back() += " with a wrong epoch";
            if (hang_up && !hello) {
                ::shutdown(fd, SHUT_RDWR);
                return;
            }
            if (event_before_reply)
                send(fd, encoder.event({wire::EventKind::Draining, {}, "going down"}));
            std::optional<wire::ReplyBody> body;
            if (hello) {
                wire::HelloReply reply;
                reply.epoch = kEpoch;
                reply.nonce = nonce;
                reply.version = "9.8.7";
                body = reply;
            } else if (const auto *proof = std::get_if<wire::HelloProofRequest>(&request->body)) {
                body = wire::StatusOnly{proof->nonce == nonce ? wire::Status::Ok
                                                              : wire::Status::Denied};
            } else {
                body = answer_(*request);
            }
            if (body)
                send(fd, encoder.reply({request->id, *body}));
        }
    }
    static void send(int fd, const Result<std::span<const std::byte>> &frame) {
        if (!frame || !wire::send_packet(fd, *frame))
            std::abort();
    }

    Answer answer_;
    std::unique_ptr<UniqueFd> server_;
    std::thread thread_;
    std::vector<std::string> requests_;
};

struct Outcome {
    int exit;
    std::string out, err;
};

inline Outcome run_words(std::vector<const char *> words, const OpenSocket &open_socket) {
    std::ostringstream out, err;
    const int exit = run(words, out, err, open_socket);
    return {exit, out.str(), err.str()};
}

inline OpenSocket nobody_there() {
    return [](const Options &options, int64_t) -> Result<UniqueFd> {
        return Error{ECONNREFUSED, "connect to '" + options.socket + "'"};
    };
}

}  // namespace maru::maructl::test
