#include "daemon/event/daemon.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "daemon/event/pause_point.h"
#include "libmaru/base/clock.h"
#include "libmaru/base/random.h"

namespace maru {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int kLockWaitMs = 1000;
constexpr TimeNs kFlushTime = kSecond / 2;

// Every session, segment and client is a descriptor. The hard limit is what we may have.
void raise_descriptor_limit() {
    rlimit limit = {};
    if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        ::setrlimit(RLIMIT_NOFILE, &limit);
    }
}

bool uses_epoch(const SessionRecord &record, uint32_t epoch) {
    return record.epoch == epoch || wire::id_epoch(record.session) == epoch ||
           std::any_of(record.pools.begin(), record.pools.end(),
                       [&](const auto &pool) { return wire::id_epoch(pool.pool) == epoch; });
}

bool uses_epoch(const ObjectRecord &record, uint32_t epoch) {
    wire::Id pool = std::visit(
        [](const auto &fact) -> wire::Id {
            using Fact = std::decay_t<decltype(fact)>;
            if constexpr (std::is_same_v<Fact, RecordedNamespace>)
                return 0;
            else if constexpr (std::is_same_v<Fact, RecordedObject>)
                return fact.item.pool;
            else if constexpr (std::is_same_v<Fact, RecordedRetirement>)
                return fact.pool;
            else
                return fact.segment.pool;
        },
        record);
    return wire::id_epoch(pool) == epoch;
}

}  // namespace

Daemon::Daemon(Setup setup, Arguments arguments)
    : setup_(std::move(setup)),
      arguments_(std::move(arguments)),
      notifier_(Notifier::from_environment()),
      fdstore_(notifier_, fdstore_available(notifier_)) {
    journal_.set_level(static_cast<int>(setup_.config.log_level));
}

Daemon::~Daemon() = default;

int Daemon::run() {
    if (auto started = start(); !started) {
        journal_.log(3, "marud does not start: " + describe(started.error()));
        notifier_.send("STATUS=" + describe(started.error()) +
                       "\nERRNO=" + std::to_string(started.error().code));
        return 1;
    }
    int status = loop();
    listener_.reset();
    metrics_.reset();
    exporter_.reset();
    watchdog_.reset();
    notifier_.flush();
    bool reaped = host_->stop_reaper(200);
    journal_.log(6, "marud stopped", {{"MESSAGE_ID", message_id::kStopping}});
    // A reaper thread that a client's descriptor holds would outlive everything it might touch.
    if (!reaped)
        ::_exit(status);
    return status;
}

// ---- start -------------------------------------------------------------------------------------

Result<void> Daemon::start() {
    ::signal(SIGPIPE, SIG_IGN);
    raise_descriptor_limit();
    PassedDescriptors passed = take_passed_descriptors();
    sd_event *loop = nullptr;
    if (int r = sd_event_new(&loop); r < 0)
        return Error{-r, "make the event loop"};
    loop_.reset(loop);
    // Before the first thread, so that none of them takes a signal.
    if (auto added = add_signals(); !added)
        return added;
    // Others must be able to reach the socket; what is ours alone inside is 0600 and 0700.
    if (auto made = make_directory(setup_.runtime_directory, 0755); !made)
        return made;
    auto lock = InstanceLock::take(setup_.runtime_directory, kLockWaitMs);
    if (!lock)
        return lock.error();
    lock_.emplace(std::move(*lock));
    for (const std::string &name : passed.refused) {
        journal_.log(5, "a descriptor from the service manager is of no use: '" + name + "'");
        fdstore_.remove(name);
    }
    if (auto group = add_admin_group(); !group)
        return group;
    if (auto restored = restore(std::move(passed.stored)); !restored)
        return restored;
    if (auto listening = listen(std::move(passed.listeners)); !listening)
        return listening;
    watchdog_ =
        std::make_unique<Watchdog>(loop_.get(), notifier_, Watchdog::usec_from_environment());
    if (auto watched = watchdog_->start(); !watched)
        return watched;
    serve_metrics();
    sd_event_source *source = nullptr;
    if (int r = sd_event_add_defer(loop_.get(), &source, on_ready, this); r < 0)
        return Error{-r, "add an event"};
    ready_.reset(source);
    return {};
}

