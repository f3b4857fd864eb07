// Bytes to messages and back: the one place that meets Cap'n Proto and its exceptions. The hot
// messages do without it (flat_frame.h), which nobody can tell from their bytes.
//
// Decoding checks everything that can be checked without state: sizes against limits.h, record
// blobs for a whole number of records, text for UTF-8 and NUL, enums for known values. A decoded
// message is safe to use as it stands. Not thread-safe per object; one Encoder per thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "libmaru/base/result.h"
#include "libmaru/wire/messages.h"

namespace maru::wire {

// A refused request whose id could still be read is answered; any other ends the connection.
struct DecodeError {
    Status status = Status::Protocol;
    uint64_t request_id = 0;  // 0: not readable
    std::string message;
};

// ByCapnp: all of them by Cap'n Proto, for tests that compare.
enum class HotMessages { Flat, ByCapnp };

// Decoder keeps what a decoded message borrows beyond the frame (capability lists), so that the
// common messages allocate nothing. The result is valid until the next decode or the frame's end.
// `frame` must be 8-byte aligned.
class Decoder {
  public:
    explicit Decoder(HotMessages hot = HotMessages::Flat);
    ~Decoder();
    // nullptr: see error().
    const Request *request(std::span<const std::byte> frame);
    const ServerMessage *server_message(std::span<const std::byte> frame);
    const DecodeError &error() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// Encoder reuses one buffer; the returned frame is valid until the next encode. The reply to a
// batch is at most kMaxFrameBytes by the limits; a message that would be larger is an error.
class Encoder {
  public:
    explicit Encoder(HotMessages hot = HotMessages::Flat);
    ~Encoder();
    Result<std::span<const std::byte>> request(const Request &request);
    Result<std::span<const std::byte>> reply(const Reply &reply);
    Result<std::span<const std::byte>> event(const Event &event);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

const char *status_name(Status status);             // "ALREADY_PRESENT"
const char *request_name(const RequestBody &body);  // "commit"
const char *request_kind_name(size_t kind);         // by place in RequestBody

}  // namespace maru::wire
