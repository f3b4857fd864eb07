#include "daemon/event/client_poll.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace maru {
namespace {

// Tags of the two descriptors that are no client's.
char others_tag, late_tag;

bool control(int epoll, int how, int fd, uint32_t events, void *tag) {
    epoll_event event{};
    event.events = events;
    event.data.ptr = tag;
    return ::epoll_ctl(epoll, how, fd, &event) == 0;
}

}  // namespace

Result<void> ClientPoll::start() {
    ready_.reset(::epoll_create1(EPOLL_CLOEXEC));
    late_.reset(::epoll_create1(EPOLL_CLOEXEC));
    if (!ready_ || !late_ ||
        !control(ready_.get(), EPOLL_CTL_ADD, sd_event_get_fd(others_), EPOLLIN, &others_tag) ||
        !control(ready_.get(), EPOLL_CTL_ADD, late_.get(), EPOLLIN, &late_tag))
        return Error{errno, "set up the polling of clients"};
    return {};
}

bool ClientPoll::add(int socket, uint32_t events, ClientSocket &client, Rank rank) {
    return control(epoll(rank), EPOLL_CTL_ADD, socket, events, &client);
}

void ClientPoll::change(int socket, uint32_t events, ClientSocket &client, Rank rank) {
    control(epoll(rank), EPOLL_CTL_MOD, socket, events, &client);
}

bool ClientPoll::move(int socket, uint32_t events, ClientSocket &client, Rank to) {
    const Rank from = to == Rank::Late ? Rank::Common : Rank::Late;
    if (!add(socket, events, client, to))
        return false;
    remove(socket, client, from);
    return true;
}

void ClientPoll::remove(int socket, const ClientSocket &client, Rank rank) {
    control(epoll(rank), EPOLL_CTL_DEL, socket, 0, nullptr);
    for (int i = begin_; i < end_; ++i)
        if (batch_[static_cast<size_t>(i)].client == &client)
            batch_[static_cast<size_t>(i)].client = nullptr;
}

Result<ClientPoll::Next> ClientPoll::next(int timeout_ms) {
    for (;;) {
        while (begin_ < end_) {
            const Ready &ready = batch_[static_cast<size_t>(begin_++)];
            if (ready.client)
                return Next{Found::Client, ready.client, ready.events};
        }
        if (others_ready_)
            return Next{Found::Others, nullptr, 0};
        if (!prepared_ || touched_)
            if (auto prepared = prepare(); !prepared)
                return prepared.error();
        int found = wait(Rank::Common, others_ready_ ? 0 : timeout_ms);
        // Late ones are left for later when there is anybody else.
        if (found > 0 && begin_ == end_ && !others_ready_)
            found = wait(Rank::Late, 0);
        if (found < 0)
            return Error{-found, "poll clients"};
        if (begin_ == end_ && !others_ready_)
            return Next{};
    }
}

// What it has to say without being polled for comes in its turn like anything else.
Result<void> ClientPoll::prepare() {
    int r = 0;
    if (prepared_)
        r = sd_event_wait(others_, 0);
    if (r == 0)
        r = sd_event_prepare(others_);
    if (r < 0)
        return Error{-r, "the event loop failed"};
    touched_ = false;
    prepared_ = r == 0;
    others_ready_ = r > 0;
    return {};
}

// How many were reported, sd_event and late ones included; or -errno.
int ClientPoll::wait(Rank rank, int timeout_ms) {
    std::array<epoll_event, kBatch> events;
    const int n =
        ::epoll_wait(epoll(rank), events.data(), rank == Rank::Late ? 1 : kBatch, timeout_ms);
    begin_ = end_ = 0;
    if (n < 0)
        return errno == EINTR ? 0 : -errno;
    for (int i = 0; i < n; ++i) {
        const epoll_event &event = events[static_cast<size_t>(i)];
        if (event.data.ptr == &others_tag)
            others_ready_ = true;
        else if (event.data.ptr != &late_tag)
            batch_[static_cast<size_t>(end_++)] = {static_cast<ClientSocket *>(event.data.ptr),
                                                   event.events};
    }
    return n;
}

int ClientPoll::run_others() {
    others_ready_ = false;
    if (std::exchange(prepared_, false)) {
        // Its descriptor was readable; that may be over, and it is prepared again.
        if (int r = sd_event_wait(others_, 0); r <= 0)
            return r;
    }
    return sd_event_dispatch(others_);
}

}  // namespace maru
