// Host: clients' sockets, from accept to the reaper.

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "daemon/event/host.h"
#include "daemon/event/listener.h"
#include "libmaru/base/clock.h"
#include "libmaru/base/random.h"

namespace maru {

ClientSocket *Host::find(ConnectionId id) {
    if (asking_ && asking_->id == id)
        return asking_;
    auto found = connections_.find(id);
    return found == connections_.end() ? nullptr : found->second.get();
}

// ---- arrival -----------------------------------------------------------------------------------

void Host::refuse_client(UniqueFd socket) {
    ++tally_.connections_refused[static_cast<size_t>(metrics::Refused::Other)];
    auto peer = peer_credentials(socket.get());
    reaper_.close(peer ? peer->uid : 0, std::move(socket));
}

// The only packet of a connection that is not taken: it fits into a new socket, or it is lost.
void Host::say_why(int socket, std::string_view why) {
    if (auto frame = encoder_.event({wire::EventKind::Refused, {}, why}))
        (void)wire::send_packet(socket, *frame);
}

void Host::accept_client(UniqueFd socket) {
    Turn turn(*this);
    auto client = std::make_unique<ClientSocket>();
    client->host = this;
    client->id = next_connection_++;
    auto peer = peer_credentials(socket.get());
    if (!peer) {
        ++tally_.connections_refused[static_cast<size_t>(metrics::Refused::Other)];
        log_client(*client, 4, "client refused: " + describe(peer.error()));
        say_why(socket.get(), peer.error().message);
        reaper_.close(UINT32_MAX, std::move(socket));
        return;
    }
    client->peer = std::move(*peer);
    client->socket = std::move(socket);
    uint32_t uid = client->peer.uid;
    auto turn_away = [&](metrics::Refused reason, const std::string &why) {
        ++tally_.connections_refused[static_cast<size_t>(reason)];
        log_client(*client, 4, "client refused: " + why);
        say_why(client->socket.get(), why);
        reaper_.close(uid, std::move(client->socket));
        if (auto share = shares_.find(uid); share->second.connections == 0)
            shares_.erase(share);
    };
    if (shares_[uid].connections >= options_.connections_per_uid)
        return turn_away(metrics::Refused::UidLimit,
                         "this user has " + std::to_string(options_.connections_per_uid) +
                             " connections, as many as limits.connections_per_uid allows");
    // Until its queue is worked off: every connection is a descriptor to close later.
    if (!reaper_.room(uid))
        return turn_away(metrics::Refused::ClosesPending,
                         "too many of this user's descriptors are waiting to be closed");

    client->rank = shares_[uid].late ? ClientPoll::Rank::Late : ClientPoll::Rank::Common;
    if (!poll_.add(client->socket.get(), EPOLLIN, *client, client->rank))
        return turn_away(metrics::Refused::Other, "no memory");
    client->interest = EPOLLIN;
    client->last_packet = now_;
    ClientSocket &added = *client;
    ++shares_[uid].connections;
    ++tally_.connections_opened;
    connections_.emplace(added.id, std::move(client));

    auto pidfd = options_.use_peer_pidfd ? peer_pidfd(added.socket.get())
                                         : Result<UniqueFd>(Error{ENOPROTOOPT, "SO_PEERPIDFD"});
    if (pidfd) {
        // The pidfd says it once and for all, and what nobody reads costs both ends.
        set_pass_credentials(added.socket.get(), false);
        bind_peer(added, std::move(*pidfd));
    } else if (pidfd.error().code == ENOPROTOOPT && added.peer.pid != 0) {
        added.stage = ClientSocket::Stage::AwaitCredentials;
        added.by_credentials = true;
    } else if (pidfd.error().code == ENOPROTOOPT) {
        const char *why =
            "the client's process cannot be seen from here: run marud on the host or "
            "share its pid namespace, or use Linux 6.5";
        say_why(added.socket.get(), why);
        begin_close(added, metrics::Closed::Sender, why);
    } else {
        kill(added, metrics::Closed::Peer);  // ESRCH: it has ended already
    }
    charge_share(uid);
}

// Tells Service of the client. False: it is being closed instead.
bool Host::bind_peer(ClientSocket &client, UniqueFd pidfd) {
    ProcessFacts facts = read_process(client.peer.pid, pidfd.get());
    ProcessWatch::Process &process =
        processes_.add(std::move(pidfd), client.peer.pid, facts.start_time);
    ++process.connections;
    client.process = process.id;
    client.stage = ClientSocket::Stage::Open;
    client.told_service = true;
    Peer peer;
    peer.uid = client.peer.uid;
    peer.gid = client.peer.gid;
    peer.pid = client.peer.pid;
    peer.start_time = facts.start_time;
    peer.process = process.id;
    peer.admin = is_admin(client.peer, options_.admin);
    peer.command = facts.command;
    acting_uid_ = client.peer.uid;
    service_->connection_opened(client.id, peer, client.by_credentials ? random_nonce() : 0, now_);
    if (process.ended)  // it will not be reported a second time
        service_->process_exited(process.id, now_);
    return client.stage == ClientSocket::Stage::Open;
}

// On kernels without SO_PEERPIDFD: each packet says who sent it, and it must always be the same
// living process; the nonce of hello makes it answer once more after its pidfd was opened.
bool Host::check_sender(ClientSocket &client, const wire::Packet &packet) {
    auto sender = static_cast<uint32_t>(std::max<pid_t>(packet.sender_pid, 0));
    if (client.stage == ClientSocket::Stage::AwaitCredentials) {
        client.peer.pid = sender;
        auto pidfd = open_pidfd(sender);
        if (!pidfd) {
            begin_close(client, metrics::Closed::Sender,
                        "cannot tell who sent the first packet: " + describe(pidfd.error()));
            return false;
        }
        return bind_peer(client, std::move(*pidfd));
    }
    ProcessWatch::Process *process = processes_.find(client.process);
    if (sender == client.peer.pid && process && !process_ended(process->pidfd.get()))
        return true;
    begin_close(client, metrics::Closed::Sender,
                "a packet came from process " + std::to_string(sender) +
                    " over the connection of process " + std::to_string(client.peer.pid));
    return false;
}

// ---- reading -----------------------------------------------------------------------------------

void Host::serve_client(ClientSocket &client, uint32_t events) {
    const uint32_t uid = client.peer.uid;
    {
        Turn turn(*this);
        client_ready(client, events);
    }
    charge_share(uid);  // with its burial, if that was its last turn
}

void Host::client_ready(ClientSocket &client, uint32_t events) {
    if (client.stage == ClientSocket::Stage::Dead)
        return;
    if ((events & EPOLLOUT) && !client.queue.empty())
        after_send(client, client.queue.flush(client.socket.get(), spent_));
    if (client.stage == ClientSocket::Stage::Dead)
        return;
    // What the peer sent before it went is still read, in order, until the end of the stream.
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        if (client.stage == ClientSocket::Stage::Closing) {
            if (events & (EPOLLHUP | EPOLLERR))
                kill(client, client.end);
        } else if (Share *share = over_share(client.peer.uid); share && !share->late) {
            set_late(client.peer.uid, true);  // and is told again, after everybody else
        } else {
            return read_packets(client, wire::receive_packet(client.socket.get(), frame_));
        }
    }
    if (client.stage != ClientSocket::Stage::Dead)
        update_interest(client);
}

