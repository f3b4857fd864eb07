// FieldReader: takes single fields out of a decoded message and checks them.
//
// Every function returns false after it has put status and text into the error, naming the field
// and the limit; callers chain them with &&. Views point into the frame.
#pragma once

#include <capnp/blob.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "libmaru/wire/codec.h"
#include "libmaru/wire/messages.h"

namespace maru::wire {

class FieldReader {
  public:
    explicit FieldReader(DecodeError &error) : error_(error) {}

    bool fail(Status status, std::string message);

    bool text(const char *field, capnp::Text::Reader in, size_t min, size_t max,
              std::string_view *ret);
    bool text(const char *field, capnp::Text::Reader in, size_t max, std::string_view *ret) {
        return text(field, in, 0, max, ret);
    }
    bool text(const char *field, capnp::Text::Reader in, std::string *ret);

    bool token(capnp::Data::Reader in, Token *ret);
    bool key(const char *field, capnp::Data::Reader in, Key *ret);

    template <typename T>
    bool records(const char *field, capnp::Data::Reader in, size_t max, std::span<const T> *ret) {
        if (!blob(field, in.size(), sizeof(T), max))
            return false;
        // Data begins on a word of the frame and the frame on a word of memory.
        *ret = std::span(reinterpret_cast<const T *>(in.begin()), in.size() / sizeof(T));
        return true;
    }

    template <typename T, typename S>
    bool enumeration(const char *field, S in, T last, T *ret) {
        const auto value = static_cast<uint16_t>(in);
        if (value > static_cast<uint16_t>(last))
            return bad_value(field, value, static_cast<uint16_t>(last));
        *ret = static_cast<T>(value);
        return true;
    }

    bool status(const char *field, uint32_t in, Status *ret);
    bool manifest(uint32_t first_shard, uint32_t shards, uint32_t first_part, uint32_t parts,
                  Manifest *ret);
    bool count(const char *field, size_t value, size_t max);
    // first_op + n must not wrap around: an operation id would come twice.
    bool operation_range(uint64_t first_op, uint64_t n);

  private:
    bool blob(const char *field, size_t bytes, size_t record, size_t max);
    bool bad_value(const char *field, uint32_t value, uint32_t last);

    DecodeError &error_;
};

inline constexpr Status kLastStatus = Status::Internal;

}  // namespace maru::wire
