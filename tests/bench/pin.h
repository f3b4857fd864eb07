// Where the two ends of every measured exchange run.
//
// On a small machine the scheduler's choice of a processor is a larger difference than any that is measured here:
// two spinning ends on one processor take a time slice per message. So the client's end is pinned to one
// processor, marud's, the floor's and the peer's to another, all alike.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <string>

namespace maru::bench {

inline constexpr int kAnywhere = -1;

// Two processors this process may use, on different cores where there are such; kAnywhere with one alone.
int client_cpu();
int server_cpu();
// A sentence for the report.
std::string pinning_text();

// 0: the calling thread and what it starts from then on. kAnywhere: all that the process began with.
void pin(pid_t thread, int cpu);

// Pins the calling thread for a group, threads that it starts included.
class PinnedClient {
  public:
    PinnedClient() { pin(0, client_cpu()); }
    ~PinnedClient() { pin(0, kAnywhere); }
    PinnedClient(const PinnedClient &) = delete;
    PinnedClient &operator=(const PinnedClient &) = delete;
};

}  // namespace maru::bench
