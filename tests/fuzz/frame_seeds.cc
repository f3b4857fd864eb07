// Writes a valid frame of every kind into a folder, for frame_fuzz to start from.
#include <cstdio>
#include <fstream>
#include <string>

#include "libmaru/wire/codec.h"
#include "tests/libmaru/wire/samples.h"

int main(int argc, char **argv) {
    using namespace maru::wire;
    if (argc != 2) {
        std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    test::Sampler sampler;
    Encoder encoder;
    int number = 0;
    auto write = [&](const maru::Result<std::span<const std::byte>> &frame) {
        if (!frame)
            return;
        std::ofstream out(std::string(argv[1]) + "/frame-" + std::to_string(number++),
                          std::ios::binary);
        out.write(reinterpret_cast<const char *>(frame->data()),
                  static_cast<std::streamsize>(frame->size()));
    };
    test::for_each_request(sampler, [&](const Request &r) { write(encoder.request(r)); });
    test::for_each_reply(sampler, [&](const Reply &r) { write(encoder.reply(r)); });
    Event event;
    sampler.fill(event);
    write(encoder.event(event));
    return 0;
}
