#include "daemon/event/client_poll.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <map>
#include <vector>

#include "daemon/event/client_socket.h"

namespace maru {
namespace {

using Found = ClientPoll::Found;
using Rank = ClientPoll::Rank;

class Polled : public testing::Test {
  protected:
    void SetUp() override {
        sd_event *loop = nullptr;
        ASSERT_GE(sd_event_new(&loop), 0);
        loop_.reset(loop);
        poll_ = std::make_unique<ClientPoll>(loop);
        ASSERT_TRUE(poll_->start());
    }

    // A client whose other end is `ends_[place]`.
    ClientSocket &add(Rank rank = Rank::Common) {
        int pair[2];
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
        auto client = std::make_unique<ClientSocket>();
        client->id = clients_.size() + 1;
        client->socket.reset(pair[0]);
        client->rank = rank;
        ends_.emplace_back(pair[1]);
        EXPECT_TRUE(poll_->add(pair[0], EPOLLIN, *client, rank));
        clients_.push_back(std::move(client));
        return *clients_.back();
    }
    void says(const ClientSocket &client) {
        ASSERT_EQ(::send(ends_[client.id - 1].get(), "x", 1, 0), 1);
    }
    void hears(const ClientSocket &client) {
        char c;
        ASSERT_EQ(::recv(client.socket.get(), &c, 1, 0), 1);
    }
    ClientPoll::Next next(int timeout_ms = 0) {
        auto next = poll_->next(timeout_ms);
        EXPECT_TRUE(next);
        return next ? *next : ClientPoll::Next{};
    }
    EventSource timer(sd_event_time_handler_t handler, uint64_t usec) {
        sd_event_source *source = nullptr;
        EXPECT_GE(sd_event_add_time_relative(loop_.get(), &source, CLOCK_MONOTONIC, usec, 1,
                                             handler, &fired_),
                  0);
        return EventSource(source);
    }
    static int count(sd_event_source *, uint64_t, void *fired) {
        ++*static_cast<int *>(fired);
        return 0;
    }

