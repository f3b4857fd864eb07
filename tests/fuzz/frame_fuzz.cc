// libFuzzer target: any bytes as a frame, both ways. What decodes is encoded and decoded again. The hot
// messages are read and written without Cap'n Proto: what that says of any bytes is what Cap'n Proto
// says of them.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "libmaru/wire/codec.h"
#include "tests/libmaru/wire/samples.h"

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
    static Decoder capnp_decoder(HotMessages::ByCapnp);
    static Encoder capnp_encoder(HotMessages::ByCapnp);
    // Aligned, and of exactly this size, so that the sanitizer sees a read beyond the end.
    std::vector<uint64_t> words((size + 7) / 8);
    if (size)
        std::memcpy(words.data(), data, size);
    const std::span<const std::byte> frame(reinterpret_cast<const std::byte *>(words.data()), size);

    // Aliased parts of a frame are legal and are written out once each, so the second frame may be
    // too large; whatever fits decodes to the same kind.
    const Request *known = capnp_decoder.request(frame);
    if (const Request *request = decoder.request(frame)) {
        require(known && test::same(*request, *known));
        if (const auto again = encoder.request(*request)) {
            const auto known_again = capnp_encoder.request(*request);
            require(known_again && std::equal(again->begin(), again->end(), known_again->begin(),
                                              known_again->end()));
            const Request *back = second_decoder.request(*again);
            require(back && back->id == request->id && back->body.index() == request->body.index());
        }
    } else {
        require(!known && !decoder.error().message.empty());
        require(decoder.error().message == capnp_decoder.error().message &&
                decoder.error().status == capnp_decoder.error().status &&
                decoder.error().request_id == capnp_decoder.error().request_id);
    }
    const ServerMessage *known_message = capnp_decoder.server_message(frame);
    if (const ServerMessage *message = decoder.server_message(frame)) {
        require(known_message && test::same(*message, *known_message));
        const Reply *reply = std::get_if<Reply>(message);
        const auto again =
            reply ? encoder.reply(*reply) : encoder.event(*std::get_if<Event>(message));
        if (again) {
            const auto known_again = reply ? capnp_encoder.reply(*reply)
                                           : capnp_encoder.event(*std::get_if<Event>(message));
            require(known_again && std::equal(again->begin(), again->end(), known_again->begin(),
                                              known_again->end()));
            const ServerMessage *back = second_decoder.server_message(*again);
            require(back && back->index() == message->index());
        }
    } else {
        require(!known_message && decoder.error().message == capnp_decoder.error().message);
    }
    return 0;
}
