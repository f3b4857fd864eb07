#include "libmaru/wire/flat_frame.h"

#include <algorithm>
#include <cstring>

#include "libmaru/wire/codec_internal.h"

namespace maru::wire::flat {
namespace {

constexpr size_t kWord = 8;

// ---- the words of a frame ----------------------------------------------------------------------
// Pointers as Cap'n Proto encodes them; offsets in words from the pointer's end.

constexpr uint64_t struct_pointer(size_t offset, uint64_t data_words, uint64_t pointers) {
    return uint64_t{offset} << 2 | data_words << 32 | pointers << 48;
}
constexpr uint64_t bytes_pointer(size_t offset, size_t bytes) {
    return uint64_t{1} | uint64_t{offset} << 2 | uint64_t{2} << 32 | uint64_t{bytes} << 35;
}
constexpr size_t bytes_of(uint64_t bytes_pointer) { return bytes_pointer >> 35; }
constexpr size_t words_of(size_t bytes) { return (bytes + kWord - 1) / kWord; }
constexpr uint64_t table_of(size_t frame_words) { return uint64_t{frame_words - 1} << 32; }

constexpr uint64_t kind_of(schema::Message::Body::Which kind) {
    return static_cast<uint64_t>(kind);
}
constexpr uint64_t kind_of(schema::Reply::Body::Which kind) { return static_cast<uint64_t>(kind); }

// Places of words, and what comes before each body. A request: table, root, id, acknowledged_op,
// epoch and kind, body. A reply: table, root, which of the two, reply, id, kind, body.
constexpr uint64_t kRequestRoot = struct_pointer(0, 3, 1);
constexpr size_t kRequestId = 2, kRequestAcknowledged = 3, kRequestKind = 4, kRequestBody = 5;
constexpr size_t kRequestFields = 6;
constexpr uint64_t kReplyRoot = struct_pointer(0, 1, 1), kReplyPointer = struct_pointer(0, 2, 1);
constexpr size_t kReplyWhich = 2, kReplyAt = 3, kReplyId = 4, kReplyKind = 5, kReplyBody = 6;
constexpr size_t kReplyFields = 7;

constexpr uint64_t kCommitBody = struct_pointer(0, 2, 1);
constexpr uint64_t kProbeBody = struct_pointer(0, 3, 2);
constexpr uint64_t kAcquireBody = struct_pointer(0, 2, 2);
constexpr uint64_t kNamesBody = struct_pointer(0, 0, 1);
constexpr uint64_t kResultsBody = struct_pointer(0, 0, 1);
constexpr uint64_t kProbeReplyBody = struct_pointer(0, 1, 1);
constexpr uint64_t kItemStatusBody = struct_pointer(0, 0, 2);
constexpr size_t kManifestWords = 2;

// ---- reading -----------------------------------------------------------------------------------

class Words {
  public:
    explicit Words(std::span<const std::byte> frame) : frame_(frame) {}
    size_t size() const { return frame_.size() / kWord; }
    uint64_t operator[](size_t place) const {
        uint64_t word;
        std::memcpy(&word, frame_.data() + place * kWord, kWord);
        return word;
    }
    // One segment that is all of the frame, with at least these words.
    bool whole(size_t least) const {
        return frame_.size() % kWord == 0 && frame_.size() <= kMaxFrameBytes && size() >= least &&
               (*this)[0] == table_of(size());
    }
    // The blob whose pointer is at `pointer`, if it begins at `begin`.
    template <typename T>
    bool blob(size_t pointer, size_t begin, size_t most, std::span<const T> *ret) const {
        const uint64_t word = (*this)[pointer];
        const size_t bytes = bytes_of(word);
        if (word != bytes_pointer(begin - pointer - 1, bytes) || bytes % sizeof(T) != 0 ||
            bytes / sizeof(T) > most || begin + words_of(bytes) > size())
            return false;
        // On a word of the frame, and the frame on a word of memory.
        *ret = std::span(reinterpret_cast<const T *>(frame_.data() + begin * kWord),
                         bytes / sizeof(T));
        return true;
    }

