// Another process of the bench: a second client, a holder of objects, a victim.
//
// It is this program again, started anew: a client may not be used across a fork, and a fork of a process
// with pools would copy their page tables. Orders and answers are small packets over a socket pair.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "libmaru/base/unique_fd.h"
#include "tests/bench/pin.h"

namespace maru::bench {

enum class Role : uint32_t { Holder, Client, Victim };

struct Order {
    enum Kind : uint32_t { Store, CopyIn, Load, CopyOut, End } kind = End;
    uint32_t batches = 0;
    uint64_t at_ns = 0;  // CLOCK_MONOTONIC: when to begin, so that two begin together
};
struct Answer {
    uint32_t ok = 0;
    uint32_t reserved = 0;
    uint64_t begin_ns = 0, end_ns = 0;
    char error[240] = {};
};

struct OtherSetup {
    std::string bench;  // the program
    Role role = Role::Client;
    std::string socket_path, engine;
    uint64_t object_bytes = 0;
    size_t objects = 0;
    int cpu = kAnywhere;
};

class OtherProcess {
  public:
    // Returns when it is ready: its pool filled. Throws std::runtime_error with its own words.
    explicit OtherProcess(const OtherSetup &setup);
    ~OtherProcess();  // an order to end, then waits
    OtherProcess(const OtherProcess &) = delete;
    OtherProcess &operator=(const OtherProcess &) = delete;

    void send(const Order &order);
    Answer receive();  // throws what went wrong there
    pid_t pid() const { return child_; }
    int socket() const { return socket_.get(); }
    void reap();  // after a kill

  private:
    pid_t child_ = -1;
    UniqueFd socket_;
};

// In a process that was started as another one: runs it, and its exit status; else -1.
int run_as_other_process(int argc, char **argv);

}  // namespace maru::bench
