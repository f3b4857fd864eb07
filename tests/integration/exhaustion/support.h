// What every exhaustion test needs: marud under the call shim, a worker, and the proof that a
// shortage left nothing behind.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tests/integration/known_failures/worker.h"
#include "tests/integration/marud_fixture.h"
#include "tests/integration/shim/control.h"
#include "tests/integration/wire_client.h"

namespace maru::test {

// A marud that `shim` steers, with small quotas off the way.
MarudOptions shimmed(const CallShim &shim, const std::string &config = "");

// A client of the public interface without a pool, and one opened by hand.
WorkerOptions without_pool(const Marud &marud, const std::string &engine = "engine");
maru_pool_options pool_of(uint64_t bytes);
// Stores one object, unless it is there, and loads it.
void expect_works(Worker &worker, uint32_t number);

// Taken before the actors come; afterwards, when they are gone, all must be as it was: the same
// process, no descriptor more, nothing charged, nobody left.
class Unchanged {
  public:
    explicit Unchanged(Marud &marud);
    void expect();

  private:
    Marud &marud_;
    pid_t pid_;
    size_t fds_;
    uint32_t sessions_;
};

// Processor time that a process has used. Unlike its wall time it does not grow on a busy machine.
int64_t cpu_ms(pid_t pid);

// Mounts are seen by this process and its children only. False: not allowed here.
bool own_mounts();
// A tmpfs of so many KiB, gone with the object.
class TinyTmpfs {
  public:
    explicit TinyTmpfs(int kib);
    ~TinyTmpfs();
    const std::string &path() const { return path_; }
    void fill();  // to the last byte
    void free();
    // A second mount over `below`, read-only: files that are open already do not stand in its way.
    void make_read_only(const std::string &below);
    void make_writable(const std::string &below);

  private:
    std::string path_;
};

}  // namespace maru::test
