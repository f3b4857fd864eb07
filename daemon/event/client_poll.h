// ClientPoll: who has something to say, one at a time, without sd_event in between.
//
// sd_event takes some 3,000 instructions and a second epoll_wait for each packet of a client. So
// clients' sockets are in an epoll of their own, and sd_event is one more thing in it: its own
// descriptor is readable when a source of it is, a timer that is due included, and only then it runs.
// Everybody who is ready comes once before anybody comes twice, sd_event being one of them. A late
// client comes when nobody else is ready: late ones have an epoll inside the other, which is asked
// only when it is all that was reported, and then for one.
//
// A timer or a deferred source that is set while sd_event is not running is seen by it only when it
// is prepared anew: whoever does that says touched().
#pragma once

#include <array>
#include <cstdint>

#include "daemon/event/event_source.h"
#include "libmaru/base/result.h"
#include "libmaru/base/unique_fd.h"

namespace maru {

struct ClientSocket;

class ClientPoll {
  public:
    enum class Rank : uint8_t { Common, Late };

    explicit ClientPoll(sd_event *others) : others_(others) {}
    Result<void> start();

    // `events`: EPOLLIN, EPOLLOUT. False: no memory, and nothing has changed.
    bool add(int socket, uint32_t events, ClientSocket &client, Rank rank);
    void change(int socket, uint32_t events, ClientSocket &client, Rank rank);
    // From the other rank.
    bool move(int socket, uint32_t events, ClientSocket &client, Rank to);
    // It is not reported any more, even if it was ready already.
    void remove(int socket, const ClientSocket &client, Rank rank);
    void touched() { touched_ = true; }

    enum class Found : uint8_t { Nothing, Client, Others };
    struct Next {
        Found found = Found::Nothing;
        ClientSocket *client = nullptr;
        uint32_t events = 0;
    };
    // Who is next; who was ready already comes before anybody is asked for. -1: waits as long as it
    // takes, or until a signal. Others: call run_others().
    Result<Next> next(int timeout_ms);
    // One source of sd_event, as sd_event_run() would; what it returns.
    int run_others();

  private:
    struct Ready {
        ClientSocket *client = nullptr;
        uint32_t events = 0;
    };
    static constexpr int kBatch = 16;

    int epoll(Rank rank) const { return (rank == Rank::Late ? late_ : ready_).get(); }
    Result<void> prepare();
    int wait(Rank rank, int timeout_ms);

    sd_event *others_;  // Daemon's, outlives this
    UniqueFd ready_, late_;
    std::array<Ready, kBatch> batch_;  // null: removed since
    int begin_ = 0, end_ = 0;
    bool prepared_ = false;      // sd_event is: its descriptor tells
    bool touched_ = false;       // and does not tell all of it
    bool others_ready_ = false;  // sd_event has its turn after the batch
};

}  // namespace maru
