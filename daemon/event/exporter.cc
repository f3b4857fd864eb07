#include "daemon/event/exporter.h"

#include <time.h>

#include "daemon/metrics/process_facts.h"

namespace maru {
namespace {

// Jobs of marud itself wait behind no client's.
constexpr uint32_t kNobody = UINT32_MAX;

uint64_t unix_time_ns() {
    timespec now = {};
    ::clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<uint64_t>(now.tv_sec) * metrics::kS + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

Exporter::Exporter(const Service &service, Host &host, const Notifier &notifier,
                   const Watchdog &watchdog, const std::string &version)
    : service_(service), host_(host), notifier_(notifier), watchdog_(watchdog) {
    process_ = metrics::read_process_facts(process_);
    process_.start_ns = unix_time_ns();
    metrics::add_families(
        registry_, {service.tally(), gauges_, host.tally(), host_gauges_, scrapes_, process_},
        version);
}

void Exporter::refresh(std::function<void()> on_done) {
    host_.reaper().submit(kNobody,
                          [this, last = process_, on_done = std::move(on_done)]() -> Reaper::Done {
                              // On another thread: nothing of this object is touched here.
                              return [this, facts = metrics::read_process_facts(last), on_done] {
                                  process_ = facts;
                                  on_done();
                              };
                          });
}

std::string Exporter::render(metrics::Format format) {
    gauges_ = service_.gauges();
    host_.measure(host_gauges_);
    host_gauges_.notifications_dropped = notifier_.dropped();
    host_.tally().watchdog_pings = watchdog_.pings();
    std::string text;
    text.reserve(last_bytes_ + last_bytes_ / 16);
    registry_.render(format, &text);
    last_bytes_ = text.size();
    return text;
}

}  // namespace maru
