// The processes of a replay: started, killed and awaited. (marud is
// tests/integration/marud_fixture.h.)
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "libmaru/base/result.h"
#include "libmaru/base/unique_fd.h"
#include "tests/replay/options.h"

namespace maru::replay {

// A child that is killed and reaped when its owner goes.
class ChildProcess {
  public:
    ChildProcess() = default;
    explicit ChildProcess(pid_t pid) : pid_(pid) {}
    ChildProcess(ChildProcess &&other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
    ChildProcess &operator=(ChildProcess &&other) noexcept;
    ~ChildProcess();

    pid_t pid() const { return pid_; }
    explicit operator bool() const { return pid_ > 0; }
    void kill_now();  // SIGKILL, and reaped
    // Exit status as the shell counts it; -1 after `timeout_ms`, and it still runs.
    int wait(int timeout_ms);

  private:
    pid_t pid_ = -1;
};

// `inherited` stays open in the child, `output` becomes its standard output; else close-on-exec.
Result<ChildProcess> spawn(const std::vector<std::string> &argv, int inherited = -1,
                           int output = -1);

// Runs a command to its end, at most 10 s; its standard output. A non-zero status is an error.
Result<std::string> run_and_read(const std::vector<std::string> &argv);

// Starts worker number `index` of this program; `ret_fd` is the coordinator's end.
Result<ChildProcess> start_worker(const Options &options, uint32_t index, UniqueFd *ret_fd);

}  // namespace maru::replay
