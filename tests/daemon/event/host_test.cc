// Host and Service on a loop of their own, for what no real marud on this kernel would do.

#include "daemon/event/host.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "daemon/event/listener.h"
#include "daemon/event/setup.h"
#include "libmaru/base/clock.h"
#include "tests/daemon/event/temp_dir.h"
#include "tests/integration/wire_client.h"

namespace maru {
namespace {

using test::WireClient;
using wire::Status;

class Hosted : public testing::Test {
  protected:
    // As on a kernel before 6.5 unless a test says otherwise.
    void serve(HostOptions options) {
        sd_event *loop = nullptr;
        ASSERT_GE(sd_event_new(&loop), 0);
        loop_.reset(loop);
        auto store = SessionStore::open(dir_.path(), "boot");
        ASSERT_TRUE(store);
        host_ = std::make_unique<Host>(loop, journal_, fdstore_, std::move(*store),
                                       ObjectStore(dir_.path(), "boot"), options, [] {});
        ServiceConfig config;
        config.epoch = 7;
        config.host_cpu_bytes = config.uid_cpu_bytes = config.worker_cpu_bytes = 1 << 30;
        config.segment_bytes = 1 << 20;
        config.spin_us = options.spin_us;
        service_ = std::make_unique<Service>(config, *host_, boottime_ns());
        ASSERT_TRUE(host_->start(*service_));
        auto socket = wire::listen_seqpacket(path_, 0600);
        ASSERT_TRUE(socket);
        listener_ = std::make_unique<Listener>(
            loop, std::move(*socket), path_,
            Listener::Callbacks{[this](UniqueFd fd) { host_->accept_client(std::move(fd)); },
                                [this](UniqueFd fd) { host_->refuse_client(std::move(fd)); },
                                [](const Error &) {}});
        ASSERT_TRUE(listener_->start());
        thread_ = std::thread([this] {
            while (!stop_) {
                host_->spin();
                host_->turn(20);
            }
        });
    }
    void TearDown() override {
        stop_ = true;
        if (thread_.joinable())
            thread_.join();
    }

