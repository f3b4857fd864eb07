// Frames that claim too much, make no sense, or come from another version.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>

#include "libmaru/base/clock.h"
#include "libmaru/wire/frame_builder.h"
#include "libmaru/wire/maru.capnp.h"
#include "tests/integration/known_failures/raw_worker.h"
#include "tests/integration/known_failures/worker.h"
#include "tests/integration/socket_proxy.h"

namespace maru::test {
namespace {

using testing::HasSubstr;
using wire::Status;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kMoreMemory = 512u << 20;  // what a sanitizer sets aside is not marud's
#else
constexpr size_t kMoreMemory = 4u << 20;
#endif

size_t resident_bytes(const Marud &marud) {
    std::ifstream statm("/proc/" + std::to_string(marud.pid()) + "/statm");
    size_t size = 0, resident = 0;
    statm >> size >> resident;
    return resident * 4096;
}

// Probes all the time over a connection of its own; counts what went wrong.
class SteadyProber {
  public:
    explicit SteadyProber(const Marud &marud) : worker_(marud.socket(), 200, "steady") {
        worker_.open();
        worker_.open_pool(1 << 20);
        worker_.map_segments();
        if (worker_.commit(1, worker_.item(1, 0, 0)).status != Status::Ok)
            throw std::runtime_error("the steady worker cannot store");
        thread_ = std::thread([this] {
            while (!stop_) {
                try {
                    failed_ += worker_.probe(1) != 1 || worker_.probe(2) != 0;
                    ++rounds_;
                } catch (const std::exception &) {
                    ++failed_;
                    return;
                }
            }
        });
    }
    ~SteadyProber() {
        if (thread_.joinable())
            finish();
    }
    void finish() {
        // A loaded machine may not have let it begin.
        EXPECT_TRUE(eventually([&] { return rounds_ > 0 || failed_ > 0; }));
        stop_ = true;
        thread_.join();
        EXPECT_EQ(failed_, 0) << "of " << rounds_;
        EXPECT_GT(rounds_, 0);
    }

