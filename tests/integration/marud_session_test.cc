// A worker's life against a real marud: segments, commits, deaths and restarts of either side.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <thread>

#include "libmaru/base/clock.h"
#include "tests/integration/marud_fixture.h"
#include "tests/integration/wire_client.h"

namespace maru::test {
namespace {

using testing::HasSubstr;
using wire::Status;

constexpr int64_t kSecond = 1'000'000'000;
constexpr uint64_t kSegment = 1 << 20;
constexpr uint64_t kPage = 64 << 10;
constexpr char kConfig[] =
    "[cpu]\nhost_bytes = \"64M\"\nsegment_bytes = \"1M\"\n[sessions]\ntimeout = \"5s\"\n";

// What libmaru does for one worker with one pool of two segments.
class Worker {
  public:
    Worker(const Marud &marud, uint8_t token, std::string engine = "engine")
        : socket_(marud.socket()), engine_(std::move(engine)) {
        token_[0] = token;
        client_ = std::make_unique<WireClient>(socket_);
    }
    ~Worker() {
        for (void *at : mappings_)
            ::munmap(at, kSegment);
    }

    Status open() {
        if (!client_->hello())
            return Status::Internal;
        wire::OpenSessionRequest request;
        request.token = token_;
        request.engine = engine_;
        return client_->status(request);
    }
    Status describe() {
        const auto *ns = client_->ask<wire::NamespaceReply>(wire::RegisterNamespaceRequest{"ns"});
        if (!ns)
            return Status::Internal;
        namespace_ = ns->namespace_id;
        return client_->status(wire::DescribeRequest{namespace_, kPage, "raw"});
    }
    Status open_pool(uint64_t bytes = 2 * kSegment) {
        wire::OpenPoolRequest request;
        request.capacity_bytes = bytes;
        request.page_bytes = kPage;
        request.request_key = 1;
        const wire::Reply *reply = client_->call(request);
        if (const auto *pool = reply ? std::get_if<wire::PoolReply>(&reply->body) : nullptr) {
            pool_ = *pool;
            return Status::Ok;
        }
        const auto *only = reply ? std::get_if<wire::StatusOnly>(&reply->body) : nullptr;
        return only ? only->status : Status::Internal;
    }
    // Granted, mapped for writing, touched, sealed.
    Status add_segment(uint32_t segment) {
        Status status = client_->status(wire::GrantSegmentRequest{pool_.pool, segment});
        if (status != Status::Ok || client_->fds().size() != 1)
            return status == Status::Ok ? Status::FdLimit : status;
        segments_.push_back(std::move(client_->fds()[0]));
        struct stat info = {};
        ::fstat(segments_.back().get(), &info);
        EXPECT_EQ(info.st_blocks, 0) << "marud pays nothing";
        EXPECT_EQ(info.st_mode & 0777, 0600u);
        void *at = ::mmap(nullptr, kSegment, PROT_READ | PROT_WRITE, MAP_SHARED,
                          segments_.back().get(), 0);
        if (at == MAP_FAILED)
            return Status::NoMemory;
        mappings_.push_back(at);
        static_cast<char *>(at)[0] = 'x';
        return client_->status(wire::SegmentMappedRequest{pool_.pool, segment});
    }
    Status commit(uint8_t key, uint64_t page) {
        wire::CommitItem item;
        item.key.digest.bytes[0] = key;
        item.pool = pool_.pool;
        item.offset = page * kPage;
        item.length = kPage;
        item.generation = pool_.first_generation + page;
        wire::CommitRequest request{namespace_, next_op_++, {&item, 1}};
        const auto *reply = client_->ask<wire::CommitReply>(request);
        return reply ? reply->results[0].status : Status::Internal;
    }
    uint32_t probe(uint8_t key) {
        wire::Digest digest;
        digest.bytes[0] = key;
        wire::ProbeRequest request;
        request.namespace_id = namespace_;
        request.keys = {&digest, 1};
        const auto *reply = client_->ask<wire::ProbeReply>(request);
        return reply ? reply->prefix : UINT32_MAX;
    }
    // After a restart of marud: the same session, its segments if marud asks, what was committed.
    Status attach(uint32_t old_epoch, uint8_t key, uint64_t page, bool *ret_passed) {
        client_ = std::make_unique<WireClient>(socket_);
        if (!client_->hello())
            return Status::Internal;
        wire::AttachRequest request;
        request.token = token_;
        request.engine = engine_;
        request.old_epoch = old_epoch;
        request.lowest_unanswered = next_op_;
        const wire::Reply *reply = client_->call(request);
        const auto *attached = reply ? std::get_if<wire::AttachReply>(&reply->body) : nullptr;
        if (!attached)
            return reply ? std::get<wire::StatusOnly>(reply->body).status : Status::Internal;
        EXPECT_FALSE(attached->same_life);
        *ret_passed = !attached->missing_pools.empty();
        if (Status status = describe(); status != Status::Ok)
            return status;
        if (*ret_passed) {
            if (Status status = pass_segments(fds()); status != Status::Ok)
                return status;
        }
        wire::RepublishItem item;
        item.item.key.digest.bytes[0] = key;
        item.item.pool = pool_.pool;
        item.item.offset = page * kPage;
        item.item.length = kPage;
        item.item.generation = pool_.first_generation + page;
        item.namespace_id = namespace_;
        const auto *republished =
            client_->ask<wire::ItemStatusReply>(wire::RepublishRequest{{&item, 1}});
        if (!republished || republished->statuses[0] != Status::Ok)
            return republished ? republished->statuses[0] : Status::Internal;
        return client_->status(wire::AttachDoneRequest{});
    }
    Status pass_segments(std::vector<int> fds) {
        wire::AttachPoolRequest request;
        request.pool = pool_.pool;
        request.capacity_bytes = pool_.capacity_bytes;
        request.segment_bytes = pool_.segment_bytes;
        request.page_bytes = kPage;
        request.segment_count = static_cast<uint32_t>(fds.size());
        request.next_generation = pool_.first_generation + 100;
        return client_->status(request, std::move(fds));
    }
    Status set_up() {
        for (Status status : {open(), describe(), open_pool(), add_segment(0), commit(1, 0)})
            if (status != Status::Ok)
                return status;
        return Status::Ok;
    }
    std::vector<int> fds() const {
        std::vector<int> out;
        for (const UniqueFd &fd : segments_)
            out.push_back(fd.get());
        return out;
    }
    WireClient &client() { return *client_; }
    int segment_fd(size_t i) const { return segments_[i].get(); }