bool Host::paused(const ClientSocket &client) const {
    if (client.queue.empty())
        return false;
    if (client.queue.bytes() > kPauseBytes)
        return true;
    auto share = shares_.find(client.peer.uid);
    return share != shares_.end() && share->second.queued > kUidQueueBytes;
}

void Host::count_queue(ClientSocket &client) {
    if (client.queue.bytes() == client.counted)
        return;
    auto share = shares_.find(client.peer.uid);
    if (share != shares_.end())
        share->second.queued += client.queue.bytes() - client.counted;  // wraps around, and back
    client.counted = client.queue.bytes();
}

void Host::read_packets(ClientSocket &client, Result<wire::Packet> &&packet) {
    int handled = 0;
    // What reading it took is the first packet's; what follows begins where the one before has ended.
    const TimeNs begin = clock_;
    const bool looks = client.bursts || ++client.turns % kLookEvery == 0;
    for (;;) {
        if (!packet) {
            int code = packet.error().code;
            if (code == ENOBUFS || code == ENOMEM)
                want_retry(client);  // it stays readable: not asked at once, again and again
            else if (code != EAGAIN)
                kill(client, metrics::Closed::Peer);
            break;
        }
        ++handled;
        acting_uid_ = client.peer.uid;
        asking_ = &client;
        const metrics::RequestClass kind = handle_packet(client, *packet);
        asking_ = nullptr;
        const TimeNs begun = std::exchange(clock_, boottime_ns());
        tally_.handling[static_cast<size_t>(kind)].observe(clock_ - begun);
        if (!packet->fds.empty())
            close_fds(client.peer.uid, packet->fds);  // what was not adopted
        if (!looks || handled >= kPacketsPerTurn || client.stage > ClientSocket::Stage::Open ||
            clock_ - begin > kReadTime || paused(client) || !reaper_.room(client.peer.uid))
            break;
        packet = wire::receive_packet(client.socket.get(), frame_);
    }
    if (looks)
        client.bursts = handled > 1;
    if (handled > 0) {
        // Polling for all of spin_us would have found this one: it pays again, however rarely it paid
        // while it was cut short.
        const int64_t full = static_cast<int64_t>(options_.spin_us) * 1000;
        if (now_ - client.last_packet < full)
            spin_ns_ = full;
        client.last_packet = now_;
        if (options_.spin_us > 0 &&
            std::find(active_.begin(), active_.end(), client.id) == active_.end())
            active_.push_back(client.id);
    }
    update_interest(client);
}

