// Reaper: the threads that do for the loop what may block for as long as somebody else likes.
//
// A close of a client's descriptor (a FUSE file, a socket with SO_LINGER), F_SEAL_WRITE on a
// segment with pinned pages, the reservation of huge pages: each is a job here, tagged with the uid
// that caused it. There are as many threads as stuck jobs demand: a uid occupies at most
// kThreadsPerUid of them and waits in its own queue behind that, so nobody's stuck descriptor
// delays another's. What a job returns runs on the loop thread, in run_done().
//
// Queue limit: room() is false when kQueuePerUid jobs of a uid wait; the loop then stops reading
// from that uid's connections. Jobs are never refused, because a close must happen: their number is
// bounded by the connections of a uid and the descriptors of a packet that is already received.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "libmaru/base/unique_fd.h"

namespace maru {

class Reaper {
  public:
    using Done = std::function<void()>;  // on the loop; may be empty
    using Work = std::function<Done()>;  // on a reaper thread

    static constexpr size_t kThreadsPerUid = 4;
    static constexpr size_t kThreads = 64;
    static constexpr size_t kQueuePerUid = 1024;

    Reaper();
    ~Reaper();  // stop(0)
    Reaper(const Reaper &) = delete;
    Reaper &operator=(const Reaper &) = delete;

    // Loop thread only, all of these.
    // False: the system has no thread for it, and nothing that is submitted would ever be done. The
    // thread it makes stays, so that a lack of threads later only makes jobs wait.
    bool start();
    void submit(uint32_t uid, Work work);
    void close(uint32_t uid, UniqueFd fd);
    bool room(uint32_t uid) const;
    int event_fd() const;  // readable when run_done() has something to do
    void run_done();
    // Takes no more jobs and waits for the queued ones. False: some are stuck after `timeout_ms`;
    // their threads live on without touching this object.
    bool stop(int timeout_ms);
    struct Load {
        size_t queued = 0, running = 0, threads = 0;
        uint64_t ended = 0;       // jobs, since the start
        uint64_t longest_ns = 0;  // of any job, those that still run included
    };
    Load load() const;
    size_t threads() const;  // for tests
    size_t idle() const;     // for tests: threads that wait for work

  private:
    struct State;
    std::shared_ptr<State> state_;  // owners: this, and each thread, which may outlive it
};

}  // namespace maru
