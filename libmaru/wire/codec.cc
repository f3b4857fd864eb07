#include "libmaru/wire/codec.h"

#include <capnp/message.h>
#include <kj/exception.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "libmaru/wire/codec_internal.h"
#include "libmaru/wire/flat_frame.h"
#include "libmaru/wire/frame_builder.h"

namespace maru::wire {

namespace {

constexpr size_t kWord = sizeof(capnp::word);
constexpr size_t kTableBytes = kWord;  // segment count - 1, words of the only segment

bool is_aligned(std::span<const std::byte> frame) {
    return reinterpret_cast<uintptr_t>(frame.data()) % kWord == 0;
}

// A frame's segment, as far as it is there.
struct Segment {
    kj::ArrayPtr<const capnp::word> words;
    bool whole = false;
};

// False: not even an id can be looked for.
bool find_segment(std::span<const std::byte> frame, DecodeError &error, Segment *ret) {
    if (frame.size() < kTableBytes) {
        error.message = "frame: " + std::to_string(frame.size()) + " bytes, at least " +
                        std::to_string(kTableBytes);
        return false;
    }
    uint32_t table[2];
    std::memcpy(table, frame.data(), sizeof table);
    if (table[0] != 0) {
        error.message =
            "frame: " + std::to_string(uint64_t{table[0]} + 1) + " segments, must be exactly 1";
        return false;
    }
    const uint64_t said = kTableBytes + uint64_t{table[1]} * kWord;
    ret->whole = said == frame.size() && said <= kMaxFrameBytes;
    if (said > kMaxFrameBytes || frame.size() > kMaxFrameBytes) {
        error.status = Status::TooLarge;
        error.message = "frame: " + std::to_string(std::max<uint64_t>(said, frame.size())) +
                        " bytes, at most " + std::to_string(kMaxFrameBytes);
    } else if (!ret->whole) {
        error.message = "frame: " + std::to_string(frame.size()) + " bytes, its table says " +
                        std::to_string(said);
    }
    const size_t there = std::min<uint64_t>({said, frame.size(), kMaxFrameBytes}) - kTableBytes;
    ret->words = kj::arrayPtr(reinterpret_cast<const capnp::word *>(frame.data() + kTableBytes),
                              there / kWord);
    return true;
}

// Reads the one segment in place. Each part of a message is read once, so the traversal limit,
// which stops pointers that overlap from multiplying the work, is little more than its size.
class FrameReader final : public capnp::MessageReader {
  public:
    explicit FrameReader(kj::ArrayPtr<const capnp::word> segment)
        : capnp::MessageReader(options(segment.size())), segment_(segment) {}

    kj::ArrayPtr<const capnp::word> getSegment(unsigned id) override {
        return id == 0 ? segment_ : nullptr;
    }

  private:
    static capnp::ReaderOptions options(size_t words) {
        capnp::ReaderOptions options;
        options.traversalLimitInWords = 2 * words + 64;
        options.nestingLimit = 8;  // message, body, row list, row, usage; the rest is for growth
        return options;
    }

    kj::ArrayPtr<const capnp::word> segment_;
};

void set_malformed(DecodeError &error, const kj::Exception &exception) {
    // getDescription() only: what() would run addr2line.
    error.status = Status::Protocol;
    error.message = "malformed message: " + std::string(exception.getDescription().cStr());
}

}  // namespace

// ---- decoder -----------------------------------------------------------------------------------

struct Decoder::Impl {
    HotMessages hot;
    Request request;
    ServerMessage message;
    DecodeError error;

    // decode(FrameReader) sets the id, then checks. A frame that is not whole is read for its id.
    template <typename Decode, typename ReadId>
    bool run(std::span<const std::byte> frame, ReadId &&read_id, Decode &&decode) {
        error.status = Status::Protocol;
        error.request_id = 0;
        error.message.clear();
        Segment segment;
        if (!find_segment(frame, error, &segment))
            return false;
        try {
            FrameReader reader(segment.words);
            if (!segment.whole) {
                error.request_id = read_id(reader);
                return false;
            }
            return decode(reader);
        } catch (const kj::Exception &exception) {
            if (segment.whole)
                set_malformed(error, exception);
        } catch (const std::exception &exception) {
            error.status = Status::Internal;
            error.message = std::string("decode message: ") + exception.what();
        }
        return false;
    }