Result<void> Daemon::add_admin_group() {
    auto group = find_group(setup_.config.admin_group);
    if (!group)
        return group.error();
    options_.admin = {static_cast<uint32_t>(::geteuid()), *group};
    options_.connections_per_uid = static_cast<uint32_t>(setup_.config.connections_per_uid);
    options_.max_in_flight = static_cast<uint32_t>(setup_.config.in_flight);
    options_.spin_us = static_cast<uint32_t>(setup_.config.spin_us);
    options_.pulse = std::min<TimeNs>(kSecond, static_cast<TimeNs>(setup_.config.timeout_ns) / 4);
    return {};
}

void Daemon::tick_progress() {
    pause_point(kPauseAtRecord);
    int64_t now = monotonic_ns();
    if (now - last_progress_ < kSecond)
        return;
    last_progress_ = now;
    // Only called when a step was done: no keep-alive comes from a start that is stuck.
    notifier_.send("EXTEND_TIMEOUT_USEC=10000000\nWATCHDOG=1");
}

Result<void> Daemon::restore(std::map<std::string, UniqueFd> stored) {
    auto store = SessionStore::open(setup_.runtime_directory, read_boot_id());
    if (!store)
        return store.error();
    for (const auto &[name, fd] : stored)
        fdstore_.found(name);
    auto read = store->load([this] { tick_progress(); });
    if (!read)
        return read.error();
    SessionStore::Loaded &loaded = *read;
    for (const std::string &problem : loaded.problems)
        journal_.log(3, problem, {{"MESSAGE_ID", message_id::kBadRecord}});
    ObjectStore objects(setup_.runtime_directory + "/sessions", read_boot_id());
    ObjectStore::Loaded shared = objects.load();
    if (!shared.problem.empty())
        journal_.log(3, shared.problem, {{"MESSAGE_ID", message_id::kBadRecord}});
    auto used = [this](const auto &record) { return uses_epoch(record, epoch_); };
    do {
        epoch_ = random_epoch();
    } while (std::any_of(loaded.records.begin(), loaded.records.end(), used) ||
             std::any_of(shared.records.begin(), shared.records.end(), used));
    host_ = std::make_unique<Host>(loop_.get(), journal_, fdstore_, std::move(*store),
                                   std::move(objects), options_, [this] { reload(); });
    ServiceConfig config = make_service_config(setup_.config);
    config.epoch = epoch_;
    config.hash_seed = random_nonce();
    config.make_blocks_ahead = true;
    config.fdstore = fdstore_.enabled();
    config.fdstore_name = fdstore_.enabled() ? "systemd" : "none";
    service_ = std::make_unique<Service>(config, *host_, boottime_ns());
    if (auto started = host_->start(*service_); !started)
        return started;
    if (auto restored = host_->restore(loaded.records, shared.records, !loaded.problems.empty(),
                                       std::move(stored), [this] { tick_progress(); });
        !restored)
        return restored;
    if (!loaded.records.empty())
        journal_.log(
            5, std::to_string(loaded.records.size()) + " sessions of an earlier marud are kept");
    return {};
}

