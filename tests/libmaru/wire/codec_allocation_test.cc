// The messages of the hot path are encoded and decoded without touching the heap.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "libmaru/wire/codec.h"
#include "tests/libmaru/wire/samples.h"

namespace {
std::atomic<size_t> allocations;
}

// Not inlined: g++ would take malloc and delete for a mismatch.
[[gnu::noinline]] void *operator new(size_t size) {
    ++allocations;
    if (void *memory = std::malloc(size))
        return memory;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void *memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void *memory, size_t) noexcept { std::free(memory); }

namespace maru::wire {
namespace {

using namespace test;

TEST(CodecAllocation, HotMessagesAllocateNothing) {
    Sampler sampler;
    Encoder encoder;
    Decoder decoder;
    const RequestBody requests[] = {
        ProbeRequest{1, sampler.records<Digest>(kMaxProbeKeys), {}, true},
        CommitRequest{1, 1, sampler.records<CommitItem>(kMaxBatchItems)},
        AcquireRequest{1, sampler.records<Digest>(64), {}, true},
        ReleaseRequest{sampler.records<ReplicaName>(64)},
    };
    const ReplyBody replies[] = {
        ProbeReply{7, sampler.records<uint8_t>(256), ProbeReason::None},
        CommitReply{sampler.records<CommitResult>(kMaxBatchItems)},
        AcquireReply{sampler.records<AcquireResult>(64)},
        ItemStatusReply{sampler.records<Status>(64), {}},
        StatusOnly{},
    };
    auto run = [&] {
        for (const RequestBody &body : requests) {
            const Request request{1, 2, 3, body};
            if (!decoder.request(*encoder.request(request)))
                return false;
        }
        for (const ReplyBody &body : replies) {
            const Reply reply{1, body};
            if (!decoder.server_message(*encoder.reply(reply)))
                return false;
        }
        return true;
    };
    ASSERT_TRUE(run()) << decoder.error().message;  // first use may set up
    const size_t before = allocations;
    for (int i = 0; i < 100; ++i)
        ASSERT_TRUE(run());
    EXPECT_EQ(allocations - before, 0u);
}

}  // namespace
}  // namespace maru::wire
