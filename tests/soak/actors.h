// The processes of a soak: each lives until it is killed or its standard input closes.
//
// What must stay true: a worker that reads a wrong byte, or is refused what it is entitled to, ends
// with exit status 1 and says why; a hostile client has nothing to complain about and never ends so.
#pragma once

#include <cstdint>
#include <string>

namespace maru::soak {

struct Actor {
    std::string role;  // "worker", "scheduler" or "hostile"
    std::string socket;
    unsigned index = 0;
    uint64_t seed = 0;
};

// Of one worker; a scheduler probes for the worker of its own index.
inline constexpr uint64_t kObjectBytes = 48 * 1024;
inline constexpr unsigned kChunks = 1500;  // twice what a pool holds
inline constexpr uint64_t kPoolBytes = 40ull << 20;

std::string engine_name(unsigned index);
bool told_to_end();  // standard input has closed

int run_worker(const Actor &actor);
int run_scheduler(const Actor &actor);
int run_hostile(const Actor &actor);

}  // namespace maru::soak