Result<void> Daemon::listen(std::vector<UniqueFd> passed) {
    UniqueFd socket;
    std::string own_path;
    if (!passed.empty()) {
        socket = std::move(passed[0]);
        if (passed.size() > 1)
            journal_.log(4, "the service manager passed " + std::to_string(passed.size()) +
                                " sockets; marud serves the first");
    } else {
        std::string directory = setup_.socket.substr(0, setup_.socket.rfind('/'));
        if (auto made = make_directory(directory, 0755); !directory.empty() && !made)
            return made;
        auto bound =
            wire::listen_seqpacket(setup_.socket, static_cast<unsigned>(setup_.config.socket_mode));
        if (!bound)
            return bound.error();
        socket = std::move(*bound);
        own_path = setup_.socket;
    }
    Listener::Callbacks callbacks;
    callbacks.accepted = [this](UniqueFd client) { host_->accept_client(std::move(client)); };
    callbacks.refused = [this](UniqueFd client) { host_->refuse_client(std::move(client)); };
    callbacks.out_of_descriptors = [this](const Error &why) { say_out_of_descriptors(why); };
    listener_ =
        std::make_unique<Listener>(loop_.get(), std::move(socket), own_path, std::move(callbacks));
    return listener_->start();
}

void Daemon::say_out_of_descriptors(const Error &why) {
    int64_t now = monotonic_ns();
    if (last_out_of_descriptors_ == 0 || now - last_out_of_descriptors_ > 10 * kSecond)
        journal_.log(3, describe(why) + "; clients wait or are turned away",
                     {{"MESSAGE_ID", message_id::kNoDescriptors}});
    last_out_of_descriptors_ = now;
}

// A cache without metrics is better than no cache: what goes wrong here is said, and marud serves.
void Daemon::serve_metrics() {
    exporter_ = std::make_unique<Exporter>(*service_, *host_, notifier_, *watchdog_, MARU_VERSION);
    metrics_ = std::make_unique<MetricsServer>(
        loop_.get(), *exporter_,
        [this](uint32_t uid, UniqueFd fd) { host_->reaper().close(uid, std::move(fd)); },
        [this](const Error &why) { say_out_of_descriptors(why); });
    auto serve = [this](metrics::Source source, Result<UniqueFd> socket, const std::string &path) {
        Result<void> served =
            socket ? metrics_->listen(source, std::move(*socket), path) : socket.error();
        if (!served)
            journal_.log(3, "metrics are not served there: " + describe(served.error()),
                         {{"MESSAGE_ID", message_id::kNoMetrics}});
    };
    if (const std::string &path = setup_.metrics_socket; !path.empty())
        serve(metrics::Source::Unix,
              wire::listen_stream(path, static_cast<unsigned>(setup_.config.socket_mode)), path);
    if (const std::string &address = setup_.config.metrics_tcp; !address.empty())
        serve(metrics::Source::Tcp, listen_loopback(address), "");
}

Result<void> Daemon::add_signals() {
    sigset_t set;
    sigemptyset(&set);
    for (int signal : {SIGTERM, SIGINT, SIGHUP})
        sigaddset(&set, signal);
    ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
    for (int signal : {SIGTERM, SIGINT, SIGHUP}) {
        sd_event_source *source = nullptr;
        if (int r = sd_event_add_signal(loop_.get(), &source, signal, on_signal, this); r < 0)
            return Error{-r, "watch signal " + std::to_string(signal)};
        signals_.emplace_back(source);
    }
    return {};
}

// ---- the loop ----------------------------------------------------------------------------------

int Daemon::loop() {
    sd_event *loop = loop_.get();
    while (sd_event_get_state(loop) != SD_EVENT_FINISHED) {
        // Everything that waits already, then a while for what is about to come, then sleep.
        const bool spins = options_.spin_us > 0;
        int r = turn(spins ? 0 : -1);
        if (r == 0 && spins) {
            host_->spin();
            r = turn(-1);
        }
        if (r < 0) {
            journal_.log(3, describe(Error{-r, "the event loop failed"}));
            return 1;
        }
    }
    int status = 0;
    sd_event_get_exit_code(loop, &status);
    return status;
}

// 0: nothing was due.
int Daemon::turn(int timeout_ms) {
    const int r = host_->turn(timeout_ms);
    if (r <= 0)
        return r;
    pause_point(kPauseInLoop);
    watch_notifier();
    return r;
}

