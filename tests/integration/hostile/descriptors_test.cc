// Descriptors of the wrong kind, in the wrong number, in the wrong message.
//
// A socket that clients may send descriptors over is the exception: only while AttachPool is
// expected may any arrive, so each case here meets marud where it takes them and where it does not.
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "libmaru/base/clock.h"
#include "tests/integration/hostile/hostile_test.h"
#include "tests/integration/hostile/strange_files.h"

namespace maru::test {
namespace {

using wire::Status;

// With an ordinary message, with none, with AttachPool out of turn. The kernel may refuse to carry
// them at all (SO_PASSRIGHTS of the receiver): then the packet does not go, which is as good.
void send_everywhere(const std::vector<int> &fds) {
    const wire::RequestBody bodies[] = {
        wire::HelloRequest{}, wire::UsageRequest{}, wire::HeartbeatRequest{},
        wire::AttachPoolRequest{1, kSegmentBytes, kSegmentBytes, kPageBytes, 0,
                                static_cast<uint32_t>(fds.size()), 1}};
    for (const wire::RequestBody &body : bodies) {
        WireClient client(HostileTest::path());
        if (!std::holds_alternative<wire::HelloRequest>(body))
            require(client.hello(), "no hello");
        if (const wire::Reply *reply = client.call(body, fds, 5'000)) {
            const auto *only = std::get_if<wire::StatusOnly>(&reply->body);
            require(only && only->status != Status::Ok,
                    "a message with descriptors was not refused");
        }
    }
    WireClient client(HostileTest::path());
    [[maybe_unused]] auto sent = wire::send_packet(client.fd(), {}, fds);
}

TEST_F(HostileTest, StrangeDescriptorsWithMessagesThatCarryNone) {
    attack([] {
        for (StrangeFile &file : strange_files(kSegmentBytes)) {
            if (!file.fd)
                continue;
            send_everywhere({file.fd.get()});
        }
    });
}

TEST_F(HostileTest, AsManyDescriptorsAsTheKernelCarries) {
    attack([] {
        UniqueFd one(::open("/dev/null", O_RDWR | O_CLOEXEC));
        for (size_t count : {size_t{2}, size_t{50}, size_t{253}})
            for (int i = 0; i < 20; ++i)
                send_everywhere(std::vector<int>(count, one.get()));
    });
}

TEST_F(HostileTest, ASocketThatLingers) {
    attack([] {
        for (int i = 0; i < 3; ++i) {
            LingeringSocket socket;
            if (!socket.file().fd)
                throw Failed(socket.file().missing);
            send_everywhere({socket.file().fd.get()});
            socket.leave_open();
        }
    });
}

// ---- where AttachPool is expected: after a restart ----------------------------------------------

// A marud of their own, because it is restarted; the same uid throughout.
class AttachPoolTest : public ::testing::Test {
  protected:
    AttachPoolTest() {
        options_.config = "[cpu]\nhost_bytes = \"64M\"\nsegment_bytes = \"64K\"\n";
        options_.fdstore = false;  // marud asks for the segments again
        marud_ = std::make_unique<Marud>(options_);
        marud_->start();
        client_ = std::make_unique<Party>(worker(marud_->socket(), 0, 1, "a"));
        client_->store(1, 0);
        marud_->restart();
        fresh_ = std::make_unique<WireClient>(marud_->socket());
        require(fresh_->hello(), "no hello");
        const auto *attached = fresh_->ask<wire::AttachReply>(
            wire::AttachRequest{client_->token, wire::Role::Worker, "a", client_->wire().epoch()});
        require(attached && attached->missing_pools.size() == 1, "no pool is missing");
    }
    wire::AttachPoolRequest request(uint32_t count) const {
        return {client_->pool, client_->capacity, client_->segment_bytes, kPageBytes, 0, count, 1};
    }
    // Refused, and afterwards nothing of it is left open in marud. In bounded time: the loop went on.
    void refused(const StrangeFile &file, size_t copies = 1) {
        size_t before = marud_->open_fds();
        int64_t begin = monotonic_ns();
        std::vector<int> fds(copies, file.fd.get());
        uint64_t id = fresh_->post(request(static_cast<uint32_t>(copies)), fds);
        if (id == 0) {  // Linux 6.7 refuses to carry an io_uring, for one
            std::printf("  the kernel does not carry %s\n", file.name.c_str());
            return;
        }
        const wire::Reply *reply = fresh_->wait_reply(id, 10'000);
        ASSERT_NE(reply, nullptr) << file.name;
        const auto *only = std::get_if<wire::StatusOnly>(&reply->body);
        ASSERT_NE(only, nullptr) << file.name;
        EXPECT_EQ(only->status, Status::InvalidArgument) << file.name << ": " << only->message;
        EXPECT_LT(monotonic_ns() - begin, 5'000'000'000) << file.name;
        size_t after = before;
        for (int waited = 0; waited < 10'000; waited += 10) {
            after = marud_->open_fds();
            if (after <= before)
                break;
            ::usleep(10'000);
        }
        EXPECT_LE(after, before) << file.name << " stays open";
    }
    // The right one is still taken.
    void attach_rightly() {
        EXPECT_EQ(fresh_->status(request(1), {client_->segments[0].get()}), Status::Ok)
            << fresh_->message();
        EXPECT_EQ(fresh_->status(wire::AttachDoneRequest{}), Status::Ok);
    }

    MarudOptions options_;
    std::unique_ptr<Marud> marud_;
    std::unique_ptr<Party> client_;
    std::unique_ptr<WireClient> fresh_;
};

TEST_F(AttachPoolTest, EveryStrangeDescriptorIsRefusedAndClosed) {
    for (const StrangeFile &file : strange_files(client_->segment_bytes)) {
        if (file.fd)
            refused(file);
        else
            std::printf("  left out: %s\n", file.missing.c_str());
    }
    refused({"the right one, and 252 more", UniqueFd(::dup(client_->segments[0].get())), ""}, 253);
    attach_rightly();
}

// Its close() takes a minute, which is the reaper's time and not the loop's.
TEST_F(AttachPoolTest, ALingeringSocketHoldsUpNobody) {
    LingeringSocket socket;
    if (!socket.file().fd)
        GTEST_SKIP() << socket.file().missing;
    // marud's descriptor must be the last one, or the wait is ours: it gets it when we have none.
    marud_->signal(SIGSTOP);
    uint64_t id = fresh_->post(request(1), {socket.file().fd.get()});
    socket.close_ours();
    marud_->signal(SIGCONT);
    ASSERT_NE(id, 0u);
    const wire::Reply *reply = fresh_->wait_reply(id, 5'000);
    ASSERT_NE(reply, nullptr) << "marud waits for the socket";
    EXPECT_EQ(std::get<wire::StatusOnly>(reply->body).status, Status::InvalidArgument);
    attach_rightly();
}

// Its close() never returns: a thread of marud waits in it for as long as the server likes, and
// everything else goes on. Afterwards marud even ends in good order.
TEST_F(AttachPoolTest, AFileThatIsNeverFlushedHoldsUpNobody) {
    NeverFlushedFile file;
    if (!file.file().fd)
        GTEST_SKIP() << file.file().missing;
    for (int i = 0; i < 3; ++i) {
        const wire::Reply *reply = fresh_->call(request(1), {file.file().fd.get()}, 5'000);
        ASSERT_NE(reply, nullptr) << "marud waits for the file";
        EXPECT_EQ(std::get<wire::StatusOnly>(reply->body).status, Status::InvalidArgument);
    }
    for (int waited = 0; file.flushes() < 3 && waited < 5'000; waited += 10)
        ::usleep(10'000);
    EXPECT_GE(file.flushes(), 3) << "marud did not close them";
    attach_rightly();
    WireClient another(marud_->socket());
    EXPECT_TRUE(another.hello());
    file.end();
    EXPECT_EQ(marud_->stop(), 0);
}

}  // namespace
}  // namespace maru::test
