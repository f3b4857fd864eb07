#include "daemon/event/fdstore.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "libmaru/wire/packet_socket.h"
#include "tests/daemon/event/fake_manager.h"
#include "tests/daemon/event/temp_dir.h"

namespace maru {
namespace {

UniqueFd any_file() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

TEST(Notifier, SendsTextAndDescriptors) {
    TempDir dir;
    FakeManager manager(dir / "notify");
    Notifier notifier(manager.path());
    ASSERT_TRUE(notifier.connected());
    UniqueFd file = any_file();
    int fd = file.get();
    notifier.send("FDSTORE=1\nFDNAME=x", {&fd, 1});
    auto message = manager.next(1000);
    ASSERT_TRUE(message);
    EXPECT_EQ(message->text, "FDSTORE=1\nFDNAME=x");
    ASSERT_EQ(message->fds.size(), 1u);
    struct stat sent = {}, got = {};
    ::fstat(fd, &sent);
    ::fstat(message->fds[0].get(), &got);
    EXPECT_EQ(sent.st_ino, got.st_ino);
}

TEST(Notifier, NobodyToNotifyIsNoError) {
    Notifier nobody;
    EXPECT_FALSE(nobody.connected());
    nobody.send("READY=1");
    EXPECT_FALSE(nobody.pending());
    EXPECT_FALSE(Notifier("/nonexistent/notify").connected());
    EXPECT_FALSE(Notifier("relative").connected());
}

TEST(Notifier, AManagerThatDoesNotReadNeverBlocksAndLosesNothing) {
    TempDir dir;
    FakeManager manager(dir / "notify");
    Notifier notifier(manager.path());
    constexpr int kMessages = 2000;  // the kernel queues some 10 to 512
    for (int i = 0; i < kMessages; ++i) {
        UniqueFd file = any_file();
        int fd = file.get();
        notifier.send("N=" + std::to_string(i), {&fd, 1});
    }
    EXPECT_TRUE(notifier.pending());
    int next = 0;
    while (next < kMessages) {
        auto message = manager.next(0);
        if (!message) {
            notifier.flush();
            message = manager.next(0);
        }
        ASSERT_TRUE(message);
        ASSERT_EQ(message->text, "N=" + std::to_string(next++)) << "in order";
        ASSERT_EQ(message->fds.size(), 1u);
    }
    EXPECT_FALSE(notifier.pending());
    EXPECT_EQ(notifier.dropped(), 0u);
}

TEST(Notifier, TheEnvironmentIsReadOnceAndNotInherited) {
    TempDir dir;
    FakeManager manager(dir / "notify");
    ::setenv("NOTIFY_SOCKET", manager.path().c_str(), 1);
    EXPECT_TRUE(Notifier::from_environment().connected());
    EXPECT_EQ(::getenv("NOTIFY_SOCKET"), nullptr);
    EXPECT_FALSE(Notifier::from_environment().connected());
}

TEST(FdStore, StoresAndRemovesByName) {
    TempDir dir;
    FakeManager manager(dir / "notify");
    Notifier notifier(manager.path());
    FdStore store(notifier, true);
    SegmentRef ref{0x0000abcd00000007, 3};
    UniqueFd file = any_file();
    store.store(segment_fd_name(ref), file.get());
    store.remove(segment_fd_name(ref));
    auto stored = manager.next(1000), removed = manager.next(1000);
    ASSERT_TRUE(stored && removed);
    // FDPOLL=0: a manager that polls a pidfd drops it when the process ends.
    EXPECT_EQ(stored->text, "FDSTORE=1\nFDNAME=seg-0000abcd00000007-3\nFDPOLL=0");
    EXPECT_EQ(stored->fds.size(), 1u);
    EXPECT_EQ(removed->text, "FDSTOREREMOVE=1\nFDNAME=seg-0000abcd00000007-3");
}

TEST(FdStore, WithoutAStoreNothingIsSent) {
    TempDir dir;
    FakeManager manager(dir / "notify");
    Notifier notifier(manager.path());
    FdStore store(notifier, false);
    store.store("seg-0000abcd00000007-3", 0);
    store.remove("seg-0000abcd00000007-3");
    EXPECT_FALSE(manager.next(0));
}

TEST(FdStore, SegmentNamesReadBackAndNothingElseDoes) {
    for (SegmentRef ref :
         {SegmentRef{1, 0}, SegmentRef{UINT64_MAX, UINT32_MAX}, SegmentRef{0x0102030405060708, 42}})
        EXPECT_EQ(parse_segment_fd_name(segment_fd_name(ref)), ref);
    for (const char *name :
         {"", "seg-", "seg-0000abcd00000007", "seg-0000abcd00000007-", "seg-0000abcd00000007-03",
          "seg-0000ABCD00000007-3", "seg-0000abcd00000007-3x", "seg-0000abcd00000007-4294967296",
          "pid-1-2", "seg-0000abcd0000000g-3", "seg--000abcd00000007-3"})
        EXPECT_FALSE(parse_segment_fd_name(name)) << name;
    // The manager takes names of at most 255 characters without ':'.
    std::string longest = segment_fd_name({UINT64_MAX, UINT32_MAX});
    EXPECT_LE(longest.size(), 255u);
    EXPECT_EQ(longest.find(':'), std::string::npos);
}

TEST(FdStore, WhatThePredecessorLeftIsSortedAndTheRestIsClosed) {
    TempDir dir;
    auto listening = wire::listen_seqpacket(dir / "s", 0600);
    ASSERT_TRUE(listening);
    std::vector<UniqueFd> fds;
    fds.push_back(std::move(*listening));
    for (int i = 0; i < 4; ++i)
        fds.push_back(any_file());
    int unknown = fds[3].get(), twice = fds[4].get();
    PassedDescriptors sorted = sort_passed_descriptors(
        std::move(fds),
        {"marud.socket", "seg-0000000100000002-0", "pid-7-9", "stored", "seg-0000000100000002-0"});
    EXPECT_EQ(sorted.listeners.size(), 1u);
    EXPECT_EQ(sorted.stored.size(), 2u);
    EXPECT_TRUE(sorted.stored.contains("seg-0000000100000002-0"));
    EXPECT_TRUE(sorted.stored.contains("pid-7-9"));
    EXPECT_EQ(sorted.refused, (std::vector<std::string>{"stored", "seg-0000000100000002-0"}));
    EXPECT_EQ(::fcntl(unknown, F_GETFD), -1);
    EXPECT_EQ(::fcntl(twice, F_GETFD), -1);
}

TEST(FdStore, IsBelievedOnlyWhereTheManagerHasOne) {
    TempDir dir;
    FakeManager manager(dir / "notify");
    Notifier notifier(manager.path());
    ::unsetenv("FDSTORE");
    ::unsetenv("SYSTEMD_EXEC_PID");
    EXPECT_FALSE(fdstore_available(notifier));
    ::setenv("SYSTEMD_EXEC_PID", "1", 1);  // somebody else's
    EXPECT_FALSE(fdstore_available(notifier));
    ::setenv("SYSTEMD_EXEC_PID", std::to_string(::getpid()).c_str(), 1);
    EXPECT_TRUE(fdstore_available(notifier));
    ::setenv("FDSTORE", "0", 1);
    EXPECT_FALSE(fdstore_available(notifier));
    ::setenv("FDSTORE", "64", 1);
    EXPECT_TRUE(fdstore_available(notifier));
    EXPECT_FALSE(fdstore_available(Notifier()));
    ::unsetenv("FDSTORE");
    ::unsetenv("SYSTEMD_EXEC_PID");
}

}  // namespace
}  // namespace maru