    bool decode_request(FrameReader &reader) {
        const auto in = reader.getRoot<schema::Message>();
        request.id = in.getId();
        request.epoch = in.getEpoch();
        request.acknowledged_op = in.getAcknowledgedOp();
        error.request_id = request.id;
        FieldReader fields(error);
        if (request.id == 0)
            return fields.fail(Status::Protocol, "id: must not be 0");
        return decode_request_body(fields, in.getBody(), &request.body);
    }

    bool decode_server_message(FrameReader &reader) {
        const auto in = reader.getRoot<schema::ServerMessage>();
        FieldReader fields(error);
        switch (in.which()) {
            case schema::ServerMessage::REPLY: {
                if (!std::holds_alternative<Reply>(message))
                    message.emplace<Reply>();
                Reply &reply = *std::get_if<Reply>(&message);
                const auto reply_in = in.getReply();
                reply.id = reply_in.getId();
                error.request_id = reply.id;
                if (reply.id == 0)
                    return fields.fail(Status::Protocol, "id: must not be 0");
                return decode_reply_body(fields, reply_in.getBody(), &reply.body);
            }
            case schema::ServerMessage::EVENT:
                return decode_event(fields, in.getEvent(), &message.emplace<Event>());
        }
        return fields.fail(
            Status::Unsupported,
            "message: kind " + std::to_string(static_cast<int>(in.which())) + " is not known here");
    }
};

Decoder::Decoder(HotMessages hot) : impl_(std::make_unique<Impl>()) { impl_->hot = hot; }
Decoder::~Decoder() = default;

const Request *Decoder::request(std::span<const std::byte> frame) {
    assert(is_aligned(frame));
    if (impl_->hot == HotMessages::Flat && flat::read(frame, &impl_->request))
        return &impl_->request;
    const bool good = impl_->run(
        frame, [](FrameReader &reader) { return reader.getRoot<schema::Message>().getId(); },
        [this](FrameReader &reader) { return impl_->decode_request(reader); });
    return good ? &impl_->request : nullptr;
}

const ServerMessage *Decoder::server_message(std::span<const std::byte> frame) {
    assert(is_aligned(frame));
    if (impl_->hot == HotMessages::Flat && flat::read(frame, &impl_->message))
        return &impl_->message;
    const bool good = impl_->run(
        frame, [](FrameReader &) { return uint64_t{0}; },
        [this](FrameReader &reader) { return impl_->decode_server_message(reader); });
    return good ? &impl_->message : nullptr;
}

const DecodeError &Decoder::error() const { return impl_->error; }

// ---- encoder -----------------------------------------------------------------------------------

struct Encoder::Impl {
    HotMessages hot;
    FrameBuffer frame;

    // Empty: not one of the hot ones.
    template <typename Message>
    std::span<const std::byte> flat_frame(const Message &message) {
        return hot == HotMessages::Flat ? frame.written(flat::write(message, frame.space()))
                                        : std::span<const std::byte>();
    }
};

Encoder::Encoder(HotMessages hot) : impl_(std::make_unique<Impl>()) { impl_->hot = hot; }
Encoder::~Encoder() = default;

Result<std::span<const std::byte>> Encoder::request(const Request &request) {
    if (const auto frame = impl_->flat_frame(request); !frame.empty())
        return frame;
    return impl_->frame.build<schema::Message>([&](schema::Message::Builder out) {
        out.setId(request.id);
        out.setEpoch(request.epoch);
        out.setAcknowledgedOp(request.acknowledged_op);
        encode_request_body(request.body, out.getBody());
    });
}

Result<std::span<const std::byte>> Encoder::reply(const Reply &reply) {
    if (const auto frame = impl_->flat_frame(reply); !frame.empty())
        return frame;
    return impl_->frame.build<schema::ServerMessage>([&](schema::ServerMessage::Builder out) {
        auto reply_out = out.initReply();
        reply_out.setId(reply.id);
        encode_reply_body(reply.body, reply_out.getBody());
    });
}

Result<std::span<const std::byte>> Encoder::event(const Event &event) {
    return impl_->frame.build<schema::ServerMessage>(
        [&](schema::ServerMessage::Builder out) { encode_event(event, out.initEvent()); });
}

}  // namespace maru::wire
