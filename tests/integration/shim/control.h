// The steering side of call_shim: a file of rules, mapped here and by the process under test.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "tests/integration/shim/call_shim.h"

namespace maru::test {

class CallShim {
  public:
    CallShim();
    ~CallShim();
    // That of this process, which was started with the shim.
    static CallShim &own();
    CallShim(const CallShim &) = delete;
    CallShim &operator=(const CallShim &) = delete;

    // What a process under test needs in its environment.
    std::map<std::string, std::string> environment() const;

    // Fails calls with `error`: after `skip` more that succeed, `count` of them (negative: all).
    void fail(shim_call call, int error, int count = -1, int skip = 0,
              const std::string &path_contains = "");
    void pass(shim_call call);  // no more
    void pass_all();
    uint32_t calls(shim_call call) const;   // seen
    uint32_t failed(shim_call call) const;  // of these
    void set_clock_offset(std::chrono::nanoseconds offset);

  private:
    explicit CallShim(const std::string &path);
    void map();

    std::string path_;
    bool owned_ = true;
    shim_control *control_ = nullptr;
};

// Runs this very program again with the shim in front of libc, unless it already is. Before any
// thread. Afterwards CallShim::own() steers this process; its children are given one of their own.
void run_under_shim(char **argv);

}  // namespace maru::test
