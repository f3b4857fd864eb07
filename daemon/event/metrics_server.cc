#include "daemon/event/metrics_server.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "daemon/config/loopback_address.h"
#include "daemon/event/peer.h"
#include "libmaru/base/clock.h"

namespace maru {
namespace {

constexpr size_t kMaxDiscarded = 65536;

template <typename Names>
size_t index(Names name) {
    return static_cast<size_t>(name);
}

}  // namespace

MetricsServer::MetricsServer(sd_event *loop, Exporter &exporter, CloseFd close_fd,
                             std::function<void(const Error &)> out_of_descriptors)
    : loop_(loop),
      exporter_(exporter),
      close_fd_(std::move(close_fd)),
      out_of_descriptors_(std::move(out_of_descriptors)),
      alive_(std::make_shared<char>()) {}

MetricsServer::~MetricsServer() { stop(); }

Result<void> MetricsServer::listen(metrics::Source source, UniqueFd socket, std::string own_path) {
    if (!timer_) {
        sd_event_source *timer = nullptr;
        int r = sd_event_add_time(loop_, &timer, CLOCK_MONOTONIC, UINT64_MAX, 1000, on_timer, this);
        if (r < 0)
            return Error{-r, "add a timer for scrapers"};
        timer_.reset(timer);
        sd_event_source_set_enabled(timer, SD_EVENT_OFF);
        sd_event_source_set_description(timer, "scrapers");
    }
    Listener::Callbacks callbacks;
    callbacks.accepted = [this, source](UniqueFd fd) { accept_client(source, std::move(fd)); };
    callbacks.refused = [this](UniqueFd fd) { close_fd_(UINT32_MAX, std::move(fd)); };
    callbacks.out_of_descriptors = out_of_descriptors_;
    auto listener = std::make_unique<Listener>(loop_, std::move(socket), std::move(own_path),
                                               std::move(callbacks));
    if (auto started = listener->start(); !started)
        return started;
    listeners_.push_back(std::move(listener));
    return {};
}

void MetricsServer::stop() {
    listeners_.clear();
    while (!clients_.empty())
        end(*clients_.begin()->second);
    timer_.reset();
    alive_.reset();
}

MetricsServer::Client *MetricsServer::find(uint64_t id) {
    auto found = clients_.find(id);
    return found == clients_.end() ? nullptr : found->second.get();
}

// ---- arrival -----------------------------------------------------------------------------------

void MetricsServer::accept_client(metrics::Source source, UniqueFd socket) {
    auto client = std::make_unique<Client>();
    if (source == metrics::Source::Unix)
        if (auto peer = peer_credentials(socket.get()))
            client->uid = peer->uid;
    sd_event_source *events = nullptr;
    if (sd_event_add_io(loop_, &events, socket.get(), EPOLLIN, on_socket, client.get()) < 0) {
        close_fd_(client->uid, std::move(socket));
        return;
    }
    client->events.reset(events);
    client->server = this;
    client->id = next_id_++;
    client->source = source;
    client->socket = std::move(socket);
    client->deadline = monotonic_ns() + kRequestNs;
    if (clients_.size() >= kMaxConnections)
        make_room();
    clients_.emplace(client->id, std::move(client));
    exporter_.scrapes().connections = clients_.size();
    set_timer();
}

// The oldest connection of whoever has the most.
void MetricsServer::make_room() {
    std::map<uint32_t, size_t> places;
    for (const auto &[id, client] : clients_)
        ++places[client->uid];
    size_t most = 0;
    for (const auto &[uid, count] : places)
        most = std::max(most, count);
    for (const auto &[id, client] : clients_)
        if (places[client->uid] == most)
            return end(*client);
}

// ---- events ------------------------------------------------------------------------------------

int MetricsServer::on_socket(sd_event_source *, int, uint32_t events, void *userdata) {
    auto &client = *static_cast<Client *>(userdata);
    MetricsServer &self = *client.server;
    switch (client.stage) {
        case Stage::Reading:
            self.read_request(client);
            break;
        case Stage::Waiting:  // only the end is reported
            self.end(client);
            break;
        case Stage::Sending:
            if (events & (EPOLLHUP | EPOLLERR))
                self.end(client);
            else
                self.send_some(client);
            break;
        case Stage::Lingering:
            self.discard_some(client);
            break;
    }
    self.set_timer();
    return 0;
}

void MetricsServer::read_request(Client &client) {
    // One packet per turn: whoever sends byte by byte waits for its own next turn.
    alignas(std::max_align_t) std::byte buffer[4096];
    auto packet = wire::receive_packet(client.socket.get(), buffer);
    if (!packet) {
        int code = packet.error().code;
        if (code != EAGAIN && code != ENOBUFS && code != ENOMEM)
            end(client);
        return;
    }
    if (!packet->fds.empty() || packet->fds_lost) {
        for (UniqueFd &fd : packet->fds)
            close_fd_(client.uid, std::move(fd));
        return end(client);
    }
    client.request.append(reinterpret_cast<const char *>(packet->bytes.data()),
                          packet->bytes.size());
    client.wanted = metrics::parse_http_request(client.request);
    if (!client.wanted.complete)
        return;
    if (client.wanted.status != 200)
        return answer(client, client.wanted.status, "text/plain; charset=utf-8",
                      std::make_shared<const std::string>(std::string(client.wanted.why) + "\n"));
    client.stage = Stage::Waiting;
    client.deadline = monotonic_ns() + kFactsNs;
    sd_event_source_set_io_events(client.events.get(), 0);
    want_text();
}

// A text for everybody who waits: not more often than a loop can spare the time for.
void MetricsServer::want_text() {
    if (refreshing_)
        return;
    int64_t now = monotonic_ns();
    if (last_render_ && now - last_render_ < kBetweenRendersNs) {
        refresh_at_ = last_render_ + kBetweenRendersNs;
        return;
    }
    refresh_at_ = 0;
    refreshing_ = true;
    exporter_.refresh([this, alive = std::weak_ptr<char>(alive_)] {
        if (alive.expired())
            return;
        refreshing_ = false;
        answer_waiting();
        set_timer();
    });
}

void MetricsServer::answer_waiting() {
    std::vector<uint64_t> waiting;
    for (const auto &[id, client] : clients_)
        if (client->stage == Stage::Waiting)
            waiting.push_back(id);
    if (waiting.empty())
        return;
    std::shared_ptr<const std::string> texts[2];
    for (uint64_t id : waiting) {
        Client *client = find(id);
        if (!client)
            continue;
        metrics::Format format = client->wanted.format;
        auto &text = texts[index(format)];
        if (!text)
            text = std::make_shared<const std::string>(exporter_.render(format));
        answer(*client, 200, metrics::content_type(format), text);
    }
    last_render_ = monotonic_ns();
}

void MetricsServer::answer(Client &client, int status, std::string_view type,
                           std::shared_ptr<const std::string> body) {
    client.head = metrics::http_head(status, type, body->size());
    if (!client.wanted.head)
        client.body = std::move(body);
    client.stage = Stage::Sending;
    client.deadline = monotonic_ns() + kAnswerNs;
    send_some(client);
}

void MetricsServer::send_some(Client &client) {
    const size_t body = client.body ? client.body->size() : 0;
    const size_t all = client.head.size() + body;
    while (client.sent < all) {
        iovec parts[2] = {};
        size_t count = 0;
        size_t skip = client.sent;
        if (skip < client.head.size()) {
            parts[count++] = {client.head.data() + skip, client.head.size() - skip};
            skip = 0;
        } else {
            skip -= client.head.size();
        }
        if (body > skip)
            parts[count++] = {const_cast<char *>(client.body->data()) + skip, body - skip};
        msghdr message = {};
        message.msg_iov = parts;
        message.msg_iovlen = count;
        ssize_t sent = ::sendmsg(client.socket.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            sd_event_source_set_io_events(client.events.get(), EPOLLOUT);
            return;
        }
        if (sent < 0)
            return end(client);
        client.sent += static_cast<size_t>(sent);
    }
    metrics::Scrape result =
        client.wanted.status == 200 ? metrics::Scrape::Ok : metrics::Scrape::Refused;
    ++exporter_.scrapes().scrapes[index(client.source)][index(result)];
    client.body.reset();
    // The end is said now, and the socket closed when the peer has seen it: unread bytes at a close
    // would make the kernel throw the answer away.
    ::shutdown(client.socket.get(), SHUT_WR);
    client.stage = Stage::Lingering;
    client.deadline = monotonic_ns() + kLingerNs;
    sd_event_source_set_io_events(client.events.get(), EPOLLIN);
}

void MetricsServer::discard_some(Client &client) {
    alignas(std::max_align_t) std::byte buffer[4096];
    auto packet = wire::receive_packet(client.socket.get(), buffer);
    if (!packet) {
        if (packet.error().code != EAGAIN)
            end(client);
        return;
    }
    bool fds = !packet->fds.empty() || packet->fds_lost;
    for (UniqueFd &fd : packet->fds)
        close_fd_(client.uid, std::move(fd));
    client.discarded += packet->bytes.size();
    if (fds || client.discarded > kMaxDiscarded)
        end(client);
}

// ---- the end -----------------------------------------------------------------------------------

void MetricsServer::end(Client &client) {
    if (client.stage != Stage::Lingering) {
        ++exporter_.scrapes().scrapes[index(client.source)][index(metrics::Scrape::Dropped)];
        // What a reader has not read in time goes with the socket instead of staying in the kernel;
        // with a time of 0 the close does not wait for anything.
        linger now = {1, 0};
        if (client.source == metrics::Source::Tcp)
            ::setsockopt(client.socket.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    }
    auto found = clients_.find(client.id);
    std::unique_ptr<Client> last = std::move(found->second);
    clients_.erase(found);
    exporter_.scrapes().connections = clients_.size();
    last->events.reset();
    if (last->source == metrics::Source::Unix)
        ::shutdown(last->socket.get(), SHUT_RDWR);
    close_fd_(last->uid, std::move(last->socket));
}

void MetricsServer::set_timer() {
    if (!timer_)
        return;
    int64_t first = refresh_at_ ? refresh_at_ : INT64_MAX;
    for (const auto &[id, client] : clients_)
        first = std::min(first, client->deadline);
    if (first == INT64_MAX) {
        sd_event_source_set_enabled(timer_.get(), SD_EVENT_OFF);
        return;
    }
    sd_event_source_set_time(timer_.get(), static_cast<uint64_t>(first) / 1000 + 1);
    sd_event_source_set_enabled(timer_.get(), SD_EVENT_ONESHOT);
}

int MetricsServer::on_timer(sd_event_source *, uint64_t, void *userdata) {
    auto &self = *static_cast<MetricsServer *>(userdata);
    int64_t now = monotonic_ns();
    if (self.refresh_at_ && self.refresh_at_ <= now)
        self.want_text();
    std::vector<uint64_t> late;
    bool waiting = false;
    for (const auto &[id, client] : self.clients_) {
        if (client->deadline > now)
            continue;
        if (client->stage == Stage::Waiting)
            waiting = true;
        else
            late.push_back(id);
    }
    for (uint64_t id : late)
        self.end(*self.find(id));
    if (waiting)  // for facts that do not come: the last ones serve
        self.answer_waiting();
    self.set_timer();
    return 0;
}

Result<UniqueFd> listen_loopback(const std::string &text) {
    auto address = parse_loopback_address(text);
    if (!address)
        return address.error();
    UniqueFd fd(
        ::socket(address->generic()->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd)
        return Error{errno, "make a socket for " + text};
    int on = 1;
    // A restarted marud takes the port over from connections of its last life.
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(fd.get(), address->generic(), address->size) < 0)
        return Error{errno, "bind " + text};
    if (::listen(fd.get(), 64) < 0)
        return Error{errno, "listen on " + text};
    return fd;
}

}  // namespace maru
