// A marud of the bench's own: user mode, in a temporary folder, ready when the constructor returns.
#pragma once

#include <sys/types.h>

#include <string>

namespace maru::bench {

class MarudProcess {
  public:
    // Throws std::runtime_error with marud's own words when it does not come up.
    explicit MarudProcess(const std::string &program);
    ~MarudProcess();
    MarudProcess(const MarudProcess &) = delete;
    MarudProcess &operator=(const MarudProcess &) = delete;
    std::string socket_path() const { return folder_ + "/marud.sock"; }

  private:
    void end();

    std::string folder_;
    pid_t child_ = -1;
};

}  // namespace maru::bench
