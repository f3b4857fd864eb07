#include "libmaru/client/fork_guard.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

namespace maru::client {
namespace {

std::atomic<uint64_t> g_mark{0};

// Never destroyed: a fork during exit must still find them.
std::mutex &tracked_mutex() {
    static auto *mutex = new std::mutex;
    return *mutex;
}
std::vector<int> &tracked() {
    static auto *fds = new std::vector<int>;
    return *fds;
}

// The mutex is held across fork, so that the child finds the list whole.
void before_fork() { tracked_mutex().lock(); }
void after_fork_in_parent() { tracked_mutex().unlock(); }
void after_fork_in_child() {
    for (int fd : tracked())
        ::close(fd);
    tracked().clear();
    g_mark.fetch_add(1, std::memory_order_relaxed);
    tracked_mutex().unlock();
}

}  // namespace

void ForkGuard::install() {
    static std::once_flag once;
    std::call_once(once, [] {
        tracked_mutex();
        tracked();
        ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    });
}

uint64_t ForkGuard::mark() { return g_mark.load(std::memory_order_relaxed); }

void ForkGuard::track(int fd) {
    std::lock_guard lock(tracked_mutex());
    tracked().push_back(fd);
}

void ForkGuard::untrack(int fd) {
    std::lock_guard lock(tracked_mutex());
    auto &fds = tracked();
    if (auto it = std::find(fds.begin(), fds.end(), fd); it != fds.end()) {
        *it = fds.back();
        fds.pop_back();
    }
}

}  // namespace maru::client