  private:
    std::span<const std::byte> frame_;
};

// The manifest after the keys, at the frame's end; a count of 1 is written as 0.
bool read_manifest(const Words &in, size_t pointer, size_t begin, Manifest *ret) {
    if (in.size() != begin + kManifestWords ||
        in[pointer] != struct_pointer(begin - pointer - 1, kManifestWords, 0))
        return false;
    const uint64_t shards = in[begin], parts = in[begin + 1];
    if (!(shards | parts)) {  // one object, as nearly always
        *ret = Manifest{};
        return true;
    }
    DecodeError unused;
    return FieldReader(unused).manifest(
        static_cast<uint32_t>(shards), static_cast<uint32_t>(shards >> 32) ^ 1,
        static_cast<uint32_t>(parts), static_cast<uint32_t>(parts >> 32) ^ 1, ret);
}

bool read_body(const Words &in, ProbeRequest *ret) {
    constexpr size_t kNamespace = kRequestFields, kStop = kNamespace + 1, kWorker = kStop + 1;
    constexpr size_t kKeys = kWorker + 1, kManifest = kKeys + 1, kBegin = kManifest + 1;
    if (in.size() < kBegin || in[kRequestBody] != kProbeBody || in[kStop] > 1 ||
        !in.blob(kKeys, kBegin, kMaxProbeKeys, &ret->keys) ||
        !read_manifest(in, kManifest, kBegin + words_of(ret->keys.size_bytes()), &ret->manifest))
        return false;
    ret->namespace_id = in[kNamespace];
    ret->stop_at_miss = in[kStop] != 0;
    ret->worker = in[kWorker];
    return ret->keys.size() * ret->manifest.objects() <= kMaxProbeObjects;
}

bool read_body(const Words &in, AcquireRequest *ret) {
    constexpr size_t kNamespace = kRequestFields, kStop = kNamespace + 1;
    constexpr size_t kKeys = kStop + 1, kManifest = kKeys + 1, kBegin = kManifest + 1;
    if (in.size() < kBegin || in[kRequestBody] != kAcquireBody || in[kStop] > 1 ||
        !in.blob(kKeys, kBegin, kMaxBatchItems, &ret->keys) ||
        !read_manifest(in, kManifest, kBegin + words_of(ret->keys.size_bytes()), &ret->manifest))
        return false;
    ret->namespace_id = in[kNamespace];
    ret->stop_at_miss = in[kStop] != 0;
    return ret->keys.size() * ret->manifest.objects() <= kMaxBatchItems;
}

bool read_body(const Words &in, CommitRequest *ret) {
    constexpr size_t kNamespace = kRequestFields, kFirstOp = kNamespace + 1;
    constexpr size_t kItems = kFirstOp + 1, kBegin = kItems + 1;
    if (in.size() < kBegin || in[kRequestBody] != kCommitBody ||
        !in.blob(kItems, kBegin, kMaxBatchItems, &ret->items) ||
        in.size() != kBegin + words_of(ret->items.size_bytes()))
        return false;
    ret->namespace_id = in[kNamespace];
    ret->first_op = in[kFirstOp];
    DecodeError unused;
    return FieldReader(unused).operation_range(ret->first_op, ret->items.size());
}

bool read_body(const Words &in, ReleaseRequest *ret) {
    constexpr size_t kItems = kRequestFields, kBegin = kItems + 1;
    return in.size() >= kBegin && in[kRequestBody] == kNamesBody &&
           in.blob(kItems, kBegin, kMaxBatchItems, &ret->items) &&
           in.size() == kBegin + words_of(ret->items.size_bytes());
}

uint32_t status_of(Status status) { return static_cast<uint32_t>(status); }
uint32_t status_of(const CommitResult &result) { return static_cast<uint32_t>(result.status); }
uint32_t status_of(const AcquireResult &result) { return static_cast<uint32_t>(result.status); }

template <typename T>
bool known_statuses(std::span<const T> results) {
    uint32_t highest = 0;
    for (const T &result : results)
        highest = std::max(highest, status_of(result));
    return highest <= static_cast<uint32_t>(kLastStatus);
}

template <typename T>
bool read_results(const Words &in, T *ret) {
    constexpr size_t kResults = kReplyFields, kBegin = kResults + 1;
    return in.size() >= kBegin && in[kReplyBody] == kResultsBody &&
           in.blob(kResults, kBegin, kMaxBatchItems, &ret->results) &&
           in.size() == kBegin + words_of(ret->results.size_bytes()) &&
           known_statuses(ret->results);
}

bool read_body(const Words &in, CommitReply *ret) { return read_results(in, ret); }
bool read_body(const Words &in, AcquireReply *ret) { return read_results(in, ret); }

bool read_body(const Words &in, ProbeReply *ret) {
    constexpr size_t kPrefix = kReplyFields, kBitmap = kPrefix + 1, kBegin = kBitmap + 1;
    if (in.size() < kBegin || in[kReplyBody] != kProbeReplyBody ||
        !in.blob(kBitmap, kBegin, (kMaxProbeKeys + 7) / 8, &ret->bitmap) ||
        in.size() != kBegin + words_of(ret->bitmap.size_bytes()))
        return false;
    const uint64_t reason = in[kPrefix] >> 32;
    ret->prefix = static_cast<uint32_t>(in[kPrefix]);
    ret->reason = static_cast<ProbeReason>(reason);
    return ret->prefix <= kMaxProbeKeys && reason <= static_cast<uint64_t>(ProbeReason::Pending);
}

bool read_body(const Words &in, ItemStatusReply *ret) {
    constexpr size_t kStatuses = kReplyFields, kReplicas = kStatuses + 1, kBegin = kReplicas + 1;
    if (in.size() < kBegin || in[kReplyBody] != kItemStatusBody ||
        !in.blob(kStatuses, kBegin, kMaxBatchItems, &ret->statuses))
        return false;
    const size_t replicas = kBegin + words_of(ret->statuses.size_bytes());
    return in.blob(kReplicas, replicas, kMaxBatchItems, &ret->replicas) &&
           in.size() == replicas + words_of(ret->replicas.size_bytes()) &&
           (ret->replicas.empty() || ret->replicas.size() == ret->statuses.size()) &&
           known_statuses(ret->statuses);
}

template <typename Alternative, typename Body>
Alternative *take(Body *body) {
    auto *held = std::get_if<Alternative>(body);
    return held ? held : &body->template emplace<Alternative>();
}

// ---- writing -----------------------------------------------------------------------------------

class Writer {
  public:
    explicit Writer(std::span<std::byte> to) : to_(to) {}
    void word(uint64_t value) {
        std::memcpy(to_.data() + used_, &value, kWord);
        used_ += kWord;
    }
    template <typename T>
    void blob(std::span<const T> records) {
        if (records.empty())
            return;
        if (records.size_bytes() % kWord != 0)
            std::memset(to_.data() + used_ + records.size_bytes() / kWord * kWord, 0, kWord);
        std::memcpy(to_.data() + used_, records.data(), records.size_bytes());
        used_ += words_of(records.size_bytes()) * kWord;
    }
    void manifest(const Manifest &in) {
        word(uint64_t{in.first_shard} | uint64_t{in.shard_count ^ 1} << 32);
        word(uint64_t{in.first_part} | uint64_t{in.part_count ^ 1} << 32);
    }
    size_t used() const { return used_; }

