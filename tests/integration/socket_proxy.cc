#include "tests/integration/socket_proxy.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <stdexcept>

#include "libmaru/base/clock.h"

namespace maru::test {

namespace {

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kNever = INT64_MAX;

}  // namespace

SocketProxy::Verdict SocketProxy::replace(const wire::Reply &reply) {
    wire::Encoder encoder;
    auto frame = encoder.reply(reply);
    if (!frame)
        throw std::runtime_error(describe(frame.error()));
    Verdict verdict;
    verdict.bytes.emplace(frame->begin(), frame->end());
    return verdict;
}

SocketProxy::SocketProxy(std::string marud_socket)
    : marud_socket_(std::move(marud_socket)), buffer_(wire::kMaxFrameBytes / sizeof(uint64_t)) {
    char name[] = "/tmp/maru-proxy-XXXXXX";
    if (!::mkdtemp(name))
        throw std::runtime_error("cannot make a directory in /tmp");
    folder_ = name;
    path_ = folder_ + "/proxy.sock";
    auto listener = wire::listen_seqpacket(path_, 0600);
    if (!listener)
        throw std::runtime_error(describe(listener.error()));
    listener_ = std::move(*listener);
    wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    thread_ = std::thread([this] { serve(); });
}

SocketProxy::~SocketProxy() {
    stop_ = true;
    wake();
    thread_.join();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
}

void SocketProxy::wake() {
    const uint64_t one = 1;
    [[maybe_unused]] ssize_t put = ::write(wake_.get(), &one, sizeof one);
}

void SocketProxy::set_rule(Rule rule) {
    std::lock_guard lock(rule_mutex_);
    rule_ = std::move(rule);
}

void SocketProxy::hold_clients(bool on) {
    hold_ = on;
    wake();
}

void SocketProxy::drop_connections() {
    drop_ = true;
    wake();
}

void SocketProxy::accept_client() {
    for (;;) {
        UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!client)
            return;
        // By this thread, that is, by this process. A marud that is away closes the client.
        auto marud = wire::connect_seqpacket(marud_socket_, monotonic_ns() + 1000 * kMillisecond);
        if (!marud)
            continue;
        Connection &connection = pairs_.emplace_back();
        connection.number = ++connections_;
        connection.client.fd = std::move(client);
        connection.marud.fd = std::move(*marud);
    }
}

void SocketProxy::judge(Connection &connection, Direction direction, wire::Packet packet) {
    Message message{direction,         connection.number, packet.bytes,
                    packet.fds.size(), nullptr,           nullptr};
    if (direction == Direction::ToMarud)
        message.request = decoder_.request(packet.bytes);
    else
        message.server = decoder_.server_message(packet.bytes);
    Verdict verdict;
    {
        std::lock_guard lock(rule_mutex_);
        if (rule_)
            verdict = rule_(message);
    }
    Side &target = direction == Direction::ToMarud ? connection.marud : connection.client;
    std::vector<std::byte> bytes = verdict.bytes
                                       ? std::move(*verdict.bytes)
                                       : std::vector(packet.bytes.begin(), packet.bytes.end());
    if (verdict.keep_bytes < bytes.size())
        bytes.resize(verdict.keep_bytes);
    if (verdict.strip_descriptors)
        packet.fds.clear();
    for (int i = 0; i < verdict.copies; ++i) {
        Outgoing out{
            monotonic_ns() + verdict.delay_ms * kMillisecond, verdict.delay_ms > 0, bytes, {}};
        const bool last = i + 1 == verdict.copies;
        for (UniqueFd &fd : packet.fds)
            out.fds.push_back(last ? std::move(fd) : UniqueFd(::dup(fd.get())));
        out.end_after = last && verdict.end_connection;
        target.queue.push_back(std::move(out));
    }
    if (verdict.copies == 0 && verdict.end_connection)
        connection.ended = true;
}

void SocketProxy::read_side(Connection &connection, Direction direction) {
    Side &source = direction == Direction::ToMarud ? connection.client : connection.marud;
    auto packet =
        wire::receive_packet(source.fd.get(), std::as_writable_bytes(std::span<uint64_t>(buffer_)));
    if (packet)
        judge(connection, direction, std::move(*packet));
    else if (packet.error().code != EAGAIN)
        connection.ended = true;
}

void SocketProxy::flush(Connection &connection, Side &side) {
    const int64_t now = monotonic_ns();
    for (auto out = side.queue.begin(); out != side.queue.end();) {
        if (out->due_ns > now) {  // others overtake it
            ++out;
            continue;
        }
        std::vector<int> fds;
        for (const UniqueFd &fd : out->fds)
            fds.push_back(fd.get());
        auto sent = wire::send_packet(side.fd.get(), out->bytes, fds);
        if (!sent && (sent.error().code == EAGAIN || sent.error().code == ENOBUFS)) {
            side.blocked = true;
            return;
        }
        if (!sent || out->end_after)
            connection.ended = true;
        late_ += out->late;
        out = side.queue.erase(out);
    }
    side.blocked = false;
}

int64_t SocketProxy::next_due() const {
    int64_t due = kNever;
    for (const Connection &connection : pairs_)
        for (const Side *side : {&connection.client, &connection.marud})
            for (const Outgoing &out : side->queue)
                due = std::min(due, out.due_ns);
    return due;
}

void SocketProxy::serve() {
    while (!stop_) {
        if (drop_.exchange(false))
            pairs_.clear();
        std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
        bool blocked = false;
        for (Connection &connection : pairs_) {
            flush(connection, connection.client);
            flush(connection, connection.marud);
            blocked |= connection.client.blocked || connection.marud.blocked;
            // What the other side cannot take now is not read: pressure goes through the proxy.
            const bool take_client = !hold_ && !connection.marud.blocked;
            auto watch = [&](const Side &side, bool take) {
                const auto events =
                    static_cast<short>((take ? POLLIN : 0) | (side.blocked ? POLLOUT : 0));
                // A hang-up would be reported again and again where nothing is asked.
                polled.push_back({events ? side.fd.get() : -1, events, 0});
            };
            watch(connection.client, take_client);
            watch(connection.marud, !connection.client.blocked);
        }
        const size_t ended =
            pairs_.remove_if([](const Connection &connection) { return connection.ended; });
        if (ended > 0)
            continue;  // the descriptors in `polled` are gone
        const int64_t due = next_due();
        int timeout = -1;
        if (due != kNever)
            timeout =
                static_cast<int>(std::max<int64_t>(due - monotonic_ns(), 0) / kMillisecond) + 1;
        if (blocked)
            timeout = timeout < 0 ? 10 : std::min(timeout, 10);  // nothing tells the end of ENOBUFS
        ::poll(polled.data(), polled.size(), timeout);
        if (polled[0].revents) {
            uint64_t count;
            [[maybe_unused]] ssize_t got = ::read(wake_.get(), &count, sizeof count);
        }
        size_t at = 2;
        for (Connection &connection : pairs_) {
            // A held client's end is not looked at either: it may have sent before.
            if (polled[at++].revents & ~POLLOUT && !hold_)
                read_side(connection, Direction::ToMarud);
            if (polled[at++].revents & ~POLLOUT)
                read_side(connection, Direction::ToClient);
        }
        if (polled[1].revents)
            accept_client();
    }
    pairs_.clear();
}

}  // namespace maru::test
