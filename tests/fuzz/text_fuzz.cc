// libFuzzer target: texts that people write: sizes, durations, digests, ids, keys, command lines.
// What is read and written again is read as the same.
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/maructl/arguments.h"
#include "libmaru/base/duration_text.h"
#include "libmaru/base/size_text.h"
#include "libmaru/digest/prefix_digest.h"

namespace {

void require(bool truth) {
    if (!truth)
        std::abort();
}

void command_line(std::string_view text) {
    std::vector<std::string> words;
    for (size_t at = 0; at <= text.size();) {
        size_t end = std::min(text.find('\n', at), text.size());
        words.emplace_back(text.substr(at, end - at));
        at = end + 1;
    }
    std::vector<const char *> pointers;
    for (const std::string &word : words)
        pointers.push_back(word.c_str());
    const auto line = maru::maructl::parse_command_line(pointers);
    require(line ? line->kind != maru::maructl::CommandLine::Kind::Run || line->verb
                 : !line.error().message.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    using namespace maru;
    // In memory of its own size, so that a read beyond the end is seen.
    const std::vector<char> copy(data, data + size);
    const std::string_view text(copy.data(), copy.size());
    for (Zero zero : {Zero::Refused, Zero::Allowed}) {
        if (const auto bytes = parse_size(text, zero))
            require((*bytes > 0 || zero == Zero::Allowed) && !format_size(*bytes).empty());
        if (const auto ns = parse_duration(text, zero))
            require((*ns > 0 || zero == Zero::Allowed) && *ns >= 0 &&
                    !format_duration(*ns).empty());
    }
    if (const auto digest = digest::parse_digest(text))
        require(digest::parse_digest(digest::format_digest(*digest)) == digest);
    if (const auto id = maructl::parse_id(text))
        require(text.size() >= 3);
    if (const auto number = maructl::parse_number(text, "number", 1000))
        require(*number <= 1000);
    if (const auto key = maructl::parse_key(text))
        require(digest::parse_digest(text.substr(0, 64)) == key->digest);
    command_line(text);
    return 0;
}
