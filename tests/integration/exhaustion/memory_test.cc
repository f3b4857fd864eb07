// Memory that is not there: an error or a smaller pool, never a signal and never a lost charge.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <linux/capability.h>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "tests/integration/exhaustion/support.h"
#include "tests/integration/known_failures/actor.h"
#include "tests/integration/known_failures/raw_worker.h"

namespace maru::test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr uint64_t kMiB = 1 << 20;

class Memory : public testing::Test {
  protected:
    Memory() : marud(shimmed(shim)) { marud.start(); }
    ~Memory() override { CallShim::own().pass_all(); }

    CallShim shim;
    Marud marud;
    CallShim &own = CallShim::own();
};

TEST_F(Memory, A29_ShortageIsAnErrorBeforeAnythingIsMapped) {
    struct {
        shim_call call;
        int error, expected;
    } const cases[] = {
        {SHIM_MEMFD_CREATE, ENOMEM, -ENOMEM}, {SHIM_MEMFD_CREATE, EMFILE, -EMFILE},
        {SHIM_MEMFD_CREATE, ENFILE, -EMFILE}, {SHIM_FTRUNCATE, ENOSPC, -ENOMEM},
        {SHIM_FTRUNCATE, ENOMEM, -ENOMEM},    {SHIM_ADD_SEALS, ENOMEM, -ENOMEM},
    };
    Unchanged unchanged(marud);
    {
        Worker worker(without_pool(marud));
        for (const auto &shortage : cases) {
            SCOPED_TRACE("call " + std::to_string(shortage.call) + ", errno " +
                         std::to_string(shortage.error));
            shim.fail(shortage.call, shortage.error);
            const uint32_t mapped = own.calls(SHIM_MMAP_FD);
            maru_pool_options options = pool_of(16 * kMiB);
            maru_pool *pool = nullptr;
            EXPECT_EQ(maru_pool_open(worker.client, &options, &pool), shortage.expected)
                << maru_last_error();
            EXPECT_GE(shim.failed(shortage.call), 1u);
            EXPECT_EQ(own.calls(SHIM_MMAP_FD), mapped) << "nothing may be mapped";
            shim.pass_all();
            EXPECT_EQ(wait_uncharged(marud.socket(), 5000), "");
        }
        maru_pool_options options = pool_of(4 * kMiB);
        ASSERT_EQ(maru_pool_open(worker.client, &options, &worker.pool), 0) << maru_last_error();
        expect_works(worker, 1);
    }
    unchanged.expect();
}

TEST_F(Memory, A29_MemoryThatTheKernelRefusesKeepsThePoolSmaller) {
    Unchanged unchanged(marud);
    for (int error : {ENOMEM, EFAULT}) {
        Worker worker(without_pool(marud));
        own.fail(SHIM_POPULATE_WRITE, error, -1, 1);  // after the first 16 MiB
        maru_pool_options options = pool_of(40 * kMiB);
        ASSERT_EQ(maru_pool_open(worker.client, &options, &worker.pool), 0) << maru_last_error();
        const struct maru_pool_info info = worker.pool_info();
        EXPECT_EQ(info.populate_result, -error);
        EXPECT_EQ(info.populated_bytes, 16 * kMiB);
        EXPECT_EQ(maru_pool_wait_populated(worker.pool, 0), -error);
        EXPECT_EQ(worker.store_until_full(1), static_cast<int>(16 * kMiB / kPage));
        maru_lease *last = worker.acquire(16 * kMiB / kPage);
        ASSERT_NE(last, nullptr);
        EXPECT_TRUE(worker.shows(last, 16 * kMiB / kPage));
        EXPECT_EQ(worker.release(last), 0);
        own.pass_all();
    }
    unchanged.expect();
}

TEST_F(Memory, A29_AMappingThatTheKernelRefusesLeavesNothingCharged) {
    Unchanged unchanged(marud);
    {
        Worker worker(without_pool(marud));
        own.fail(SHIM_MMAP_FD, ENOMEM);
        maru_pool_options options = pool_of(4 * kMiB);
        maru_pool *pool = nullptr;
        EXPECT_EQ(maru_pool_open(worker.client, &options, &pool), -ENOMEM) << maru_last_error();
        own.pass_all();
        EXPECT_EQ(wait_uncharged(marud.socket(), 5000), "");
        ASSERT_EQ(maru_pool_open(worker.client, &options, &worker.pool), 0) << maru_last_error();
        expect_works(worker, 1);
    }
    unchanged.expect();
}

