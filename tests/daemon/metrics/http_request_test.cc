// What a scraper sends, whole and in pieces; and what others send.
#include "daemon/metrics/http_request.h"

#include <gtest/gtest.h>

namespace maru::metrics {
namespace {

constexpr char kGet[] = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

TEST(HttpRequest, AGetOfThePageIsTaken) {
    HttpRequest request = parse_http_request(kGet);
    EXPECT_TRUE(request.complete);
    EXPECT_EQ(request.status, 200);
    EXPECT_FALSE(request.head);
    EXPECT_EQ(request.format, Format::Text);
    EXPECT_TRUE(parse_http_request("HEAD /metrics HTTP/1.1\r\nhOsT:x\r\n\r\n").head);
    for (const char *other :
         {"GET /metrics HTTP/1.0\n\n", "GET /metrics?name=x HTTP/1.1\r\nHost:\r\n\r\n",
          "GET http://localhost:9469/metrics HTTP/1.1\r\nHost: localhost:9469\r\n\r\n",
          "GET /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
          "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\nGET /more HTTP/1.1\r\n"})
        EXPECT_EQ(parse_http_request(other).status, 200) << other;
}

TEST(HttpRequest, EveryBeginningOfAGoodRequestWaitsForMore) {
    const std::string whole = kGet;
    for (size_t length = 0; length < whole.size() - 1; ++length) {
        HttpRequest request = parse_http_request(std::string_view(whole).substr(0, length));
        EXPECT_FALSE(request.complete) << length;
    }
}

TEST(HttpRequest, WhatIsWrongHasAStatusAndAReason) {
    struct Case {
        int status;
        std::string bytes;
    };
    const std::string end = " HTTP/1.1\r\nHost: a\r\n\r\n";
    for (const Case &one : {
             Case{404, "GET /" + end},
             Case{404, "GET /metricsx" + end},
             Case{404, "GET /metrics/" + end},
             Case{404, "GET http://localhost" + end},
             Case{405, "POST /metrics" + end},
             Case{405, "get /metrics" + end},
             Case{400, "GET" + end},
             Case{400, "GET  /metrics" + end},
             Case{505, "GET /metrics HTTP/2.0\r\nHost: a\r\n\r\n"},
             Case{505, "GET /metrics HTTP/1.1 \r\nHost: a\r\n\r\n"},
             Case{400, "GET /metrics\r\n\r\n"},
             Case{400, "GET /metrics HTTP/1.1\r\n\r\n"},
             Case{400, "GET /metrics HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"},
             Case{400, "GET /metrics HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n"},
             Case{400, "GET /metrics HTTP/1.1\r\nHost : a\r\n\r\n"},
             Case{400, "GET /metrics HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n"},
             Case{400, "GET /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"},
             Case{400, "GET /metrics HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"},
             Case{400, std::string("GET /metrics HTTP/1.1\r\nHost: a\0b\r\n\r\n", 36)},
             Case{400, "\r\n"},
             Case{400, std::string("\x16\x03\x01\x02\x00", 5)},  // TLS
             Case{400, std::string(17, 'G')},
             Case{431, "GET /" + std::string(kMaxRequestBytes, 'x')},
             Case{431,
                  "GET /metrics HTTP/1.1\r\nX: " + std::string(kMaxRequestBytes, 'x') + "\r\n\r\n"},
         }) {
        HttpRequest request = parse_http_request(one.bytes);
        EXPECT_TRUE(request.complete) << one.bytes;
        EXPECT_EQ(request.status, one.status) << one.bytes;
        EXPECT_FALSE(request.why.empty()) << one.bytes;
    }
}

TEST(HttpRequest, TheFormatIsWhatAcceptPrefers) {
    EXPECT_EQ(preferred_format(""), Format::Text);
    EXPECT_EQ(preferred_format("*/*"), Format::Text);
    EXPECT_EQ(preferred_format("text/plain"), Format::Text);
    EXPECT_EQ(preferred_format("application/openmetrics-text"), Format::OpenMetrics);
    EXPECT_EQ(preferred_format("text/plain;version=0.0.4;q=0.5,"
                               "application/openmetrics-text;version=1.0.0;q=0.8,*/*;q=0.1"),
              Format::OpenMetrics);
    EXPECT_EQ(preferred_format("application/openmetrics-text;q=0.2, text/plain;q=0.3"),
              Format::Text);
    EXPECT_EQ(preferred_format("application/openmetrics-text;q=0"), Format::Text);
    EXPECT_EQ(preferred_format("Application/OpenMetrics-Text ; Q=1.000"), Format::OpenMetrics);
    EXPECT_EQ(preferred_format("application/openmetrics-text;q=2"), Format::Text);
    EXPECT_EQ(preferred_format("application/openmetrics-text;q=0.1, */*"), Format::Text);
    EXPECT_EQ(preferred_format(",,;q=;,"), Format::Text);
}

TEST(HttpRequest, TheHeadOfAnAnswerSaysItsLengthAndThatNothingFollows) {
    const std::string head = http_head(405, "text/plain", 12);
    EXPECT_EQ(head.substr(0, 33), "HTTP/1.1 405 Method Not Allowed\r\n");
    EXPECT_NE(head.find("\r\nContent-Length: 12\r\n"), std::string::npos);
    EXPECT_NE(head.find("\r\nConnection: close\r\n"), std::string::npos);
    EXPECT_NE(head.find("\r\nAllow: GET, HEAD\r\n"), std::string::npos);
    EXPECT_EQ(head.substr(head.size() - 4), "\r\n\r\n");
}

}  // namespace
}  // namespace maru::metrics
