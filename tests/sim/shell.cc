// World as marud's shell: Effects, the life and death of marud, and what the kernel answers.
//
// marud can die between any two effects of one call: what it had asked for by then has happened,
// the rest has not. Seals answer from the simulated mappings and pins, so a proof is never a guess.
#include <cassert>
#include <cstdarg>
#include <cstdio>

#include "tests/sim/truth.h"
#include "tests/sim/world.h"

namespace maru::sim {

void violated(Rule rule, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    throw Violation{rule, text};
}

bool World::effect() {
    if (effects_left_ == 0)
        return false;
    if (effects_left_ > 0)
        --effects_left_;
    return true;
}

void World::reply(ConnectionId to, const wire::Reply &reply, std::span<const SegmentRef> segments) {
    if (!effect())
        return;
    Link *link = find(to);
    if (link && link->shell_ended && !link->server_told)
        return;
    if (!link || !link->server_open)
        violated(Rule::OneReply, "reply %llu to connection %llu, which marud knows to be closed",
                 static_cast<unsigned long long>(reply.id), static_cast<unsigned long long>(to));
    auto asked = link->unanswered.begin();
    while (asked != link->unanswered.end() && asked->first != reply.id)
        ++asked;
    if (asked == link->unanswered.end()) {
        violated(Rule::OneReply,
                 "a reply to request %llu of connection %llu, which is not waiting for one",
                 static_cast<unsigned long long>(reply.id), static_cast<unsigned long long>(to));
    }
    Frame request_frame = std::move(asked->second);
    link->unanswered.erase(asked);

    const wire::Request *request = nullptr;
    if (handling_ == link && handled_ && handled_->id == reply.id)
        request = handled_;
    else if (request_frame.bytes)
        request = again_decoder_.request(request_frame.data());
    std::vector<Memfd *> fds;
    for (const SegmentRef &ref : segments) {
        Memfd *file = memfd(ref);
        if (!file || !file->with_daemon)
            violated(Rule::OwnerIsolation,
                     "a reply carries segment %llx/%u, which marud does not hold",
                     static_cast<unsigned long long>(ref.pool), ref.segment);
        fds.push_back(file);
    }
    if (request)
        truth_->on_reply(*link, *request, reply, fds);
    if (!link->client)
        return;
    auto encoded = encoder_.reply(reply);
    if (!encoded)
        violated(Rule::OneReply, "a reply does not encode: %s", encoded.error().message.c_str());
    Frame frame;
    frame.bytes = encoded->size();
    frame.words.resize((frame.bytes + 7) / 8);
    std::memcpy(frame.words.data(), encoded->data(), frame.bytes);
    for (Memfd *file : fds)
        ++file->in_flight;
    frame.fds = std::move(fds);
    link->down.push_back(std::move(frame));
}

void World::event(ConnectionId to, const wire::Event &event) {
    if (!effect())
        return;
    Link *link = find(to);
    if (link && link->shell_ended && !link->server_told)
        return;
    if (!link || !link->server_open)
        violated(Rule::OneReply, "event to connection %llu, which marud knows to be closed",
                 static_cast<unsigned long long>(to));
    truth_->on_event(*link, event);
    if (!link->client)
        return;
    auto encoded = encoder_.event(event);
    if (!encoded)
        violated(Rule::OneReply, "an event does not encode: %s", encoded.error().message.c_str());
    Frame frame;
    frame.bytes = encoded->size();
    frame.words.resize((frame.bytes + 7) / 8);
    std::memcpy(frame.words.data(), encoded->data(), frame.bytes);
    link->down.push_back(std::move(frame));
}

void World::close_connection(ConnectionId connection, std::string_view why) {
    if (!effect())
        return;
    Link *link = find(connection);
    if (!link || !link->server_open)
        return;
    trace_.add("c%llu closed by marud: %.*s", static_cast<unsigned long long>(connection),
               static_cast<int>(std::min<size_t>(why.size(), 100)), why.data());
    end_link(*link);
}

void World::end_link(Link &link) {
    link.server_open = false;
    for (Frame &frame : link.up)
        forget_frame(frame);
    link.up.clear();
    link.unanswered.clear();
    truth_->on_connection_closed(link);
}

void World::create_segment(SegmentRef segment, const SegmentSpec &spec) {
    if (!effect())
        return;
    auto file = std::make_unique<Memfd>();
    file->number = static_cast<uint32_t>(memfds_.size());
    file->ref = segment;
    file->bytes = spec.bytes;
    file->page_bytes = settings_.page_bytes;
    file->pages.resize((spec.bytes + file->page_bytes - 1) / file->page_bytes);
    jobs_.push_back({Job::Create, segment, file.get(), 0, now_ + random_.below(3'000'000)});
    memfds_.push_back(std::move(file));
}

void World::seal_segment(SegmentRef segment) {
    if (effect())
        jobs_.push_back({Job::Seal, segment, memfd(segment), 0, now_ + random_.below(3'000'000)});
}

void World::prove_segment(SegmentRef segment) {
    if (effect())
        jobs_.push_back({Job::Prove, segment, memfd(segment), random_.between(1, 3),
                         now_ + random_.below(5'000'000)});
}

void World::drop_segment(SegmentRef segment) {
    if (!effect())
        return;
    auto found = segments_.find(segment);
    if (found == segments_.end())
        return;
    trace_.add("segment %llx/%u dropped", static_cast<unsigned long long>(segment.pool),
               segment.segment);
    Memfd *file = found->second;
    file->with_daemon = file->in_store = false;
    segments_.erase(found);
    truth_->on_drop(*file);
}

Result<void> World::save_session(const SessionRecord &record) {
    if (!effect())
        return {};
    records_[record.session] = record;
    remember(record.session);
    for (const auto &pool : record.pools)
        remember(pool.pool);
    return {};
}

void World::remove_session(wire::Id session) {
    if (effect())
        records_.erase(session);
}

void World::record_objects(std::span<const ObjectRecord> records) {
    if (!effect())
        return;
    for (const ObjectRecord &fact : records) {
        object_records_.push_back(fact);
        if (fresh_cursor_)
            fresh_records_.push_back(fact);
        truth_->shared().recorded(fact);
    }
}

// Between two turns, as the shell does it: without a draw, so that it changes nothing else.
void World::rewrite_records() {
    if (!service_ || (fresh_cursor_ ? step_ % 3 : step_ % 101))
        return;
    for (ObjectRecord &fact : service_->object_records(fresh_cursor_, 2))
        fresh_records_.push_back(std::move(fact));
    if (fresh_cursor_)
        return;
    object_records_ = std::move(fresh_records_);
    fresh_records_.clear();
}

void World::log(int priority, std::string_view message, wire::Id session) {
    if (effects_left_ == 0)
        return;
    trace_.add("log %d s%llx: %.*s", priority, static_cast<unsigned long long>(session),
               static_cast<int>(std::min<size_t>(message.size(), 150)), message.data());
}

Memfd *World::memfd(SegmentRef ref) const {
    auto found = segments_.find(ref);
    return found == segments_.end() ? nullptr : found->second;
}

// ---- the life of marud -------------------------------------------------------------------------

void World::start_daemon() {
    do {
        epoch_ = static_cast<uint32_t>(random_.next());
    } while (epoch_ == 0 || std::find(epochs_.begin(), epochs_.end(), epoch_) != epochs_.end());
    epochs_.push_back(epoch_);
    trace_.add("marud starts, epoch %x, %zu records", epoch_, records_.size());
    effects_left_ = -1;
    truth_->on_daemon_start(epoch_);
    for (auto &file : memfds_) {
        file->with_daemon = file->in_store;
        bool recorded = false;
        for (const auto &[key, record] : records_)
            for (const auto &pool : record.pools)
                recorded |= pool.pool == file->ref.pool;
        for (const RecordedAdoption &adopted : adoptions_in(object_records_))
            recorded |= adopted.segment == file->ref;
        if (!recorded && file->in_store) {
            file->with_daemon = file->in_store = false;
            segments_.erase(file->ref);
        }
    }
    service_ = std::make_unique<Service>(settings_.service(epoch_), *this, now_);
    const auto records = records_;  // restore() may change them
    const auto objects = object_records_;
    std::vector<SegmentRef> kept;
    for (const RecordedAdoption &adopted : adoptions_in(objects))
        if (const Memfd *file = memfd(adopted.segment);
            file && file->with_daemon && file->write_sealed)
            kept.push_back(adopted.segment);
    service_->restore_objects(objects, kept, now_);
    died_inside();
    if (!service_)
        return;
    for (const auto &[key, record] : records) {
        std::vector<SegmentRef> held;
        for (const auto &pool : record.pools)
            for (uint32_t i = 0; i < pool.segments.size(); ++i)
                if (const Memfd *file = memfd({pool.pool, i}); file && file->with_daemon)
                    held.push_back({pool.pool, i});
        Process *owner = nullptr;
        for (auto &process : processes_)
            if (process->pid == record.pid && process->start_time == record.start_time)
                owner = process.get();
        const bool alive = owner && owner->alive;
        if (owner && !alive)
            owner->reported = true;
        truth_->on_restore(record, alive);
        service_->restore(record, held, owner ? owner->number : next_process_++, alive, now_);
        died_inside();
        if (!service_)
            return;
    }
    service_->restored(now_);
    died_inside();
    if (!service_)
        return;
    object_records_ = service_->object_records();
    truth_->shared().restarted(object_records_);
}

void World::kill_daemon() {
    if (!service_)
        return;
    trace_.add("marud is killed");
    effects_left_ = 0;  // what a destructor might wish for is lost
    fresh_records_.clear();
    fresh_cursor_ = 0;
    service_.reset();
    jobs_.clear();
    for (auto &file : memfds_) {
        file->with_daemon = false;
        if (!file->in_store) {
            file->lost = true;
            auto found = segments_.find(file->ref);
            if (found != segments_.end() && found->second == file.get())
                segments_.erase(found);
        }
    }
    for (auto &link : links_) {
        link->server_open = false;
        link->server_told = true;
        for (Frame &frame : link->up)
            forget_frame(frame);
        link->up.clear();
        link->unanswered.clear();
        // What marud had sent may have been received, up to any message.
        const size_t keep = random_.below(static_cast<uint32_t>(link->down.size()) + 1);
        while (link->down.size() > keep) {
            forget_frame(link->down.back());
            link->down.pop_back();
        }
    }
    truth_->on_daemon_death();
}

void World::died_inside() {
    if (effects_left_ == 0)
        kill_daemon();
}

// ---- jobs that the kernel finishes later -------------------------------------------------------

bool World::finish_job() {
    if (jobs_.empty() || !service_)
        return false;
    const size_t at = random_.below(static_cast<uint32_t>(jobs_.size()));
    if (jobs_[at].due > now_)
        return false;
    Job job = jobs_[at];
    switch (job.kind) {
        case Job::Create: {
            jobs_.erase(jobs_.begin() + static_cast<ptrdiff_t>(at));
            const bool failed = random_.one_in(60);
            trace_.add("segment %llx/%u %s", static_cast<unsigned long long>(job.ref.pool),
                       job.ref.segment, failed ? "not created: no memory" : "created");
            if (!failed) {
                segments_[job.ref] = job.memfd;
                job.memfd->with_daemon = true;
                job.memfd->in_store = settings_.fdstore;
            }
            service_->on_segment_created(
                job.ref,
                failed ? Result<Service::CreatedSegment>(Error{ENOMEM, "memfd_create"})
                       : Result<Service::CreatedSegment>(
                             Service::CreatedSegment{false, {1, job.memfd->number + 1ull}}),
                now_);
            break;
        }
        case Job::Seal: {
            jobs_.erase(jobs_.begin() + static_cast<ptrdiff_t>(at));
            const bool there = job.memfd && job.memfd->with_daemon;
            if (there)
                job.memfd->future_sealed = true;
            trace_.add("segment %llx/%u sealed against new writers",
                       static_cast<unsigned long long>(job.ref.pool), job.ref.segment);
            service_->on_segment_sealed(
                job.ref, there ? Result<void>() : Result<void>(Error{EBADF, "no such segment"}),
                now_);
            break;
        }
        case Job::Prove: {
            Memfd *file = job.memfd;
            const bool busy = !file || !file->mappings.empty() || file->pins != 0;
            if (busy && --jobs_[at].attempts > 0) {
                jobs_[at].due = now_ + 10'000'000;
                return true;
            }
            jobs_.erase(jobs_.begin() + static_cast<ptrdiff_t>(at));
            if (!busy)
                file->write_sealed = true;
            trace_.add("segment %llx/%u %s", static_cast<unsigned long long>(job.ref.pool),
                       job.ref.segment, busy ? "is still mapped or pinned" : "proven");
            service_->on_segment_proven(
                job.ref, busy ? Service::Proof::StillMapped : Service::Proof::Proven, now_);
            break;
        }
    }
    died_inside();
    return true;
}

// A pidfd fires some time after the death; marud hears it only while it still watches.
void World::report_exits() {
    for (auto &process : processes_) {
        if (process->alive || process->reported || process->report_at > now_)
            continue;
        process->reported = true;
        if (!service_ || process->sibling)
            continue;
        if (!service_->watched(process->number))
            continue;
        trace_.add("exit of p%llu reported", static_cast<unsigned long long>(process->number));
        truth_->on_exit(*process);
        service_->process_exited(process->number, now_);
        died_inside();
    }
}

// ---- descriptors that arrive with AttachPool ---------------------------------------------------

std::vector<AttachedDescriptor> World::descriptors_of(const Frame &frame) const {
    std::vector<AttachedDescriptor> out;
    for (const Memfd *file : frame.fds)
        out.push_back({file->future_sealed, false, file->bytes, {1, file->number + 1}});
    return out;
}

void World::adopt_descriptors(const Frame &frame) {
    if (frame.fds.empty())
        return;
    const auto adopted = service_->adopted_descriptors();
    for (size_t i = 0; i < frame.fds.size() && i < adopted.size(); ++i) {
        if (adopted[i].pool == 0)
            continue;
        Memfd *file = frame.fds[i];
        if (file->ref != adopted[i])
            violated(Rule::OwnerIsolation, "descriptor of segment %llx/%u adopted as %llx/%u",
                     static_cast<unsigned long long>(file->ref.pool), file->ref.segment,
                     static_cast<unsigned long long>(adopted[i].pool), adopted[i].segment);
        file->with_daemon = true;
        file->in_store = settings_.fdstore;
        file->lost = false;
        segments_[adopted[i]] = file;
    }
}

}  // namespace maru::sim