    EventLoop loop_;
    std::unique_ptr<ClientPoll> poll_;
    std::vector<std::unique_ptr<ClientSocket>> clients_;
    std::vector<UniqueFd> ends_;
    int fired_ = 0;
};

TEST_F(Polled, NobodyIsReady) {
    add();
    EXPECT_EQ(next().found, Found::Nothing);
    EXPECT_EQ(next(1).found, Found::Nothing);
}

TEST_F(Polled, WhoIsReadyComesOnceBeforeAnybodyComesTwice) {
    for (int i = 0; i < 40; ++i)
        says(add());
    std::map<ClientSocket *, int> turns;
    for (size_t i = 0; i < 3 * clients_.size(); ++i) {
        const auto found = next();
        ASSERT_EQ(found.found, Found::Client);
        EXPECT_EQ(found.events, uint32_t{EPOLLIN});
        EXPECT_EQ(++turns[found.client], static_cast<int>(i / clients_.size()) + 1);
    }
}

TEST_F(Polled, OneThatIsRemovedIsNotReportedThoughItWasReady) {
    ClientSocket &first = add(), &second = add();
    says(first);
    says(second);
    const auto found = next();
    ASSERT_EQ(found.found, Found::Client);
    ClientSocket &other = found.client == &first ? second : first;
    poll_->remove(other.socket.get(), other, Rank::Common);
    hears(*found.client);
    EXPECT_EQ(next().found, Found::Nothing);
}

TEST_F(Polled, LateOnesComeWhenNobodyElseIsReady) {
    ClientSocket &late = add(Rank::Late), &common = add();
    says(late);
    says(common);
    for (int i = 0; i < 5; ++i)
        EXPECT_EQ(next().client, &common);
    hears(common);
    EXPECT_EQ(next().client, &late);
    says(common);
    EXPECT_EQ(next().client, &common);
}

TEST_F(Polled, LateOnesTakeTurnsToo) {
    std::map<ClientSocket *, int> turns;
    for (int i = 0; i < 3; ++i)
        says(add(Rank::Late));
    for (int i = 0; i < 9; ++i)
        ++turns[next().client];
    for (const auto &client : clients_)
        EXPECT_EQ(turns[client.get()], 3);
}

TEST_F(Polled, ALateOneWakesTheSleeper) {
    ClientSocket &late = add(Rank::Late);
    says(late);
    EXPECT_EQ(next(-1).client, &late);
}

TEST_F(Polled, WhoMovesIsReportedAtItsNewPlaceOnly) {
    ClientSocket &first = add(), &second = add();
    says(first);
    says(second);
    const auto found = next();
    ASSERT_EQ(found.found, Found::Client);
    ClientSocket &moved = found.client == &first ? second : first;
    ASSERT_TRUE(poll_->move(moved.socket.get(), EPOLLIN, moved, Rank::Late));
    EXPECT_EQ(next().client, found.client) << "the moved one comes after everybody else";
    hears(*found.client);
    EXPECT_EQ(next().client, &moved);
    ASSERT_TRUE(poll_->move(moved.socket.get(), EPOLLIN, moved, Rank::Common));
    EXPECT_EQ(next().client, &moved);
    hears(moved);
    EXPECT_EQ(next().found, Found::Nothing);
}

TEST_F(Polled, WhatIsWatchedForCanChange) {
    ClientSocket &client = add();
    says(client);
    poll_->change(client.socket.get(), EPOLLOUT, client, Rank::Common);
    EXPECT_EQ(next().events, uint32_t{EPOLLOUT});
    poll_->change(client.socket.get(), 0, client, Rank::Common);
    EXPECT_EQ(next().found, Found::Nothing);
}

TEST_F(Polled, BusyClientsDoNotKeepATimerFromItsTurn) {
    for (int i = 0; i < 40; ++i)
        says(add());
    const EventSource due = timer(count, 0);
    for (int i = 0; i < 200 && fired_ == 0; ++i)
        if (next().found == Found::Others) {
            ASSERT_GE(poll_->run_others(), 0);
        }
    EXPECT_EQ(fired_, 1);
}

TEST_F(Polled, BusySourcesDoNotKeepAClientFromItsTurn) {
    ClientSocket &client = add();
    says(client);
    sd_event_source *source = nullptr;
    ASSERT_GE(sd_event_add_defer(
                  loop_.get(), &source, [](sd_event_source *, void *) { return 0; }, nullptr),
              0);
    const EventSource always(source);
    ASSERT_GE(sd_event_source_set_enabled(source, SD_EVENT_ON), 0);
    int served = 0, others = 0;
    for (int i = 0; i < 20; ++i) {
        const auto found = next();
        if (found.found == Found::Client)
            ++served;
        else if (found.found == Found::Others && poll_->run_others() >= 0)
            ++others;
    }
    EXPECT_EQ(served, 10);
    EXPECT_EQ(others, 10);
}

TEST_F(Polled, ATimerThatIsSetWhileItSleepsIsSeenOnceItIsTold) {
    EXPECT_EQ(next().found, Found::Nothing);
    const EventSource due = timer(count, 1000);
    poll_->touched();
    ASSERT_EQ(next(10'000).found, Found::Others);
    ASSERT_GE(poll_->run_others(), 0);
    EXPECT_EQ(fired_, 1);
    EXPECT_EQ(next().found, Found::Nothing);
}

TEST_F(Polled, AnExitFromAClientsTurnIsSeenOnceItIsTold) {
    ClientSocket &client = add();
    says(client);
    ASSERT_EQ(next().client, &client);
    ASSERT_GE(sd_event_exit(loop_.get(), 3), 0);
    poll_->touched();
    for (int i = 0; i < 3 && sd_event_get_state(loop_.get()) != SD_EVENT_FINISHED; ++i)
        if (next().found == Found::Others) {
            ASSERT_GE(poll_->run_others(), 0);
        }
    EXPECT_EQ(sd_event_get_state(loop_.get()), SD_EVENT_FINISHED);
}

}  // namespace
}  // namespace maru
