// An actor: a part of a test that lives in a process of its own, so that it can be stopped and killed.
//
// The process is this program started anew, not a fork: it has no thread, lock or descriptor of the
// test. It obeys one line after another and answers each with one line.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "libmaru/base/unique_fd.h"

namespace maru::test {

// The actor's own side.
class Stage {
  public:
    bool next(std::string *ret_command);  // false: the test has no more
    void answer(const std::string &text);
    std::vector<std::string> arguments;
};

using ActorMain = void (*)(Stage &stage);

// Makes `run` known as `name`; for a variable at namespace scope.
struct ActorRole {
    ActorRole(const char *name, ActorMain run);
};

// For main(): an actor's exit status, or -1 when this process is no actor.
int run_actor(int argc, char **argv);

class Actor {
  public:
    explicit Actor(const std::string &role, const std::vector<std::string> &arguments);
    ~Actor();  // SIGKILL
    Actor(const Actor &) = delete;
    Actor &operator=(const Actor &) = delete;

    // The answer; throws std::runtime_error when none comes in time.
    std::string ask(const std::string &command, int timeout_ms = 30'000);
    void tell(const std::string &command);  // without waiting for the answer
    std::string answer(int timeout_ms = 30'000);
    void signal(int number);
    void kill();                          // SIGKILL, until it is gone
    int finish(int timeout_ms = 30'000);  // no more commands; the exit status, 128 + n for a signal
    pid_t pid() const { return pid_; }

  private:
    pid_t pid_ = 0;
    UniqueFd pidfd_, to_, from_;
    std::string received_;
};

}  // namespace maru::test
