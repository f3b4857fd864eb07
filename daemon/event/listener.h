// Listener: accepts clients on a socket that systemd passed or that marud bound itself.
//
// A socket that systemd passed is never removed; a self-bound one is, if the path still is ours. A
// bounded number of clients is accepted per turn. When descriptors run out, the reserve one lets a
// client be accepted and closed, and the listener rests for a moment: the loop never spins on a
// backlog that it cannot take.
#pragma once

#include <functional>
#include <string>

#include "daemon/event/event_source.h"
#include "libmaru/base/result.h"
#include "libmaru/base/unique_fd.h"

namespace maru {

// Descriptors are refused by the kernel before they reach us, on Linux 6.16 and newer; elsewhere
// nothing changes. Accepted sockets inherit it.
bool set_pass_rights(int socket, bool pass);
// Whether each packet says who sent it (SO_PASSCRED).
bool set_pass_credentials(int socket, bool pass);

class Listener {
  public:
    struct Callbacks {
        std::function<void(UniqueFd)> accepted;
        std::function<void(UniqueFd)> refused;  // to be closed where that may block
        std::function<void(const Error &)> out_of_descriptors;
    };
    // `own_path`: what to remove at the end; "" for a passed socket.
    Listener(sd_event *loop, UniqueFd socket, std::string own_path, Callbacks callbacks);
    ~Listener();
    Result<void> start();
    void stop();  // accepts no more; the path goes now

    static constexpr int kAcceptsPerTurn = 16;

  private:
    static int on_readable(sd_event_source *source, int fd, uint32_t events, void *userdata);
    static int on_rested(sd_event_source *source, uint64_t usec, void *userdata);
    void accept_some();
    void rest(const Error &why);

    sd_event *loop_;  // owned by Daemon, outlives this
    UniqueFd socket_;
    UniqueFd reserve_;
    std::string own_path_;
    uint64_t own_device_ = 0, own_inode_ = 0;
    Callbacks callbacks_;
    EventSource readable_, rested_;
};

}  // namespace maru
