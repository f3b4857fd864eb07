#include "daemon/maructl/client.h"

#include <poll.h>

#include <cerrno>

#include "libmaru/base/clock.h"
#include "libmaru/wire/packet_socket.h"

namespace maru::maructl {

namespace {

Error silent(const char *what) {
    return Error{ETIMEDOUT, std::string(what) + ": marud did not answer in time (see --timeout)"};
}

}  // namespace

int64_t deadline_after(int64_t timeout_ns) {
    const int64_t now = monotonic_ns();
    return timeout_ns > INT64_MAX - now ? INT64_MAX : now + timeout_ns;
}

Client::Client(UniqueFd socket, int64_t timeout_ns)
    : socket_(std::move(socket)), timeout_ns_(timeout_ns), buffers_(std::make_unique<Buffers>()) {}

Result<void> Client::hello() {
    const auto reply = call_for<wire::HelloReply>(
        wire::HelloRequest{wire::kProtocolMajor, wire::kProtocolMinor, "maructl", {}});
    if (!reply)
        return reply.error();
    epoch_ = (*reply)->epoch;
    version_ = (*reply)->version;
    if (const uint64_t nonce = (*reply)->nonce; nonce != 0) {
        const auto proof = call(wire::HelloProofRequest{nonce});
        if (!proof)
            return proof.error();
    }
    return {};
}

Result<const wire::ReplyBody *> Client::call(wire::RequestBody body) {
    const char *name = wire::request_name(body);
    const int64_t deadline = deadline_after(timeout_ns_);
    const uint64_t id = next_id_++;
    const auto frame = buffers_->encoder.request({id, epoch_, 0, std::move(body)});
    if (!frame)
        return frame.error();
    if (auto sent = send(*frame, deadline); !sent)
        return sent.error();
    const auto reply = receive(id, deadline);
    if (!reply)
        return reply.error();
    const auto *status = std::get_if<wire::StatusOnly>(&(*reply)->body);
    if (status && status->status != wire::Status::Ok)
        return Error{0, std::string(name) + ": " + wire::status_name(status->status) +
                            (status->message.empty() ? "" : ": ") + std::string(status->message)};
    return &(*reply)->body;
}

Result<void> Client::send(std::span<const std::byte> frame, int64_t deadline_ns) {
    for (;;) {
        const auto sent = wire::send_packet(socket_.get(), frame);
        if (sent)
            return {};
        if (sent.error().code == EPIPE || sent.error().code == ECONNRESET)
            return Error{0, "marud closed the connection"};
        if (sent.error().code != EAGAIN && sent.error().code != ENOBUFS)
            return sent.error();
        if (!wire::wait_socket(socket_.get(), POLLOUT, deadline_ns))
            return silent("send");
    }
}

Result<const wire::Reply *> Client::receive(uint64_t id, int64_t deadline_ns) {
    for (;;) {
        auto packet = wire::receive_packet(socket_.get(), buffers_->frame);
        if (!packet) {
            if (packet.error().code == EPIPE)
                return Error{0, "marud closed the connection"};
            if (packet.error().code != EAGAIN)
                return packet.error();
            if (!wire::wait_socket(socket_.get(), POLLIN, deadline_ns))
                return silent("receive");
            continue;
        }
        const wire::ServerMessage *message = buffers_->decoder.server_message(packet->bytes);
        if (!message)
            return Error{0, "marud sent what is no message: " + buffers_->decoder.error().message};
        // Events and answers to earlier, abandoned questions are passed over.
        if (const auto *reply = std::get_if<wire::Reply>(message); reply && reply->id == id)
            return reply;
    }
}

}  // namespace maru::maructl
