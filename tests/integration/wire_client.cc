#include "tests/integration/wire_client.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>

#include "libmaru/base/clock.h"

namespace maru::test {

WireClient::WireClient(const std::string &path) : buffer_(new std::byte[wire::kMaxFrameBytes]) {
    auto socket = wire::connect_seqpacket(path, monotonic_ns() + 5'000'000'000);
    if (!socket)
        throw std::runtime_error(describe(socket.error()));
    socket_ = std::move(*socket);
}

uint64_t WireClient::post(wire::RequestBody body, const std::vector<int> &fds) {
    wire::Request request;
    request.id = next_id_++;
    request.epoch = std::holds_alternative<wire::HelloRequest>(body) ? 0 : epoch_;
    request.acknowledged_op = acknowledged_;
    request.body = std::move(body);
    auto frame = encoder_.request(request);
    if (!frame)
        throw std::runtime_error(describe(frame.error()));
    return wire::send_packet(socket_.get(), *frame, fds) ? request.id : 0;
}

const wire::ServerMessage *WireClient::receive(int timeout_ms) {
    int64_t deadline = monotonic_ns() + int64_t{timeout_ms} * 1'000'000;
    while (!ended_) {
        auto packet = wire::receive_packet(socket_.get(), {buffer_.get(), wire::kMaxFrameBytes});
        if (packet) {
            fds_ = std::move(packet->fds);
            const wire::ServerMessage *message = decoder_.server_message(packet->bytes);
            if (!message)
                throw std::runtime_error("marud sent what does not decode: " +
                                         decoder_.error().message);
            return message;
        }
        if (packet.error().code != EAGAIN)
            ended_ = true;
        else if (!wire::wait_socket(socket_.get(), POLLIN, deadline))
            return nullptr;
    }
    return nullptr;
}

const wire::Reply *WireClient::wait_reply(uint64_t id, int timeout_ms) {
    int64_t deadline = monotonic_ns() + int64_t{timeout_ms} * 1'000'000;
    while (const wire::ServerMessage *message = receive(
               static_cast<int>(std::max<int64_t>(deadline - monotonic_ns(), 0) / 1'000'000))) {
        if (const auto *event = std::get_if<wire::Event>(message)) {
            events_.push_back(event->kind);
            continue;
        }
        const auto &reply = std::get<wire::Reply>(*message);
        if (reply.id != id)
            continue;
        if (const auto *only = std::get_if<wire::StatusOnly>(&reply.body))
            message_ = only->message;
        return &reply;
    }
    return nullptr;
}

const wire::Reply *WireClient::call(wire::RequestBody body, std::vector<int> fds, int timeout_ms) {
    uint64_t id = post(std::move(body), fds);
    return id ? wait_reply(id, timeout_ms) : nullptr;
}

wire::Status WireClient::status(wire::RequestBody body, std::vector<int> fds) {
    const wire::Reply *reply = call(std::move(body), std::move(fds));
    if (!reply)
        return wire::Status::Internal;
    const auto *only = std::get_if<wire::StatusOnly>(&reply->body);
    return only ? only->status : wire::Status::Ok;
}

bool WireClient::hello() {
    const auto *reply = ask<wire::HelloReply>(wire::HelloRequest{});
    if (!reply)
        return false;
    epoch_ = reply->epoch;
    uint64_t nonce = reply->nonce;
    return nonce == 0 || status(wire::HelloProofRequest{nonce}) == wire::Status::Ok;
}

bool WireClient::wait_event(wire::EventKind kind, int timeout_ms) {
    int64_t deadline = monotonic_ns() + int64_t{timeout_ms} * 1'000'000;
    for (;;) {
        auto found = std::find(events_.begin(), events_.end(), kind);
        if (found != events_.end()) {
            events_.erase(found);
            return true;
        }
        const wire::ServerMessage *message =
            receive(static_cast<int>(std::max<int64_t>(deadline - monotonic_ns(), 0) / 1'000'000));
        if (!message)
            return false;
        if (const auto *event = std::get_if<wire::Event>(message))
            events_.push_back(event->kind);
    }
}

bool WireClient::wait_end(int timeout_ms) {
    int64_t deadline = monotonic_ns() + int64_t{timeout_ms} * 1'000'000;
    while (!ended_ && monotonic_ns() < deadline)
        receive(static_cast<int>((deadline - monotonic_ns()) / 1'000'000));
    return ended_;
}

}  // namespace maru::test
