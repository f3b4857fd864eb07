#include "daemon/event/watchdog.h"

#include <systemd/sd-daemon.h>
#include <time.h>

namespace maru {

uint64_t Watchdog::usec_from_environment() {
    uint64_t usec = 0;
    return sd_watchdog_enabled(1, &usec) > 0 ? usec : 0;
}

Result<void> Watchdog::start() {
    if (period_usec_ == 0)
        return {};
    sd_event_source *source = nullptr;
    int r = sd_event_add_time_relative(loop_, &source, CLOCK_MONOTONIC, 0, 0, on_time, this);
    if (r < 0)
        return Error{-r, "add the watchdog's timer"};
    timer_.reset(source);
    sd_event_source_set_description(source, "watchdog");
    return {};
}

int Watchdog::on_time(sd_event_source *source, uint64_t, void *userdata) {
    auto *self = static_cast<Watchdog *>(userdata);
    self->notifier_.send("WATCHDOG=1");
    ++self->pings_;
    // Relative to now: after a stall one ping, not one for each that was missed.
    sd_event_source_set_time_relative(source, self->period_usec_);
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

}  // namespace maru