// Answers, or closes the client; says what kind of request it was.
metrics::RequestClass Host::handle_packet(ClientSocket &client, wire::Packet &packet) {
    constexpr auto kNone = metrics::RequestClass::Session;
    if (client.by_credentials && !check_sender(client, packet))
        return kNone;
    if (packet.truncated) {
        begin_close(client, metrics::Closed::Malformed,
                    "a packet is larger than " + std::to_string(wire::kMaxFrameBytes) + " bytes");
        return kNone;
    }
    const wire::Request *request = decoder_.request(packet.bytes);
    if (!request) {
        const wire::DecodeError &error = decoder_.error();
        if (error.request_id == 0) {
            begin_close(client, metrics::Closed::Malformed,
                        "a packet is not a message: " + error.message);
            return kNone;
        }
        ++client.in_flight;
        service_->refuse(client.id, error.request_id, error.status, error.message, now_);
        return kNone;
    }
    // Before it is handled: the request is a view of the packet.
    const metrics::RequestClass kind = metrics::kRequestClassOf[request->body.index()];
    ++client.in_flight;
    if (client.in_flight > options_.max_in_flight)
        service_->refuse(client.id, request->id, wire::Status::Again,
                         "more than " + std::to_string(options_.max_in_flight) +
                             " requests of this connection are unanswered",
                         now_);
    else if (packet.fds_lost)
        service_->refuse(client.id, request->id, wire::Status::FdLimit,
                         "marud has no room for the descriptors of this request now", now_);
    else
        handle_request(client, *request, packet);
    return kind;
}

void Host::handle_with_descriptors(ClientSocket &client, const wire::Request &request,
                                   std::vector<UniqueFd> &fds) {
    std::vector<AttachedDescriptor> found;
    // Anywhere else descriptors are refused unseen.
    bool looked_at = std::holds_alternative<wire::AttachPoolRequest>(request.body);
    for (const UniqueFd &fd : fds)
        found.push_back(looked_at ? inspect_descriptor(fd.get()) : AttachedDescriptor{});
    service_->handle(client.id, request, found, now_);
    auto adopted = service_->adopted_descriptors();
    for (size_t i = 0; i < fds.size() && i < adopted.size(); ++i)
        if (adopted[i].pool != 0)
            segments_.adopt(adopted[i], std::move(fds[i]), client.peer.uid, false);
    std::erase_if(fds, [](const UniqueFd &fd) { return !fd; });
}

