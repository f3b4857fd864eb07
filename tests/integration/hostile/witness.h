// Witness: a well-behaved client that probes marud all the time, and times every answer.
//
// It is of another uid than the attackers, because what a user does to himself is his own affair.
// On a loaded machine most of a long round trip is time in which marud, or the witness, was ready to
// run and had no processor; an attack that keeps marud busy makes the scheduler treat it as the
// background job that it then is. The kernel counts that time per thread (schedstat, run_delay), and
// it is taken off: what is left is what marud made of its processor. Between two probes the witness
// also times a round trip to a thread that only echoes, which is what a bare wake-up costs just then.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include "libmaru/base/unique_fd.h"

namespace maru::test {

class Witness {
  public:
    Witness(std::string socket, pid_t marud);
    ~Witness();
    Witness(const Witness &) = delete;
    Witness &operator=(const Witness &) = delete;

    struct Figures {
        uint64_t probes = 0;
        // The longest round trips: as the clock has it, without the time that the scheduler took, and
        // of the echo.
        double raw_ms = 0, marud_ms = 0, echo_ms = 0;
        std::string problem;  // a wrong answer or none; "" is well
    };
    Figures take();  // since the last call

  private:
    void probe_all();
    void echo_all();

    std::string socket_;
    UniqueFd near_, far_;
    std::atomic<bool> stop_ = false;
    std::atomic<uint64_t> probes_ = 0;
    pid_t marud_;
    std::atomic<int64_t> raw_ns_ = 0, marud_ns_ = 0, echo_ns_ = 0;
    std::atomic<bool> failed_ = false;
    std::string problem_;  // written once, before failed_
    std::thread echo_, thread_;
};

}  // namespace maru::test
