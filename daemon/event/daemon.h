// Daemon: one life of marud, from the lock to the last packet.
//
// The order matters: the lock first, because two lives must not touch the same records; records
// before the listener, because what they charge must be charged before anybody can be granted
// anything; READY=1 from inside the loop, because only then a hello is answered.
#pragma once

#include "daemon/event/event_source.h"
#include "daemon/event/host.h"
#include "daemon/event/instance_lock.h"
#include "daemon/event/listener.h"
#include "daemon/event/metrics_server.h"
#include "daemon/event/setup.h"
#include "daemon/event/watchdog.h"

namespace maru {

class Daemon {
  public:
    Daemon(Setup setup, Arguments arguments);
    ~Daemon();
    int run();  // the exit status

  private:
    Result<void> start();
    Result<void> restore(std::map<std::string, UniqueFd> stored);
    Result<void> listen(std::vector<UniqueFd> passed);
    void serve_metrics();
    Result<void> add_signals();
    Result<void> add_admin_group();
    int loop();
    int turn(int timeout_ms);
    void say_out_of_descriptors(const Error &why);
    void reload();
    void begin_shutdown(int signal);
    void tick_progress();
    void watch_notifier();
    static int on_signal(sd_event_source *, const struct signalfd_siginfo *info, void *userdata);
    static int on_ready(sd_event_source *, void *userdata);
    static int on_notifier(sd_event_source *, int, uint32_t, void *userdata);

    Setup setup_;
    Arguments arguments_;  // a reload reads the same files
    Journal journal_;
    Notifier notifier_;
    FdStore fdstore_;
    HostOptions options_;
    uint32_t epoch_ = 0;
    EventLoop loop_;
    std::optional<InstanceLock> lock_;
    std::unique_ptr<Host> host_;
    std::unique_ptr<Service> service_;  // wishes of host_, so it goes before it
    std::unique_ptr<Listener> listener_;
    std::unique_ptr<Watchdog> watchdog_;
    std::unique_ptr<Exporter> exporter_;  // reads service_, host_ and watchdog_
    std::unique_ptr<MetricsServer> metrics_;
    EventSource ready_, notify_source_;
    std::vector<EventSource> signals_;
    int64_t last_progress_ = 0;
    int64_t last_out_of_descriptors_ = 0;
    bool stopping_ = false;
};

}  // namespace maru
