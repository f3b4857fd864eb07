// Client: one question, one answer. What an administrator needs of the protocol: no session, no
// pipelining, no memory.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "libmaru/base/result.h"
#include "libmaru/base/unique_fd.h"
#include "libmaru/wire/codec.h"
#include "libmaru/wire/limits.h"

namespace maru::maructl {

// Now and that long; a timeout beyond the end of the clock waits for ever.
int64_t deadline_after(int64_t timeout_ns);

class Client {
  public:
    // `timeout_ns` is that of each answer.
    Client(UniqueFd socket, int64_t timeout_ns);

    // To be called once, first. Answers a nonce by itself.
    Result<void> hello();
    // Valid until the next call. A refusal by marud is an error with code 0 and the message
    // "NAME of request: STATUS: marud's words".
    Result<const wire::ReplyBody *> call(wire::RequestBody body);
    // The same, for the one kind of answer that the request has.
    template <typename T>
    Result<const T *> call_for(wire::RequestBody body) {
        const auto reply = call(std::move(body));
        if (!reply)
            return reply.error();
        if (const T *wanted = std::get_if<T>(*reply))
            return wanted;
        return Error{0, "marud answered with another kind of message"};
    }

    uint32_t epoch() const { return epoch_; }
    const std::string &marud_version() const { return version_; }

  private:
    Result<void> send(std::span<const std::byte> frame, int64_t deadline_ns);
    Result<const wire::Reply *> receive(uint64_t id, int64_t deadline_ns);

    UniqueFd socket_;
    int64_t timeout_ns_;
    uint64_t next_id_ = 1;
    uint32_t epoch_ = 0;
    std::string version_;
    struct Buffers {
        wire::Encoder encoder;
        wire::Decoder decoder;
        alignas(8) std::array<std::byte, wire::kMaxFrameBytes> frame;
    };
    std::unique_ptr<Buffers> buffers_;
};

}  // namespace maru::maructl