  private:
    RawWorker worker_;
    std::atomic<bool> stop_{false};
    std::atomic<int> failed_{0}, rounds_{0};
    std::thread thread_;
};

std::vector<std::byte> bytes_of(const std::vector<uint64_t> &words) {
    std::vector<std::byte> bytes(words.size() * 8);
    std::memcpy(bytes.data(), words.data(), bytes.size());
    return bytes;
}
std::vector<std::byte> frame_of(const wire::Request &request) {
    wire::Encoder encoder;
    auto frame = encoder.request(request);
    EXPECT_TRUE(frame) << describe(frame.error());
    return {frame->begin(), frame->end()};
}
// Of a request that no encoder would make.
template <typename Fill>
std::vector<std::byte> raw_frame(uint64_t id, uint32_t epoch, Fill &&fill) {
    wire::FrameBuffer buffer;
    auto frame = buffer.build<wire::schema::Message>([&](wire::schema::Message::Builder out) {
        out.setId(id);
        out.setEpoch(epoch);
        fill(out.getBody());
    });
    EXPECT_TRUE(frame.ok());
    return {frame->begin(), frame->end()};
}

// Descriptors of marud, once what was closed is closed.
bool descriptors_return_to(const Marud &marud, size_t count) {
    return eventually([&] { return marud.open_fds() <= count; });
}

TEST(KnownFailures, A55_AClaimOfSizeCostsNothingAndNobodyElse) {
    Marud marud;
    marud.start();
    {
        SteadyProber steady(marud);
        const size_t memory = resident_bytes(marud), descriptors = marud.open_fds();
        const uint64_t words = (uint64_t{1} << 30) / 8;
        for (int round = 0; round < 50; ++round) {
            // 1 GiB in one segment; and 2^31 segments.
            for (const uint64_t header : {words << 32, (uint64_t{1} << 31) - 1}) {
                WireClient bad(marud.socket());
                ASSERT_TRUE(bad.hello());
                ASSERT_TRUE(wire::send_packet(bad.fd(), bytes_of({header, 0, 0, 0})));
                EXPECT_TRUE(bad.wait_end(1000)) << std::hex << header;
            }
        }
        EXPECT_LT(resident_bytes(marud), memory + kMoreMemory);

        RawWorker worker(marud.socket(), 1, "engine");
        worker.open();
        worker.open_pool((wire::kMaxBatchItems + 1) * 4096);
        worker.map_segments();
        std::vector<wire::Digest> keys;
        std::vector<wire::CommitItem> items;
        for (uint32_t i = 0; i <= wire::kMaxProbeKeys; ++i)
            keys.push_back(raw_digest(i));
        for (uint32_t i = 0; i <= wire::kMaxBatchItems; ++i)
            items.push_back(worker.item(i, i, i));
        const std::span<const wire::Digest> all_keys(keys);
        const std::span<const wire::CommitItem> all_items(items);
        wire::ProbeRequest probe;
        probe.namespace_id = worker.ns();
        wire::AcquireRequest acquire;
        acquire.namespace_id = worker.ns();

        // One more than the most.
        probe.keys = all_keys;
        EXPECT_EQ(worker.client().status(probe), Status::TooLarge);
        EXPECT_THAT(worker.client().message(), HasSubstr("2048"));
        EXPECT_EQ(worker.probe(1), 0u);
        EXPECT_EQ(worker.client().status(wire::CommitRequest{worker.ns(), 1, all_items}),
                  Status::TooLarge);
        EXPECT_EQ(worker.probe(1), 0u) << "none of it was done";
        acquire.keys = all_keys.first(wire::kMaxBatchItems + 1);
        EXPECT_EQ(worker.client().status(acquire), Status::TooLarge);
        EXPECT_EQ(worker.probe(1), 0u);

        // Exactly the most, both ways.
        const auto *committed = worker.client().ask<wire::CommitReply>(
            wire::CommitRequest{worker.ns(), 1, all_items.first(wire::kMaxBatchItems)});
        ASSERT_TRUE(committed);
        ASSERT_EQ(committed->results.size(), wire::kMaxBatchItems);
        for (const auto &result : committed->results)
            ASSERT_EQ(result.status, Status::Ok);
        probe.keys = all_keys.first(wire::kMaxProbeKeys);
        const auto *probed = worker.client().ask<wire::ProbeReply>(probe);
        ASSERT_TRUE(probed);
        EXPECT_EQ(probed->prefix, wire::kMaxBatchItems);
        EXPECT_EQ(probed->bitmap.size(), wire::kMaxProbeKeys / 8);
        acquire.keys = all_keys.first(wire::kMaxBatchItems);
        const auto *acquired = worker.client().ask<wire::AcquireReply>(acquire);
        ASSERT_TRUE(acquired);
        ASSERT_EQ(acquired->results.size(), wire::kMaxBatchItems);
        for (uint32_t i = 0; i < wire::kMaxBatchItems; ++i)
            ASSERT_EQ(acquired->results[i].offset, i * 4096u);
        steady.finish();
        worker.client().close();
        EXPECT_TRUE(descriptors_return_to(marud, descriptors + 3))
            << "its segment, process, record";
    }
}

TEST(KnownFailures, A56_AMalformedIdIsRefusedByItsField) {
    Marud marud;
    marud.start();
    SteadyProber steady(marud);
    RawWorker worker(marud.socket(), 1, "engine");
    worker.open();
    const size_t descriptors = marud.open_fds();
    WireClient &client = worker.client();
    auto refused = [&](const std::vector<std::byte> &frame, uint64_t id, Status expected,
                       const char *word) {
        ASSERT_TRUE(wire::send_packet(client.fd(), frame));
        const wire::Reply *reply = client.wait_reply(id);
        ASSERT_TRUE(reply) << word;
        const auto *only = std::get_if<wire::StatusOnly>(&reply->body);
        ASSERT_TRUE(only) << word;
        EXPECT_EQ(only->status, expected) << word << ": " << only->message;
        EXPECT_THAT(std::string(only->message), HasSubstr(word));
    };
    const uint32_t epoch = client.epoch();
    uint64_t id = 1'000'000;
    const std::string bytes(100, 'k');
    auto data = [&](size_t size) {
        return capnp::Data::Reader(reinterpret_cast<const kj::byte *>(bytes.data()), size);
    };
    for (const size_t size : {1u, 31u, 33u, 63u}) {
        ++id;
        refused(raw_frame(id, epoch,
                          [&](auto body) {
                              auto probe = body.initProbe();
                              probe.setNamespaceId(worker.ns());
                              probe.setKeys(data(size));
                          }),
                id, Status::InvalidArgument, "keys");
        ++id;
        refused(raw_frame(id, epoch,
                          [&](auto body) {
                              auto acquire = body.initAcquire();
                              acquire.setNamespaceId(worker.ns());
                              acquire.setKeys(data(size));
                          }),
                id, Status::InvalidArgument, "keys");
        ++id;
        refused(raw_frame(id, epoch,
                          [&](auto body) {
                              auto explain = body.initExplain();
                              explain.setNamespaceId(worker.ns());
                              explain.setKey(data(size));
                              explain.setEngine("engine");
                          }),
                id, Status::InvalidArgument, "key");
        ++id;
        refused(raw_frame(id, epoch,
                          [&](auto body) {
                              auto commit = body.initCommit();
                              commit.setNamespaceId(worker.ns());
                              commit.setFirstOp(1);
                              commit.setItems(data(size));
                          }),
                id, Status::InvalidArgument, "items");
    }
    auto name = [&](std::string_view text) {
        return client.status(wire::RegisterNamespaceRequest{text});
    };
    using namespace std::string_view_literals;
    EXPECT_EQ(name(""), Status::InvalidArgument);
    EXPECT_THAT(client.message(), HasSubstr("text"));
    EXPECT_EQ(name(std::string(64 << 10, 'n')), Status::TooLarge);
    EXPECT_THAT(client.message(), HasSubstr("16384"));
    EXPECT_EQ(name("a\0b"sv), Status::InvalidArgument);
    EXPECT_THAT(client.message(), HasSubstr("text"));
    for (const auto bad :
         {"\xff"sv, "a\xc3"sv, "\xc0\xaf"sv, "\xed\xa0\x80"sv, "\xf5\x80\x80\x80"sv})
        EXPECT_EQ(name(bad), Status::InvalidArgument) << testing::PrintToString(bad);
    EXPECT_EQ(name("text with \xc3\xa4"), Status::Ok);
    EXPECT_EQ(worker.probe(1), 0u) << "the connection is still good";
    EXPECT_LE(marud.open_fds(), descriptors);
    steady.finish();
}

TEST(KnownFailures, A56_SlashesAndAtSignsAreLettersOfANamespace) {
    Marud marud;
    marud.start();
    Worker a({.socket = marud.socket(), .engine = "a", .text = "tenant/model@rev"});
    ASSERT_EQ(a.store(1), 0);
    EXPECT_EQ(a.probe(1), 1);
    for (const char *other : {"tenant", "tenant/model", "tenant/model@", "tenant/model@rev/",
                              "tenant@model/rev", "tenant//model@rev"}) {
        maru_namespace *ns = nullptr;
        ASSERT_EQ(maru_namespace_open(a.client, other, &ns), 0);
        const maru_digest digest = digest_of(1);
        EXPECT_EQ(maru_probe(ns, &digest, 1, nullptr, 0, nullptr), 0) << other;
    }
    WireClient admin(marud.socket());
    ASSERT_TRUE(admin.hello());
    const auto *list = admin.ask<wire::ListReply>(wire::ListRequest{wire::ListKind::Namespaces});
    ASSERT_TRUE(list);
    int found = 0;
    for (const auto &row : std::get<std::vector<wire::NamespaceRow>>(list->rows))
        found += row.text == "tenant/model@rev" && row.objects == 1;
    EXPECT_EQ(found, 1);
}

TEST(KnownFailures, A56_NoFrameReachesAnotherConnection) {
    Marud marud;
    marud.start();
    SteadyProber steady(marud);
    const size_t descriptors = marud.open_fds();
    // Each frame is answered, or ends its connection; never neither.
    std::unique_ptr<WireClient> client;
    auto settles = [&](const std::vector<std::byte> &frame) {
        if (!client)
            client = std::make_unique<WireClient>(marud.socket());
        if (!wire::send_packet(client->fd(), frame))
            return false;
        if (!wire::wait_socket(client->fd(), POLLIN, monotonic_ns() + 5'000'000'000))
            return false;
        alignas(8) static std::byte sink[wire::kMaxFrameBytes];
        if (!wire::receive_packet(client->fd(), sink))
            client.reset();
        return true;
    };

    // A kind of message that this marud does not know: where the number of the kind stands is seen
    // by comparing two messages without content.
    const auto status = frame_of({1u << 20, 0, 0, wire::StatusRequest{}});
    const auto reload = frame_of({1u << 20, 0, 0, wire::ReloadRequest{}});
    size_t at = 0;
    while (at < status.size() && status[at] == reload[at])
        ++at;
    ASSERT_LT(at, status.size());
    for (const unsigned kind : {33u, 200u, 255u}) {
        WireClient asking(marud.socket());
        ASSERT_TRUE(asking.hello());
        auto frame = frame_of({1u << 20, asking.epoch(), 0, wire::StatusRequest{}});
        frame[at] = static_cast<std::byte>(kind);
        ASSERT_TRUE(wire::send_packet(asking.fd(), frame));
        const wire::Reply *reply = asking.wait_reply(1u << 20);
        ASSERT_TRUE(reply) << kind;
        EXPECT_EQ(std::get<wire::StatusOnly>(reply->body).status, Status::Unsupported);
        EXPECT_EQ(asking.status(wire::StatusRequest{}), Status::Ok);
    }

    // Every truncation of a valid frame, the empty one included.
    std::vector<wire::CommitItem> items(3);
    wire::CommitRequest commit{1, 1, items};
    const auto valid = frame_of({uint64_t{1} << 40, 1, 0, commit});
    for (size_t n = 0; n < valid.size(); ++n)
        ASSERT_TRUE(settles({valid.begin(), valid.begin() + static_cast<long>(n)})) << n;

    // Random frames; every other one has a table and a root that fit, so that more of it is read.
    uint64_t random = 0x9E3779B97F4A7C15;
    auto draw = [&] {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        return random;
    };
    for (int i = 0; i < 10'000; ++i) {
        std::vector<uint64_t> words(1 + draw() % 60);
        for (uint64_t &word : words)
            word = draw();
        if (i % 2 && words.size() > 6) {
            words[0] = (words.size() - 1) << 32;
            words[1] = uint64_t{1} << 48 | uint64_t{3} << 32;  // 3 words of data, 1 pointer
        }
        auto frame = bytes_of(words);
        if (i % 4 == 0)
            frame.resize(1 + draw() % frame.size());
        ASSERT_TRUE(settles(frame)) << "frame " << i;
    }
    client.reset();
    EXPECT_TRUE(marud.running());
    EXPECT_TRUE(descriptors_return_to(marud, descriptors)) << marud.open_fds();
    steady.finish();
}

}  // namespace
}  // namespace maru::test