void Host::handle_request(ClientSocket &client, const wire::Request &request,
                          wire::Packet &packet) {
    bool done_attaching = std::holds_alternative<wire::AttachDoneRequest>(request.body);
    if (packet.fds.empty())
        service_->handle(client.id, request, {}, now_);
    else
        handle_with_descriptors(client, request, packet.fds);
    if (done_attaching && client.takes_fds) {
        client.takes_fds = false;
        set_pass_rights(client.socket.get(), false);
    }
}

// ---- writing -----------------------------------------------------------------------------------

void Host::reply(ConnectionId to, const wire::Reply &reply, std::span<const SegmentRef> segments) {
    ClientSocket *client = find(to);
    if (!client || client->stage == ClientSocket::Stage::Dead)
        return;
    if (client->in_flight > 0)
        --client->in_flight;
    if (const auto *attach = std::get_if<wire::AttachReply>(&reply.body);
        attach && !attach->missing_pools.empty()) {
        // Before the reply that asks for them.
        client->takes_fds = true;
        set_pass_rights(client->socket.get(), true);
    }
    auto refuse = [&](wire::Status status, std::string_view message) {
        return encoder_.reply({reply.id, wire::StatusOnly{status, message, 0}});
    };
    std::vector<UniqueFd> fds;
    auto frame = encoder_.reply(reply);
    if (!frame)
        frame = refuse(wire::Status::Internal, frame.error().message);
    for (const SegmentRef &segment : segments) {
        UniqueFd fd;
        if (std::holds_alternative<wire::ViewReply>(reply.body)) {
            if (auto reader = open_for_reading(segments_.fd(segment)))
                fd = std::move(*reader);
            else
                log_client(*client, 3, describe(reader.error()));
        } else {
            fd.reset(::fcntl(segments_.fd(segment), F_DUPFD_CLOEXEC, 3));
        }
        if (fd) {
            fds.push_back(std::move(fd));
            continue;
        }
        close_fds(client->peer.uid, fds);
        frame = refuse(wire::Status::FdLimit, "marud has no descriptor left for this segment now");
        break;
    }
    if (frame)
        send(*client, *frame, std::move(fds), reply.id);
}

void Host::event(ConnectionId to, const wire::Event &event) {
    ClientSocket *client = find(to);
    if (!client || client->stage == ClientSocket::Stage::Dead)
        return;
    if (auto frame = encoder_.event(event))
        send(*client, *frame, {}, 0);
    else
        log_client(*client, 3, "event not sent: " + describe(frame.error()));
}

void Host::send(ClientSocket &client, std::span<const std::byte> frame, std::vector<UniqueFd> &&fds,
                uint64_t reply_id) {
    after_send(client,
               client.queue.send(client.socket.get(), frame, std::move(fds), reply_id, spent_));
}

void Host::after_send(ClientSocket &client, SendOutcome outcome) {
    count_queue(client);
    // What was sent left duplicates of its descriptors.
    if (!spent_.empty())
        close_fds(client.peer.uid, spent_);
    // A reply whose descriptors cannot pass becomes one that says so; what is behind it goes on.
    while (outcome == SendOutcome::TooManyFds) {
        wire::Reply refusal{
            client.queue.front_reply_id(),
            wire::StatusOnly{wire::Status::FdLimit, "the descriptor cannot be passed now", 0}};
        auto frame = encoder_.reply(refusal);
        if (!frame)
            return kill(client, metrics::Closed::Service);
        client.queue.replace_front(*frame, spent_);
        close_fds(client.peer.uid, spent_);
        outcome = client.queue.flush(client.socket.get(), spent_);
        count_queue(client);
    }
    if (outcome == SendOutcome::Gone)
        return kill(client, metrics::Closed::Peer);
    if (outcome == SendOutcome::NoMemory)
        want_retry(client);
    tally_.send_queue_high_water =
        std::max<uint64_t>(tally_.send_queue_high_water, client.queue.bytes());
    if (client.queue.overflown()) {
        log_client(client, 4, "client closed: it asks and does not read its replies");
        return kill(client, metrics::Closed::NotReading);
    }
    if (client.queue.empty() && client.stage == ClientSocket::Stage::Closing)
        return kill(client, client.end);
    if (&client != asking_)  // else when all that is read from it now is answered
        update_interest(client);
}