TEST_F(Memory, ARefusedCollapseIsNoFailure) {
    Worker worker(without_pool(marud));
    own.fail(SHIM_COLLAPSE, EINVAL);
    maru_pool_options options = pool_of(20 * kMiB);
    ASSERT_EQ(maru_pool_open(worker.client, &options, &worker.pool), 0) << maru_last_error();
    EXPECT_EQ(worker.pool_info().populated_bytes, 20 * kMiB);
    EXPECT_GT(own.failed(SHIM_COLLAPSE), 0u);
    EXPECT_LE(own.failed(SHIM_COLLAPSE), 4u) << "given up soon";
    expect_works(worker, 1);
}

std::vector<wire::PoolRow> list_pools(const Marud &marud) {
    WireClient client(marud.socket());
    EXPECT_TRUE(client.hello());
    wire::ListRequest request;
    request.kind = wire::ListKind::Pools;
    const auto *reply = client.ask<wire::ListReply>(request);
    return reply ? std::get<std::vector<wire::PoolRow>>(reply->rows) : std::vector<wire::PoolRow>();
}

TEST_F(Memory, A30_MissingHugePagesAreAnErrorOrBasePages) {
    uint64_t free = 0;
    std::ifstream("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages") >> free;
    const uint64_t bytes = (free + 4) * 2 * kMiB;
    if (bytes > 1024 * kMiB)
        GTEST_SKIP() << free << " huge pages of 2 MiB are free: more than this test would use up";
    Unchanged unchanged(marud);
    {
        Worker worker(without_pool(marud));
        maru_pool_options options = pool_of(bytes);
        options.huge_pages = MARU_HUGE_REQUIRED;
        maru_pool *pool = nullptr;
        EXPECT_EQ(maru_pool_open(worker.client, &options, &pool), -ENOMEM);
        EXPECT_THAT(maru_last_error(),
                    HasSubstr("huge pages: " + std::to_string(free + 4) + " of 2 MiB are needed, " +
                              std::to_string(free) + " are free"));
        EXPECT_EQ(wait_uncharged(marud.socket(), 5000), "");
        options.huge_pages = MARU_HUGE_TRY;
        own.fail(SHIM_COLLAPSE, EINVAL);  // base pages stay base pages
        ASSERT_EQ(maru_pool_open(worker.client, &options, &worker.pool), 0) << maru_last_error();
        EXPECT_EQ(worker.pool_info().populated_bytes, bytes);
        EXPECT_EQ(worker.pool_info().backing_page_bytes, 4096u);
        const auto rows = list_pools(marud);
        ASSERT_EQ(rows.size(), 1u);
        EXPECT_EQ(rows[0].page_kind, "4K");
        expect_works(worker, 1);
    }
    unchanged.expect();
}

TEST_F(Memory, A30_AReservationThatFailsLaterIsNoSignal) {
    // The file could be made, its pages could not be reserved: as when others take them meanwhile.
    Worker worker(without_pool(marud));
    shim.fail(SHIM_MMAP_FD, ENOMEM);
    maru_pool_options options = pool_of(2 * kMiB);
    options.huge_pages = MARU_HUGE_REQUIRED;
    maru_pool *pool = nullptr;
    EXPECT_EQ(maru_pool_open(worker.client, &options, &pool), -ENOMEM);
    options.huge_pages = MARU_HUGE_TRY;
    EXPECT_EQ(maru_pool_open(worker.client, &options, &worker.pool), 0) << maru_last_error();
    shim.pass_all();
    expect_works(worker, 1);
}

// ---- A31

void touching_worker(Stage &stage) {
    WorkerOptions options;
    options.socket = stage.arguments.at(0);
    options.pool_bytes = 64 * kMiB;
    options.page_bytes = 64 * 1024;
    options.object_bytes = 64 * 1024;
    Worker worker(options);
    stage.answer(worker.pool && worker.store(1) == 0 ? "ready" : maru_last_error());
    std::string command;
    while (stage.next(&command)) {
    }
}
const ActorRole kTouchingWorker("touching-worker", touching_worker);

std::vector<std::string> names_of_shm() {
    std::vector<std::string> names;
    for (const auto &entry : std::filesystem::directory_iterator("/dev/shm"))
        if (entry.path().string().find("maru") != std::string::npos)
            names.push_back(entry.path());
    return names;
}

// Descriptors of a process that keep the memory of a segment alive.
size_t segments_held_by(pid_t pid) {
    size_t count = 0;
    std::error_code ended;
    for (const auto &entry :
         std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", ended)) {
        std::error_code gone;
        const std::string target = std::filesystem::read_symlink(entry, gone);
        count += target.rfind("/memfd:maru-", 0) == 0;
    }
    return count;
}

