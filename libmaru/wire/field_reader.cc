#include "libmaru/wire/field_reader.h"

#include <cstring>

#include "libmaru/wire/text.h"

namespace maru::wire {

bool FieldReader::fail(Status status, std::string message) {
    error_.status = status;
    error_.message = std::move(message);
    return false;
}

bool FieldReader::text(const char *field, capnp::Text::Reader in, size_t min, size_t max,
                       std::string_view *ret) {
    const std::string_view view(in.begin(), in.size());
    if (view.size() > max)
        return fail(Status::TooLarge, std::string(field) + ": " + std::to_string(view.size()) +
                                          " bytes, at most " + std::to_string(max));
    if (view.size() < min)
        return fail(Status::InvalidArgument,
                    std::string(field) + ": empty, at least " + std::to_string(min) + " byte");
    if (!valid_text(view))
        return fail(Status::InvalidArgument, std::string(field) + ": must be UTF-8 without NUL");
    *ret = view;
    return true;
}

bool FieldReader::text(const char *field, capnp::Text::Reader in, std::string *ret) {
    std::string_view view;
    if (!text(field, in, 0, kMaxFrameBytes, &view))
        return false;
    ret->assign(view);
    return true;
}

bool FieldReader::token(capnp::Data::Reader in, Token *ret) {
    if (in.size() != ret->size())
        return fail(Status::InvalidArgument, "token: " + std::to_string(in.size()) +
                                                 " bytes, must be exactly " +
                                                 std::to_string(ret->size()));
    std::memcpy(ret->data(), in.begin(), ret->size());
    return true;
}

bool FieldReader::key(const char *field, capnp::Data::Reader in, Key *ret) {
    if (in.size() != sizeof(Key))
        return fail(Status::InvalidArgument, std::string(field) + ": " + std::to_string(in.size()) +
                                                 " bytes, must be exactly one record of " +
                                                 std::to_string(sizeof(Key)));
    std::memcpy(static_cast<void *>(ret), in.begin(), sizeof(Key));
    return true;
}

bool FieldReader::status(const char *field, uint32_t in, Status *ret) {
    if (in > static_cast<uint32_t>(kLastStatus))
        return bad_value(field, in, static_cast<uint32_t>(kLastStatus));
    *ret = static_cast<Status>(in);
    return true;
}

bool FieldReader::manifest(uint32_t first_shard, uint32_t shards, uint32_t first_part,
                           uint32_t parts, Manifest *ret) {
    if (shards == 0 || parts == 0)
        return fail(Status::InvalidArgument, "manifest: shard and part count must be at least 1");
    if (static_cast<uint64_t>(shards) * parts > kMaxProbeObjects)
        return fail(Status::TooLarge, "manifest: " + std::to_string(shards) + " shards of " +
                                          std::to_string(parts) + " parts, at most " +
                                          std::to_string(kMaxProbeObjects) + " objects");
    if (first_shard > UINT32_MAX - (shards - 1) || first_part > UINT32_MAX - (parts - 1))
        return fail(Status::InvalidArgument, "manifest: shards and parts must end below 2^32");
    *ret = Manifest{first_shard, shards, first_part, parts};
    return true;
}

bool FieldReader::count(const char *field, size_t value, size_t max) {
    if (value > max)
        return fail(Status::TooLarge, std::string(field) + ": " + std::to_string(value) +
                                          " items, at most " + std::to_string(max));
    return true;
}

bool FieldReader::operation_range(uint64_t first_op, uint64_t n) {
    if (n > 0 && first_op > UINT64_MAX - (n - 1))
        return fail(Status::InvalidArgument, "first_op: " + std::to_string(n) +
                                                 " operation ids from it must not pass 2^64 - 1");
    return true;
}

bool FieldReader::blob(const char *field, size_t bytes, size_t record, size_t max) {
    if (bytes % record != 0)
        return fail(Status::InvalidArgument, std::string(field) + ": " + std::to_string(bytes) +
                                                 " bytes, must be whole records of " +
                                                 std::to_string(record));
    return count(field, bytes / record, max);
}

bool FieldReader::bad_value(const char *field, uint32_t value, uint32_t last) {
    return fail(Status::InvalidArgument, std::string(field) + ": value " + std::to_string(value) +
                                             ", known are 0 to " + std::to_string(last));
}

}  // namespace maru::wire
