#include "tests/replay/coordinator.h"

#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>

#include "libmaru/base/clock.h"
#include "maru/maru.h"
#include "tests/integration/marud_fixture.h"
#include "tests/replay/channel.h"
#include "tests/replay/processes.h"

namespace maru::replay {
namespace {

// Of what `maructl --json status` says.
bool nothing_reserved(std::string_view status) {
    constexpr std::string_view kMember = "\"host_reserved_bytes\":";
    size_t at = status.find(kMember);
    if (at == std::string_view::npos)
        return false;
    at = status.find_first_not_of(' ', at + kMember.size());
    return at != std::string_view::npos && status[at] == '0';  // JSON has no leading zeros
}

constexpr uint64_t kSlack = 64 << 20;  // of the host's budget over the pools: rounding

class ProgressBar {
  public:
    explicit ProgressBar(uint64_t total) : total_(total), shown_(::isatty(STDERR_FILENO)) {}
    ~ProgressBar() {
        if (shown_)
            std::fprintf(stderr, "\r\033[K");
    }
    void update(const Report &r) {
        if (!shown_ || monotonic_ns() - last_ < 100'000'000)
            return;
        last_ = monotonic_ns();
        constexpr int kWidth = 40;
        int full = static_cast<int>(r.requests * kWidth / total_);
        std::fprintf(
            stderr, "\r[%.*s%*s] %llu/%llu  hits %.1f %%  wrong %llu", full,
            "########################################", kWidth - full, "",
            static_cast<unsigned long long>(r.requests), static_cast<unsigned long long>(total_),
            r.blocks ? 100.0 * static_cast<double>(r.hit_blocks) / static_cast<double>(r.blocks)
                     : 0.0,
            static_cast<unsigned long long>(r.mismatches));
    }

  private:
    uint64_t total_;
    bool shown_;
    int64_t last_ = 0;
};

struct Engine {
    ChildProcess process;
    UniqueFd channel;
    bool ready = false;
    std::map<uint64_t, Job> outstanding;  // by request number
    maru_client *scheduler = nullptr;
    maru_namespace *ns = nullptr;
};

class Coordinator {
  public:
    Coordinator(Options options, const std::vector<TraceRequest> &trace)
        : options_(std::move(options)), trace_(trace), random_(options_.seed) {}
    ~Coordinator();
    Result<Report> run();

  private:
    Result<void> start();
    Result<void> start_engine(uint32_t index);
    Result<void> open_scheduler(uint32_t index);
    Result<void> dispatch(uint64_t number);
    uint32_t choose_engine(const std::vector<maru_digest> &digests, uint32_t *ret_prefix);
    Result<void> send_job(Engine &engine, Job job);
    // Waits for results; with `timeout_ms` 0 takes only what is there.
    Result<void> receive(int timeout_ms);
    void take_result(Engine &engine, const JobResult &result);
    Result<void> revive(uint32_t index);
    Result<void> kill_someone();
    Result<void> finish();
    Result<void> check_nothing_charged();
    Result<void> stop_marud();

