#include "tests/integration/hostile/witness.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "libmaru/base/clock.h"
#include "tests/integration/hostile/party.h"

namespace maru::test {

namespace {

void keep_longest(std::atomic<int64_t> &longest, int64_t value) {
    int64_t before = longest;
    while (value > before && !longest.compare_exchange_weak(before, value)) {
    }
}

// How long this thread has been ready to run and did not; 0 on a kernel that does not count it.
class RunDelay {
  public:
    RunDelay(pid_t process, pid_t thread)
        : file_(::open(("/proc/" + std::to_string(process) + "/task/" + std::to_string(thread) +
                        "/schedstat")
                           .c_str(),
                       O_RDONLY | O_CLOEXEC)) {}
    int64_t ns() const {
        char text[96] = {};
        if (!file_ || ::pread(file_.get(), text, sizeof text - 1, 0) <= 0)
            return 0;
        long long ran = 0, waited = 0;
        return std::sscanf(text, "%lld %lld", &ran, &waited) == 2 ? waited : 0;
    }

  private:
    UniqueFd file_;
};

}  // namespace

Witness::Witness(std::string socket, pid_t marud) : socket_(std::move(socket)), marud_(marud) {
    int ends[2];
    require(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0, "no socket pair");
    near_.reset(ends[0]);
    far_.reset(ends[1]);
    echo_ = std::thread([this] { echo_all(); });
    thread_ = std::thread([this] { probe_all(); });
}

Witness::~Witness() {
    stop_ = true;
    thread_.join();
    ::shutdown(near_.get(), SHUT_RDWR);
    echo_.join();
}

void Witness::echo_all() {
    char byte;
    while (::read(far_.get(), &byte, 1) == 1 && ::write(far_.get(), &byte, 1) == 1) {
    }
}

void Witness::probe_all() {
    try {
        Party party = worker(socket_, kWitnessUid, 1, "witness");
        party.store(1, 0);
        auto keys = digests(0, 3);  // the middle one is there
        RunDelay loop(marud_, marud_), mine(::getpid(), ::gettid());
        for (; !stop_; ++probes_) {
            char byte = 0;
            int64_t begin = monotonic_ns();
            require(::write(near_.get(), &byte, 1) == 1 && ::read(near_.get(), &byte, 1) == 1,
                    "the echo ended");
            int64_t echoed = monotonic_ns();
            int64_t delayed = loop.ns() + mine.ns();
            int64_t middle = monotonic_ns();
            const auto *reply =
                party.wire().ask<wire::ProbeReply>(wire::ProbeRequest{party.ns, keys});
            int64_t end = monotonic_ns();
            delayed = loop.ns() + mine.ns() - delayed;
            require(reply, "a probe was not answered: " + party.wire().message());
            require(reply->prefix == 0 && reply->bitmap.size() == 1 && reply->bitmap[0] == 2,
                    "a probe was answered wrongly");
            keep_longest(echo_ns_, echoed - begin);
            keep_longest(raw_ns_, end - middle);
            keep_longest(marud_ns_, end - middle - delayed);
            ::usleep(300);
        }
    } catch (const std::exception &error) {
        problem_ = error.what();
        failed_ = true;
    }
}

Witness::Figures Witness::take() {
    Figures figures;
    figures.probes = probes_.exchange(0);
    figures.raw_ms = static_cast<double>(raw_ns_.exchange(0)) / 1e6;
    figures.marud_ms = static_cast<double>(marud_ns_.exchange(0)) / 1e6;
    figures.echo_ms = static_cast<double>(echo_ns_.exchange(0)) / 1e6;
    if (failed_)
        figures.problem = problem_;
    return figures;
}

}  // namespace maru::test
