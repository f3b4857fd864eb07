#include "tests/integration/scrape.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <stdexcept>

#include "daemon/metrics/exposition.h"
#include "libmaru/base/clock.h"

namespace maru::test {

Http::Http(const std::string &path) {
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    std::strncpy(name.sun_path, path.c_str(), sizeof name.sun_path - 1);
    fd_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    connected_ = ::connect(fd_.get(), reinterpret_cast<sockaddr *>(&name), sizeof name) == 0;
}

Http::Http(uint16_t port, int receive_buffer) {
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_port = htons(port);
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fd_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (receive_buffer)
        ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    connected_ = ::connect(fd_.get(), reinterpret_cast<sockaddr *>(&name), sizeof name) == 0;
}

bool Http::say(std::string_view bytes) {
    while (!bytes.empty()) {
        ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
}

bool Http::hear(std::string *ret_text, int timeout_ms) {
    int64_t deadline = monotonic_ns() + int64_t{timeout_ms} * 1'000'000;
    char block[4096];
    for (;;) {
        pollfd ready = {fd_.get(), POLLIN, 0};
        int64_t left = (deadline - monotonic_ns()) / 1'000'000;
        if (left <= 0 || ::poll(&ready, 1, static_cast<int>(left)) <= 0)
            return false;
        ssize_t got = ::recv(fd_.get(), block, sizeof block, 0);
        if (got <= 0)
            return true;
        ret_text->append(block, static_cast<size_t>(got));
    }
}

std::string scrape(const Marud &marud) {
    Http http(metrics_socket(marud));
    std::string answer;
    if (!http.say(kGet) || !http.hear(&answer))
        throw std::runtime_error("no answer from the metrics socket");
    size_t end = answer.find("\r\n\r\n");
    if (answer.compare(0, 17, "HTTP/1.1 200 OK\r\n") != 0 || end == answer.npos)
        throw std::runtime_error("a strange answer: " + answer.substr(0, 200));
    return answer.substr(end + 4);
}

Numbers numbers(const std::string &text) {
    auto read = metrics::read_exposition(text);
    EXPECT_TRUE(read.ok()) << read.error().message;
    Numbers out;
    if (!read)
        return out;
    for (const metrics::ReadFamily &family : *read) {
        EXPECT_FALSE(family.help.empty()) << family.name;
        EXPECT_FALSE(family.samples.empty()) << family.name;
        double last = 0;
        for (const metrics::ReadSample &sample : family.samples) {
            double value = std::stod(std::string(sample.value));
            std::string name(sample.line.substr(0, sample.line.size() - sample.value.size() - 1));
            EXPECT_TRUE(out.emplace(name, value).second) << name << " stands there twice";
            if (family.type != "histogram")
                continue;
            bool bucket = name.find("_bucket{") != name.npos;
            if (bucket) {
                EXPECT_GE(value, last) << name << ": buckets are cumulative";
                last = value;
            } else if (name.find("_count") != name.npos) {
                EXPECT_EQ(value, last) << name << ": the last bucket holds everything";
                last = 0;
            }
        }
    }
    return out;
}

Numbers now(const Marud &marud) { return numbers(scrape(marud)); }

double settle(const Marud &marud, const std::string &name, double value) {
    int64_t deadline = monotonic_ns() + int64_t{kPatience} * 1'000'000;
    double last;
    do
        last = now(marud)[name];
    while (last != value && monotonic_ns() < deadline);
    return last;
}

}  // namespace maru::test
