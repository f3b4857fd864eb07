// Exporter: brings the numbers of all parts of marud together for one scrape.
//
// Counters are read where they are counted; gauges are measured when the text is made. What only
// /proc knows is read by the reaper, because with many descriptors that takes milliseconds.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "daemon/event/host.h"
#include "daemon/event/notify.h"
#include "daemon/event/watchdog.h"
#include "daemon/metrics/families.h"

namespace maru {

class Exporter {
  public:
    // All of them outlive this.
    Exporter(const Service &service, Host &host, const Notifier &notifier, const Watchdog &watchdog,
             const std::string &version);
    Exporter(const Exporter &) = delete;
    Exporter &operator=(const Exporter &) = delete;

    // Reads /proc elsewhere; `on_done` runs on the loop. One at a time.
    void refresh(std::function<void()> on_done);
    // Of this moment; what /proc knows is of the last refresh.
    std::string render(metrics::Format format);
    metrics::ScrapeTally &scrapes() { return scrapes_; }
    const metrics::Registry &registry() const { return registry_; }

  private:
    const Service &service_;
    Host &host_;
    const Notifier &notifier_;
    const Watchdog &watchdog_;
    metrics::ServiceGauges gauges_;
    metrics::HostGauges host_gauges_;
    metrics::ScrapeTally scrapes_;
    metrics::ProcessFacts process_;
    metrics::Registry registry_;
    size_t last_bytes_ = 0;
};

}  // namespace maru
