// What a scraper does to its connection is felt by nobody else.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <vector>

#include "libmaru/base/clock.h"
#include "tests/integration/scrape.h"
#include "tests/integration/wire_client.h"

namespace maru::test {
namespace {

uint16_t free_port() {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof name;
    ::bind(fd.get(), reinterpret_cast<sockaddr *>(&name), sizeof name);
    ::getsockname(fd.get(), reinterpret_cast<sockaddr *>(&name), &size);
    return ntohs(name.sin_port);
}

class HostileScrapers : public testing::Test {
  protected:
    HostileScrapers()
        : port_(free_port()),
          marud_({.config = std::string(kCpu) +
                            "[metrics]\ntcp = \"127.0.0.1:" + std::to_string(port_) + "\"\n"}) {
        marud_.start();
        fds_ = marud_.open_fds();
    }
    // Nobody waited for them, and nothing of them is left.
    void TearDown() override {
        EXPECT_TRUE(marud_.running()) << marud_.log();
        int64_t deadline = monotonic_ns() + int64_t{kPatience} * 1'000'000;
        while (marud_.open_fds() != fds_ && monotonic_ns() < deadline)
            ::poll(nullptr, 0, 20);
        EXPECT_EQ(marud_.open_fds(), fds_);
        EXPECT_EQ(settle(marud_, "maru_scrape_connections", 1), 1);  // the question itself
    }
    // The longest of some round trips of another client, in ms.
    int64_t longest_wait() {
        WireClient client(marud_.socket());
        EXPECT_TRUE(client.hello());
        int64_t longest = 0;
        for (int i = 0; i < 200; ++i) {
            int64_t begun = monotonic_ns();
            EXPECT_TRUE(client.ask<wire::StatusReply>(wire::StatusRequest{}));
            longest = std::max(longest, monotonic_ns() - begun);
        }
        return longest / 1'000'000;
    }

