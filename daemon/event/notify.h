// Notifier: messages to the service manager (READY=1, WATCHDOG=1, FDSTORE=1), never blocking.
//
// sd_notify() blocks while the manager does not read; the loop must not. Messages leave in order:
// what the manager cannot take now waits in a bounded queue until writable. A message is in the
// manager's hands, with its descriptors, from the moment the kernel has queued it, so what was sent
// before a crash survives the crash.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libmaru/base/unique_fd.h"

namespace maru {

class Notifier {
  public:
    static constexpr size_t kMaxQueued = 8192;  // then the oldest are dropped, and counted

    Notifier() = default;                           // nobody to notify
    explicit Notifier(const std::string &address);  // a path, or '@' and an abstract name
    static Notifier from_environment();             // $NOTIFY_SOCKET, which is then unset

    bool connected() const { return static_cast<bool>(socket_); }
    // `fds` are borrowed for the call.
    void send(std::string_view text, std::span<const int> fds = {});
    void flush();
    bool pending() const { return !queue_.empty(); }
    int fd() const { return socket_.get(); }  // poll for writing while pending()
    size_t dropped() const { return dropped_; }

  private:
    struct Message {
        std::string text;
        std::vector<UniqueFd> fds;  // duplicates: the originals may go before it is sent
    };
    bool try_send(std::string_view text, std::span<const int> fds);  // false: later

    UniqueFd socket_;
    std::deque<Message> queue_;
    size_t dropped_ = 0;
};

}  // namespace maru
