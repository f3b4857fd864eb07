// The metrics of a real marud: what they say after a known workload, that a thousand sessions leave
// no trace in them, and that nothing a scraper does to its connection is felt by anybody else.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <set>

#include "daemon/metrics/exposition.h"
#include "libmaru/base/clock.h"
#include "tests/integration/marud_fixture.h"
#include "tests/integration/wire_client.h"

namespace maru::test {
namespace {

constexpr uint64_t kSegment = 1 << 20, kPage = 64 << 10;
constexpr char kCpu[] = "[cpu]\nhost_bytes = \"64M\"\nsegment_bytes = \"1M\"\n";
constexpr int kPatience = 30'000;  // of a loaded machine

std::string metrics_socket(const Marud &marud) { return marud.directory() + "/metrics.sock"; }

// One connection, spoken to byte by byte.
class Http {
  public:
    explicit Http(const std::string &path) {
        sockaddr_un name = {};
        name.sun_family = AF_UNIX;
        std::strncpy(name.sun_path, path.c_str(), sizeof name.sun_path - 1);
        fd_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        connected_ = ::connect(fd_.get(), reinterpret_cast<sockaddr *>(&name), sizeof name) == 0;
    }
    explicit Http(uint16_t port, int receive_buffer = 0) {
        sockaddr_in name = {};
        name.sin_family = AF_INET;
        name.sin_port = htons(port);
        name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        fd_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (receive_buffer)
            ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
        connected_ = ::connect(fd_.get(), reinterpret_cast<sockaddr *>(&name), sizeof name) == 0;
    }
    bool connected() const { return connected_; }
    int fd() const { return fd_.get(); }
    bool say(std::string_view bytes) {
        while (!bytes.empty()) {
            ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (sent <= 0)
                return false;
            bytes.remove_prefix(static_cast<size_t>(sent));
        }
        return true;
    }
    // Everything until marud closes; false: it does not in time.
    bool hear(std::string *ret_text, int timeout_ms = kPatience) {
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

  private:
    UniqueFd fd_;
    bool connected_ = false;
};

constexpr char kGet[] = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";

// The body of one scrape.
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

using Numbers = std::map<std::string, double>;  // by name and labels

// Reads strictly, and checks what every scrape must have.
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

void expect_counters_grow(const Numbers &before, const Numbers &after) {
    ASSERT_EQ(before.size(), after.size());
    for (const auto &[name, value] : before) {
        ASSERT_TRUE(after.count(name)) << name;
        bool counter = name.find("_total") != name.npos || name.find("_bucket") != name.npos ||
                       name.find("_count") != name.npos || name.find("_sum") != name.npos;
        if (counter) {
            EXPECT_GE(after.at(name), value) << name;
        }
    }
}

// What libmaru does, as far as marud can see: the memory itself is never touched here.
class Worker {
  public:
    Worker(const Marud &marud, uint32_t token) : client_(marud.socket()) {
        std::memcpy(token_.data(), &token, sizeof token);
        token_[15] = 1;
    }
    bool open() {
        wire::OpenSessionRequest request;
        request.token = token_;
        request.engine = "secret-engine-name";
        return client_.hello() && good(request);
    }
    bool open_pool() {
        wire::OpenPoolRequest request;
        request.capacity_bytes = kSegment;
        request.page_bytes = kPage;
        request.request_key = 1;
        const auto *pool = client_.ask<wire::PoolReply>(request);
        if (!pool)
            return false;
        pool_ = pool->pool;
        bool made = good(wire::GrantSegmentRequest{pool_, 0});
        client_.fds().clear();
        return made && good(wire::SegmentMappedRequest{pool_, 0});
    }
    bool describe() {
        const auto *ns =
            client_.ask<wire::NamespaceReply>(wire::RegisterNamespaceRequest{"secret-namespace"});
        if (!ns)
            return false;
        namespace_ = ns->namespace_id;
        return good(wire::DescribeRequest{namespace_, kPage, "raw"});
    }
    wire::CommitItem item(uint8_t key, uint64_t page, uint64_t generation) const {
        wire::CommitItem item;
        item.key.digest = digest(key);
        item.pool = pool_;
        item.offset = page * kPage;
        item.length = kPage;
        item.generation = generation;
        return item;
    }
    static wire::Digest digest(uint8_t key) {
        wire::Digest digest;
        digest.bytes[0] = key;
        digest.bytes[31] = 0x5a;
        return digest;
    }
    bool close() {
        return good(wire::ClosePoolRequest{pool_, wire::ClosePhase::Drain}) &&
               good(wire::ClosePoolRequest{pool_, wire::ClosePhase::Finish}) && leave();
    }
    bool leave() { return good(wire::CloseSessionRequest{}); }
    bool good(wire::RequestBody body) {
        return client_.status(std::move(body)) == wire::Status::Ok;
    }
    WireClient &client() { return client_; }
    wire::Id ns() const { return namespace_; }

