// MetricsServer: one page over HTTP, on a Unix socket and perhaps on a loopback port.
//
// Nobody waits for a scraper: sockets do not block, at most kMaxConnections are open at a time, a
// request has a bounded size and a bounded time, and so has whoever reads the answer. When all
// places are taken, the oldest connection of the user with the most gives way to a new one, so that
// somebody who opens and says nothing cannot keep the scraper out. Whatever is wrong with a
// connection ends in its close.
//
// Closes go through the reaper. The kernel option that makes a close wait, SO_LINGER, belongs to
// our end of a socket and we never set it to wait; but over a Unix socket a peer may send
// descriptors, and the last close of one of those takes as long as its owner likes.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/event/event_source.h"
#include "daemon/event/exporter.h"
#include "daemon/event/listener.h"
#include "daemon/metrics/http_request.h"
#include "libmaru/wire/packet_socket.h"

namespace maru {

class MetricsServer {
  public:
    static constexpr size_t kMaxConnections = 16;
    static constexpr int64_t kRequestNs = 5'000'000'000;  // to say what one wants
    static constexpr int64_t kAnswerNs = 10'000'000'000;  // to read the answer
    static constexpr int64_t kLingerNs = 1'000'000'000;   // to close one's own end after that
    static constexpr int64_t kFactsNs = 250'000'000;      // for /proc; then the last facts serve
    static constexpr int64_t kBetweenRendersNs = 20'000'000;

    using CloseFd = std::function<void(uint32_t uid, UniqueFd)>;
    // `exporter` outlives this. `out_of_descriptors`: as of Listener.
    MetricsServer(sd_event *loop, Exporter &exporter, CloseFd close_fd,
                  std::function<void(const Error &)> out_of_descriptors);
    ~MetricsServer();

    // A listening stream socket. `own_path`: to be removed at the end.
    Result<void> listen(metrics::Source source, UniqueFd socket, std::string own_path);
    void stop();  // closes everything

  private:
    enum class Stage : uint8_t { Reading, Waiting, Sending, Lingering };
    struct Client {
        MetricsServer *server = nullptr;
        uint64_t id = 0;
        metrics::Source source{};
        uint32_t uid = UINT32_MAX;  // whose place it takes; UINT32_MAX over TCP
        UniqueFd socket;
        EventSource events;
        Stage stage = Stage::Reading;
        int64_t deadline = 0;  // of this stage
        std::string request;
        metrics::HttpRequest wanted;
        std::string head;
        std::shared_ptr<const std::string> body;  // owners: the clients that got the same text
        size_t sent = 0;
        size_t discarded = 0;
    };

    void accept_client(metrics::Source source, UniqueFd socket);
    void make_room();
    void read_request(Client &client);
    void answer(Client &client, int status, std::string_view type,
                std::shared_ptr<const std::string> body);
    void send_some(Client &client);
    void discard_some(Client &client);
    void end(Client &client);  // it is gone afterwards
    void want_text();
    void answer_waiting();
    void set_timer();
    Client *find(uint64_t id);
    static int on_socket(sd_event_source *, int, uint32_t events, void *userdata);
    static int on_timer(sd_event_source *, uint64_t, void *userdata);

    sd_event *loop_;
    Exporter &exporter_;
    CloseFd close_fd_;
    std::function<void(const Error &)> out_of_descriptors_;
    std::vector<std::unique_ptr<Listener>> listeners_;
    std::map<uint64_t, std::unique_ptr<Client>> clients_;  // by id: the oldest first
    uint64_t next_id_ = 1;
    EventSource timer_;
    bool refreshing_ = false;  // the reaper has a job of ours
    int64_t refresh_at_ = 0;   // not 0: a refresh waits for its time
    int64_t last_render_ = 0;
    std::shared_ptr<char> alive_;  // owner: this; a late refresh finds it gone
};

// Binds and listens on a loopback address as configured.
Result<UniqueFd> listen_loopback(const std::string &address);

}  // namespace maru
