// Writes the binary seeds of the targets that start from frames, so that they follow the schema:
// FOLDER/frame and FOLDER/reply get a valid frame of every kind, FOLDER/service the life of a worker
// and of a crowd of requests as service_fuzz reads it, FOLDER/record a record of each kind of session,
// FOLDER/objects one of shared memory.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "daemon/event/object_store.h"
#include "daemon/event/session_store.h"
#include "libmaru/wire/codec.h"
#include "tests/libmaru/wire/samples.h"

namespace {

using namespace maru::wire;
using Frame = maru::Result<std::span<const std::byte>>;

class Folder {
  public:
    explicit Folder(std::filesystem::path path) : path_(std::move(path)) {
        std::filesystem::create_directories(path_);
    }
    void write(const std::string &bytes) {
        std::ofstream out(path_ / std::to_string(number_++), std::ios::binary);
        out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
    void write(const Frame &frame) {
        if (frame)
            write(std::string(reinterpret_cast<const char *>(frame->data()), frame->size()));
    }

  private:
    std::filesystem::path path_;
    int number_ = 0;
};

// One record of service_fuzz.
std::string record(uint8_t what, uint8_t fds, const Frame &frame) {
    std::string text = {static_cast<char>(what), static_cast<char>(fds), 0, 0};
    if (frame) {
        text[2] = static_cast<char>(frame->size() & 0xff);
        text[3] = static_cast<char>(frame->size() >> 8);
        text.append(reinterpret_cast<const char *>(frame->data()), frame->size());
    }
    return text;
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    const std::filesystem::path top = argv[1];
    Folder frames(top / "frame"), replies(top / "reply"), service(top / "service");
    test::Sampler sampler;
    Encoder encoder;
    test::for_each_request(sampler, [&](const Request &r) { frames.write(encoder.request(r)); });
    test::for_each_reply(sampler, [&](const Reply &r) {
        frames.write(encoder.reply(r));
        replies.write(encoder.reply(r));
    });
    Event event;
    sampler.fill(event);
    frames.write(encoder.event(event));
    replies.write(encoder.event(event));

    Folder records(top / "record");
    maru::SessionRecord recorded;
    recorded.epoch = 7;
    recorded.session = make_id(7, 1);
    recorded.token_hash[3] = 0x5a;
    recorded.uid = 1000;
    recorded.pid = 12;
    recorded.start_time = 345;
    recorded.engine = "engine";
    recorded.command = "a (b) c";
    const std::string boot = "5a0c6c1e-7d0b-4e2f-9c3d-000000000001";
    records.write(maru::format_record(recorded, boot));
    auto &pool = recorded.pools.emplace_back();
    pool.pool = make_id(7, 2);
    pool.capacity_bytes = pool.asked_bytes = 1 << 20;
    pool.segment_bytes = 1 << 19;
    pool.page_bytes = 4096;
    pool.request_key = 1;
    pool.segments = {{true, true, false, {1, 2}}, {}};
    records.write(maru::format_record(recorded, boot));

    Folder objects(top / "objects");
    CommitItem object;
    object.pool = pool.pool;
    object.generation = 5;
    object.length = 4096;
    const std::vector<maru::ObjectRecord> facts = {
        maru::RecordedNamespace{1, 1000, 4096, "text", "raw"}, maru::RecordedObject{1, object},
        maru::RecordedRetirement{object.pool, object.offset, object.generation},
        maru::RecordedAdoption{
            {object.pool, 1}, 1000, 1 << 16, 1 << 16, 1 << 16, 4096, true, {1, 2}, "engine"},
        maru::RecordedEnd{{object.pool, UINT32_MAX}}};
    objects.write(maru::format_objects_header(boot));
    objects.write(maru::format_objects_header(boot) + maru::format_objects(facts));

    // 0x60: with the right epoch and ids. 0x18: a wish of Service comes true.
    auto say = [&](RequestBody body, uint8_t client = 0) {
        Request request;
        request.id = 1;
        request.body = std::move(body);
        return record(static_cast<uint8_t>(0x60 | client), 0, encoder.request(request));
    };
    const std::string wish = record(0x18, 0, maru::Error{0, ""});
    for (uint8_t client : {0, 1}) {
        Token token{};
        token[0] = static_cast<uint8_t>(client + 1);
        std::vector<CommitItem> items(2);
        items[0].generation = 5;
        items[1].generation = 6;
        items[1].offset = 1;
        items[1].key.digest.bytes[0] = 1;
        std::vector<Digest> keys = {items[0].key.digest, items[1].key.digest};
        std::vector<ReplicaName> names = {{2, 5}};
        std::string life =
            say(HelloRequest{}, client) +
            say(OpenSessionRequest{token, Role::Worker, "engine"}, client) +
            say(RegisterNamespaceRequest{"text"}, client) +
            say(DescribeRequest{0, 4096, "raw"}, client) + say(OpenPoolRequest{}, client) +
            say(GrantSegmentRequest{}, client) + wish + say(SegmentMappedRequest{}, client) + wish +
            say(CommitRequest{0, 1, items}, client) + say(ProbeRequest{0, keys}, client) +
            say(EngineWorkerRequest{}, client) + say(AcquireRequest{0, keys}, client) +
            say(RetireRequest{names}, client) + say(ReleaseRequest{names}, client) +
            say(ReclaimAckRequest{names}, client);
        service.write(life);
        // A worker that leaves what it stored (bit 0 of the record: its pool is shared).
        if (client)
            service.write(life + say(CommitRequest{0, 3, items}, client) +
                          say(AcquireRequest{0, keys}, client) +
                          say(MapSegmentRequest{names[0]}, client) +
                          say(ClosePoolRequest{0, ClosePhase::Leave}, client) + wish +
                          say(RetireSegmentRequest{}, client));
        std::string rest = life;
        test::for_each_request(sampler, [&](const Request &r) {
            rest += record(static_cast<uint8_t>(0x60 | client), 1, encoder.request(r));
        });
        service.write(rest);
    }
    return 0;
}