void Host::update_interest(ClientSocket &client) {
    uint32_t interest = 0;
    if (client.stage <= ClientSocket::Stage::Open && !paused(client)) {
        if (!reaper_.room(client.peer.uid))
            want_retry(client);  // nobody tells when there is room again
        else if (!client.retry)
            interest |= EPOLLIN;
    }
    if (!client.queue.empty() && !client.retry)
        interest |= EPOLLOUT;
    if (interest == client.interest || client.stage == ClientSocket::Stage::Dead)
        return;
    client.interest = interest;
    poll_.change(client.socket.get(), interest, client, client.rank);
}

// ---- the end -----------------------------------------------------------------------------------

void Host::close_connection(ConnectionId connection, std::string_view why) {
    if (ClientSocket *client = find(connection))
        begin_close(*client, metrics::Closed::Service, why);
}

void Host::begin_close(ClientSocket &client, metrics::Closed reason, std::string_view why) {
    if (client.stage >= ClientSocket::Stage::Closing)
        return;
    if (!why.empty())
        log_client(client, 5, "client closed: " + std::string(why));
    client.stage = ClientSocket::Stage::Closing;
    client.end = reason;
    client.close_deadline = now_ + kCloseGrace;
    if (client.queue.empty())
        return kill(client, reason);
    closing_.push_back(client.id);
    update_interest(client);
}

void Host::kill(ClientSocket &client, metrics::Closed reason) {
    if (client.stage == ClientSocket::Stage::Dead)
        return;
    // What began its end counts, not how the end went.
    if (client.stage == ClientSocket::Stage::Closing)
        reason = client.end;
    ++tally_.connections_closed[static_cast<size_t>(reason)];
    client.stage = ClientSocket::Stage::Dead;
    dying_.push_back(client.id);
}

void Host::bury(ConnectionId id) {
    auto found = connections_.find(id);
    if (found == connections_.end())
        return;
    std::unique_ptr<ClientSocket> client = std::move(found->second);
    connections_.erase(found);
    uint32_t uid = client->peer.uid;
    client->queue.clear(spent_);
    count_queue(*client);
    if (auto share = shares_.find(uid); share != shares_.end() && --share->second.connections == 0)
        shares_.erase(share);
    std::erase(closing_, id);
    poll_.remove(client->socket.get(), *client, client->rank);
    close_fds(uid, spent_);
    // The peer sees the end now, whatever the close in the reaper waits for.
    ::shutdown(client->socket.get(), SHUT_RDWR);
    reaper_.close(uid, std::move(client->socket));
    if (ProcessWatch::Process *process = processes_.find(client->process)) {
        --process->connections;
        sweep_wanted_ = true;
    }
    if (client->told_service)
        service_->connection_closed(id, now_);
}

void Host::log_client(const ClientSocket &client, int priority, std::string_view message) {
    log_tokens_ = std::min(
        kLogBurst, log_tokens_ + static_cast<double>(now_ - log_refilled_) * kLogPerSecond / 1e9);
    log_refilled_ = now_;
    if (log_tokens_ < 1) {
        ++log_suppressed_;
        ++tally_.log_suppressed;
        return;
    }
    log_tokens_ -= 1;
    std::string text(message);
    text += " (uid " + std::to_string(client.peer.uid) + ", pid " +
            std::to_string(client.peer.pid) + ")";
    if (log_suppressed_ > 0)
        text += "; " + std::to_string(std::exchange(log_suppressed_, 0)) +
                " messages about clients before this one were suppressed";
    journal_.log(priority, text,
                 {{"MESSAGE_ID", message_id::kClientRefused},
                  {"MARU_UID", std::to_string(client.peer.uid)},
                  {"MARU_PID", std::to_string(client.peer.pid)}});
}

}  // namespace maru
