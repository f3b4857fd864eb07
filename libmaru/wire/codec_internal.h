// Between the files of the codec: one function per message kind and direction.
#pragma once

#include <variant>

#include "libmaru/wire/field_reader.h"
#include "libmaru/wire/maru.capnp.h"
#include "libmaru/wire/messages.h"

namespace maru::wire {

// False with the error set; kj exceptions pass through to codec.cc.
bool decode_request_body(FieldReader &fields, schema::Message::Body::Reader in, RequestBody *ret);
bool decode_reply_body(FieldReader &fields, schema::Reply::Body::Reader in, ReplyBody *ret);
bool decode_event(FieldReader &fields, schema::Event::Reader in, Event *ret);

void encode_request_body(const RequestBody &body, schema::Message::Body::Builder out);
void encode_reply_body(const ReplyBody &body, schema::Reply::Body::Builder out);
void encode_event(const Event &event, schema::Event::Builder out);

template <typename T>
capnp::Data::Reader record_bytes(std::span<const T> records) {
    return capnp::Data::Reader(reinterpret_cast<const kj::byte *>(records.data()),
                               records.size_bytes());
}

inline capnp::Data::Reader key_bytes(const Key &key) {
    return capnp::Data::Reader(reinterpret_cast<const kj::byte *>(&key), sizeof key);
}

}  // namespace maru::wire