int Daemon::on_ready(sd_event_source *, void *userdata) {
    auto &self = *static_cast<Daemon *>(userdata);
    const Config &config = self.setup_.config;
    self.notifier_.send("READY=1\nSTATUS=Serving");
    self.journal_.log(
        5,
        "marud " MARU_VERSION " serves on '" + self.setup_.socket + "', epoch " +
            std::to_string(self.epoch_) + ", CPU pools up to " +
            std::to_string(config.host_bytes >> 20) + " MiB, records in '" +
            self.setup_.runtime_directory +
            "', fd store: " + (self.fdstore_.enabled() ? "systemd" : "none"),
        {{"MESSAGE_ID", message_id::kStarted}, {"MARU_EPOCH", std::to_string(self.epoch_)}});
    return 0;
}

// After every turn of the loop: notifications that could not leave wait for the manager.
void Daemon::watch_notifier() {
    if (notifier_.pending() == static_cast<bool>(notify_source_))
        return;
    if (!notifier_.pending())
        return notify_source_.reset();
    sd_event_source *source = nullptr;
    if (sd_event_add_io(loop_.get(), &source, notifier_.fd(), EPOLLOUT, on_notifier, this) >= 0)
        notify_source_.reset(source);
}

int Daemon::on_notifier(sd_event_source *, int, uint32_t, void *userdata) {
    static_cast<Daemon *>(userdata)->notifier_.flush();
    return 0;
}

int Daemon::on_signal(sd_event_source *, const signalfd_siginfo *info, void *userdata) {
    auto &self = *static_cast<Daemon *>(userdata);
    if (info->ssi_signo == SIGHUP)
        self.reload();
    else
        self.begin_shutdown(static_cast<int>(info->ssi_signo));
    return 0;
}

void Daemon::reload() {
    if (stopping_)
        return;
    notifier_.send("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(monotonic_ns() / 1000));
    SetupErrors errors;
    Setup fresh = make_setup(arguments_, errors);
    auto group = find_group(fresh.config.admin_group);
    if (errors.lines.empty() && !group)
        errors.lines.push_back(group.error().message);
    if (!errors.lines.empty()) {
        for (const std::string &line : errors.lines)
            journal_.log(3, line, {{"MESSAGE_ID", message_id::kBadConfig}});
        journal_.log(3, "configuration not reloaded; the settings of before are kept");
        ++host_->tally().reloads[1];
    } else {
        for (const std::string &name : reload_config(setup_.config, fresh.config))
            journal_.log(4, name + " has changed, and takes effect when marud is restarted");
        journal_.set_level(static_cast<int>(setup_.config.log_level));
        auto added = add_admin_group();
        if (!added)
            journal_.log(3, describe(added.error()));
        host_->set_options(options_);
        ServiceConfig config = make_service_config(setup_.config);
        config.epoch = epoch_;
        config.fdstore = fdstore_.enabled();
        config.fdstore_name = fdstore_.enabled() ? "systemd" : "none";
        service_->reconfigure(config);
        ++host_->tally().reloads[0];
        journal_.log(5, "configuration reloaded", {{"MESSAGE_ID", message_id::kReloaded}});
    }
    notifier_.send("READY=1");
}

void Daemon::begin_shutdown(int signal) {
    if (stopping_) {  // asked twice: now
        sd_event_exit(loop_.get(), 0);
        return;
    }
    stopping_ = true;
    notifier_.send("STOPPING=1");
    journal_.log(5, std::string("marud stops: ") + (signal == SIGTERM ? "SIGTERM" : "SIGINT"),
                 {{"MESSAGE_ID", message_id::kStopping}});
    listener_->stop();
    metrics_->stop();
    host_->shutdown(boottime_ns() + kFlushTime, [this] {
        sd_event_exit(loop_.get(), 0);
        host_->loop_touched();
    });
}

}  // namespace maru
