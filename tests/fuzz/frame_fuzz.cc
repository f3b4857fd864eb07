// libFuzzer target: any bytes as a frame, both ways. What decodes is encoded and decoded again.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "libmaru/wire/codec.h"

namespace {

void require(bool truth) {
    if (!truth)
        std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    using namespace maru::wire;
    static Decoder decoder, second_decoder;
    static Encoder encoder;
    // Aligned, and of exactly this size, so that the sanitizer sees a read beyond the end.
    std::vector<uint64_t> words((size + 7) / 8);
    if (size)
        std::memcpy(words.data(), data, size);
    const std::span<const std::byte> frame(reinterpret_cast<const std::byte *>(words.data()), size);

    // Aliased parts of a frame are legal and are written out once each, so the second frame may be
    // too large; whatever fits decodes to the same kind.
    if (const Request *request = decoder.request(frame)) {
        if (const auto again = encoder.request(*request)) {
            const Request *back = second_decoder.request(*again);
            require(back && back->id == request->id && back->body.index() == request->body.index());
        }
    } else {
        require(!decoder.error().message.empty());
    }
    if (const ServerMessage *message = decoder.server_message(frame)) {
        const Reply *reply = std::get_if<Reply>(message);
        const auto again =
            reply ? encoder.reply(*reply) : encoder.event(*std::get_if<Event>(message));
        if (again) {
            const ServerMessage *back = second_decoder.server_message(*again);
            require(back && back->index() == message->index());
        }
    } else {
        require(!decoder.error().message.empty());
    }
    return 0;
}