  private:
    WireClient client_;
    wire::Token token_{};
    wire::Id pool_ = 0, namespace_ = 0;
};

// Until `name` has `value`; what it has at last.
double settle(const Marud &marud, const std::string &name, double value) {
    int64_t deadline = monotonic_ns() + int64_t{kPatience} * 1'000'000;
    double last;
    do
        last = now(marud)[name];
    while (last != value && monotonic_ns() < deadline);
    return last;
}

TEST(Metrics, NumbersAreTrueAfterAKnownWorkload) {
    Marud marud({.config = kCpu});
    marud.start();
    const Numbers before = now(marud);
    Worker worker(marud, 7);
    ASSERT_TRUE(worker.open());
    ASSERT_TRUE(worker.describe());
    ASSERT_TRUE(worker.open_pool());

    std::vector<wire::CommitItem> items;
    for (uint8_t i = 0; i < 6; ++i)
        items.push_back(worker.item(i, i, i + 1u));
    items.push_back(worker.item(0, 6, 100));  // there already
    items.push_back(worker.item(9, 0, 101));  // over a READY one
    ASSERT_TRUE(worker.client().ask<wire::CommitReply>(wire::CommitRequest{worker.ns(), 1, items}));
    ASSERT_TRUE(worker.client().ask<wire::CommitReply>(
        wire::CommitRequest{worker.ns(), 1, items}));  // a retry

    std::vector<wire::Digest> keys;
    for (uint8_t i : {0, 1, 2, 77, 3, 4, 5, 78})
        keys.push_back(Worker::digest(i));
    ASSERT_TRUE(
        worker.client().ask<wire::ProbeReply>(wire::ProbeRequest{worker.ns(), keys, {}, false}));
    const auto *acquired =
        worker.client().ask<wire::AcquireReply>(wire::AcquireRequest{worker.ns(), keys, {}, false});
    ASSERT_TRUE(acquired);
    std::vector<wire::ReplicaName> leases;
    for (const wire::AcquireResult &one : acquired->results)
        if (one.status == wire::Status::Ok)
            leases.push_back({one.replica, one.generation});
    ASSERT_EQ(leases.size(), 6u);

    Numbers middle = now(marud);
    EXPECT_EQ(middle["maru_leases"], 6);
    EXPECT_EQ(middle["maru_objects"], 6);
    EXPECT_EQ(middle["maru_replicas"], 6);
    EXPECT_EQ(middle["maru_namespaces"], 1);
    EXPECT_EQ(middle["maru_sessions{role=\"worker\",state=\"attached\"}"], 1);
    EXPECT_EQ(middle["maru_pools{state=\"open\"}"], 1);
    const std::string here = "{medium=\"cpu\",tier=\"l1\",scope=\"worker\"}";
    EXPECT_EQ(middle["maru_capacity_bytes" + here], kSegment);
    EXPECT_EQ(middle["maru_reserved_bytes" + here], kSegment);
    EXPECT_EQ(middle["maru_ready_bytes" + here], 6 * kPage);
    EXPECT_EQ(middle["maru_ready_allocated_bytes" + here], 6 * kPage);
    EXPECT_EQ(middle["maru_charged_bytes"], kSegment);
    EXPECT_EQ(middle["maru_charge_limit_bytes"], 64 << 20);
    EXPECT_EQ(middle["maru_unproven_bytes"], 0);

    leases.push_back(leases[0]);  // once too often
    ASSERT_TRUE(worker.client().ask<wire::ItemStatusReply>(wire::ReleaseRequest{leases}));
    ASSERT_TRUE(worker.client().ask<wire::ItemStatusReply>(
        wire::RetireRequest{std::span(leases).first(2)}));
    ASSERT_TRUE(worker.client().ask<wire::ItemStatusReply>(
        wire::ReclaimAckRequest{std::span(leases).first(1)}));
    EXPECT_EQ(worker.client().status(wire::AttachDoneRequest{}), wire::Status::Protocol);
    ASSERT_TRUE(worker.close());
    worker.client().close();

    EXPECT_EQ(settle(marud, "maru_connections", 0), 0);
    Numbers after = now(marud);
    expect_counters_grow(before, middle);
    expect_counters_grow(middle, after);
    EXPECT_EQ(after["maru_commits_total{result=\"ok\"}"], 6);
    EXPECT_EQ(after["maru_commits_total{result=\"already_present\"}"], 1);
    EXPECT_EQ(after["maru_commits_total{result=\"conflict\"}"], 1);
    EXPECT_EQ(after["maru_commit_retries_total"], 8);
    EXPECT_EQ(after["maru_committed_bytes_total"], 6 * kPage);
    EXPECT_EQ(after["maru_probe_keys_total"], 8);
    EXPECT_EQ(after["maru_probe_hits_total"], 6);
    EXPECT_EQ(after["maru_probe_prefix_keys_total"], 3);
    EXPECT_EQ(after["maru_acquires_total{result=\"ok\"}"], 6);
    EXPECT_EQ(after["maru_acquires_total{result=\"miss\"}"], 2);
    EXPECT_EQ(after["maru_acquired_bytes_total"], 6 * kPage);
    EXPECT_EQ(after["maru_releases_total{result=\"ok\"}"], 6);
    EXPECT_EQ(after["maru_releases_total{result=\"not_found\"}"], 1);
    EXPECT_EQ(after["maru_retires_total{result=\"ok\"}"], 2);
    EXPECT_EQ(after["maru_reclaims_total{result=\"ok\"}"], 1);
    EXPECT_EQ(after["maru_requests_total{request=\"probe\",result=\"ok\"}"], 1);
    EXPECT_EQ(after["maru_requests_total{request=\"commit\",result=\"ok\"}"], 2);
    EXPECT_EQ(after["maru_requests_total{request=\"grant_segment\",result=\"ok\"}"], 1);
    EXPECT_EQ(after["maru_requests_total{request=\"close_pool\",result=\"ok\"}"], 2);
    EXPECT_EQ(after["maru_requests_total{request=\"close_session\",result=\"ok\"}"], 1);
    EXPECT_EQ(after["maru_requests_total{request=\"attach_done\",result=\"invalid\"}"], 1);
    EXPECT_EQ(after["maru_refusals_total{status=\"protocol\"}"], 1);
    EXPECT_EQ(after["maru_request_seconds_count{family=\"probe\"}"], 1);
    EXPECT_EQ(after["maru_request_seconds_count{family=\"commit\"}"], 2);
    EXPECT_EQ(after["maru_sessions_opened_total{role=\"worker\"}"], 1);
    EXPECT_EQ(after["maru_sessions_ended_total{how=\"closed\"}"], 1);
    EXPECT_EQ(after["maru_proof_attempts_total"], 1);
    EXPECT_EQ(after["maru_proofs_total{outcome=\"proven\"}"], 1);
    EXPECT_EQ(after["maru_proof_seconds_count"], 1);
    EXPECT_EQ(after["maru_connections_opened_total"], 1);
    EXPECT_EQ(after["maru_connections_closed_total{reason=\"peer\"}"], 1);
    EXPECT_EQ(after["maru_charged_bytes"], 0);
    EXPECT_EQ(after["maru_objects"], 0);
    EXPECT_GT(after["maru_loop_turn_seconds_count"], before.at("maru_loop_turn_seconds_count"));
    EXPECT_GE(after["maru_reaper_jobs_total"], 1);
    // Connections of scrapes come and go.
    EXPECT_NEAR(after["process_open_fds"], static_cast<double>(marud.open_fds()), 4);
    EXPECT_GT(after["process_start_time_seconds"], 1e9);
}

TEST(Metrics, WhatHappensToSessionsAndToMarudIsCounted) {
    Marud marud({.config = kCpu});
    marud.start();
    {
        Worker lost(marud, 1);
        ASSERT_TRUE(lost.open());
        ASSERT_TRUE(lost.open_pool());
    }  // its connection goes, its process does not
    EXPECT_EQ(settle(marud, "maru_sessions{role=\"worker\",state=\"detached\"}", 1), 1);
    EXPECT_EQ(now(marud)["maru_session_events_total{event=\"connection_lost\"}"], 1);
    EXPECT_GE(now(marud)["maru_fdstore_entries"], 2) << "the segment and the pidfd";

    marud.signal(SIGHUP);
    EXPECT_EQ(settle(marud, "maru_config_reloads_total{result=\"ok\"}", 1), 1);
    marud.set_config("[nonsense]\n");
    marud.signal(SIGHUP);
    EXPECT_EQ(settle(marud, "maru_config_reloads_total{result=\"failed\"}", 1), 1);
    marud.set_config(kCpu);

    WireClient garbage(marud.socket());
    ASSERT_EQ(::send(garbage.fd(), "garbage!", 8, MSG_NOSIGNAL), 8);
    EXPECT_TRUE(garbage.wait_end(kPatience));
    EXPECT_EQ(now(marud)["maru_connections_closed_total{reason=\"malformed\"}"], 1);

    marud.restart();  // the path of the dead one's socket is taken over
    Numbers after = now(marud);
    EXPECT_EQ(after["maru_sessions_restored_total"], 1);
    EXPECT_EQ(after["maru_sessions{role=\"worker\",state=\"recorded\"}"], 1);
    EXPECT_GE(after["maru_fdstore_entries"], 2);
    EXPECT_EQ(after["maru_charged_bytes"], kSegment);
    EXPECT_EQ(marud.stop(), 0);
    struct stat info;
    EXPECT_NE(::stat(metrics_socket(marud).c_str(), &info), 0) << "it goes with marud";
}

// ---- A79
// -----------------------------------------------------------------------------------------

std::set<std::string> names_of(const Numbers &numbers) {
    std::set<std::string> names;
    for (const auto &[name, value] : numbers)
        names.insert(name);
    return names;
}

// Without the numbers themselves, which have more digits when they are larger.
size_t size_without_numbers(const std::string &text) {
    size_t size = 0;
    auto read = metrics::read_exposition(text);
    for (const metrics::ReadFamily &family : *read) {
        size += family.head.size();
        for (const metrics::ReadSample &sample : family.samples)
            size += sample.line.size() - sample.value.size();
    }
    return size;
}

TEST(Metrics, AThousandSessionsWithPoolsLeaveNoSeriesBehind) {
    Marud marud({.config = kCpu});
    marud.start();
    auto one_life = [&](uint32_t token) {
        Worker worker(marud, token);
        return worker.open() && worker.describe() && worker.open_pool() && worker.close();
    };
    // The memory of the allocator and of tables settles with the first ones.
    for (uint32_t i = 1; i <= 100; ++i)
        ASSERT_TRUE(one_life(i)) << marud.log();
    std::string first = scrape(marud);
    Numbers before = numbers(first);
    for (uint32_t i = 101; i <= 1100; ++i)
        ASSERT_TRUE(one_life(i)) << i;
    ASSERT_EQ(settle(marud, "maru_connections", 0), 0);
    std::string last = scrape(marud);
    Numbers after = numbers(last);
    EXPECT_EQ(after["maru_sessions_ended_total{how=\"closed\"}"], 1100);
    EXPECT_EQ(after["maru_proofs_total{outcome=\"proven\"}"], 1100);
    EXPECT_EQ(names_of(before), names_of(after));
    EXPECT_EQ(size_without_numbers(first), size_without_numbers(last));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // these keep freed memory
    EXPECT_LT(after["process_resident_memory_bytes"],
              before["process_resident_memory_bytes"] + (2 << 20));
#endif
    EXPECT_EQ(settle(marud, "process_open_fds", before["process_open_fds"]),
              before["process_open_fds"]);
    for (const char *name : {"secret-engine", "secret-namespace", "5a5a", "metrics-test"})
        EXPECT_EQ(last.find(name), last.npos) << name;
}

// ---- hostile scrapers
// ----------------------------------------------------------------------------

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
