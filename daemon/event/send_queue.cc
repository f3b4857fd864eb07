#include "daemon/event/send_queue.h"

#include <cerrno>

#include "libmaru/wire/limits.h"
#include "libmaru/wire/packet_socket.h"

namespace maru {
namespace {

std::vector<int> numbers_of(std::span<const UniqueFd> fds) {
    std::vector<int> numbers;
    for (const UniqueFd &fd : fds)
        numbers.push_back(fd.get());
    return numbers;
}

inline SendOutcome send_one(int socket, std::span<const std::byte> bytes,
                            std::span<const UniqueFd> fds) {
    switch (fds.empty() ? wire::try_send_packet(socket, bytes)
                        : wire::try_send_packet(socket, bytes, numbers_of(fds))) {
        case 0:
            return SendOutcome::Sent;
        case EAGAIN:
            return SendOutcome::Full;
        case ENOBUFS:
        case ENOMEM:
            return SendOutcome::NoMemory;
        case ETOOMANYREFS:  // RLIMIT_NOFILE counts descriptors in flight, too
        case EPERM:         // the client refuses descriptors (SO_PASSRIGHTS)
            return fds.empty() ? SendOutcome::Gone : SendOutcome::TooManyFds;
        default:
            return SendOutcome::Gone;
    }
}

void move_to(std::vector<UniqueFd> &from, std::vector<UniqueFd> &to) {
    for (UniqueFd &fd : from)
        to.push_back(std::move(fd));
    from.clear();
}

}  // namespace

SendOutcome SendQueue::send(int socket, std::span<const std::byte> bytes,
                            std::vector<UniqueFd> &&fds, uint64_t reply_id,
                            std::vector<UniqueFd> &ret_spent) {
    // Behind what waits already: the order of replies on the wire is the order of answers.
    SendOutcome outcome = packets_.empty() ? send_one(socket, bytes, fds) : SendOutcome::Full;
    if (outcome == SendOutcome::Sent || outcome == SendOutcome::Gone) {
        if (!fds.empty())
            move_to(fds, ret_spent);
        return outcome;
    }
    bytes_ += bytes.size();
    packets_.push_back(Packet{{bytes.begin(), bytes.end()}, std::move(fds), reply_id});
    return outcome;
}

SendOutcome SendQueue::flush(int socket, std::vector<UniqueFd> &ret_spent) {
    while (!packets_.empty()) {
        Packet &packet = packets_.front();
        SendOutcome outcome = send_one(socket, packet.bytes, packet.fds);
        if (outcome != SendOutcome::Sent)
            return outcome;
        pop(ret_spent);
    }
    return SendOutcome::Sent;
}

bool SendQueue::overflown() const { return bytes_ > wire::kMaxSendQueueBytes; }

void SendQueue::pop(std::vector<UniqueFd> &ret_spent) {
    bytes_ -= packets_.front().bytes.size();
    move_to(packets_.front().fds, ret_spent);
    packets_.pop_front();
}

void SendQueue::replace_front(std::span<const std::byte> bytes, std::vector<UniqueFd> &ret_spent) {
    Packet &packet = packets_.front();
    bytes_ = bytes_ - packet.bytes.size() + bytes.size();
    packet.bytes.assign(bytes.begin(), bytes.end());
    move_to(packet.fds, ret_spent);
}

void SendQueue::clear(std::vector<UniqueFd> &ret_spent) {
    while (!packets_.empty())
        pop(ret_spent);
}

}  // namespace maru
