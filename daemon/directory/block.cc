#include "daemon/directory/block.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include <new>
#include <system_error>
#include <utility>

namespace maru::directory {

Blocks::~Blocks() {
    if (!thread_.joinable())
        return;
    {
        std::lock_guard lock(mutex_);
        stop_ = true;
    }
    changed_.notify_one();
    thread_.join();
}

bool Blocks::start_thread() {
    // Signals are for the thread that waits for them.
    sigset_t all, before;
    sigfillset(&all);
    if (::pthread_sigmask(SIG_SETMASK, &all, &before) != 0)
        return false;
    try {
        thread_ = std::thread([this] { run(); });
    } catch (const std::system_error &) {
        // The machine has no thread to spare: blocks are made when they are taken.
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return thread_.joinable();
}

Block Blocks::make(bool huge) {
    Block block(static_cast<std::byte *>(std::aligned_alloc(kBlockBytes, kBlockBytes)));
    if (!block)
        throw std::bad_alloc();
    if (huge)
        (void)::madvise(block.get(), kBlockBytes, MADV_HUGEPAGE);  // a wish: refused is fine
    return block;
}

void Blocks::announce() {
    if (!thread_.joinable())
        return;
    {
        std::lock_guard lock(mutex_);
        ++announced_;
    }
    changed_.notify_one();
}

Block Blocks::take(bool huge) {
    if (huge && thread_.joinable()) {
        std::lock_guard lock(mutex_);
        if (announced_)
            --announced_;
        if (!ready_.empty()) {
            Block block = std::move(ready_.back());
            ready_.pop_back();
            return block;
        }
    }
    return make(huge);
}

size_t Blocks::memory_bytes() const {
    std::lock_guard lock(mutex_);
    return ready_.size() * kBlockBytes;
}

void Blocks::run() {
    ::pthread_setname_np(::pthread_self(), "marud-blocks");
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [this] { return stop_ || ready_.size() < announced_; });
        if (stop_)
            return;
        lock.unlock();
        bool made = false;
        try {
            Block block = make(true);
            // The whole page if it is a huge one, which is what takes so long.
            *static_cast<volatile std::byte *>(block.get()) = std::byte{};
            lock.lock();
            // Also if a table could not wait for it and made its own: then it is the next one's.
            ready_.push_back(std::move(block));
            made = true;
        } catch (const std::bad_alloc &) {
            // take() will meet the same, and tell whoever can answer for it.
        }
        if (!lock.owns_lock())
            lock.lock();
        if (!made && announced_)
            --announced_;
    }
}

}  // namespace maru::directory
