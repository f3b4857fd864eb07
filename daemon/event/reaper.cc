#include "daemon/event/reaper.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <vector>

#include "daemon/event/pause_point.h"
#include "libmaru/base/clock.h"

namespace maru {
namespace {
constexpr auto kIdleThreadLife = std::chrono::seconds(5);
}

struct Reaper::State {
    struct UidQueue {
        std::deque<Work> jobs;
        size_t running = 0;
        bool listed = false;  // in `ready`
    };

    std::mutex mutex;
    std::condition_variable wake, ended;
    std::unordered_map<uint32_t, UidQueue> queues;
    std::deque<uint32_t> ready;  // uids with a job that may run now: taken in turn
    std::vector<Done> done;
    size_t threads = 0, idle = 0;
    std::atomic<size_t> queued = 0;  // read without the mutex as well
    std::multiset<int64_t> running;  // when each began
    uint64_t ended_jobs = 0;
    int64_t longest_ns = 0;  // of the ended ones
    size_t starting = 0;     // threads made that have not taken the mutex yet
    bool stopping = false;
    UniqueFd event;

    // All with the mutex held.
    void list_if_ready(uint32_t uid, UidQueue &queue) {
        if (queue.listed || queue.jobs.empty() || queue.running >= kThreadsPerUid)
            return;
        queue.listed = true;
        ready.push_back(uid);
    }
    static void thread_main(std::shared_ptr<State> state);
    static void start_thread_if_needed(const std::shared_ptr<State> &state);
    static bool start_thread(const std::shared_ptr<State> &state);
    static void run_one(const std::shared_ptr<State> &state, std::unique_lock<std::mutex> &lock);
};

void Reaper::State::run_one(const std::shared_ptr<State> &state,
                            std::unique_lock<std::mutex> &lock) {
    uint32_t uid = state->ready.front();
    state->ready.pop_front();
    UidQueue &queue = state->queues[uid];
    queue.listed = false;
    Work work = std::move(queue.jobs.front());
    queue.jobs.pop_front();
    ++queue.running;
    --state->queued;
    const int64_t begun = monotonic_ns();
    auto place = state->running.insert(begun);
    state->list_if_ready(uid, queue);
    // This job may block for ever: whatever is ready now needs a thread other than this one.
    start_thread_if_needed(state);
    state->wake.notify_one();
    lock.unlock();
    pause_point(kPauseInReaper);
    Done result = work();
    work = nullptr;  // what it owned may block as well, so it goes here and not under the lock
    lock.lock();
    state->running.erase(place);
    ++state->ended_jobs;
    state->longest_ns = std::max(state->longest_ns, monotonic_ns() - begun);
    UidQueue &after = state->queues[uid];
    --after.running;
    state->list_if_ready(uid, after);
    if (after.jobs.empty() && after.running == 0)
        state->queues.erase(uid);
    if (result) {
        state->done.push_back(std::move(result));
        ::eventfd_write(state->event.get(), 1);
    }
}

void Reaper::State::thread_main(std::shared_ptr<State> state) {
    std::unique_lock lock(state->mutex);
    --state->starting;
    for (;;) {
        if (!state->ready.empty()) {
            run_one(state, lock);
            continue;
        }
        if (state->stopping)
            break;
        ++state->idle;
        bool woken = state->wake.wait_for(lock, kIdleThreadLife,
                                          [&] { return !state->ready.empty() || state->stopping; });
        --state->idle;
        // The last one stays: when a job comes the system may have no thread to give.
        if (!woken && state->threads > 1)
            break;
    }
    --state->threads;
    state->ended.notify_all();
}

void Reaper::State::start_thread_if_needed(const std::shared_ptr<State> &state) {
    if (state->idle + state->starting >= state->ready.size() || state->threads >= kThreads)
        return;
    start_thread(state);
}

bool Reaper::State::start_thread(const std::shared_ptr<State> &state) {
    try {
        std::thread thread(thread_main, state);
        pthread_setname_np(thread.native_handle(), "marud-reaper");
        thread.detach();
        ++state->threads;
        ++state->starting;
        return true;
    } catch (const std::system_error &) {
        // The process may have no more threads: the ones there are take the job when they can; the
        // next submit tries again. The first of them never ends.
        return false;
    }
}

Reaper::Reaper() : state_(std::make_shared<State>()) {
    state_->event.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    assert(state_->event);
}

bool Reaper::start() {
    std::lock_guard lock(state_->mutex);
    return state_->threads > 0 || State::start_thread(state_);
}

Reaper::~Reaper() { stop(0); }

void Reaper::submit(uint32_t uid, Work work) {
    std::lock_guard lock(state_->mutex);
    State::UidQueue &queue = state_->queues[uid];
    queue.jobs.push_back(std::move(work));
    ++state_->queued;
    state_->list_if_ready(uid, queue);
    State::start_thread_if_needed(state_);
    state_->wake.notify_one();
}

void Reaper::close(uint32_t uid, UniqueFd fd) {
    if (!fd)
        return;
    // std::function wants a copyable callable, and a number is one.
    submit(uid, [raw = fd.release()]() -> Done {
        ::close(raw);
        return nullptr;
    });
}

bool Reaper::room(uint32_t uid) const {
    // Asked for each packet; only the loop, which asks, makes it more.
    if (state_->queued < kQueuePerUid)
        return true;
    std::lock_guard lock(state_->mutex);
    auto found = state_->queues.find(uid);
    return found == state_->queues.end() || found->second.jobs.size() < kQueuePerUid;
}

int Reaper::event_fd() const { return state_->event.get(); }

void Reaper::run_done() {
    eventfd_t count = 0;
    ::eventfd_read(state_->event.get(), &count);
    std::vector<Done> done;
    {
        std::lock_guard lock(state_->mutex);
        done.swap(state_->done);
    }
    for (Done &result : done)
        result();
}

bool Reaper::stop(int timeout_ms) {
    std::unique_lock lock(state_->mutex);
    state_->stopping = true;
    state_->wake.notify_all();
    return state_->ended.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                                  [this] { return state_->threads == 0; });
}

Reaper::Load Reaper::load() const {
    std::lock_guard lock(state_->mutex);
    Load load;
    load.queued = state_->queued;
    load.running = state_->running.size();
    load.threads = state_->threads;
    load.ended = state_->ended_jobs;
    int64_t longest = state_->longest_ns;
    if (!state_->running.empty())
        longest = std::max(longest, monotonic_ns() - *state_->running.begin());
    load.longest_ns = static_cast<uint64_t>(longest);
    return load;
}

size_t Reaper::idle() const {
    std::lock_guard lock(state_->mutex);
    return state_->idle;
}

size_t Reaper::threads() const {
    std::lock_guard lock(state_->mutex);
    return state_->threads;
}

}  // namespace maru
