#include "libmaru/pool/populate.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>

#include "libmaru/pool/segment.h"

// Newer than the kernel headers of Debian 12's oldest supported toolchains.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace maru::pool {

namespace {

constexpr int kMaxRetries = 8;  // of an interrupted step
constexpr uint64_t kBasePageBytes = 4096;

std::string mib(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

void Collapser::collapse(MemoryEnvironment &environment, std::byte *data, uint64_t bytes) {
    for (uint64_t at = 0; at + kHugePageBytes <= bytes && !given_up(); at += kHugePageBytes) {
        // What is collapsed before it is populated is zeroed once, and nothing is copied. One page must
        // be there: it says which node.
        if (environment.advise(data + at, kBasePageBytes, MADV_POPULATE_WRITE) != 0)
            return;  // short of memory, which the step itself will find
        // EINVAL, ENOSYS: not this kernel; EAGAIN, ENOMEM, EBUSY: no free 2 MiB now. The pages stay
        // small ones, which is no failure.
        if (environment.advise(data + at, kHugePageBytes, MADV_COLLAPSE) == 0)
            failures_ = 0;
        else
            ++failures_;
    }
}

Result<void> populate_range(const PopulateRange &range, const PopulateOptions &options,
                            MemoryEnvironment &environment, Collapser &collapser,
                            const std::atomic<bool> &stop,
                            const std::function<void(uint64_t)> &step) {
    for (uint64_t done = 0; done < range.bytes;) {
        if (stop.load(std::memory_order_relaxed))
            return Error{ECANCELED, "populate pool memory: stopped"};
        const uint64_t bytes = std::min(kPopulateStepBytes, range.bytes - done);
        if (!range.huge) {
            const Headroom headroom = environment.headroom(range.node);
            if (headroom.bytes < bytes || headroom.bytes - bytes < options.margin_bytes)
                return Error{ENOMEM, "populate pool memory: " + headroom.where + " has " +
                                         mib(headroom.bytes) + " left, a step of " + mib(bytes) +
                                         " must leave " + mib(options.margin_bytes)};
        }
        if (options.collapse && !range.huge)
            collapser.collapse(environment, range.data + done, bytes);
        int failed = EINTR;
        for (int tries = 0; tries < kMaxRetries && (failed == EINTR || failed == EAGAIN); ++tries)
            failed = environment.advise(range.data + done, bytes, MADV_POPULATE_WRITE);
        if (failed == EINVAL)
            return Error{EINVAL,
                         "populate pool memory: MADV_POPULATE_WRITE, which needs Linux 5.14"};
        if (failed != 0)
            return Error{failed, "populate " + mib(bytes) + " of pool memory"};
        done += bytes;
        step(done);
    }
    return {};
}

Populator::Populator(uint32_t segment_count, PopulateOptions options, Hooks hooks,
                     MemoryEnvironment &environment)
    : segment_count_(segment_count),
      options_(options),
      hooks_(std::move(hooks)),
      environment_(environment) {}

Result<void> Populator::start() {
    {
        std::lock_guard lock(mutex_);
        progress_.running = true;
    }
    // The host program's signals are not for this thread.
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = 0;
    try {
        thread_ = std::thread([this] { run(); });
    } catch (const std::system_error &error) {
        failed = error.code().value();
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (failed == 0)
        return {};
    std::lock_guard lock(mutex_);
    progress_.running = false;
    progress_.result = Error{failed, "start a thread that populates pool memory"};
    return progress_.result;
}

void Populator::stop() {
    stop_.store(true, std::memory_order_relaxed);
    if (thread_.joinable())
        thread_.join();
}

Populator::Progress Populator::progress() const {
    std::lock_guard lock(mutex_);
    return progress_;
}

bool Populator::wait(std::chrono::milliseconds timeout) const {
    std::unique_lock lock(mutex_);
    return ended_.wait_for(lock, timeout, [this] { return !progress_.running; });
}

void Populator::run() {
    ::pthread_setname_np(::pthread_self(), "maru-populate");
    Collapser collapser;
    Error result;
    for (uint32_t segment = 0; segment < segment_count_ && result.code == 0; ++segment) {
        if (stop_.load(std::memory_order_relaxed)) {
            result = Error{ECANCELED, "populate pool memory: stopped"};
            break;
        }
        auto range = hooks_.open(segment);
        if (!range) {
            result = range.error();
            break;
        }
        uint64_t before = 0;
        auto populated =
            populate_range(*range, options_, environment_, collapser, stop_, [&](uint64_t usable) {
                {
                    std::lock_guard lock(mutex_);
                    progress_.populated_bytes += usable - before;
                }
                before = usable;
                hooks_.ready(segment, usable);
            });
        if (!populated)
            result = populated.error();
    }
    std::lock_guard lock(mutex_);
    progress_.running = false;
    progress_.result = result;
    ended_.notify_all();
}

}  // namespace maru::pool