  private:
    std::span<std::byte> to_;
    size_t used_ = 0;
};

// A frame that is `words` long, up to its body's fields. False: there is no room.
inline bool begin(Writer &out, std::span<std::byte> to, size_t words, const Request &in,
                  schema::Message::Body::Which kind, uint64_t body) {
    if (words * kWord > to.size())
        return false;
    out.word(table_of(words));
    out.word(kRequestRoot);
    out.word(in.id);
    out.word(in.acknowledged_op);
    out.word(uint64_t{in.epoch} | kind_of(kind) << 32);
    out.word(body);
    return true;
}

inline bool begin(Writer &out, std::span<std::byte> to, size_t words, const Reply &in,
                  schema::Reply::Body::Which kind, uint64_t body) {
    if (words * kWord > to.size())
        return false;
    out.word(table_of(words));
    out.word(kReplyRoot);
    out.word(static_cast<uint64_t>(schema::ServerMessage::REPLY));
    out.word(kReplyPointer);
    out.word(in.id);
    out.word(kind_of(kind));
    out.word(body);
    return true;
}

template <typename Message, typename Which, typename T>
size_t write_blob(const Message &in, std::span<std::byte> to, Which kind, uint64_t body,
                  size_t fields, std::span<const T> records) {
    Writer out(to);
    if (!begin(out, to, fields + 1 + words_of(records.size_bytes()), in, kind, body))
        return 0;
    out.word(bytes_pointer(0, records.size_bytes()));
    out.blob(records);
    return out.used();
}

}  // namespace

bool read(std::span<const std::byte> frame, Request *ret) {
    const Words in(frame);
    if (!in.whole(kRequestFields) || in[1] != kRequestRoot || in[kRequestId] == 0)
        return false;
    ret->id = in[kRequestId];
    ret->acknowledged_op = in[kRequestAcknowledged];
    ret->epoch = static_cast<uint32_t>(in[kRequestKind]);
    switch (in[kRequestKind] >> 32) {
        case kind_of(schema::Message::Body::PROBE):
            return read_body(in, take<ProbeRequest>(&ret->body));
        case kind_of(schema::Message::Body::ACQUIRE):
            return read_body(in, take<AcquireRequest>(&ret->body));
        case kind_of(schema::Message::Body::COMMIT):
            return read_body(in, take<CommitRequest>(&ret->body));
        case kind_of(schema::Message::Body::RELEASE):
            return read_body(in, take<ReleaseRequest>(&ret->body));
    }
    return false;
}

bool read(std::span<const std::byte> frame, ServerMessage *ret) {
    const Words in(frame);
    if (!in.whole(kReplyFields) || in[1] != kReplyRoot ||
        in[kReplyWhich] != static_cast<uint64_t>(schema::ServerMessage::REPLY) ||
        in[kReplyAt] != kReplyPointer || in[kReplyId] == 0)
        return false;
    Reply &reply = *take<Reply>(ret);
    reply.id = in[kReplyId];
    switch (in[kReplyKind]) {
        case kind_of(schema::Reply::Body::PROBE):
            return read_body(in, take<ProbeReply>(&reply.body));
        case kind_of(schema::Reply::Body::ACQUIRE):
            return read_body(in, take<AcquireReply>(&reply.body));
        case kind_of(schema::Reply::Body::COMMIT):
            return read_body(in, take<CommitReply>(&reply.body));
        case kind_of(schema::Reply::Body::ITEM_STATUS):
            return read_body(in, take<ItemStatusReply>(&reply.body));
    }
    return false;
}

size_t write(const Request &in, std::span<std::byte> to) {
    using Body = schema::Message::Body;
    Writer out(to);
    if (const auto *probe = std::get_if<ProbeRequest>(&in.body)) {
        const size_t keys = words_of(probe->keys.size_bytes());
        if (!begin(out, to, kRequestFields + 5 + keys + kManifestWords, in, Body::PROBE,
                   kProbeBody))
            return 0;
        out.word(probe->namespace_id);
        out.word(probe->stop_at_miss);
        out.word(probe->worker);
        out.word(bytes_pointer(1, probe->keys.size_bytes()));
        out.word(struct_pointer(keys, kManifestWords, 0));
        out.blob(probe->keys);
        out.manifest(probe->manifest);
        return out.used();
    }
    if (const auto *acquire = std::get_if<AcquireRequest>(&in.body)) {
        const size_t keys = words_of(acquire->keys.size_bytes());
        if (!begin(out, to, kRequestFields + 4 + keys + kManifestWords, in, Body::ACQUIRE,
                   kAcquireBody))
            return 0;
        out.word(acquire->namespace_id);
        out.word(acquire->stop_at_miss);
        out.word(bytes_pointer(1, acquire->keys.size_bytes()));
        out.word(struct_pointer(keys, kManifestWords, 0));
        out.blob(acquire->keys);
        out.manifest(acquire->manifest);
        return out.used();
    }
    if (const auto *commit = std::get_if<CommitRequest>(&in.body)) {
        if (!begin(out, to, kRequestFields + 3 + words_of(commit->items.size_bytes()), in,
                   Body::COMMIT, kCommitBody))
            return 0;
        out.word(commit->namespace_id);
        out.word(commit->first_op);
        out.word(bytes_pointer(0, commit->items.size_bytes()));
        out.blob(commit->items);
        return out.used();
    }
    if (const auto *release = std::get_if<ReleaseRequest>(&in.body))
        return write_blob(in, to, Body::RELEASE, kNamesBody, kRequestFields, release->items);
    return 0;
}

size_t write(const Reply &in, std::span<std::byte> to) {
    using Body = schema::Reply::Body;
    Writer out(to);
    if (const auto *probe = std::get_if<ProbeReply>(&in.body)) {
        if (!begin(out, to, kReplyFields + 2 + words_of(probe->bitmap.size_bytes()), in,
                   Body::PROBE, kProbeReplyBody))
            return 0;
        out.word(uint64_t{probe->prefix} | static_cast<uint64_t>(probe->reason) << 32);
        out.word(bytes_pointer(0, probe->bitmap.size_bytes()));
        out.blob(probe->bitmap);
        return out.used();
    }
    if (const auto *acquire = std::get_if<AcquireReply>(&in.body))
        return write_blob(in, to, Body::ACQUIRE, kResultsBody, kReplyFields, acquire->results);
    if (const auto *commit = std::get_if<CommitReply>(&in.body))
        return write_blob(in, to, Body::COMMIT, kResultsBody, kReplyFields, commit->results);
    if (const auto *items = std::get_if<ItemStatusReply>(&in.body)) {
        const size_t statuses = words_of(items->statuses.size_bytes());
        if (!begin(out, to, kReplyFields + 2 + statuses + words_of(items->replicas.size_bytes()),
                   in, Body::ITEM_STATUS, kItemStatusBody))
            return 0;
        out.word(bytes_pointer(1, items->statuses.size_bytes()));
        out.word(bytes_pointer(statuses, items->replicas.size_bytes()));
        out.blob(items->statuses);
        out.blob(items->replicas);
        return out.used();
    }
    return 0;
}

}  // namespace maru::wire::flat