TEST(Exhaustion, A31_KilledProcessesLeaveNoSharedMemoryBehind) {
    MarudOptions options;
    options.config = "[cpu]\nhost_bytes = \"64M\"\n";  // room for one
    Marud marud(options);
    const auto names = names_of_shm();
    for (int round = 0; round < 5; ++round) {
        marud.start();
        EXPECT_EQ(wait_uncharged(marud.socket(), 10'000), "");
        EXPECT_TRUE(eventually([&] { return marud.stored().empty(); }))
            << testing::PrintToString(marud.stored());
        EXPECT_TRUE(eventually([&] { return segments_held_by(marud.pid()) == 0; }));
        EXPECT_EQ(segments_held_by(::getpid()), 0u) << "the manager's store holds memory";
        Actor worker("touching-worker", {marud.socket()});
        ASSERT_EQ(worker.answer(), "ready");
        EXPECT_EQ(query_status(marud.socket()).host_reserved_bytes, 64 * kMiB);
        marud.signal(SIGKILL);
        worker.kill();
        marud.wait_exit(10'000);
        EXPECT_EQ(names_of_shm(), names);
    }
    marud.start();
    EXPECT_EQ(wait_uncharged(marud.socket(), 10'000), "");
}

// ---- A32

TEST_F(Memory, A32_ARefusedPolicyIsNeverClaimedToBeInForce) {
    Unchanged unchanged(marud);
    for (int error : {EPERM, EINVAL}) {
        const std::string name = error == EPERM ? "EPERM" : "EINVAL";
        Worker worker(without_pool(marud));
        own.fail(SHIM_MBIND, error);
        maru_pool_options options = pool_of(4 * kMiB);
        options.numa = MARU_NUMA_STRICT;
        options.numa_node = 0;
        maru_pool *pool = nullptr;
        EXPECT_EQ(maru_pool_open(worker.client, &options, &pool), -EOPNOTSUPP);
        EXPECT_THAT(maru_last_error(), HasSubstr("mbind gave " + name));
        EXPECT_EQ(wait_uncharged(marud.socket(), 5000), "");
        options.numa = MARU_NUMA_AUTO;
        ASSERT_EQ(maru_pool_open(worker.client, &options, &worker.pool), 0) << maru_last_error();
        EXPECT_THAT(maru_last_error(), HasSubstr("mbind gave " + name)) << "the warning";
        EXPECT_EQ(worker.pool_info().numa_node, -1);
        const auto rows = list_pools(marud);
        ASSERT_EQ(rows.size(), 1u);
        EXPECT_EQ(rows[0].numa_node, -1) << "asked for is not bound";
        EXPECT_GE(own.failed(SHIM_MBIND), 2u);
        expect_works(worker, 1);
        own.pass_all();
    }
    unchanged.expect();
}

// ---- A33

TEST(Exhaustion, A33_WhatAClientCouldShrinkIsRefusedAndItsSegmentsCannotBe) {
    MarudOptions options;
    options.fdstore = false;  // so that marud must ask for the segments again
    Marud marud(options);
    marud.start();
    RawWorker worker(marud.socket(), 1, "engine");
    worker.open();
    worker.open_pool(1 * kMiB);
    worker.map_segments();
    // (b) what marud made and passed out
    EXPECT_EQ(::ftruncate(worker.segment_fd(0), 0), -1);
    EXPECT_EQ(errno, EPERM);
    uint32_t old_epoch = worker.client().epoch();
    marud.restart();
    // (a), (c): handed in instead of the segment, and truncated at once
    UniqueFd loose(::memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    UniqueFd regular(
        ::open((marud.directory() + "/regular").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    for (int fd : {loose.get(), regular.get()}) {
        ASSERT_EQ(::ftruncate(fd, 1 * kMiB), 0);
        worker.reconnect();
        ASSERT_EQ(worker.attach(old_epoch), wire::Status::Ok);
        wire::AttachPoolRequest request;
        request.pool = worker.pool().pool;
        request.capacity_bytes = worker.pool().capacity_bytes;
        request.segment_bytes = worker.pool().segment_bytes;
        request.page_bytes = 4096;
        request.segment_count = 1;
        request.next_generation = worker.pool().first_generation + 100;
        const uint64_t id = worker.client().post(request, {fd});
        ASSERT_EQ(::ftruncate(fd, 0), 0);
        const wire::Reply *reply = worker.client().wait_reply(id);
        ASSERT_TRUE(reply);
        const auto *refused = std::get_if<wire::StatusOnly>(&reply->body);
        ASSERT_TRUE(refused);
        EXPECT_EQ(refused->status, wire::Status::InvalidArgument) << refused->message;
        EXPECT_THAT(refused->message, HasSubstr("it lacks a seal"));
    }
    EXPECT_TRUE(marud.running());
    EXPECT_EQ(query_status(marud.socket()).host_reserved_bytes, 1 * kMiB) << "still charged";
}

// ---- limits of the process

TEST(Exhaustion, ASmallMemlockLimitHindersNeitherSide) {
    // Root would be exempt; an exec'd marud of this process is not any more.
    if (::geteuid() == 0 && ::prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0) != 0)
        GTEST_SKIP() << "CAP_IPC_LOCK cannot be dropped here";
    rlimit before = {};
    ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &before), 0);
    const rlimit small = {64 * 1024, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &small), 0);
    Marud marud;
    marud.start();
    {
        WorkerOptions options = without_pool(marud);
        options.pool_bytes = 20 * kMiB;
        Worker worker(options);
        EXPECT_EQ(worker.pool_info().populated_bytes, 20 * kMiB);
        expect_works(worker, 1);
    }
    EXPECT_EQ(::setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

// ---- a cgroup's limit

// A memory cgroup of its own, below or beside that of this process, of either version.
class LimitedGroup {
  public:
    explicit LimitedGroup(uint64_t bytes) {
        std::ifstream groups("/proc/self/cgroup");
        std::string name = "/maru-test-" + std::to_string(::getpid());
        for (std::string line; std::getline(groups, line);) {
            const size_t first = line.find(':'), second = line.find(':', first + 1);
            if (second == std::string::npos)
                continue;
            const std::string kind = line.substr(first + 1, second - first - 1);
            std::string own = line.substr(second + 1);
            if (own == "/")
                own.clear();
            const std::string parent =
                own.substr(0, own.rfind('/') == std::string::npos ? 0 : own.rfind('/'));
            if (kind == "memory")
                try_make("/sys/fs/cgroup/memory" + own + name, "memory.limit_in_bytes", bytes);
            else if (kind.empty())
                for (const char *root : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"})
                    for (const std::string &above : {own, parent})
                        try_make(root + above + name, "memory.max", bytes);
        }
    }
    ~LimitedGroup() {
        // Empty as soon as the kernel has counted the exit of the last process.
        if (!path_.empty()) {
            EXPECT_TRUE(eventually([this] { return ::rmdir(path_.c_str()) == 0; })) << path_;
        }
    }
    const std::string &path() const { return path_; }  // "": none could be made

  private:
    void try_make(const std::string &path, const char *limit, uint64_t bytes) {
        if (!path_.empty() || ::mkdir(path.c_str(), 0755) < 0)
            return;
        const std::string file = path + "/" + limit;
        if (::access(file.c_str(), W_OK) == 0 && (std::ofstream(file) << bytes).flush())
            path_ = path;
        else
            ::rmdir(path.c_str());
    }
    std::string path_;
};

void limited_worker(Stage &stage) {
    (std::ofstream(stage.arguments.at(1) + "/cgroup.procs") << ::getpid()).flush();
    WorkerOptions options;
    options.socket = stage.arguments.at(0);
    options.pool_bytes = 0;
    options.object_bytes = 64 * 1024;
    Worker worker(options);
    maru_pool_options pool{};
    pool.size = sizeof pool;
    pool.capacity_bytes = 256 * kMiB;
    pool.wait_populated = 1;
    pool.populate_margin_mib = 32;
    if (maru_pool_open(worker.client, &pool, &worker.pool) < 0)
        return stage.answer(maru_last_error());
    const struct maru_pool_info info = worker.pool_info();
    stage.answer(std::to_string(info.populate_result));
    stage.answer(std::to_string(info.populated_bytes));
    const int stored = worker.store_until_full(1);
    stage.answer(std::to_string(stored));
    maru_lease *last = worker.acquire(static_cast<uint32_t>(stored));
    stage.answer(last && worker.shows(last, static_cast<uint32_t>(stored)) ? "right" : "wrong");
    if (last)
        worker.release(last);
    std::string command;
    while (stage.next(&command)) {
    }
}
const ActorRole kLimitedWorker("limited-worker", limited_worker);

TEST(Exhaustion, ACgroupsLimitKeepsThePoolSmallerAndKillsNobody) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the sanitizer's own memory counts against the group's limit";
#endif
    LimitedGroup group(160 * kMiB);
    if (group.path().empty())
        GTEST_SKIP() << "no memory cgroup can be made here (needs root and a writable hierarchy)";
    Marud marud;
    marud.start();
    Unchanged unchanged(marud);
    {
        Actor worker("limited-worker", {marud.socket(), group.path()});
        EXPECT_EQ(worker.answer(), std::to_string(-ENOMEM));
        const uint64_t populated = std::stoull(worker.answer());
        EXPECT_GE(populated, 16 * kMiB);
        EXPECT_LE(populated, (160 - 32) * kMiB);
        EXPECT_EQ(worker.answer(60'000), std::to_string(populated / (64 * 1024)));
        EXPECT_EQ(worker.answer(), "right");
        EXPECT_EQ(worker.finish(), 0);
    }
    unchanged.expect();
}

}  // namespace
}  // namespace maru::test
