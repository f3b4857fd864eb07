#include "daemon/event/segments.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/mman.h>

#include <cerrno>

#include "tests/daemon/event/fake_manager.h"
#include "tests/daemon/event/temp_dir.h"

namespace maru {
namespace {

constexpr SegmentRef kRef{0x0000000100000002, 0};
constexpr uint64_t kBytes = 2 << 20;

class Segmented : public testing::Test, public SegmentFacts {
  protected:
    Segmented()
        : manager_(dir_ / "notify"),
          notifier_(manager_.path()),
          fdstore_(notifier_, true),
          segments_(reaper_, fdstore_, *this) {}

    void segment_created(SegmentRef, const Result<Service::CreatedSegment> &result) override {
        facts_.push_back(result ? "created" : "not created");
        if (result)
            created_ = *result;
        else
            error_ = result.error();
    }
    void segment_sealed(SegmentRef, const Result<void> &result) override {
        facts_.push_back(result ? "sealed" : "not sealed");
    }
    void segment_proven(SegmentRef, Service::Proof proof) override {
        facts_.push_back(proof == Service::Proof::Proven        ? "proven"
                         : proof == Service::Proof::StillMapped ? "still mapped"
                                                                : "refused");
    }
    std::string next_fact() {
        while (facts_.empty()) {
            pollfd ready = {reaper_.event_fd(), POLLIN, 0};
            if (::poll(&ready, 1, 10'000) != 1)
                return "nothing for ten seconds";
            reaper_.run_done();
        }
        std::string fact = facts_.front();
        facts_.erase(facts_.begin());
        return fact;
    }
    std::string create(SegmentRef ref = kRef) {
        segments_.create(ref, {kBytes, wire::HugePages::Off}, 1000);
        EXPECT_TRUE(facts_.empty()) << "never from inside the call";
        return next_fact();
    }

    TempDir dir_;
    FakeManager manager_;
    Notifier notifier_;
    FdStore fdstore_;
    std::vector<std::string> facts_;
    Service::CreatedSegment created_;
    Error error_;
    Reaper reaper_;
    Segments segments_;
};

TEST_F(Segmented, IsInTheFdStoreBeforeItIsReportedAndLeavesItWhenDropped) {
    ASSERT_EQ(create(), "created");
    EXPECT_TRUE(segments_.holds(kRef));
    auto stored = manager_.next(0);
    ASSERT_TRUE(stored);
    EXPECT_THAT(stored->text, testing::HasSubstr("FDNAME=seg-0000000100000002-0"));
    ASSERT_EQ(stored->fds.size(), 1u);
    EXPECT_EQ(inspect_descriptor(stored->fds[0].get()).identity, created_.identity);
    int fd = segments_.fd(kRef);
    segments_.drop(kRef);
    EXPECT_FALSE(segments_.holds(kRef));
    EXPECT_EQ(segments_.fd(kRef), -1);
    auto removed = manager_.next(0);
    ASSERT_TRUE(removed);
    EXPECT_EQ(removed->text, "FDSTOREREMOVE=1\nFDNAME=seg-0000000100000002-0");
    EXPECT_TRUE(reaper_.stop(10'000));
    EXPECT_EQ(::fcntl(fd, F_GETFD), -1) << "closed by the reaper";
}

TEST_F(Segmented, ProofFollowsTheLadder) {
    ASSERT_EQ(create(), "created");
    void *at = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, segments_.fd(kRef), 0);
    ASSERT_NE(at, MAP_FAILED);
    segments_.seal(kRef);
    EXPECT_EQ(next_fact(), "sealed");
    segments_.prove(kRef);
    EXPECT_EQ(next_fact(), "still mapped");
    ::munmap(at, kBytes);
    segments_.prove(kRef);
    EXPECT_EQ(next_fact(), "proven");
}

TEST_F(Segmented, SealSealRefusesTheProof) {
    ASSERT_EQ(create(), "created");
    ASSERT_EQ(::fcntl(segments_.fd(kRef), F_ADD_SEALS, F_SEAL_SEAL), 0);
    segments_.prove(kRef);
    EXPECT_EQ(next_fact(), "refused");
}

TEST_F(Segmented, WhatIsNotHeldIsAnsweredAllTheSame) {
    segments_.seal(kRef);
    EXPECT_EQ(next_fact(), "not sealed");
    segments_.prove(kRef);
    EXPECT_EQ(next_fact(), "refused");
    segments_.drop(kRef);
}

TEST_F(Segmented, DroppedWhileItIsMadeNothingIsLeft) {
    segments_.create(kRef, {kBytes, wire::HugePages::Off}, 1000);
    segments_.drop(kRef);
    segments_.create({1, 1}, {kBytes, wire::HugePages::Off}, 1000);
    EXPECT_EQ(next_fact(), "created");  // of the second alone
    EXPECT_FALSE(segments_.holds(kRef));
    EXPECT_EQ(segments_.count(), 1u);
    EXPECT_TRUE(facts_.empty());
}

TEST_F(Segmented, AFailureIsReportedWithItsReason) {
    segments_.create(kRef, {4095, wire::HugePages::Off}, 1000);
    EXPECT_EQ(next_fact(), "not created");
    EXPECT_EQ(error_.code, EINVAL);
    EXPECT_FALSE(segments_.holds(kRef));
    EXPECT_EQ(create(), "created") << "asked again it works";
}

TEST_F(Segmented, AnAdoptedDescriptorIsStoredUnlessItCameFromTheStore) {
    auto file = make_segment_file("x", kBytes, wire::HugePages::Off);
    ASSERT_TRUE(file);
    segments_.adopt(kRef, std::move(file->fd), 1000, true);
    EXPECT_FALSE(manager_.next(0));
    auto other = make_segment_file("x", kBytes, wire::HugePages::Off);
    segments_.adopt({1, 7}, std::move(other->fd), 1000, false);
    EXPECT_TRUE(manager_.next(0));
    EXPECT_EQ(segments_.count(), 2u);
}

}  // namespace
}  // namespace maru
