// Families: every metric that marud shows, with its name, unit, labels and meaning.
//
// maru-metrics(7) documents this list; a test compares the two with a live scrape. A label value is
// one of a fixed set that the code knows beforehand (an enum, a request's name): never a session,
// object, request, key, engine or user, so the number of series is the same after a million of them.
#pragma once

#include <string>

#include "daemon/metrics/registry.h"
#include "daemon/metrics/tally.h"

namespace maru::metrics {

// Where the numbers are; all of it outlives the registry.
struct Numbers {
    const ServiceTally &service;
    const ServiceGauges &gauges;
    const HostTally &host;
    const HostGauges &host_gauges;
    const ScrapeTally &scrapes;
    const ProcessFacts &process;
};

void add_families(Registry &registry, const Numbers &numbers, const std::string &version);

}  // namespace maru::metrics