  private:
    std::string socket_, engine_;
    wire::Token token_{};
    std::unique_ptr<WireClient> client_;
    wire::Id namespace_ = 0;
    wire::PoolReply pool_;
    uint64_t next_op_ = 1;
    std::vector<UniqueFd> segments_;
    std::vector<void *> mappings_;
};

uint64_t reserved_bytes(const Marud &marud) {
    WireClient admin(marud.socket());
    if (!admin.hello())
        return UINT64_MAX;
    const auto *status = admin.ask<wire::StatusReply>(wire::StatusRequest{});
    return status ? status->host_reserved_bytes : UINT64_MAX;
}

bool eventually(const std::function<bool()> &holds, int64_t seconds = 10) {
    int64_t deadline = monotonic_ns() + seconds * kSecond;
    while (monotonic_ns() < deadline) {
        if (holds())
            return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
}

// Runs `work` in a process of its own until it is killed; returns when it says that it is set up.
class WorkerProcess {
  public:
    explicit WorkerProcess(const std::function<bool()> &work) {
        int ends[2];
        EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
        UniqueFd read_end(ends[0]), write_end(ends[1]);
        pid_ = ::fork();
        if (pid_ == 0) {
            char good = work() ? 'y' : 'n';
            [[maybe_unused]] ssize_t put = ::write(write_end.get(), &good, 1);
            for (;;)
                ::pause();
        }
        write_end.reset();
        char good = 0;
        ok_ = ::read(read_end.get(), &good, 1) == 1 && good == 'y';
    }
    ~WorkerProcess() { kill(); }
    bool ok() const { return ok_; }
    void kill() {
        if (pid_ <= 0)
            return;
        ::kill(pid_, SIGKILL);
        int status;
        ::waitpid(pid_, &status, 0);
        pid_ = 0;
    }
    pid_t pid() const { return pid_; }

  private:
    pid_t pid_ = 0;
    bool ok_ = false;
};

MarudOptions with_store(bool fdstore) {
    MarudOptions options;
    options.config = kConfig;
    options.fdstore = fdstore;
    return options;
}

TEST(MarudSession, AWorkerStoresAndFindsAndItsSegmentIsSealedBehindIt) {
    Marud marud(with_store(true));
    marud.start();
    Worker worker(marud, 1);
    ASSERT_EQ(worker.set_up(), Status::Ok) << worker.client().message();
    EXPECT_EQ(worker.probe(1), 1u);
    EXPECT_EQ(worker.probe(2), 0u);
    EXPECT_EQ(
        ::mmap(nullptr, kSegment, PROT_READ | PROT_WRITE, MAP_SHARED, worker.segment_fd(0), 0),
        MAP_FAILED);
    EXPECT_EQ(::ftruncate(worker.segment_fd(0), 0), -1);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(reserved_bytes(marud), 2 * kSegment);
    const auto stored = [&](const std::string &prefix) {
        const auto names = marud.stored();
        return std::count_if(names.begin(), names.end(),
                             [&](const std::string &name) { return name.rfind(prefix, 0) == 0; });
    };
    // The manager reads its socket beside us.
    EXPECT_TRUE(eventually([&] { return stored("seg-") == 1 && stored("pid-") == 1; }))
        << testing::PrintToString(marud.stored());
}

TEST(MarudSession, AKilledWorkerLeavesNothingChargedStoredOrRecorded) {
    Marud marud(with_store(true));
    marud.start();
    WireClient steady(marud.socket());
    ASSERT_TRUE(steady.hello());
    size_t before = marud.open_fds();
    for (int round = 0; round < 5; ++round) {
        WorkerProcess process([&] { return Worker(marud, 1).set_up() == Status::Ok; });
        // The destructor of Worker unmapped; another that keeps its mapping until it dies:
        auto *kept = new std::unique_ptr<Worker>;
        WorkerProcess mapped([&] {
            *kept = std::make_unique<Worker>(marud, 2, "other");
            return (*kept)->set_up() == Status::Ok;
        });
        ASSERT_TRUE(process.ok() && mapped.ok());
        EXPECT_EQ(reserved_bytes(marud), 4 * kSegment);
        process.kill();
        mapped.kill();
        delete kept;
        EXPECT_TRUE(eventually([&] { return reserved_bytes(marud) == 0; })) << marud.log();
    }
    EXPECT_TRUE(eventually([&] { return marud.stored().empty(); }));
    EXPECT_TRUE(std::filesystem::is_empty(marud.directory() + "/sessions"));
    EXPECT_TRUE(eventually([&] { return marud.open_fds() <= before; }));
}

TEST(MarudSession, ADescriptorKeptElsewhereDoesNotHoldTheCharge) {
    // Only writable mappings and pins do: what keeps memory without them is not marud's account.
    Marud marud(with_store(false));
    marud.start();
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    UniqueFd ours(ends[0]), theirs(ends[1]);
    WorkerProcess process([&] {
        Worker worker(marud, 1);
        if (worker.set_up() != Status::Ok)
            return false;
        std::byte byte[8] = {};
        return wire::send_packet(theirs.get(), byte, worker.fds()).ok();
    });
    ASSERT_TRUE(process.ok());
    alignas(8) std::byte buffer[64];
    auto packet = wire::receive_packet(ours.get(), buffer);
    ASSERT_TRUE(packet && packet->fds.size() == 1);
    process.kill();
    EXPECT_TRUE(eventually([&] { return reserved_bytes(marud) == 0; }));
}

TEST(MarudSession, AMappingThatOutlivesTheWorkerHoldsTheChargeUntilItGoes) {
    Marud marud(with_store(true));
    marud.start();
    // A forked sibling keeps the mapping: the worker's exit alone proves nothing.
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    UniqueFd read_end(ends[0]), write_end(ends[1]);
    WorkerProcess process([&] {
        auto *worker = new Worker(marud, 1);  // never destroyed: keeps its mapping
        if (worker->set_up() != Status::Ok)
            return false;
        pid_t sibling = ::fork();
        if (sibling == 0) {
            worker->client().close();
            for (;;)
                ::pause();
        }
        return ::write(write_end.get(), &sibling, sizeof sibling) == sizeof sibling;
    });
    ASSERT_TRUE(process.ok());
    pid_t sibling = 0;
    ASSERT_EQ(::read(read_end.get(), &sibling, sizeof sibling),
              static_cast<ssize_t>(sizeof sibling));
    process.kill();
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    EXPECT_EQ(reserved_bytes(marud), 2 * kSegment);
    ::kill(sibling, SIGKILL);
    EXPECT_TRUE(eventually([&] { return reserved_bytes(marud) == 0; })) << marud.log();
}

class Restarted : public testing::TestWithParam<bool> {};

TEST_P(Restarted, MarudAnswersHitsForWhatAnAttachedWorkerHolds) {
    Marud marud(with_store(GetParam()));
    marud.start();
    Worker worker(marud, 1);
    ASSERT_EQ(worker.set_up(), Status::Ok) << worker.client().message();
    for (int life = 0; life < 3; ++life) {
        uint32_t epoch = worker.client().epoch();
        marud.restart();
        EXPECT_EQ(reserved_bytes(marud), 2 * kSegment) << "charged from the first moment";
        bool passed = false;
        ASSERT_EQ(worker.attach(epoch, 1, 0, &passed), Status::Ok)
            << worker.client().message() << "\n"
            << marud.log();
        EXPECT_EQ(passed, !GetParam()) << "segments come from the fd store, or from the worker";
        EXPECT_NE(worker.client().epoch(), epoch);
        EXPECT_EQ(worker.probe(1), 1u);
    }
    EXPECT_EQ(worker.add_segment(1), Status::Ok) << worker.client().message();
    EXPECT_EQ(worker.commit(2, kSegment / kPage), Status::Ok);
}

INSTANTIATE_TEST_SUITE_P(FdStore, Restarted, testing::Bool(),
                         [](const auto &with) { return with.param ? "Kept" : "None"; });

TEST(MarudSession, AWorkerThatDiedWhileMarudWasAwayIsProvenAndDischarged) {
    Marud marud(with_store(true));
    marud.start();
    auto *kept = new std::unique_ptr<Worker>;
    WorkerProcess process([&] {
        *kept = std::make_unique<Worker>(marud, 1);
        return (*kept)->set_up() == Status::Ok;
    });
    ASSERT_TRUE(process.ok());
    delete kept;
    marud.kill();
    process.kill();
    marud.start();
    EXPECT_TRUE(eventually([&] { return reserved_bytes(marud) == 0; })) << marud.log();
    EXPECT_TRUE(std::filesystem::is_empty(marud.directory() + "/sessions"));
    EXPECT_TRUE(eventually([&] { return marud.stored().empty(); }))
        << testing::PrintToString(marud.stored());
}

TEST(MarudSession, OnlyTheRecordedSegmentsAreTakenBack) {
    Marud marud(with_store(false));
    marud.start();
    Worker worker(marud, 1);
    ASSERT_EQ(worker.set_up(), Status::Ok);
    uint32_t epoch = worker.client().epoch();
    marud.restart();
    // Another file of the same size with the same seals; one without seals; the right one.
    auto make = [](int seals) {
        UniqueFd fd(::memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING));
        EXPECT_EQ(::ftruncate(fd.get(), kSegment), 0);
        EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
        return fd;
    };
    UniqueFd twin = make(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE);
    UniqueFd loose = make(F_SEAL_SHRINK);
    size_t before = marud.open_fds();
    for (int fake : {twin.get(), loose.get()}) {
        Worker other(marud, 1);
        ASSERT_TRUE(other.client().hello());
        wire::AttachRequest request;
        request.token[0] = 1;
        request.engine = "engine";
        request.old_epoch = epoch;
        const auto *attached = other.client().ask<wire::AttachReply>(request);
        ASSERT_TRUE(attached) << other.client().message();
        ASSERT_EQ(attached->missing_pools.size(), 1u);
        wire::AttachPoolRequest pool;
        pool.pool = attached->missing_pools[0];
        pool.capacity_bytes = 2 * kSegment;
        pool.segment_bytes = kSegment;
        pool.page_bytes = kPage;
        pool.segment_count = 1;
        EXPECT_EQ(other.client().status(pool, {fake}), Status::InvalidArgument)
            << other.client().message();
    }
    bool passed = false;
    EXPECT_EQ(worker.attach(epoch, 1, 0, &passed), Status::Ok) << worker.client().message();
    EXPECT_TRUE(passed);
    // The worker's connection, its segment and its pidfd; nothing of the fakes.
    EXPECT_TRUE(eventually([&] { return marud.open_fds() <= before + 3; }))
        << marud.open_fds() << " now, " << before << " before";
}

TEST(MarudSession, AFreshWorkerIsNotMistakenForTheDeadOneOfItsRecord) {
    Marud marud(with_store(true));
    marud.start();
    WorkerProcess process([&] { return Worker(marud, 1).set_up() == Status::Ok; });
    ASSERT_TRUE(process.ok());
    marud.restart();
    // The token has leaked to another process of the same user: not the recorded one.
    Worker thief(marud, 1);
    bool passed = false;
    EXPECT_EQ(thief.attach(1, 1, 0, &passed), Status::Denied) << thief.client().message();
}

TEST(MarudSession, ADamagedRecordIsSetAsideAndTheStartGoesOn) {
    Marud marud(with_store(true));
    marud.start();
    Worker worker(marud, 1);
    ASSERT_EQ(worker.set_up(), Status::Ok);
    marud.kill();
    for (const auto &entry : std::filesystem::directory_iterator(marud.directory() + "/sessions"))
        std::filesystem::resize_file(entry.path(), 100);
    marud.start();
    EXPECT_THAT(marud.log(), HasSubstr("set aside"));
    EXPECT_EQ(reserved_bytes(marud), 0u);
    EXPECT_TRUE(eventually([&] { return marud.stored().empty(); })) << "unknown names are dropped";
}

}  // namespace
}  // namespace maru::test
