#include "daemon/event/watchdog.h"

#include <gtest/gtest.h>
#include <time.h>
#include <unistd.h>

#include "libmaru/base/clock.h"
#include "tests/daemon/event/fake_manager.h"
#include "tests/daemon/event/temp_dir.h"

namespace maru {
namespace {

TEST(Watchdog, PingsComeFromTurnsOfTheLoopAndFromNothingElse) {
    TempDir dir;
    FakeManager manager(dir / "notify");
    Notifier notifier(manager.path());
    sd_event *raw = nullptr;
    ASSERT_GE(sd_event_new(&raw), 0);
    EventLoop loop(raw);
    Watchdog watchdog(loop.get(), notifier, 90'000);
    ASSERT_TRUE(watchdog.start());
    auto turn_for = [&](int64_t ms) {
        int64_t until = monotonic_ns() + ms * 1'000'000;
        while (monotonic_ns() < until)
            sd_event_run(loop.get(), 5'000);
    };
    auto pings = [&] {
        int count = 0;
        while (auto message = manager.next(0))
            count += message->text == "WATCHDOG=1";
        return count;
    };
    turn_for(200);
    EXPECT_GE(pings(), 2);
    timespec blocked = {0, 200'000'000};  // the loop does not turn
    ::nanosleep(&blocked, nullptr);
    EXPECT_EQ(pings(), 0);
    sd_event_run(loop.get(), 0);
    EXPECT_EQ(pings(), 1) << "one, not one for each that was missed";
}

TEST(Watchdog, IsSilentWhenNobodyWatches) {
    Notifier nobody;
    sd_event *raw = nullptr;
    ASSERT_GE(sd_event_new(&raw), 0);
    EventLoop loop(raw);
    ::unsetenv("WATCHDOG_USEC");
    EXPECT_EQ(Watchdog::usec_from_environment(), 0u);
    ::setenv("WATCHDOG_USEC", "2000000", 1);
    ::setenv("WATCHDOG_PID", std::to_string(::getpid()).c_str(), 1);
    EXPECT_EQ(Watchdog::usec_from_environment(), 2'000'000u);
    EXPECT_EQ(::getenv("WATCHDOG_USEC"), nullptr);
    Watchdog watchdog(loop.get(), nobody, 0);
    EXPECT_TRUE(watchdog.start());
    EXPECT_EQ(sd_event_run(loop.get(), 0), 0);
}

}  // namespace
}  // namespace maru
