// Watchdog: tells the service manager that the loop turns, by turning it.
//
// The ping is an event of the loop like a client's request, at the same priority, so it stops as
// soon as requests are no longer handled; no other thread ever sends it.
#pragma once

#include "daemon/event/event_source.h"
#include "daemon/event/notify.h"
#include "libmaru/base/result.h"

namespace maru {

class Watchdog {
  public:
    // `usec`: of $WATCHDOG_USEC, 0 when the manager does not watch us.
    Watchdog(sd_event *loop, Notifier &notifier, uint64_t usec)
        : loop_(loop), notifier_(notifier), period_usec_(usec / 3) {}
    Result<void> start();
    uint64_t pings() const { return pings_; }
    static uint64_t usec_from_environment();  // for our pid; the variables are unset

  private:
    static int on_time(sd_event_source *source, uint64_t usec, void *userdata);

    sd_event *loop_;
    Notifier &notifier_;  // both owned by Daemon, outlive this
    uint64_t period_usec_;
    uint64_t pings_ = 0;
    EventSource timer_;
};

}  // namespace maru
