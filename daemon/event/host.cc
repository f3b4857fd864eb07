#include "daemon/event/host.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cassert>
#include <cerrno>

#include "libmaru/base/clock.h"

namespace maru {
namespace {

constexpr uint64_t kRetryUsec = 2'000;

uint64_t usec(TimeNs time) { return static_cast<uint64_t>(std::max<TimeNs>(time, 0)) / 1000; }

EventSource add_timer(sd_event *loop, sd_event_time_handler_t handler, void *userdata,
                      const char *name) {
    sd_event_source *source = nullptr;
    // An accuracy of 1 ms: the default of 250 ms would be a good part of a short time-out.
    if (sd_event_add_time(loop, &source, CLOCK_BOOTTIME, UINT64_MAX, 1000, handler, userdata) < 0)
        return nullptr;
    sd_event_source_set_enabled(source, SD_EVENT_OFF);
    sd_event_source_set_description(source, name);
    return EventSource(source);
}

}  // namespace

Host::Host(sd_event *loop, Journal &journal, FdStore &fdstore, SessionStore store,
           ObjectStore objects, HostOptions options, std::function<void()> on_reload)
    : loop_(loop),
      journal_(journal),
      fdstore_(fdstore),
      store_(std::move(store)),
      objects_(std::move(objects)),
      options_(options),
      on_reload_(std::move(on_reload)),
      poll_(loop),
      segments_(reaper_, fdstore_, *this),
      processes_(loop, [this](ProcessId64 process) { process_exited(process); }),
      frame_(wire::kMaxFrameBytes),
      now_(boottime_ns()),
      last_turn_(now_),
      log_refilled_(now_) {}

Host::~Host() {
    // Service may be gone already; sockets still go through the reaper.
    for (auto &[id, client] : connections_) {
        client->queue.clear(spent_);
        reaper_.close(client->peer.uid, std::move(client->socket));
    }
    close_fds(0, spent_);
}

Result<void> Host::start(Service &service) {
    service_ = &service;
    if (auto polls = poll_.start(); !polls)
        return polls;
    if (!reaper_.start())
        return Error{EAGAIN, "start the thread that closes descriptors"};
    timer_ = add_timer(loop_, on_timer, this, "deadline");
    pulse_ = add_timer(loop_, on_pulse, this, "pulse");
    retry_timer_ = add_timer(loop_, on_retry, this, "retry");
    sd_event_source *source = nullptr;
    int r = sd_event_add_io(loop_, &source, reaper_.event_fd(), EPOLLIN, on_reaper, this);
    if (r < 0 || !timer_ || !pulse_ || !retry_timer_)
        return Error{r < 0 ? -r : ENOMEM, "set up the event loop"};
    reaper_source_.reset(source);
    return {};
}

// ---- turns -------------------------------------------------------------------------------------

int Host::turn(int timeout_ms) {
    begin_charge();
    const auto next = poll_.next(timeout_ms);
    if (!next)
        return -next.error().code;
    if (next->found == ClientPoll::Found::Nothing)
        return 0;
    int r = 1;
    TimeNs begun = 0;
    if (next->found == ClientPoll::Found::Client) {
        serve_client(*next->client, next->events);
        begun = now_;
    } else {
        begun = boottime_ns();
        charge_anew_ = true;
        if (const int ran = poll_.run_others(); ran < 0)
            r = ran;
    }
    tally_.turns.observe(boottime_ns() - begun);
    return r;
}

void Host::arm(const EventSource &timer, uint64_t at_usec) {
    sd_event_source_set_time(timer.get(), at_usec);
    sd_event_source_set_enabled(timer.get(), SD_EVENT_ONESHOT);
    poll_.touched();
}

void Host::disarm(const EventSource &timer) {
    sd_event_source_set_enabled(timer.get(), SD_EVENT_OFF);
}

void Host::begin_turn() {
    now_ = clock_ = boottime_ns();
    acting_uid_ = 0;
    TimeNs gap = now_ - last_turn_;
    if (pulse_on_ && gap > 2 * options_.pulse) {
        service_->stalled(gap, now_);
        ++tally_.stalls;
        tally_.stalled_ns += static_cast<uint64_t>(gap);
        journal_.log(4,
                     "marud did not run for " + std::to_string(gap / 1'000'000) +
                         " ms; every session gets its full time-out from now",
                     {{"MESSAGE_ID", message_id::kStalled}});
    }
    last_turn_ = now_;
}

void Host::end_turn() {
    // Burying tells Service, which may wish for more closes.
    while (!dying_.empty()) {
        std::vector<ConnectionId> dead;
        dead.swap(dying_);
        for (ConnectionId id : dead)
            bury(id);
    }
    if (sweep_wanted_) {
        sweep_wanted_ = false;
        for (auto [pid, start] :
             processes_.sweep([this](ProcessId64 id) { return service_->watched(id); }))
            fdstore_.remove(pidfd_name(pid, start));
    }
    if (objects_.wants_begin())
        begin_object_record();
    else if (objects_.open() && !objects_.rewriting() && service_->end_object_records())
        say_objects(objects_.begin({}), false);
    if (objects_.rewriting())
        arm_retry();
    set_timers();
    if (reload_wanted_) {
        reload_wanted_ = false;
        on_reload_();
    }
    if (on_shutdown_) {
        bool sent = std::all_of(connections_.begin(), connections_.end(),
                                [](const auto &entry) { return entry.second->queue.empty(); });
        if (sent || now_ >= shutdown_deadline_)
            std::exchange(on_shutdown_, nullptr)();
    }
}

void Host::set_timers() {
    TimeNs deadline = std::min(service_->next_deadline(), shutdown_deadline_);
    for (ConnectionId id : closing_)
        if (const ClientSocket *client = find(id))
            deadline = std::min(deadline, client->close_deadline);
    if (deadline != timer_at_) {
        timer_at_ = deadline;
        if (deadline == INT64_MAX)
            disarm(timer_);
        else
            arm(timer_, usec(deadline) + 1);
    }
    bool pulse = !connections_.empty() || service_->next_deadline() != INT64_MAX ||
                 !unsaved_.empty() || objects_.failed() || processes_.unwatched();
    if (pulse != pulse_on_) {
        pulse_on_ = pulse;
        if (pulse)
            arm(pulse_, usec(now_ + options_.pulse));
        else
            disarm(pulse_);
    }
}

int Host::on_timer(sd_event_source *, uint64_t, void *userdata) {
    auto &self = *static_cast<Host *>(userdata);
    Turn turn(self);
    self.timer_at_ = INT64_MAX - 1;  // it has fired: set_timers() must arm it again
    for (ConnectionId id : self.closing_)
        if (ClientSocket *client = self.find(id); client && client->close_deadline <= self.now_)
            self.kill(*client, metrics::Closed::Service);
    self.service_->tick(self.now_);
    return 0;
}

int Host::on_pulse(sd_event_source *, uint64_t, void *userdata) {
    auto &self = *static_cast<Host *>(userdata);
    Turn turn(self);
    self.arm(self.pulse_, usec(self.now_ + self.options_.pulse));
    self.save_again();
    if (self.objects_.failed() && !self.objects_.rewriting())
        self.begin_object_record();
    self.processes_.watch_again();
    self.forgive();
    return 0;
}

int Host::on_reaper(sd_event_source *, int, uint32_t, void *userdata) {
    auto &self = *static_cast<Host *>(userdata);
    Turn turn(self);
    self.reaper_.run_done();
    return 0;
}

int Host::on_retry(sd_event_source *, uint64_t, void *userdata) {
    auto &self = *static_cast<Host *>(userdata);
    Turn turn(self);
    self.retry_on_ = false;
    if (self.objects_.rewriting())
        self.rewrite_objects();
    std::vector<ConnectionId> again;
    again.swap(self.retries_);
    for (ConnectionId id : again) {
        ClientSocket *client = self.find(id);
        if (!client)
            continue;
        client->retry = false;
        if (client->stage == ClientSocket::Stage::Dead)
            continue;
        if (!client->queue.empty())
            self.after_send(*client, client->queue.flush(client->socket.get(), self.spent_));
        else
            self.update_interest(*client);
    }
    return 0;
}

void Host::want_retry(ClientSocket &client) {
    if (client.retry)
        return;
    client.retry = true;
    retries_.push_back(client.id);
    arm_retry();
}

void Host::arm_retry() {
    if (std::exchange(retry_on_, true))
        return;
    arm(retry_timer_, usec(boottime_ns()) + kRetryUsec);
}

void Host::process_exited(ProcessId64 process) {
    Turn turn(*this);
    service_->process_exited(process, now_);
    sweep_wanted_ = true;
}

void Host::shutdown(TimeNs deadline, std::function<void()> on_done) {
    Turn turn(*this);
    shutdown_deadline_ = deadline;
    on_shutdown_ = std::move(on_done);
    service_->drain(true);
    service_->shutdown(now_);
}

void Host::measure(metrics::HostGauges &ret_gauges) const {
    ret_gauges.connections = connections_.size();
    ret_gauges.send_queue_bytes = 0;
    for (const auto &[id, client] : connections_)
        ret_gauges.send_queue_bytes += client->queue.bytes();
    const Reaper::Load load = reaper_.load();
    ret_gauges.reaper_queued = load.queued;
    ret_gauges.reaper_running = load.running;
    ret_gauges.reaper_threads = load.threads;
    ret_gauges.reaper_jobs = load.ended;
    ret_gauges.reaper_longest_ns = load.longest_ns;
    ret_gauges.fdstore_entries = fdstore_.entries();
    ret_gauges.journal_dropped = journal_.dropped();
}

// ---- wishes of Service -------------------------------------------------------------------------

void Host::create_segment(SegmentRef segment, const SegmentSpec &spec) {
    segments_.create(segment, spec, acting_uid_);
}
void Host::seal_segment(SegmentRef segment) { segments_.seal(segment); }
void Host::prove_segment(SegmentRef segment) { segments_.prove(segment); }
void Host::drop_segment(SegmentRef segment) { segments_.drop(segment); }

void Host::segment_created(SegmentRef segment, const Result<Service::CreatedSegment> &result) {
    Turn turn(*this);
    service_->on_segment_created(segment, result, now_);
}
void Host::segment_sealed(SegmentRef segment, const Result<void> &result) {
    Turn turn(*this);
    service_->on_segment_sealed(segment, result, now_);
}
void Host::segment_proven(SegmentRef segment, Service::Proof proof) {
    Turn turn(*this);
    service_->on_segment_proven(segment, proof, now_);
}

Result<void> Host::save_session(const SessionRecord &record) {
    auto saved = store_.save(record);
    if (saved) {
        if (unsaved_.erase(record.session))
            log_record(5, "session record written again", record);
    } else {
        // Said once, not at each attempt.
        if (!unsaved_.contains(record.session))
            log_record(3, "session record not written: " + describe(saved.error()), record);
        unsaved_.insert_or_assign(record.session, record);
    }
    session_uids_[record.session] = record.uid;
    // One pidfd for all sessions of a process, under its own name.
    ProcessWatch::Process *process = processes_.find(record.pid, record.start_time);
    if (process && !process->stored && !process->ended && fdstore_.enabled()) {
        fdstore_.store(pidfd_name(record.pid, record.start_time), process->pidfd.get());
        process->stored = true;
    }
    return saved;
}

void Host::log_record(int priority, const std::string &message, const SessionRecord &record) {
    journal_.log(priority, message,
                 {{"MESSAGE_ID", message_id::kNoRecord},
                  {"MARU_SESSION", std::to_string(record.session)},
                  {"MARU_UID", std::to_string(record.uid)}});
}

void Host::save_again() {
    if (unsaved_.empty())
        return;
    std::erase_if(unsaved_, [this](const auto &entry) {
        if (!store_.save(entry.second))
            return false;
        log_record(5, "session record written again", entry.second);
        return true;
    });
}

void Host::remove_session(wire::Id session) {
    unsaved_.erase(session);
    store_.remove(session);
    session_uids_.erase(session);
    sweep_wanted_ = true;
}

void Host::record_objects(std::span<const ObjectRecord> records) {
    if (auto added = objects_.append(records); !added)
        journal_.log(3,
                     "shared memory is not recorded, a restart of marud will know none of it: " +
                         describe(added.error()),
                     {{"MESSAGE_ID", message_id::kNoRecord}});
}

void Host::begin_object_record() {
    objects_.begin_rewrite();
    rewritten_ = 0;
}

// Between two turns Service is not in the middle of anything, so its tables are the whole truth.
void Host::rewrite_objects() {
    const bool again = objects_.failed();
    auto written = objects_.rewrite(service_->object_records(rewritten_, kRewriteFacts));
    if (written && rewritten_ == 0)
        written = objects_.end_rewrite();
    if (!objects_.rewriting())
        say_objects(written, again);
}

// Once, not at each attempt.
void Host::say_objects(const Result<void> &written, bool again) {
    if (written && again)
        journal_.log(5, "the record of shared memory is written again",
                     {{"MESSAGE_ID", message_id::kNoRecord}});
    if (!written && !again)
        journal_.log(3,
                     "the record of shared memory is not begun anew: " + describe(written.error()),
                     {{"MESSAGE_ID", message_id::kNoRecord}});
}

void Host::reload() { reload_wanted_ = true; }

void Host::log(int priority, std::string_view message, wire::Id session) {
    if (session == 0) {
        journal_.log(priority, message);
        return;
    }
    auto uid = session_uids_.find(session);
    journal_.log(priority, message,
                 {{"MESSAGE_ID", message_id::kSession},
                  {"MARU_SESSION", std::to_string(session)},
                  {"MARU_UID", uid == session_uids_.end() ? "" : std::to_string(uid->second)}});
}

void Host::close_fds(uint32_t uid, std::vector<UniqueFd> &fds) {
    for (UniqueFd &fd : fds)
        reaper_.close(uid, std::move(fd));
    fds.clear();
}

// ---- start -------------------------------------------------------------------------------------

// Adopted segments first: the record of a worker that died may still name them.
void Host::restore_objects(std::span<const ObjectRecord> records, bool sessions_lost,
                           std::map<std::string, UniqueFd> &stored) {
    std::vector<SegmentRef> held;
    for (const RecordedAdoption &adopted : adoptions_in(records)) {
        auto found = stored.find(segment_fd_name(adopted.segment));
        if (found == stored.end())
            continue;
        AttachedDescriptor file = inspect_descriptor(found->second.get());
        if (file.identity != adopted.identity || file.bytes != adopted.bytes ||
            !sealed_against_writing(found->second.get()))
            continue;
        segments_.adopt(adopted.segment, std::move(found->second), adopted.uid, true);
        held.push_back(adopted.segment);
        stored.erase(found);
    }
    service_->restore_objects(records, held, now_, sessions_lost);
}

Result<void> Host::restore(const std::vector<SessionRecord> &records,
                           std::span<const ObjectRecord> objects, bool sessions_lost,
                           std::map<std::string, UniqueFd> stored,
                           const std::function<void()> &progress) {
    Turn turn(*this);
    restore_objects(objects, sessions_lost, stored);
    progress();
    for (const SessionRecord &record : records) {
        session_uids_[record.session] = record.uid;
        std::vector<SegmentRef> held;
        for (const SessionRecord::Pool &pool : record.pools) {
            for (uint32_t i = 0; i < pool.segments.size(); ++i) {
                SegmentRef ref{pool.pool, i};
                auto found = stored.find(segment_fd_name(ref));
                if (found == stored.end())
                    continue;
                // The store keeps what it was given, but a name may be older than the record.
                AttachedDescriptor file = inspect_descriptor(found->second.get());
                if (pool.segments[i].created && file.identity == pool.segments[i].identity) {
                    segments_.adopt(ref, std::move(found->second), record.uid, true);
                    held.push_back(ref);
                    stored.erase(found);
                }
            }
        }
        // The pidfd from the store is the process itself; a number must be compared.
        std::string name = pidfd_name(record.pid, record.start_time);
        UniqueFd pidfd;
        bool was_stored = false;
        if (auto found = stored.find(name); found != stored.end()) {
            pidfd = std::move(found->second);
            was_stored = true;
            stored.erase(found);
        } else if (record.pid != 0) {
            auto same = find_process(record.pid, record.start_time);
            if (!same)
                return same.error();
            pidfd = std::move(*same);
        }
        bool alive = pidfd && !process_ended(pidfd.get());
        ProcessId64 process = 0;
        if (pidfd) {
            ProcessWatch::Process &watched =
                processes_.add(std::move(pidfd), record.pid, record.start_time);
            watched.stored = watched.stored || was_stored;
            process = watched.id;
            // Sessions of one process share its pidfd, and only the first takes it from the store.
            alive = alive && !watched.ended;
        } else {
            process = processes_.add_ended();
        }
        service_->restore(record, held, process, alive, now_);
        progress();
    }
    service_->restored(now_);
    say_objects(objects_.begin(service_->object_records()), false);
    for (auto &[name, fd] : stored) {
        fdstore_.remove(name);
        reaper_.close(0, std::move(fd));
    }
    sweep_wanted_ = true;
    return {};
}

}  // namespace maru
