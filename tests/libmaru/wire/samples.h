// Valid messages with a different value in every field, and equality of messages by content.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "libmaru/wire/messages.h"
#include "tests/libmaru/wire/members.h"

namespace maru::wire::test {

template <typename T>
struct IsSpan : std::false_type {};
template <typename T>
struct IsSpan<std::span<T>> : std::true_type {};
template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};
template <typename T>
struct IsArray : std::false_type {};
template <typename T, size_t N>
struct IsArray<std::array<T, N>> : std::true_type {};
template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <typename T>
struct IsVariant : std::false_type {};
template <typename... T>
struct IsVariant<std::variant<T...>> : std::true_type {};

template <typename T>
bool same(const T &a, const T &b) {
    if constexpr (std::is_empty_v<T>) {
        return true;
    } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> ||
                         std::is_same_v<T, std::string> || std::is_same_v<T, std::string_view>) {
        return a == b;
    } else if constexpr (IsSpan<T>::value || IsVector<T>::value || IsArray<T>::value) {
        if (a.size() != b.size())
            return false;
        for (size_t i = 0; i < a.size(); ++i)
            if (!same(a[i], b[i]))
                return false;
        return true;
    } else if constexpr (IsOptional<T>::value) {
        return a.has_value() == b.has_value() && (!a || same(*a, *b));
    } else if constexpr (IsVariant<T>::value) {
        return a.index() == b.index() &&
               std::visit(
                   [&](const auto &value) {
                       return same(value, *std::get_if<std::decay_t<decltype(value)>>(&b));
                   },
                   a);
    } else {
        return std::apply(
            [&](const auto &...ma) {
                return std::apply([&](const auto &...mb) { return (same(ma, mb) && ...); },
                                  members(b));
            },
            members(a));
    }
}

// Fills messages and owns what they borrow.
class Sampler {
  public:
    template <typename T>
    void fill(T &value) {
        if constexpr (std::is_empty_v<T>) {
        } else if constexpr (std::is_same_v<T, bool>) {
            value = true;
        } else if constexpr (std::is_enum_v<T>) {
            value = static_cast<T>(1);
        } else if constexpr (std::is_integral_v<T>) {
            // Values of one byte stay inside every limit; 64-bit ones show a cut to 32.
            value = static_cast<T>(++next_ % 100 + 1);
            if constexpr (sizeof(T) == 8)
                value |= T{0x0102030405060700};
        } else if constexpr (std::is_same_v<T, std::string> ||
                             std::is_same_v<T, std::string_view>) {
            value = texts_.emplace_back("t\xc3\xa4xt-" + std::to_string(++next_));
        } else if constexpr (IsSpan<T>::value) {
            value = records<std::remove_const_t<typename T::element_type>>(3);
        } else if constexpr (IsVector<T>::value) {
            value.resize(2);
            for (auto &item : value)
                fill(item);
        } else if constexpr (IsArray<T>::value) {
            for (auto &item : value)
                fill(item);
        } else if constexpr (IsOptional<T>::value) {
            fill(value.emplace());
        } else if constexpr (IsVariant<T>::value) {
            std::visit([&](auto &alternative) { fill(alternative); }, value);
        } else {
            std::apply([&](auto &...member) { (fill(member), ...); }, members(value));
            if constexpr (std::is_same_v<T, RepublishItem>)
                value.retiring = 1;
            if constexpr (std::is_same_v<T, Manifest>)
                value.shard_count = 3, value.part_count = 2;
        }
    }

    template <typename T>
    std::span<const T> records(size_t n) {
        auto owned = std::make_shared<std::vector<T>>(n);
        for (T &record : *owned)
            fill(record);
        owned_.push_back(owned);
        return *owned;
    }

  private:
    uint32_t next_ = 0;
    std::deque<std::string> texts_;
    std::vector<std::shared_ptr<void>> owned_;
};

// Calls fn(Request&) with a filled request of every kind.
template <size_t I = 0, typename Fn>
void for_each_request(Sampler &sampler, Fn &&fn) {
    if constexpr (I < std::variant_size_v<RequestBody>) {
        Request request{0x1122334455667788u + I, 0x99aabbccu, 0xddeeff0011223344u, {}};
        sampler.fill(request.body.emplace<I>());
        fn(request);
        for_each_request<I + 1>(sampler, fn);
    }
}

// Calls fn(Reply&) with a filled reply of every kind, and of every kind of list.
template <size_t I = 0, typename Fn>
void for_each_reply(Sampler &sampler, Fn &&fn) {
    using Rows = decltype(ListReply::rows);
    if constexpr (I < std::variant_size_v<ReplyBody>) {
        Reply reply{0x1122334455667788u + I, {}};
        using Body = std::variant_alternative_t<I, ReplyBody>;
        if constexpr (std::is_same_v<Body, ListReply>) {
            auto each = [&]<size_t... R>(std::index_sequence<R...>) {
                (
                    [&] {
                        ListReply list;
                        list.rows.template emplace<R>();
                        sampler.fill(list);
                        reply.body = list;
                        fn(reply);
                    }(),
                    ...);
            };
            each(std::make_index_sequence<std::variant_size_v<Rows>>());
        } else {
            sampler.fill(reply.body.emplace<I>());
            fn(reply);
        }
        for_each_reply<I + 1>(sampler, fn);
    }
}

// A copy of a frame at an aligned address, of any length.
class FrameCopy {
  public:
    explicit FrameCopy(std::span<const std::byte> frame)
        : words_(frame.size() / 8 + 1), size_(frame.size()) {
        std::copy(frame.begin(), frame.end(), data());  // also of an empty one, which is nowhere
    }
    std::byte *data() { return reinterpret_cast<std::byte *>(words_.data()); }
    size_t size() const { return size_; }
    std::span<const std::byte> first(size_t n) { return {data(), n}; }
    operator std::span<const std::byte>() { return {data(), size_}; }

  private:
    std::vector<uint64_t> words_;
    size_t size_;
};

}  // namespace maru::wire::test
