// An engine in a process of its own that does as it is told, line by line, until it is killed.
//
// The program that uses it calls engine_main() first thing in main(): the process is its second life.
// What an engine stores is a function of the object's number, so that every other can verify it.
#pragma once

#include <sys/types.h>

#include <string>

#include "libmaru/base/unique_fd.h"

namespace maru::test {

struct EngineOptions {
    std::string socket, engine = "engine";
    unsigned uid = 0;  // 0: this process's
    unsigned long long pool_bytes = 8ull << 20;
    bool host = true;  // scope of its pool
    bool pool = true;  // none: a reader
};

class EngineProcess {
  public:
    explicit EngineProcess(const EngineOptions &options);
    ~EngineProcess();  // SIGKILL
    EngineProcess(const EngineProcess &) = delete;
    EngineProcess &operator=(const EngineProcess &) = delete;

    // The answer to one line; "gone" when there is none.
    //   store FIRST COUNT  "stored N present P refused R ERRNO"
    //   hits COUNT         "hits N": of objects 0 .. COUNT-1
    //   load COUNT         "loaded N wrong W": acquires each, compares every byte, releases
    //   hold NUMBER        "held" or "miss": keeps a lease
    //   check              "right" or "wrong": the bytes under the leases that are held
    //   drop               "dropped": releases them
    //   retire FIRST COUNT "retired N"
    //   info               "allocated A populated P result R scope S"
    //   close              "closed" or what maru_client_close says
    std::string tell(const std::string &line);
    void kill();  // SIGKILL, until it is gone
    pid_t pid() const { return pid_; }

  private:
    pid_t pid_ = 0;
    UniqueFd to_, from_;
};

// -1: not an engine's life; else the exit status.
int engine_main(int argc, char **argv);

inline constexpr unsigned long long kEngineObjectBytes = 96 << 10;

}  // namespace maru::test
