// Owned handles of sd_event. A source is disabled before it is dropped: no callback comes after.
#pragma once

#include <systemd/sd-event.h>

#include <memory>

namespace maru {

struct EventSourceDelete {
    void operator()(sd_event_source *source) const { sd_event_source_disable_unref(source); }
};
using EventSource = std::unique_ptr<sd_event_source, EventSourceDelete>;

struct EventDelete {
    void operator()(sd_event *event) const { sd_event_unref(event); }
};
using EventLoop = std::unique_ptr<sd_event, EventDelete>;

}  // namespace maru
