// ProcessWatch: one number per process that clients or sessions depend on, and the news of its end.
//
// A process is its pidfd: on kernels with pidfs by the inode, which is never given twice in a boot,
// before that by pid and start time. Numbers are never reused. An ended process is remembered until
// it is forgotten, so that a second connection of a dying process gets the same number.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "daemon/event/event_source.h"
#include "daemon/event/peer.h"
#include "daemon/protocol/service.h"

namespace maru {

class ProcessWatch {
  public:
    using OnExit = std::function<void(ProcessId64)>;
    ProcessWatch(sd_event *loop, OnExit on_exit) : loop_(loop), on_exit_(std::move(on_exit)) {}
    ~ProcessWatch();

    struct Process {
        ProcessId64 id = 0;
        uint32_t pid = 0;
        uint64_t start_time = 0;
        uint32_t connections = 0;  // that are bound to it now
        bool ended = false;
        bool stored = false;  // its pidfd is in the fd store
        UniqueFd pidfd;
        EventSource source;
        uint64_t identity = 0;  // the pidfd's inode, or 0 where pidfds have none of their own
    };

    // Takes a pidfd; the same process gives the same number. `start_time` 0: not visible.
    Process &add(UniqueFd pidfd, uint32_t pid, uint64_t start_time);
    // A recorded process that is gone already.
    ProcessId64 add_ended();
    Process *find(ProcessId64 id);
    Process *find(uint32_t pid, uint64_t start_time);  // a visible one
    // Forgets those without connections that `needed` says no to; returns what was forgotten and
    // had its pidfd stored, as (pid, start time).
    std::vector<std::pair<uint32_t, uint64_t>> sweep(
        const std::function<bool(ProcessId64)> &needed);
    size_t size() const { return processes_.size(); }
    // The kernel may have no memory or no watch left for a pidfd. An exit that nobody hears of would
    // keep everything charged, so the shell asks again now and then.
    bool unwatched() const { return unwatched_ > 0; }
    void watch_again();

  private:
    static int dispatch(sd_event_source *source, int fd, uint32_t events, void *userdata);
    struct Slot : Process {
        ProcessWatch *owner = nullptr;
    };
    void watch(Slot &slot);

    sd_event *loop_;  // owned by Daemon, outlives this
    OnExit on_exit_;
    ProcessId64 next_ = 1;
    size_t unwatched_ = 0;
    std::unordered_map<ProcessId64, std::unique_ptr<Slot>> processes_;
};

}  // namespace maru
