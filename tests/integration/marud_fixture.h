// A real marud in a directory of its own, with a service manager that keeps its descriptors.
//
// start() returns when marud has said READY=1; everything that goes wrong is a std::runtime_error
// that carries marud's log. Without a test framework, so that any program can use it. Not for
// several threads at once.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "libmaru/base/unique_fd.h"

namespace maru::test {

struct MarudOptions {
    std::string binary;                              // "": $MARU_MARUD, else the one of this build
    std::string config;                              // text of the configuration; "": none is given
    std::vector<std::string> arguments;              // further ones
    std::map<std::string, std::string> environment;  // set for marud beside the inherited
    std::string directory;                           // an existing one, which stays; "": a new one
    bool fdstore = true;             // keep descriptors over a restart, as systemd does
    bool socket_activation = false;  // bind the socket here and pass it
    unsigned watchdog_ms = 0;        // $WATCHDOG_USEC
    int ready_timeout_ms = 20'000;
};

class Marud {
  public:
    explicit Marud(MarudOptions options = {});
    ~Marud();  // SIGKILL, and the directory goes
    Marud(const Marud &) = delete;
    Marud &operator=(const Marud &) = delete;

    void start();  // until READY=1
    void spawn();  // without waiting
    void wait_ready();
    int stop();   // SIGTERM; the exit status, 128 + n for a signal
    void kill();  // SIGKILL, until it is gone
    void restart() { kill(), start(); }
    void signal(int number);
    int wait_exit(int timeout_ms);  // the exit status
    bool running();

    pid_t pid() const { return pid_; }
    const std::string &directory() const { return directory_; }  // its runtime directory, too
    const std::string &socket() const { return socket_; }
    std::string log() const;                   // what it wrote to stderr, of all lives
    void set_config(const std::string &text);  // for the next start or reload
    MarudOptions &options() { return options_; }

    size_t open_fds() const;                  // of the running marud
    std::vector<std::string> stored() const;  // names in the fd store
    void drop_stored();                       // as `systemctl stop` does
    // Messages of marud to its manager since the last call ("READY=1\nSTATUS=Serving").
    std::vector<std::string> notifications();
    // Waits for one that contains `text`, and takes all up to it; false: none in time.
    bool wait_notification(const std::string &text, int timeout_ms);

  private:
    class Manager;
    [[noreturn]] void fail(const std::string &what) const;

    MarudOptions options_;
    std::string directory_, socket_;
    std::string notify_;
    std::unique_ptr<Manager> manager_;
    UniqueFd listener_;
    pid_t pid_ = 0;
    UniqueFd pidfd_;
};

}  // namespace maru::test
