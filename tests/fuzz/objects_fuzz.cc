// libFuzzer target: any bytes as marud's record of shared memory. There is one way to write each
// fact, so what is read is written as the same bytes; of a record that was cut off, as its beginning.
// The checksums are put right first, or no change would pass them.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "daemon/event/object_store.h"

namespace {

// As object_store.cc lays it out: kind, size, and the FNV-1a of the head and of what follows it.
struct Head {
    uint32_t kind = 0, bytes = 0;
    uint64_t head_check = 0, payload_check = 0;
};

uint64_t checksum(const void *at, size_t size) {
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < size; ++i) {
        hash ^= static_cast<const unsigned char *>(at)[i];
        hash *= 0x100000001b3;
    }
    return hash;
}

std::string with_checksums(std::string bytes) {
    Head head;
    for (size_t at = 0; bytes.size() - at >= sizeof head;) {
        std::memcpy(&head, bytes.data() + at, sizeof head);
        head.bytes %= 512;
        const size_t have = bytes.size() - at - sizeof head;
        if (head.bytes <= have)
            head.payload_check = checksum(bytes.data() + at + sizeof head, head.bytes);
        head.head_check = 0;
        head.head_check = checksum(&head, sizeof head);
        std::memcpy(bytes.data() + at, &head, sizeof head);
        if (head.bytes > have)
            break;
        at += sizeof head + head.bytes;
    }
    return bytes;
}

void read(const std::string &text) {
    const std::vector<char> copy(text.begin(), text.end());  // its end is where the memory ends
    const auto parsed = maru::parse_objects({copy.data(), copy.size()});
    if (!parsed) {
        if (parsed.error().message.empty())
            std::abort();
        return;
    }
    const std::string again =
        maru::format_objects_header(parsed->boot_id) + maru::format_objects(parsed->records);
    if (parsed->cut ? text.size() <= again.size() || text.compare(0, again.size(), again) != 0
                    : text != again)
        std::abort();
    (void)maru::adoptions_in(parsed->records);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const std::string text(reinterpret_cast<const char *>(data), size);
    read(text);
    read(with_checksums(text));
    return 0;
}
