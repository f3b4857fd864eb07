#include "daemon/event/reaper.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace maru {
namespace {

// A gate that jobs wait at, like a close that hangs.
class Gate {
  public:
    void wait() {
        std::unique_lock lock(mutex_);
        ++waiting_;
        changed_.notify_all();
        changed_.wait(lock, [this] { return open_; });
    }
    void open() {
        std::lock_guard lock(mutex_);
        open_ = true;
        changed_.notify_all();
    }
    void await(int waiting) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return waiting_ >= waiting; });
    }
    int waiting() {
        std::lock_guard lock(mutex_);
        return waiting_;
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int waiting_ = 0;
    bool open_ = false;
};

// The loop: waits for results and runs them here.
void run_until(Reaper &reaper, const std::function<bool()> &done) {
    while (!done()) {
        pollfd ready = {reaper.event_fd(), POLLIN, 0};
        ASSERT_EQ(::poll(&ready, 1, 10'000), 1) << "no result for ten seconds";
        reaper.run_done();
    }
}

TEST(Reaper, RunsWorkElsewhereAndItsResultOnTheLoop) {
    Reaper reaper;
    const auto loop = std::this_thread::get_id();
    std::thread::id worked, reported;
    reaper.submit(1, [&]() -> Reaper::Done {
        worked = std::this_thread::get_id();
        return [&] { reported = std::this_thread::get_id(); };
    });
    run_until(reaper, [&] { return reported != std::thread::id(); });
    EXPECT_NE(worked, loop);
    EXPECT_EQ(reported, loop);
}

TEST(Reaper, AStuckUidDoesNotDelayAnother) {
    Reaper reaper;
    Gate gate;
    for (size_t i = 0; i < 3 * Reaper::kThreadsPerUid; ++i)
        reaper.submit(1, [&]() -> Reaper::Done {
            gate.wait();
            return nullptr;
        });
    gate.await(Reaper::kThreadsPerUid);
    bool other = false;
    reaper.submit(2, [&]() -> Reaper::Done { return [&] { other = true; }; });
    run_until(reaper, [&] { return other; });
    // And it holds no more threads than its share.
    EXPECT_EQ(gate.waiting(), static_cast<int>(Reaper::kThreadsPerUid));
    EXPECT_LE(reaper.threads(), Reaper::kThreadsPerUid + 2);
    gate.open();
    EXPECT_TRUE(reaper.stop(10'000));
    EXPECT_EQ(gate.waiting(), static_cast<int>(3 * Reaper::kThreadsPerUid));
}

// One thread is idle and nobody else is there: the jobs behind a stuck one need threads of their own.
TEST(Reaper, JobsBehindAStuckOneGetAnotherThread) {
    for (int round = 0; round < 50; ++round) {
        Reaper reaper;
        bool first = false, other = false;
        reaper.submit(1, [&]() -> Reaper::Done { return [&] { first = true; }; });
        run_until(reaper, [&] { return first; });
        while (reaper.idle() == 0)
            std::this_thread::yield();
        Gate gate;
        for (size_t i = 0; i < Reaper::kThreadsPerUid; ++i)
            reaper.submit(1, [&]() -> Reaper::Done {
                gate.wait();
                return nullptr;
            });
        gate.await(1);
        reaper.submit(2, [&]() -> Reaper::Done { return [&] { other = true; }; });
        run_until(reaper, [&] { return other; });
        gate.open();
        ASSERT_TRUE(reaper.stop(10'000));
    }
}

TEST(Reaper, JobsOfOneUidThatDoNotBlockAllRun) {
    Reaper reaper;
    int done = 0;
    for (int i = 0; i < 5000; ++i)
        reaper.submit(static_cast<uint32_t>(i % 7),
                      [&]() -> Reaper::Done { return [&] { ++done; }; });
    run_until(reaper, [&] { return done == 5000; });
}

TEST(Reaper, SaysWhenTheQueueOfAUidIsFull) {
    Reaper reaper;
    Gate gate;
    for (size_t i = 0; i < Reaper::kThreadsPerUid + Reaper::kQueuePerUid; ++i) {
        EXPECT_TRUE(reaper.room(1));
        reaper.submit(1, [&]() -> Reaper::Done {
            gate.wait();
            return nullptr;
        });
        if (i < Reaper::kThreadsPerUid)
            gate.await(static_cast<int>(i) + 1);
    }
    EXPECT_FALSE(reaper.room(1));
    EXPECT_TRUE(reaper.room(2));
    gate.open();
    EXPECT_TRUE(reaper.stop(10'000));
}

TEST(Reaper, ClosesDescriptors) {
    Reaper reaper;
    UniqueFd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    int number = fd.get();
    reaper.close(1, std::move(fd));
    reaper.close(1, UniqueFd());
    EXPECT_TRUE(reaper.stop(10'000));
    EXPECT_EQ(::fcntl(number, F_GETFD), -1);
}

TEST(Reaper, StopSaysThatAJobIsStuckAndTheThreadOutlivesTheReaper) {
    auto gate = std::make_shared<Gate>();
    auto after = std::make_shared<Gate>();
    {
        Reaper reaper;
        reaper.submit(1, [gate, after]() -> Reaper::Done {
            gate->wait();
            return nullptr;
        });
        gate->await(1);
        EXPECT_FALSE(reaper.stop(0));
    }
    gate->open();  // the thread ends without the Reaper: ASan and TSan would tell
}

}  // namespace
}  // namespace maru
