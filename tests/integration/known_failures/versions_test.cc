// Descriptors that do not arrive or were not asked for, and the other side of another version.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "tests/integration/known_failures/actor.h"
#include "tests/integration/known_failures/raw_worker.h"
#include "tests/integration/known_failures/worker.h"
#include "tests/integration/socket_proxy.h"

namespace maru::test {
namespace {

using testing::HasSubstr;
using wire::Status;

// A client at its descriptor limit. Arguments: socket.
void crowded(Stage &stage) {
    Worker worker({.socket = stage.arguments[0], .engine = "crowded", .pool_bytes = 0});
    std::vector<int> fillers;
    maru_pool *pool = nullptr;
    for (std::string command; stage.next(&command);) {
        if (command == "fill") {
            rlimit limit;
            ::getrlimit(RLIMIT_NOFILE, &limit);
            limit.rlim_cur = 64;
            ::setrlimit(RLIMIT_NOFILE, &limit);
            for (int fd; (fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;)
                fillers.push_back(fd);
        } else if (command == "empty") {
            for (const int fd : fillers)
                ::close(fd);
        }
        maru_pool_options options{};
        options.size = sizeof options;
        options.capacity_bytes = 1 << 20;
        options.wait_populated = 1;
        options.populate_margin_mib = 1;
        const auto begin = now();
        const int code = maru_pool_open(worker.client, &options, &pool);
        const bool in_time = since_ms(begin) < 1000;
        std::string text = code < 0 ? maru_last_error() : "";
        if (code == 0) {
            worker.pool = pool;
            text = worker.store(1) == 0 && worker.close_pool() == 0 ? "stored" : "not stored";
        }
        stage.answer(std::string(maru_error_name(code)) + (in_time ? " " : " late ") + text);
    }
}
const ActorRole kCrowded("crowded", crowded);

TEST(KnownFailures, A57_ADescriptorThatCannotBeReceivedIsAnErrorWithAName) {
    Marud marud;
    marud.start();
    Actor client("crowded", {marud.socket()});
    const std::string refused = client.ask("fill");
    EXPECT_THAT(refused, testing::StartsWith("EMFILE "));
    EXPECT_THAT(refused, HasSubstr("RLIMIT_NOFILE"));
    EXPECT_THAT(refused, testing::Not(HasSubstr("late")));
    EXPECT_THAT(client.ask("again"), testing::StartsWith("EMFILE "));
    EXPECT_THAT(client.ask("empty"), HasSubstr("stored"));
    EXPECT_EQ(client.finish(), 0);
    EXPECT_EQ(wait_uncharged(marud.socket(), 10'000), "");
}

// What a kernel at its limit does, done by the proxy to a message of a real marud.
TEST(KnownFailures, A57_AMessageThatLostItsDescriptorIsNotTakenForOneWithIt) {
    Marud marud;
    marud.start();
    SocketProxy proxy(marud.socket());
    Worker worker({.socket = proxy.path(), .pool_bytes = 0});
    proxy.set_rule([](const SocketProxy::Message &message) {
        return message.descriptors > 0 ? SocketProxy::without_descriptors() : SocketProxy::pass();
    });
    maru_pool_options options{};
    options.size = sizeof options;
    options.capacity_bytes = 1 << 20;
    EXPECT_EQ(maru_pool_open(worker.client, &options, &worker.pool), -EMFILE);
    EXPECT_EQ(worker.pool, nullptr);
    proxy.set_rule(nullptr);
    options.wait_populated = 1;
    options.populate_margin_mib = 1;
    ASSERT_EQ(maru_pool_open(worker.client, &options, &worker.pool), 0) << maru_last_error();
    EXPECT_EQ(worker.store(1), 0);
    EXPECT_EQ(worker.client_info().reconnects, 0u);
    EXPECT_TRUE(
        eventually([&] { return query_status(marud.socket()).host_reserved_bytes == 1 << 20; }));
}

TEST(KnownFailures, A57_DescriptorsThatWereNotAskedForAreClosed) {
    constexpr int kRepeats = 1000, kDescriptors = 50;
    Marud marud({.fdstore = false});
    marud.start();
    WireClient steady(marud.socket());
    ASSERT_TRUE(steady.hello());
    const size_t before = marud.open_fds();
    std::vector<UniqueFd> files;
    std::vector<int> fds;
    for (int i = 0; i < kDescriptors; ++i) {
        files.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        fds.push_back(files.back().get());
    }
    // Where none are expected: refused by marud, or by the kernel on its behalf, each time.
    int by_marud = 0, by_kernel = 0;
    auto client = std::make_unique<WireClient>(marud.socket());
    ASSERT_TRUE(client->hello());
    for (int i = 0; i < kRepeats; ++i) {
        const uint64_t id = client->post(wire::StatusRequest{}, fds);
        if (id == 0 && client->status(wire::StatusRequest{}) == Status::Ok) {
            ++by_kernel;
            continue;
        }
        const wire::Reply *reply = id ? client->wait_reply(id) : nullptr;
        if (reply) {
            const auto *only = std::get_if<wire::StatusOnly>(&reply->body);
            ASSERT_TRUE(only) << "served with descriptors that it did not ask for";
            EXPECT_EQ(only->status, Status::Protocol);
        } else {
            client = std::make_unique<WireClient>(marud.socket());
            ASSERT_TRUE(client->hello());
        }
        ++by_marud;
    }
    EXPECT_EQ(by_marud + by_kernel, kRepeats);
    client.reset();
    EXPECT_TRUE(eventually([&] { return marud.open_fds() <= before; })) << marud.open_fds();

    // Where one is expected: a worker that comes back passes 50 for its one segment.
    RawWorker worker(marud.socket(), 1, "engine");
    worker.open();
    worker.open_pool(1 << 20);
    worker.map_segments();
    ASSERT_EQ(worker.commit(1, worker.item(1, 0, 0)).status, Status::Ok);
    const uint32_t epoch = worker.client().epoch();
    marud.restart();
    worker.reconnect();
    ASSERT_EQ(worker.attach(epoch), Status::Ok) << worker.client().message();
    const size_t attached = marud.open_fds();
    wire::AttachPoolRequest request;
    request.pool = worker.pool().pool;
    request.capacity_bytes = worker.pool().capacity_bytes;
    request.segment_bytes = worker.pool().segment_bytes;
    request.page_bytes = 4096;
    request.segment_count = 1;
    request.next_generation = worker.pool().first_generation + 10;
    fds[0] = worker.segment_fd(0);
    for (int i = 0; i < kRepeats; ++i) {
        const Status status = worker.client().status(request, fds);
        ASSERT_TRUE(status == Status::InvalidArgument || status == Status::Protocol)
            << static_cast<int>(status);
    }
    EXPECT_TRUE(eventually([&] { return marud.open_fds() <= attached; })) << marud.open_fds();
    EXPECT_EQ(worker.client().status(request, {worker.segment_fd(0)}), Status::Ok)
        << worker.client().message();
}

// ---- versions ------------------------------------------------------------------------------------

// The same message as a later version would write it: each struct on the way to the body has one
// word of data and one pointer more than this version knows.
class Widener {
  public:
    explicit Widener(std::span<const std::byte> frame) : words_(frame.size() / 8) {
        std::memcpy(words_.data(), frame.data(), words_.size() * 8);
    }
    std::vector<std::byte> widen() {
        const size_t pointers = widen_struct(1);  // behind the table
        if (pointers != 0)
            widen_struct(pointers);  // of the body, the first pointer of the root
        words_[0] = uint64_t{words_.size() - 1} << 32;
        std::vector<std::byte> bytes(words_.size() * 8);
        std::memcpy(bytes.data(), words_.data(), bytes.size());
        return bytes;
    }

  private:
    // Moves the struct behind the pointer at `at` to the end, wider; the index of its pointers.
    size_t widen_struct(size_t at) {
        const uint64_t pointer = words_[at];
        if (pointer == 0 || (pointer & 3) != 0)
            return 0;
        const auto offset = static_cast<int32_t>(static_cast<uint32_t>(pointer)) >> 2;
        const size_t from = at + 1 + static_cast<size_t>(offset);
        const size_t data = pointer >> 32 & 0xffff, pointers = pointer >> 48;
        const size_t to = words_.size();
        for (size_t i = 0; i < data; ++i)
            words_.push_back(words_[from + i]);
        words_.push_back(0xfeedfacecafebeef);  // a field that nobody knows yet
        for (size_t i = 0; i < pointers; ++i) {
            uint64_t inner = words_[from + data + i];
            if (inner != 0) {  // relative to where it stands
                const auto moved =
                    static_cast<int64_t>(to + data + 1 + i) - static_cast<int64_t>(from + data + i);
                const auto old = static_cast<int32_t>(static_cast<uint32_t>(inner)) >> 2;
                const auto fresh = static_cast<uint32_t>(static_cast<int32_t>(old - moved)) << 2;
                inner = (inner & 0xffffffff00000003) | fresh;
            }
            words_.push_back(inner);
        }
        words_.push_back(0);
        const auto distance = static_cast<uint32_t>(static_cast<int32_t>(to - at - 1)) << 2;
        words_[at] = uint64_t{pointers + 1} << 48 | uint64_t{data + 1} << 32 | distance;
        return to + data + 1;
    }
    std::vector<uint64_t> words_;
};

TEST(KnownFailures, A58_FieldsThatOneSideDoesNotKnowAreNoObstacle) {
    Marud marud;
    marud.start();
    SocketProxy proxy(marud.socket());
    std::atomic<int> to_marud{0}, to_client{0};
    proxy.set_rule([&](const SocketProxy::Message &message) {
        const bool request = message.direction == SocketProxy::Direction::ToMarud;
        ++(request ? to_marud : to_client);
        SocketProxy::Verdict verdict;
        verdict.bytes = Widener(message.bytes).widen();
        return verdict;
    });
    // A whole life, of a client and a marud that are each newer than the other.
    {
        Worker worker({.socket = proxy.path()});
        EXPECT_EQ(worker.store(1), 0);
        EXPECT_EQ(worker.probe(1), 1);
        maru_lease *lease = worker.acquire(1);
        EXPECT_TRUE(worker.shows(lease, 1));
        EXPECT_EQ(worker.release(lease), 0);
        EXPECT_EQ(worker.retire(1), 0);
        EXPECT_EQ(worker.client_info().reconnects, 0u);
        EXPECT_EQ(worker.close_pool(), 0);
    }
    EXPECT_GT(to_marud, 8);
    EXPECT_GT(to_client, 8);
    EXPECT_EQ(proxy.connections(), 1);
}

TEST(KnownFailures, A58_ANewerClientIsToldBothVersions) {
    Marud marud;
    marud.start();
    WireClient client(marud.socket());
    wire::HelloRequest newer;
    newer.major = wire::kProtocolMajor + 1;
    EXPECT_EQ(client.status(newer), Status::VersionMismatch);
    EXPECT_THAT(client.message(), HasSubstr(std::to_string(wire::kProtocolMajor)));
    EXPECT_THAT(client.message(), HasSubstr(std::to_string(wire::kProtocolMajor + 1)));
    EXPECT_TRUE(client.hello()) << "and marud is as it was";
    wire::HelloRequest minor;
    minor.minor = wire::kProtocolMinor + 7;
    WireClient other(marud.socket());
    EXPECT_EQ(other.status(minor), Status::Ok);
    wire::HelloRequest wanting;
    wanting.required_capabilities = {"cpu_storage_v1", "teleport_storage_v9"};
    WireClient third(marud.socket());
    EXPECT_EQ(third.status(wanting), Status::Unsupported);
    EXPECT_THAT(third.message(), HasSubstr("teleport_storage_v9"));
}

TEST(KnownFailures, A58_ANewerMarudIsRefusedOnceWithBothVersions) {
    Marud marud;
    marud.start();
    SocketProxy proxy(marud.socket());
    std::atomic<int> hellos{0};
    std::atomic<bool> say_it{false};  // marud refuses; else it greets as what it is
    proxy.set_rule([&](const SocketProxy::Message &message) {
        hellos += message.asks<wire::HelloRequest>() != nullptr;
        const auto *hello = message.answers<wire::HelloReply>();
        if (!hello)
            return SocketProxy::pass();
        wire::Reply reply;
        reply.id = message.reply()->id;
        wire::HelloReply newer = *hello;
        newer.major = 7;
        reply.body = newer;
        if (say_it)
            reply.body =
                wire::StatusOnly{Status::VersionMismatch, "protocol 1 asked for, this is 7", 0};
        return SocketProxy::replace(reply);
    });
    for (const bool refused : {true, false}) {
        say_it = refused;
        hellos = 0;
        maru_client_options options{};
        options.size = sizeof options;
        options.socket_path = proxy.path().c_str();
        options.engine = "e";
        maru_client *client = nullptr;
        EXPECT_EQ(maru_client_open(&options, &client), -EPROTONOSUPPORT);
        EXPECT_EQ(client, nullptr);
        EXPECT_THAT(maru_last_error(), testing::AllOf(HasSubstr("1"), HasSubstr("7")));
        EXPECT_EQ(hellos, 1);
    }
    Worker worker({.socket = marud.socket()});
    EXPECT_EQ(worker.store(1), 0);
    EXPECT_EQ(maru_client_has_capability(worker.client, "cpu_storage_v1"), 1);
    EXPECT_EQ(maru_client_has_capability(worker.client, "teleport_storage_v9"), 0);
}

}  // namespace
}  // namespace maru::test