    uint16_t port_;
    Marud marud_;
    size_t fds_ = 0;
};

TEST_F(HostileScrapers, AHundredThatSayNothingKeepNobodyOut) {
    std::vector<std::unique_ptr<Http>> silent;
    for (int i = 0; i < 100; ++i) {
        silent.push_back(i % 2 ? std::make_unique<Http>(port_)
                               : std::make_unique<Http>(metrics_socket(marud_)));
        ASSERT_TRUE(silent.back()->connected());
        silent.back()->say("GET /met");
    }
    Numbers during = now(marud_);
    EXPECT_LE(during["maru_scrape_connections"], 16);
    EXPECT_GE(during["maru_scrapes_total{socket=\"unix\",result=\"dropped\"}"] +
                  during["maru_scrapes_total{socket=\"tcp\",result=\"dropped\"}"],
              84);
    EXPECT_LT(longest_wait(), 1000);
    // The last ones are closed when their time is up.
    for (auto &http : silent) {
        std::string answer;
        EXPECT_TRUE(http->hear(&answer));
        EXPECT_EQ(answer, "");
    }
}

TEST_F(HostileScrapers, OneByteAtATimeIsReadUntilItsTimeIsUp) {
    Http patient(metrics_socket(marud_));
    std::string answer;
    for (char c : std::string_view(kGet))
        ASSERT_TRUE(patient.say(std::string_view(&c, 1)));
    ASSERT_TRUE(patient.hear(&answer));
    EXPECT_EQ(answer.substr(0, 15), "HTTP/1.1 200 OK") << "slow is not wrong";

    Http endless(port_);
    ASSERT_TRUE(endless.say("GET /metrics HTTP/1.1\r\nHost: a\r\nX: "));
    int64_t begun = monotonic_ns();
    while (endless.say("x") && monotonic_ns() - begun < int64_t{kPatience} * 1'000'000)
        ::poll(nullptr, 0, 50);
    EXPECT_LT(monotonic_ns() - begun, int64_t{kPatience} * 1'000'000) << "it was let go on";
}

TEST_F(HostileScrapers, WhatIsTooLargeOrNoRequestIsAnsweredAndClosed) {
    struct Case {
        std::string bytes;
        const char *answer;
    };
    const std::string host = " HTTP/1.1\r\nHost: a\r\n";
    for (const Case &one :
         {Case{"GET /metrics" + host + "X: " + std::string(9000, 'x') + "\r\n\r\n", "HTTP/1.1 431"},
          Case{"GET /" + std::string(100'000, 'y'), "HTTP/1.1 431"},
          Case{std::string("\x16\x03\x01\x00\xa5\x01", 6), "HTTP/1.1 400"},
          Case{std::string(4096, '\0'), "HTTP/1.1 400"},
          Case{"POST /metrics" + host + "\r\n", "HTTP/1.1 405"},
          Case{"GET /../../etc/passwd" + host + "\r\n", "HTTP/1.1 404"},
          Case{"GET /metrics" + host + "Content-Length: 99999999999\r\n\r\n", "HTTP/1.1 400"},
          Case{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/1.1 505"}}) {
        Http http(metrics_socket(marud_));
        http.say(one.bytes);
        std::string answer;
        EXPECT_TRUE(http.hear(&answer));
        EXPECT_EQ(answer.substr(0, 12), one.answer) << one.bytes.substr(0, 40);
    }
    EXPECT_EQ(now(marud_)["maru_scrapes_total{socket=\"unix\",result=\"refused\"}"], 8);
}

TEST_F(HostileScrapers, WhoNeverReadsIsClosedAndDelaysNobody) {
    std::vector<std::unique_ptr<Http>> deaf;
    for (int i = 0; i < 12; ++i) {
        // The smallest buffer there is: the answer does not fit in it.
        deaf.push_back(std::make_unique<Http>(port_, 1));
        ASSERT_TRUE(deaf.back()->say(kGet));
    }
    EXPECT_LT(longest_wait(), 1000);
    EXPECT_NO_THROW(now(marud_));
    // Gone on marud's side while they still hold their ends.
    EXPECT_EQ(settle(marud_, "maru_scrape_connections", 1), 1);
}

TEST_F(HostileScrapers, DescriptorsThatComeWithARequestAreClosed) {
    for (int i = 0; i < 20; ++i) {
        Http http(metrics_socket(marud_));
        std::vector<int> fds(100, 0);
        alignas(cmsghdr) char control[CMSG_SPACE(100 * sizeof(int))] = {};
        iovec part = {const_cast<char *>("GET "), 4};
        msghdr message = {};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(100 * sizeof(int));
        std::memcpy(CMSG_DATA(c), fds.data(), 100 * sizeof(int));
        if (::sendmsg(http.fd(), &message, MSG_NOSIGNAL) < 0)
            continue;  // a kernel that refuses them for us
        std::string answer;
        EXPECT_TRUE(http.hear(&answer));
        EXPECT_EQ(answer, "");
    }
}

TEST_F(HostileScrapers, ManyAtOnceGetOneTextAndLeaveTheLoopToOthers) {
    for (int round = 0; round < 20; ++round) {
        std::vector<std::unique_ptr<Http>> many;
        for (int i = 0; i < 10; ++i) {
            many.push_back(std::make_unique<Http>(metrics_socket(marud_)));
            many.back()->say(kGet);
        }
        if (round == 10) {
            EXPECT_LT(longest_wait(), 1000);
        }
        for (auto &http : many) {
            std::string answer;
            EXPECT_TRUE(http->hear(&answer));
            EXPECT_EQ(answer.substr(0, 15), "HTTP/1.1 200 OK");
        }
    }
}

TEST(MetricsSockets, OffMeansNoneAndAPathIsTaken) {
    Marud off({.config = std::string(kCpu) + "[metrics]\nsocket = \"off\"\n"});
    off.start();
    EXPECT_FALSE(Http(metrics_socket(off)).connected());
    Marud elsewhere;
    elsewhere.set_config("[metrics]\nsocket = \"" + elsewhere.directory() + "/m\"\n");
    elsewhere.start();
    EXPECT_TRUE(Http(elsewhere.directory() + "/m").connected());
    EXPECT_FALSE(Http(metrics_socket(elsewhere)).connected());
}

TEST(MetricsSockets, APlaceThatIsTakenIsSaidAndMarudServes) {
    Marud marud({.config = kCpu});
    std::ofstream(metrics_socket(marud)) << "a file of somebody else\n";
    marud.start();
    EXPECT_NE(marud.log().find("metrics are not served there"), std::string::npos) << marud.log();
    EXPECT_NE(marud.log().find("not a socket"), std::string::npos) << marud.log();
    WireClient client(marud.socket());
    EXPECT_TRUE(client.hello());
}

TEST(MetricsSockets, AnAddressThatOthersReachIsRefusedAtTheStart) {
    Marud marud({.config = "[metrics]\ntcp = \"0.0.0.0:9469\"\n"});
    marud.spawn();
    EXPECT_EQ(marud.wait_exit(kPatience), 2);
    EXPECT_NE(marud.log().find("can be reached from other hosts"), std::string::npos)
        << marud.log();
}

}  // namespace
}  // namespace maru::test
