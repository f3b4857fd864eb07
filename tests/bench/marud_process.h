// A marud of the bench's own: user mode, in a temporary folder, ready when the constructor returns.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "tests/bench/pin.h"

namespace maru::bench {

struct MarudSetup {
    std::string program;
    unsigned spin_us = 0;
    int cpu = kAnywhere;
    std::string host_bytes = "64G";  // a budget; nothing is taken
    std::string more = {};           // further TOML
};

class MarudProcess {
  public:
    // Throws std::runtime_error with marud's own words when it does not come up.
    explicit MarudProcess(MarudSetup setup);
    ~MarudProcess();
    MarudProcess(const MarudProcess &) = delete;
    MarudProcess &operator=(const MarudProcess &) = delete;

    void kill();   // SIGKILL, until it is gone
    void start();  // until it is ready

    const std::string &folder() const { return folder_; }
    std::string socket_path() const { return folder_ + "/marud.sock"; }
    pid_t pid() const { return child_; }
    uint64_t resident_bytes() const;
    uint64_t cpu_ns() const;  // used so far
    // Turns of its loop since it started, and those of more than 5 ms, by its own histogram.
    struct Turns {
        double all = 0, slow = 0;
    };
    Turns turns() const;

  private:
    void end(int signal);

    const MarudSetup setup_;
    std::string folder_;
    pid_t child_ = -1;
};

// Of any process; 0 when it is gone.
uint64_t resident_bytes(pid_t process);
// What can be allocated now without swapping.
uint64_t available_bytes();

}  // namespace maru::bench
