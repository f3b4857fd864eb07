// ClientSocket: one client's socket as the loop keeps it.
//
// Stages: on kernels without SO_PEERPIDFD a connection waits for its first packet's credentials
// before Service hears of it; it is open until either side ends it; while it closes nothing more is
// read from it, and what was queued is sent for a bounded time.
#pragma once

#include <string>

#include "daemon/event/client_poll.h"
#include "daemon/event/peer.h"
#include "daemon/event/send_queue.h"
#include "daemon/metrics/tally.h"
#include "daemon/protocol/service.h"

namespace maru {

class Host;

struct ClientSocket {
    enum class Stage : uint8_t { AwaitCredentials, Open, Closing, Dead };

    Host *host = nullptr;
    ConnectionId id = 0;
    UniqueFd socket;
    PeerCredentials peer;
    ProcessId64 process = 0;  // 0 while AwaitCredentials
    Stage stage = Stage::Open;
    bool by_credentials = false;  // every packet must come from peer.pid
    bool told_service = false;    // connection_opened() was called, connection_closed() is owed
    bool takes_fds = false;       // SO_PASSRIGHTS is on
    bool retry = false;           // in Host's retry list
    metrics::Closed end = metrics::Closed::Peer;  // why it is closed, once it is
    uint32_t in_flight = 0;  // requests given to Service that have no reply yet
    uint32_t interest = 0;   // what epoll watches
    uint32_t turns = 0;
    bool bursts = false;  // more than one packet was there in its last turn that looked for it
    SendQueue queue;
    size_t counted = 0;  // of its bytes, in the sum of its uid
    ClientPoll::Rank rank = ClientPoll::Rank::Common;
    TimeNs last_packet = 0;
    TimeNs close_deadline = 0;
};

}  // namespace maru
