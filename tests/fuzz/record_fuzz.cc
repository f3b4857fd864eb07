// libFuzzer target: any text as a session's record. There is one way to write each, so what is read
// is written as the same text. The checksum is put right first, or no change would pass it.
#include <cstdlib>
#include <string>
#include <vector>

#include "daemon/event/session_store.h"

namespace {

// The last line is "end SUM", the FNV-1a of all before it.
std::string with_checksum(std::string text) {
    size_t at = text.rfind("\nend ");
    if (at == std::string::npos)
        return text;
    text.resize(at + 1);
    uint64_t hash = 0xcbf29ce484222325;
    for (char c : text) {
        hash ^= static_cast<unsigned char>(c);
        hash *= 0x100000001b3;
    }
    return text + "end " + std::to_string(hash) + "\n";
}

void read(const std::string &text) {
    const std::vector<char> copy(text.begin(), text.end());
    const auto parsed = maru::parse_record({copy.data(), copy.size()});
    if (!parsed) {
        if (parsed.error().message.empty())
            std::abort();
    } else if (maru::format_record(parsed->record, parsed->boot_id) != text) {
        std::abort();
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const std::string text(reinterpret_cast<const char *>(data), size);
    read(text);
    read(with_checksum(text));
    return 0;
}
