// Hello, request ids and the loss of a connection, the same for every client.
#include "tests/sim/clients.h"

namespace maru::sim {

std::string text_of(uint32_t index) {
    return "{\"model\":\"m" + std::to_string(index) + "\",\"dtype\":\"bf16\",\"tp\":1}";
}

uint64_t object_bytes(const Settings &settings) {
    return static_cast<uint64_t>(settings.object_pages) * settings.page_bytes - 100;
}

void Endpoint::connect() {
    if (link_ || !process_ || !process_->alive)
        return;
    link_ = world_.connect(this);
    if (!link_)
        return;
    greeted_ = false;
    epoch_ = 0;
    asked_.clear();
    wire::HelloRequest hello;
    hello.client_name = "sim";
    ask(hello);
}

void Endpoint::ask(wire::RequestBody body, std::vector<uint64_t> about,
                   std::span<Memfd *const> fds) {
    if (!link_)
        return;
    wire::Request request;
    request.id = next_request_++;
    request.epoch = epoch_;
    request.acknowledged_op = watermark();
    request.body = std::move(body);
    asked_[request.id] = {request.body.index(), std::move(about)};
    tamper(request);
    last_sent_ = world_.now();
    world_.send(link_, request, fds);
}

void Endpoint::cut() {
    if (!link_)
        return;
    world_.trace().add("c%llu: p%llu hangs up", static_cast<unsigned long long>(link_->id),
                       static_cast<unsigned long long>(process_->number));
    world_.hang_up(link_);
    link_lost();
}

void Endpoint::link_lost() {
    link_ = nullptr;
    greeted_ = false;
    auto unanswered = std::move(asked_);
    asked_.clear();
    lost(std::move(unanswered));
}

void Endpoint::receive(const wire::ServerMessage &message, std::span<Memfd *const> fds) {
    if (const auto *event = std::get_if<wire::Event>(&message)) {
        happened(*event);
        return;
    }
    const auto &reply = std::get<wire::Reply>(message);
    auto found = asked_.find(reply.id);
    if (found == asked_.end())
        return;
    const Asked asked = std::move(found->second);
    asked_.erase(found);
    if (const auto *hello = std::get_if<wire::HelloReply>(&reply.body)) {
        epoch_ = hello->epoch;
        if (hello->nonce != 0) {
            ask(wire::HelloProofRequest{hello->nonce});
            return;
        }
        greeted_ = true;
        greeted();
        return;
    }
    if (asked.kind == wire::RequestBody(wire::HelloProofRequest{}).index()) {
        greeted_ = true;
        greeted();
        return;
    }
    if (asked.kind == wire::RequestBody(wire::HelloRequest{}).index()) {
        cut();  // refused: try again
        return;
    }
    answered(asked, reply, fds);
}

}  // namespace maru::sim