    TempDir dir_;
    std::string path_ = dir_ / "s";
    UniqueFd log_{::open("/dev/null", O_WRONLY | O_CLOEXEC)};
    Journal journal_{log_.get()};
    Notifier nobody_;
    FdStore fdstore_{nobody_, false};
    EventLoop loop_;
    std::unique_ptr<Host> host_;
    std::unique_ptr<Service> service_;
    std::unique_ptr<Listener> listener_;
    std::atomic<bool> stop_ = false;
    std::thread thread_;
};

HostOptions without_peer_pidfd() {
    HostOptions options;
    options.use_peer_pidfd = false;
    return options;
}

TEST_F(Hosted, WithoutPeerPidfdTheNonceIsAskedForAndProvesTheSender) {
    serve(without_peer_pidfd());
    WireClient client(path_);
    const auto *hello = client.ask<wire::HelloReply>(wire::HelloRequest{});
    ASSERT_TRUE(hello);
    EXPECT_NE(hello->nonce, 0u);
    EXPECT_EQ(hello->pid, static_cast<uint32_t>(::getpid()));
    client.set_epoch(hello->epoch);
    uint64_t nonce = hello->nonce;
    EXPECT_EQ(client.status(wire::StatusRequest{}), Status::Protocol) << "not before the proof";
    ASSERT_EQ(client.status(wire::HelloProofRequest{nonce}), Status::Ok) << client.message();
    EXPECT_EQ(client.status(wire::StatusRequest{}), Status::Ok);
}

TEST_F(Hosted, AWrongNonceEndsTheConnection) {
    serve(without_peer_pidfd());
    WireClient client(path_);
    const auto *hello = client.ask<wire::HelloReply>(wire::HelloRequest{});
    ASSERT_TRUE(hello);
    client.set_epoch(hello->epoch);
    uint64_t wrong = hello->nonce + 1;
    EXPECT_EQ(client.status(wire::HelloProofRequest{wrong}), Status::Denied);
    EXPECT_TRUE(client.wait_end(5000));
}

TEST_F(Hosted, AnotherProcessMayNotSpeakOverTheConnection) {
    serve(without_peer_pidfd());
    WireClient client(path_);
    ASSERT_TRUE(client.hello());
    pid_t child = ::fork();
    if (child == 0) {
        client.post(wire::StatusRequest{});
        ::_exit(0);
    }
    int status;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(client.wait_end(5000));
}

TEST_F(Hosted, AFirstSenderThatHasGoneIsNobody) {
    serve(without_peer_pidfd());
    WireClient client(path_);
    pid_t child = ::fork();
    if (child == 0) {
        client.post(wire::HelloRequest{});
        ::_exit(0);
    }
    int status;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    // It may have been identified while it lived; it can no longer prove anything.
    client.post(wire::StatusRequest{});
    EXPECT_TRUE(client.wait_end(5000));
}

TEST_F(Hosted, SpinningServesAsWell) {
    HostOptions options;
    options.spin_us = 200;
    serve(options);
    WireClient a(path_), b(path_);
    ASSERT_TRUE(a.hello() && b.hello());
    for (int i = 0; i < 500; ++i) {
        ASSERT_EQ(a.status(wire::StatusRequest{}), Status::Ok);
        ASSERT_EQ(b.status(wire::StatusRequest{}), Status::Ok);
    }
    WireClient late(path_);
    EXPECT_TRUE(late.hello());
}

TEST_F(Hosted, MoreRequestsThanMayBeInFlightAreRefusedOneByOne) {
    HostOptions options;
    options.max_in_flight = 1;
    serve(options);
    WireClient client(path_);
    ASSERT_TRUE(client.hello());
    // Answered at once, one request never waits for another.
    for (int i = 0; i < 10; ++i)
        EXPECT_EQ(client.status(wire::StatusRequest{}), Status::Ok);
    wire::OpenSessionRequest open;
    open.token[0] = 1;
    open.engine = "e";
    ASSERT_EQ(client.status(open), Status::Ok) << client.message();
    wire::OpenPoolRequest pool;
    pool.capacity_bytes = 2 << 20;
    pool.page_bytes = 65536;
    pool.request_key = 1;
    const auto *opened = client.ask<wire::PoolReply>(pool);
    ASSERT_TRUE(opened) << client.message();
    wire::Id id = opened->pool;
    // The segment is made elsewhere; until then this request has no answer.
    uint64_t first = client.post(wire::GrantSegmentRequest{id, 0});
    uint64_t second = client.post(wire::StatusRequest{});
    const wire::Reply *reply = client.wait_reply(second);
    ASSERT_TRUE(reply);
    const auto *only = std::get_if<wire::StatusOnly>(&reply->body);
    // Unless the segment was faster, which is no fault.
    if (only) {
        EXPECT_EQ(only->status, Status::Again);
        EXPECT_THAT(std::string(only->message), testing::HasSubstr("more than 1"));
        ASSERT_TRUE(client.wait_reply(first));
    }
    EXPECT_EQ(client.status(wire::StatusRequest{}), Status::Ok);
}

// A connection of another user, from a thread that is him for a moment: credentials are a thread's.
std::unique_ptr<WireClient> connect_as(uid_t uid, const std::string &path) {
    std::unique_ptr<WireClient> client;
    std::thread([&] {
        // The path is still looked up by the files' user, root.
        if (::syscall(SYS_setresuid, -1, uid, -1) == 0 && ::syscall(SYS_setfsuid, 0) >= 0)
            client = std::make_unique<WireClient>(path);
    }).join();
    return client;
}

TEST_F(Hosted, WhoIsOverHisShareIsServedWhenTheOthersHaveGone) {
    if (::geteuid() != 0)
        GTEST_SKIP() << "needs two users";
    serve({});
    WireClient mine(path_);
    ASSERT_TRUE(mine.hello());
    auto other = connect_as(20001, path_);
    ASSERT_TRUE(other && other->hello());
    // Far more than kShare, as long as there is somebody else.
    for (int i = 0; i < 2000; ++i)
        ASSERT_EQ(mine.status(wire::StatusRequest{}), Status::Ok);
    EXPECT_EQ(other->status(wire::StatusRequest{}), Status::Ok);
    other.reset();
    for (int i = 0; i < 20; ++i)
        ASSERT_EQ(mine.status(wire::StatusRequest{}), Status::Ok);
}

}  // namespace
}  // namespace maru