    Options options_;
    const std::vector<TraceRequest> &trace_;
    std::mt19937_64 random_;
    std::unique_ptr<test::Marud> marud_;  // ours, when --marud was given
    std::vector<Engine> engines_;
    Report report_;
};

Coordinator::~Coordinator() {
    for (auto &engine : engines_) {
        if (engine.scheduler)
            maru_client_close(engine.scheduler);
    }
}

Error client_error(const std::string &what, int64_t code) {
    return Error{static_cast<int>(-code), what + ": " + maru_last_error()};
}

Result<void> Coordinator::start() {
    if (!options_.marud.empty()) {
        test::MarudOptions marud;
        marud.binary = options_.marud;
        marud.config = "[cpu]\nhost_bytes = " + std::to_string(options_.pool_bytes + kSlack) + "\n";
        // As in user mode: after a kill the workers themselves bring marud their segments back.
        marud.fdstore = false;
        marud_ = std::make_unique<test::Marud>(marud);
        marud_->start();
        options_.socket = marud_->socket();
    }
    engines_.resize(options_.workers);
    for (uint32_t i = 0; i < options_.workers; ++i)
        if (auto started = start_engine(i); !started)
            return started;
    for (uint32_t i = 0; i < options_.workers; ++i)
        if (auto opened = open_scheduler(i); !opened)
            return opened;
    int64_t deadline = monotonic_ns() + 60'000'000'000;
    while (
        std::any_of(engines_.begin(), engines_.end(), [](const Engine &e) { return !e.ready; })) {
        if (auto received = receive(100); !received)
            return received;
        if (monotonic_ns() > deadline)
            return Error{ETIMEDOUT, "the workers did not start within 60 s"};
    }
    return {};
}

Result<void> Coordinator::start_engine(uint32_t index) {
    Engine &engine = engines_[index];
    engine.ready = false;
    auto child = start_worker(options_, index, &engine.channel);
    if (!child)
        return child.error();
    engine.process = std::move(*child);
    return {};
}

Result<void> Coordinator::open_scheduler(uint32_t index) {
    Engine &engine = engines_[index];
    std::string name = options_.engine(index);
    maru_client_options client{};
    client.size = sizeof client;
    client.socket_path = options_.socket.c_str();
    client.engine = name.c_str();
    client.name = "maru-replay-router";
    client.role = MARU_ROLE_SCHEDULER;
    client.timeout_ms = 10000;
    client.connect_ms = 20000;
    if (int code = maru_client_open(&client, &engine.scheduler); code < 0)
        return client_error("open scheduler", code);
    if (int code =
            maru_namespace_open(engine.scheduler, options_.namespace_text().c_str(), &engine.ns);
        code < 0)
        return client_error("open namespace", code);
    return {};
}

uint32_t Coordinator::choose_engine(const std::vector<maru_digest> &digests, uint32_t *ret_prefix) {
    uint32_t best = 0;
    int64_t best_prefix = -1;
    for (uint32_t i = 0; i < engines_.size(); ++i) {
        int64_t start = monotonic_ns();
        int64_t prefix = maru_probe(engines_[i].ns, digests.data(), digests.size(), nullptr,
                                    MARU_PREFIX_ONLY, nullptr);
        report_.probe_ns.push_back(static_cast<uint64_t>(monotonic_ns() - start));
        if (prefix < 0) {
            report_.errors++;
            report_.last_error = static_cast<int>(prefix);
            prefix = 0;
        }
        bool idler = prefix == best_prefix &&
                     engines_[i].outstanding.size() < engines_[best].outstanding.size();
        if (prefix > best_prefix || idler) {
            best = i;
            best_prefix = prefix;
        }
    }
    *ret_prefix = static_cast<uint32_t>(best_prefix);
    return best;
}

Result<void> Coordinator::send_job(Engine &engine, Job job) {
    uint64_t id = job.header.id;
    Job &kept = engine.outstanding[id] = std::move(job);
    // A worker that died meanwhile is found by receive(), which gives the job out again.
    if (write_all(engine.channel.get(), &kept.header, sizeof kept.header)) {
        auto ignored = write_all(engine.channel.get(), kept.digests.data(),
                                 kept.digests.size() * sizeof(maru_digest));
        (void)ignored;
    }
    return {};
}

Result<void> Coordinator::dispatch(uint64_t number) {
    const TraceRequest &request = trace_[number - 1];
    Job job;
    job.header.id = number;
    job.header.blocks = static_cast<uint32_t>(request.blocks.size());
    job.digests.resize(request.blocks.size());
    // One id stands for the 512 tokens of a block: the chain over ids is the chain over tokens.
    int64_t made = maru_prefix_digests(options_.namespace_text().c_str(), request.blocks.data(),
                                       request.blocks.size(), 1, nullptr, job.digests.data());
    if (made != static_cast<int64_t>(job.digests.size()))
        return client_error("prefix digests", made < 0 ? made : -EPROTO);
    Engine &engine = engines_[choose_engine(job.digests, &job.header.prefix)];
    while (engine.outstanding.size() >= options_.in_flight)
        if (auto received = receive(1000); !received)
            return received;
    return send_job(engine, std::move(job));
}

void Coordinator::take_result(Engine &engine, const JobResult &result) {
    if (result.id == 0) {
        engine.ready = true;
        return;
    }
    auto job = engine.outstanding.find(result.id);
    if (job == engine.outstanding.end())
        return;
    report_.requests++;
    report_.blocks += job->second.header.blocks;
    report_.hit_blocks += result.hit_blocks;
    report_.hit_requests += result.hit_blocks > 0;
    report_.stored_blocks += result.stored_blocks;
    report_.skipped_blocks += result.skipped_blocks;
    report_.retired_blocks += result.retired_blocks;
    report_.unknown_blocks += result.unknown_blocks;
    report_.errors += result.errors;
    if (result.errors)
        report_.last_error = result.last_error;
    report_.bytes_verified += result.verified_bytes;
    report_.mismatches += result.mismatches;
    report_.load_ns += result.load_ns;
    report_.load_bytes += result.load_bytes;
    report_.store_ns += result.store_ns;
    report_.store_bytes += result.store_bytes;
    if (result.load_bytes) {
        report_.acquire_ns.push_back(result.acquire_ns);
        report_.load_latency_ns.push_back(result.load_ns);
    }
    if (result.store_bytes)
        report_.store_latency_ns.push_back(result.store_ns);
    engine.outstanding.erase(job);
}

Result<void> Coordinator::receive(int timeout_ms) {
    std::vector<pollfd> waiters;
    for (auto &engine : engines_)
        waiters.push_back({engine.channel.get(), POLLIN, 0});
    if (::poll(waiters.data(), waiters.size(), timeout_ms) < 0 && errno != EINTR)
        return Error{errno, "poll the workers"};
    for (uint32_t i = 0; i < engines_.size(); ++i) {
        if (!waiters[i].revents)
            continue;
        JobResult result;
        if (read_all(engines_[i].channel.get(), &result, sizeof result))
            take_result(engines_[i], result);
        else if (auto revived = revive(i); !revived)
            return revived;
    }
    return {};
}

// A worker is gone: after a kill it is started again and gets its requests anew.
Result<void> Coordinator::revive(uint32_t index) {
    Engine &engine = engines_[index];
    if (engine.process) {
        int status = engine.process.wait(10'000);
        if (!(options_.kill && status == 128 + SIGKILL))
            return Error{ECHILD, "worker " + std::to_string(index) + " ended with status " +
                                     std::to_string(status)};
    }
    auto jobs = std::move(engine.outstanding);
    engine.outstanding.clear();
    if (auto started = start_engine(index); !started)
        return started;
    for (auto &[id, job] : jobs) {
        report_.repeated_requests++;
        if (auto sent = send_job(engine, std::move(job)); !sent)
            return sent;
    }
    return {};
}

Result<void> Coordinator::kill_someone() {
    // A random moment within the work that is in flight, not only between requests.
    timespec pause{0, static_cast<long>(random_() % 3'000'000)};
    ::nanosleep(&pause, nullptr);
    uint32_t victim = static_cast<uint32_t>(random_() % (engines_.size() + 1));
    if (victim < engines_.size()) {
        if (!engines_[victim].ready)
            return {};
        report_.worker_kills++;
        ::kill(engines_[victim].process.pid(), SIGKILL);
        return {};  // receive() sees the end of its channel
    }
    report_.marud_kills++;
    marud_->restart();
    return {};
}

Result<void> Coordinator::finish() {
    int64_t deadline = monotonic_ns() + 120'000'000'000;
    auto pending = [this] {
        return std::any_of(engines_.begin(), engines_.end(),
                           [](const Engine &e) { return !e.outstanding.empty() || !e.ready; });
    };
    while (pending()) {
        if (auto received = receive(1000); !received)
            return received;
        if (monotonic_ns() > deadline)
            return Error{ETIMEDOUT, "requests are unfinished after 120 s"};
    }
    for (uint32_t i = 0; i < engines_.size(); ++i) {
        engines_[i].channel.reset();  // the worker closes its pool and its client, and exits
        int status = engines_[i].process.wait(60'000);
        if (status != 0)
            return Error{ECHILD, "worker " + std::to_string(i) + " ended with status " +
                                     std::to_string(status)};
    }
    return {};
}

// With every worker gone nothing may stay charged; the proof of a killed one may take a moment.
Result<void> Coordinator::check_nothing_charged() {
    if (options_.maructl.empty())
        return {};
    const std::vector<std::string> argv = {options_.maructl, "--socket", options_.socket, "--json",
                                           "status"};
    int64_t deadline = monotonic_ns() + 10'000'000'000;
    for (;;) {
        auto status = run_and_read(argv);
        if (!status)
            return status.error();
        if (nothing_reserved(*status))
            return {};
        if (monotonic_ns() > deadline)
            return Error{EBUSY, "memory is still charged after every worker ended: " + *status};
        timespec pause{0, 20'000'000};
        ::nanosleep(&pause, nullptr);
    }
}

// marud drains and ends by itself.
Result<void> Coordinator::stop_marud() {
    if (!marud_)
        return {};
    if (int status = marud_->stop(); status != 0)
        return Error{ECHILD,
                     "marud ended with status " + std::to_string(status) + " after SIGTERM"};
    return {};
}

Result<Report> Coordinator::run() {
    int64_t began = monotonic_ns();
    if (auto started = start(); !started)
        return started.error();
    uint64_t count = trace_.size();
    std::vector<uint64_t> moments;
    if (options_.kill) {
        uint64_t kills = options_.kills ? options_.kills : std::max<uint64_t>(6, count / 300);
        for (uint64_t i = 0; i < kills; ++i)
            moments.push_back(1 + random_() % count);
        std::sort(moments.begin(), moments.end());
    }
    ProgressBar bar(count);
    size_t next_kill = 0;
    for (uint64_t number = 1; number <= count; ++number) {
        if (auto sent = dispatch(number); !sent)
            return sent.error();
        for (; next_kill < moments.size() && moments[next_kill] == number; ++next_kill)
            if (auto killed = kill_someone(); !killed)
                return killed.error();
        if (auto received = receive(0); !received)
            return received.error();
        bar.update(report_);
    }
    if (auto finished = finish(); !finished)
        return finished.error();
    for (auto &engine : engines_)
        if (int code = maru_client_close(std::exchange(engine.scheduler, nullptr)); code < 0)
            return client_error("close scheduler", code);
    if (auto checked = check_nothing_charged(); !checked)
        return checked.error();
    if (auto stopped = stop_marud(); !stopped)
        return stopped.error();
    report_.seconds = static_cast<double>(monotonic_ns() - began) / 1e9;
    report_.ideal = ideal_hits(trace_);
    return std::move(report_);
}

}  // namespace

Result<Report> replay_trace(Options options, const std::vector<TraceRequest> &trace) {
    try {
        Coordinator coordinator(std::move(options), trace);
        return coordinator.run();
    } catch (const std::runtime_error &error) {  // of the fixture: carries marud's log
        return Error{0, error.what()};
    }
}

}  // namespace maru::replay
