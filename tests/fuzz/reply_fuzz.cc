// libFuzzer target: any bytes as what marud says to a client. Everything that a decoded message
// points to is read, and is within the limits that a client relies on.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "libmaru/wire/codec.h"
#include "tests/libmaru/wire/members.h"
#include "tests/libmaru/wire/samples.h"

namespace {

using namespace maru::wire;

void require(bool truth) {
    if (!truth)
        std::abort();
}

volatile uint64_t sink;

void walk(const auto &value) {
    using T = std::decay_t<decltype(value)>;
    if constexpr (std::is_empty_v<T>) {
        return;
    } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
        sink = sink + static_cast<uint64_t>(value);
    } else if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, std::string_view>) {
        require(value.size() <= kMaxFrameBytes && value.find('\0') == value.npos);
        for (char c : value)
            sink = sink + static_cast<unsigned char>(c);
    } else if constexpr (test::IsSpan<T>::value) {
        require(value.size_bytes() <= kMaxFrameBytes);
        for (const auto byte : std::as_bytes(value))
            sink = sink + static_cast<uint64_t>(byte);
    } else if constexpr (test::IsVector<T>::value) {
        require(value.size() <= kMaxFrameBytes / 8);
        for (const auto &one : value)
            walk(one);
    } else if constexpr (test::IsArray<T>::value) {
        for (const auto &one : value)
            walk(one);
    } else if constexpr (test::IsOptional<T>::value) {
        if (value)
            walk(*value);
    } else if constexpr (test::IsVariant<T>::value) {
        std::visit([](const auto &one) { walk(one); }, value);
    } else {
        auto members = test::members(value);
        std::apply([](const auto &...member) { (walk(member), ...); }, members);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static Decoder decoder;
    std::vector<uint64_t> words((size + 7) / 8);
    if (size)
        std::memcpy(words.data(), data, size);
    const std::span<const std::byte> frame(reinterpret_cast<const std::byte *>(words.data()), size);
    const ServerMessage *message = decoder.server_message(frame);
    if (!message) {
        require(!decoder.error().message.empty());
        return 0;
    }
    walk(*message);
    const auto *reply = std::get_if<Reply>(message);
    if (!reply)
        return 0;
    if (const auto *probe = std::get_if<ProbeReply>(&reply->body))
        require(probe->bitmap.size() <= kMaxProbeKeys / 8);
    if (const auto *acquire = std::get_if<AcquireReply>(&reply->body))
        require(acquire->results.size() <= kMaxBatchItems);
    if (const auto *commit = std::get_if<CommitReply>(&reply->body))
        require(commit->results.size() <= kMaxBatchItems);
    if (const auto *items = std::get_if<ItemStatusReply>(&reply->body))
        require(items->statuses.size() <= kMaxBatchItems &&
                items->replicas.size() <= kMaxBatchItems);
    return 0;
}
