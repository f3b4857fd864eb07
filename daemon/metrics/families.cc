#include "daemon/metrics/families.h"

#include "libmaru/wire/codec.h"

namespace maru::metrics {
namespace {

const uint64_t kOne = 1;

template <size_t N>
std::vector<Series> by_name(const char *const (&names)[N], const std::array<uint64_t, N> &numbers) {
    std::vector<Series> series;
    for (size_t i = 0; i < N; ++i)
        series.push_back({{names[i]}, &numbers[i]});
    return series;
}

// "ALREADY_PRESENT" as a label value.
std::string status_label(wire::Status status) {
    std::string text = wire::status_name(status);
    for (char &c : text)
        if (c >= 'A' && c <= 'Z')
            c = static_cast<char>(c + 32);
    return text;
}

template <typename Counts>
std::vector<Series> by_status(const Counts &counts) {
    std::vector<Series> series;
    for (size_t i = 0; i < Counts::kStatuses.size(); ++i)
        series.push_back({{status_label(Counts::kStatuses[i])}, counts.listed(i)});
    series.push_back({{"other"}, counts.others()});
    return series;
}

Family counter(std::string name, std::string help, std::vector<std::string> labels = {}) {
    return {std::move(name), Type::Counter, Unit::None, std::move(help), std::move(labels)};
}
Family gauge(std::string name, std::string help, std::vector<std::string> labels = {}) {
    return {std::move(name), Type::Gauge, Unit::None, std::move(help), std::move(labels)};
}
Family in(Unit unit, Family family) {
    family.unit = unit;
    return family;
}
Family histogram(std::string name, std::string help, std::vector<std::string> labels = {}) {
    return {std::move(name), Type::Histogram, Unit::Seconds, std::move(help), std::move(labels)};
}

// ---- health ------------------------------------------------------------------------------------

void add_health(Registry &registry, const Numbers &n, const std::string &version) {
    registry.add({"maru_build_info",
                  Type::Info,
                  Unit::None,
                  "Always 1; the label says which version of marud this is.",
                  {"version"}},
                 {Series{{version}, &kOne}});
    registry.add(gauge("maru_draining", "1 while marud admits nothing new, else 0."),
                 &n.gauges.draining);
    registry.add(histogram("maru_loop_turn_seconds",
                           "Time of one turn of the event loop outside of its poll. Everybody "
                           "waits for it; above 5 ms something is wrong."),
                 {HistogramSeries{{}, n.host.turns.view()}});
    registry.add(counter("maru_stalls_total",
                         "Times that marud did not run at all for a while (stopped, suspended or "
                         "starved) and gave every session its full time-out again."),
                 &n.host.stalls);
    registry.add(
        in(Unit::Seconds, counter("maru_stalled_seconds_total", "Time that these stalls lasted.")),
        &n.host.stalled_ns);
    registry.add(counter("maru_watchdog_pings_total", "Pings to the service manager's watchdog."),
                 &n.host.watchdog_pings);
    registry.add(counter("maru_config_reloads_total",
                         "Reloads of the configuration: taken, or refused and the old one kept.",
                         {"result"}),
                 {Series{{"ok"}, &n.host.reloads[0]}, Series{{"failed"}, &n.host.reloads[1]}});
    registry.add(counter("maru_journal_dropped_total",
                         "Log lines that could not be written when they were due."),
                 &n.host_gauges.journal_dropped);
    registry.add(counter("maru_journal_suppressed_total",
                         "Log lines about clients left out because there were too many of them."),
                 &n.host.log_suppressed);
    registry.add(counter("maru_notifications_dropped_total",
                         "Messages that the service manager did not take in time."),
                 &n.host_gauges.notifications_dropped);
    registry.add(gauge("maru_fdstore_entries",
                       "Descriptors that the service manager keeps for the next life of marud."),
                 &n.host_gauges.fdstore_entries);
    registry.add(
        gauge("maru_reaper_queued_jobs", "Closes and proofs that wait for a thread of the reaper."),
        &n.host_gauges.reaper_queued);
    registry.add(gauge("maru_reaper_running_jobs", "Closes and proofs under way, stuck or not."),
                 &n.host_gauges.reaper_running);
    registry.add(gauge("maru_reaper_threads", "Threads of the reaper."),
                 &n.host_gauges.reaper_threads);
    registry.add(counter("maru_reaper_jobs_total", "Closes and proofs that have ended."),
                 &n.host_gauges.reaper_jobs);
    registry.add(in(Unit::Seconds,
                    gauge("maru_reaper_longest_job_seconds",
                          "The longest that a close or a proof took since marud started, one that "
                          "still runs included.")),
                 &n.host_gauges.reaper_longest_ns);
    std::vector<Series> scrapes;
    for (size_t source = 0; source < std::size(kSourceNames); ++source)
        for (size_t result = 0; result < std::size(kScrapeNames); ++result)
            scrapes.push_back(
                {{kSourceNames[source], kScrapeNames[result]}, &n.scrapes.scrapes[source][result]});
    registry.add(counter("maru_scrapes_total",
                         "Connections to the metrics socket by their end: answered with metrics "
                         "(ok), with an error (refused), or cut off without an answer (dropped).",
                         {"socket", "result"}),
                 scrapes);
    registry.add(gauge("maru_scrape_connections", "Connections to the metrics sockets now."),
                 &n.scrapes.connections);
}

// ---- sessions and requests ---------------------------------------------------------------------

void add_sessions(Registry &registry, const Numbers &n) {
    constexpr const char *kRoles[] = {"worker", "scheduler"};
    std::vector<Series> sessions;
    for (size_t role = 0; role < std::size(kRoles); ++role)
        for (SessionState state :
             {SessionState::Attached, SessionState::Silent, SessionState::Detached,
              SessionState::Attaching, SessionState::Recorded, SessionState::Fenced,
              SessionState::Exiting})
            sessions.push_back({{kRoles[role], session_state_name(state)},
                                &n.gauges.sessions[role][static_cast<size_t>(state)]});
    registry.add(
        gauge("maru_sessions", "Sessions now. Only what belongs to an attached one is found.",
              {"role", "state"}),
        sessions);
    registry.add(counter("maru_sessions_opened_total", "Sessions opened.", {"role"}),
                 by_name(kRoles, n.service.sessions_opened));
    registry.add(counter("maru_sessions_restored_total",
                         "Sessions of an earlier life of marud, taken over from their records."),
                 &n.service.sessions_restored);
    registry.add(counter("maru_sessions_ended_total",
                         "Sessions ended: closed by their client; exited or fenced, and proven to "
                         "have nothing mapped any more; or forgotten, after a time-out away with "
                         "nothing to come back for.",
                         {"how"}),
                 by_name(kSessionEndNames, n.service.sessions_ended));
    std::vector<Series> events;
    for (size_t i = 1; i < kSessionEvents; ++i)  // a request by itself is no news
        events.push_back({{kSessionEventNames[i]}, &n.service.session_events[i]});
    registry.add(counter("maru_session_events_total",
                         "Changes of a session's state by what caused them. timeout hides the "
                         "session's objects until it is heard again.",
                         {"event"}),
                 events);
    registry.add(
        counter("maru_session_reattaches_total",
                "Sessions taken back by their client: after a lost connection (same), or "
                "after a restart of marud (later).",
                {"life"}),
        {Series{{"same"}, &n.service.reattaches[0]}, Series{{"later"}, &n.service.reattaches[1]}});

    registry.add(gauge("maru_connections", "Connections of clients now."),
                 &n.host_gauges.connections);
    registry.add(counter("maru_connections_opened_total", "Connections of clients accepted."),
                 &n.host.connections_opened);
    registry.add(counter("maru_connections_refused_total",
                         "Connections closed as soon as they were accepted: the user has too many "
                         "(uid_limit), too many of the user's closes are stuck (closes_pending), "
                         "or marud has no descriptor or cannot tell who it is (other).",
                         {"reason"}),
                 by_name(kRefusedNames, n.host.connections_refused));
    registry.add(counter("maru_connections_closed_total",
                         "Connections ended: by the client (peer), because it asks and does not "
                         "read (not_reading), sends what is no message (malformed), is not who it "
                         "was (sender), or because its session or process ended (service).",
                         {"reason"}),
                 by_name(kClosedNames, n.host.connections_closed));
    registry.add(in(Unit::Bytes, gauge("maru_send_queue_bytes",
                                       "Replies and events that clients have not taken yet.")),
                 &n.host_gauges.send_queue_bytes);
    registry.add(in(Unit::Bytes, gauge("maru_send_queue_high_water_bytes",
                                       "The most that ever waited for any one client.")),
                 &n.host.send_queue_high_water);

    std::vector<Series> requests, refusals;
    for (size_t kind = 0; kind < kRequestKinds; ++kind)
        for (size_t result = 0; result < kOutcomes; ++result)
            requests.push_back(
                {{kind == kMalformedRequest ? "malformed" : wire::request_kind_name(kind),
                  kOutcomeNames[result]},
                 &n.service.requests[kind][result]});
    registry.add(counter("maru_requests_total",
                         "Requests by kind and what became of them: ok, busy (not now), exhausted "
                         "(a limit), denied, stale (a name of an earlier life or generation), "
                         "invalid, failed (marud's fault), dropped (the connection went first). "
                         "The items of a batch have counters of their own.",
                         {"request", "result"}),
                 requests);
    for (size_t i = 1; i < kStatuses; ++i)
        refusals.push_back({{status_label(static_cast<wire::Status>(i))}, &n.service.refusals[i]});
    registry.add(counter("maru_refusals_total", "Refused requests by the status they were told.",
                         {"status"}),
                 refusals);
    std::vector<HistogramSeries> times;
    for (size_t i = 0; i < kRequestClasses; ++i)
        times.push_back({{kRequestClassNames[i]}, n.host.handling[i].view()});
    registry.add(histogram("maru_request_seconds",
                           "Time to handle one received packet, by the family of its request; "
                           "without the wake-up and the answers that come later.",
                           {"family"}),
                 times);
}

// ---- objects -----------------------------------------------------------------------------------

void add_objects(Registry &registry, const Numbers &n) {
    registry.add(gauge("maru_objects", "Objects that have a replica."), &n.gauges.objects);
    registry.add(gauge("maru_replicas", "Replicas of objects, retiring ones included."),
                 &n.gauges.replicas);
    registry.add(gauge("maru_leases", "Leases: reads that are protected now."), &n.gauges.leases);
    registry.add(gauge("maru_namespaces", "Namespaces registered since marud started."),
                 &n.gauges.namespaces);
    registry.add(gauge("maru_pools",
                       "Pools by state. Those of a worker that is gone are orphaned until proven "
                       "unmapped.",
                       {"state"}),
                 by_name(kPoolStateNames, n.gauges.pools));

    registry.add(counter("maru_commits_total",
                         "Commits of one object each, by result. A retry counts once.", {"result"}),
                 by_status(n.service.commits));
    registry.add(counter("maru_commit_retries_total",
                         "Commits that were answered before and got the same answer again."),
                 &n.service.commit_retries);
    registry.add(in(Unit::Bytes, counter("maru_committed_bytes_total", "Bytes of new objects.")),
                 &n.service.committed_bytes);
    registry.add(counter("maru_probe_keys_total", "Keys asked about by probes."),
                 &n.service.probe_keys);
    registry.add(counter("maru_probe_hits_total", "Probed keys that the worker could read."),
                 &n.service.probe_hits);
    registry.add(counter("maru_probe_prefix_keys_total",
                         "Probed keys that could be read with all keys before them: what an engine "
                         "does not have to compute."),
                 &n.service.probe_prefix_keys);
    registry.add(counter("maru_probes_without_worker_total",
                         "Probes of a scheduler whose engine has no attached worker."),
                 &n.service.probes_without_worker);
    registry.add(counter("maru_acquires_total",
                         "Objects asked for by acquire: leased (ok), not readable by this worker, "
                         "behind the first miss or incomplete (miss), or beyond the session's "
                         "leases (quota).",
                         {"result"}),
                 by_status(n.service.acquires));
    registry.add(in(Unit::Bytes, counter("maru_acquired_bytes_total",
                                         "Bytes of objects leased: served from the cache.")),
                 &n.service.acquired_bytes);
    registry.add(counter("maru_releases_total", "Leases given back, by result.", {"result"}),
                 by_status(n.service.releases));
    registry.add(counter("maru_retires_total",
                         "Retirements asked by owners, by result; pending ones have readers left.",
                         {"result"}),
                 by_status(n.service.retires));
    registry.add(counter("maru_admin_retires_total", "Replicas retired with maructl."),
                 &n.service.admin_retired);
    registry.add(
        counter("maru_reclaims_total",
                "Acknowledgements that a retired replica's pages are free, by result.", {"result"}),
        by_status(n.service.reclaims));
    registry.add(counter("maru_republished_total",
                         "Replicas told again after a restart of marud, by result.", {"result"}),
                 by_status(n.service.republished));
}

// ---- capacity ----------------------------------------------------------------------------------

void add_capacity(Registry &registry, const Numbers &n) {
    struct Named {
        const char *name;
        uint64_t wire::Usage::*bytes;
        const char *help;
    };
    constexpr Named kUsage[] = {
        {"maru_capacity_bytes", &wire::Usage::capacity_bytes, "Capacity of all pools."},
        {"maru_reserved_bytes", &wire::Usage::reserved_bytes,
         "Backing reserved for pools, rounding included; and what is left unproven of pools that "
         "are gone."},
        {"maru_allocated_bytes", &wire::Usage::allocated_bytes, "Pages handed out by workers."},
        {"maru_ready_bytes", &wire::Usage::ready_bytes, "Logical bytes of readable replicas."},
        {"maru_ready_allocated_bytes", &wire::Usage::ready_allocated_bytes,
         "Pages of readable replicas; part of allocated."},
        {"maru_quarantined_bytes", &wire::Usage::quarantined_bytes,
         "Bytes whose fate is unknown: not reused until it is settled."},
        {"maru_pinned_bytes", &wire::Usage::pinned_bytes, "Bytes registered with CUDA."},
        {"maru_retiring_bytes", &wire::Usage::retiring_bytes,
         "Pages of retired replicas that are not reclaimed yet; part of allocated."},
        {"maru_populated_bytes", &wire::Usage::populated_bytes, "Bytes that memory stands behind."},
    };
    for (const Named &one : kUsage) {
        std::vector<Series> series;
        for (size_t i = 0; i < std::size(kPlacements); ++i)
            series.push_back(
                {{kPlacements[i].medium_name, kPlacements[i].tier_name, kPlacements[i].scope_name},
                 &(n.gauges.usage[i].*one.bytes)});
        registry.add(in(Unit::Bytes, gauge(one.name, one.help, {"medium", "tier", "scope"})),
                     series);
    }
    registry.add(
        in(Unit::Bytes, gauge("maru_charged_bytes", "CPU bytes charged to anybody, on this host.")),
        &n.gauges.charged_bytes);
    registry.add(
        in(Unit::Bytes, gauge("maru_charge_limit_bytes", "What may be charged: cpu.host_bytes.")),
        &n.gauges.limit_bytes);
    registry.add(in(Unit::Bytes,
                    gauge("maru_unproven_bytes",
                          "Charged, and their worker is gone: freed by the proof that nothing is "
                          "mapped or pinned any more.")),
                 &n.gauges.unproven_bytes);
    registry.add(counter("maru_proof_attempts_total",
                         "Times that the kernel was asked to prove a segment unmapped."),
                 &n.service.proof_attempts);
    registry.add(counter("maru_proofs_total",
                         "Answers: proven; still mapped or pinned, to be asked again; or refused "
                         "for good (F_SEAL_SEAL).",
                         {"outcome"}),
                 by_name(kProofNames, n.service.proofs));
    registry.add(histogram("maru_proof_seconds",
                           "Time from the end of a pool's use to its proof and the return of its "
                           "bytes."),
                 {HistogramSeries{{}, n.service.proof_time.view()}});
}

void add_process(Registry &registry, const Numbers &n) {
    const ProcessFacts &p = n.process;
    registry.add(in(Unit::Seconds, counter("process_cpu_seconds_total",
                                           "Processor time of marud, user and system.")),
                 &p.cpu_ns);
    registry.add(in(Unit::Bytes, gauge("process_resident_memory_bytes", "Resident memory.")),
                 &p.resident_bytes);
    registry.add(in(Unit::Bytes, gauge("process_virtual_memory_bytes", "Virtual memory.")),
                 &p.virtual_bytes);
    registry.add(gauge("process_open_fds", "Open descriptors."), &p.open_fds);
    registry.add(gauge("process_max_fds", "How many descriptors there may be."), &p.max_fds);
    registry.add(
        in(Unit::Seconds, gauge("process_start_time_seconds", "When marud started, in Unix time.")),
        &p.start_ns);
}

}  // namespace

void add_families(Registry &registry, const Numbers &numbers, const std::string &version) {
    add_health(registry, numbers, version);
    add_sessions(registry, numbers);
    add_objects(registry, numbers);
    add_capacity(registry, numbers);
    add_process(registry, numbers);
}

}  // namespace maru::metrics
