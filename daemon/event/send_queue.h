// SendQueue: packets for one client that its socket did not take yet, in order.
//
// Bounded by wire::kMaxSendQueueBytes: a client that asks and does not read is closed, and nobody
// else notices. Descriptors are duplicates, because a segment may be dropped before its packet is
// sent; they are given to the caller to be closed where closing may block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "libmaru/base/unique_fd.h"

namespace maru {

enum class SendOutcome {
    Sent,        // all of it
    Full,        // the socket is full: poll for writing
    NoMemory,    // the kernel has no buffer (ENOBUFS): again in a moment; polling would not wait
    TooManyFds,  // the packet in front cannot pass its descriptors: replace it
    Gone,        // the peer is gone
};

class SendQueue {
  public:
    // Sends at once if nothing waits. The packet is queued unless the outcome is Sent or Gone.
    // `reply_id`: of the reply it is, for replace_front; 0 for an event.
    SendOutcome send(int socket, std::span<const std::byte> bytes, std::vector<UniqueFd> &&fds,
                     uint64_t reply_id, std::vector<UniqueFd> &ret_spent);
    SendOutcome flush(int socket, std::vector<UniqueFd> &ret_spent);

    bool empty() const { return packets_.empty(); }
    size_t bytes() const { return bytes_; }
    bool overflown() const;
    uint64_t front_reply_id() const { return packets_.front().reply_id; }
    void replace_front(std::span<const std::byte> bytes, std::vector<UniqueFd> &ret_spent);
    void clear(std::vector<UniqueFd> &ret_spent);

  private:
    struct Packet {
        std::vector<std::byte> bytes;
        std::vector<UniqueFd> fds;
        uint64_t reply_id = 0;
    };
    void pop(std::vector<UniqueFd> &ret_spent);

    std::deque<Packet> packets_;
    size_t bytes_ = 0;
};

}  // namespace maru
