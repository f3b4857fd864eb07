// The cast of an episode, and its end: everybody leaves, in good order or by death, and nothing of
// them may remain in marud.
#include "tests/sim/sharer.h"
#include "tests/sim/truth.h"
#include "tests/sim/world.h"

namespace maru::sim {

void World::make_clients() {
    const auto uid = [&](uint32_t i) { return 1000 + i % settings_.uids; };
    for (uint32_t i = 0; i < settings_.workers; ++i)
        clients_.push_back(std::make_unique<Worker>(*this, i, uid(i)));
    for (uint32_t i = 0; i < settings_.liars; ++i)
        clients_.push_back(std::make_unique<Liar>(*this, i + 1, uid(random_.below(2))));
    for (uint32_t i = 0; i < settings_.schedulers; ++i)
        clients_.push_back(std::make_unique<Scheduler>(*this, i, uid(i)));
    // Uids of their own: neither liars nor private workers meet shared memory.
    for (uint32_t i = 0; i < settings_.sharers; ++i)
        clients_.push_back(std::make_unique<Sharer>(*this, i, 2000 + i % 2));
    for (uint32_t i = 0; i < settings_.admins; ++i)
        clients_.push_back(std::make_unique<Admin>(*this));
}

void World::steps_until(bool (World::*done)() const, const char *what) {
    for (uint32_t i = 0; i < 40'000; ++i) {
        if ((this->*done)())
            return;
        step();
    }
    truth_->at_end(false);  // says what is left, if anything is
    violated(Rule::NothingLeft, "%s do not come to an end", what);
}

bool World::all_at_rest() const {
    for (const auto &client : clients_)
        if (client->process() && !client->at_rest())
            return false;
    return all_proven();
}

bool World::all_proven() const {
    if (!service_ || !pins_.empty() || !links_.empty())
        return false;
    for (const auto &process : processes_)
        if (process->alive ? process->sibling : !process->reported)
            return false;
    const Service::Counters counters = service_->counters();
    return only_adopted() && counters.unproven_bytes == 0 && jobs_.empty();
}

bool World::only_adopted() const {
    uint64_t adopted = 0;
    for (const auto &file : memfds_)
        if (file->adopted && file->with_daemon)
            adopted += file->bytes;
    return service_->counters().reserved_bytes == adopted;
}

// What outlives everybody is retired by hand at last.
void World::retire_adopted() {
    Link &link = *links_.emplace_back(std::make_unique<Link>());
    link.id = next_connection_++;
    link.process = spawn(0);
    link.process->admin = true;
    link.accepted = true;
    Peer peer;
    peer.uid = peer.gid = 0;
    peer.process = link.process->number;
    peer.admin = true;
    service_->connection_opened(link.id, peer, 0, now_);
    uint64_t id = 0;
    const auto ask = [&](wire::RequestBody body) {
        wire::Request request{++id, id == 1 ? 0 : epoch_, 0, std::move(body)};
        link.unanswered.emplace_back(request.id, Frame{});
        handling_ = &link, handled_ = &request;
        service_->handle(link.id, request, {}, now_);
        handling_ = nullptr, handled_ = nullptr;
    };
    ask(wire::HelloRequest{});
    for (const auto &file : memfds_)
        if (file->adopted && file->with_daemon)
            ask(wire::RetireSegmentRequest{file->ref.pool, file->ref.segment});
    link.server_told = true;
    service_->connection_closed(link.id, now_);
    kill(link.process);
    link.process->reported = true;
    drop_links();
}

void World::kill_clients(bool all) {
    for (auto &client : clients_) {
        Process *process = client->process();
        if (!process)
            continue;
        process->stopped = false;
        if (all || process->liar || process->admin) {
            kill(process);
            client->killed();
        }
    }
}

void World::end_phase() {
    trace_.add("the end phase begins%s", settings_.graceful_end ? ", in good order" : "");
    ending_ = true;
    if (effects_left_ > 0)
        effects_left_ = -1;
    kill_clients(!settings_.graceful_end);
    if (settings_.graceful_end) {
        steps_until(&World::all_at_rest, "the clients' leaving");
        retire_adopted();
        truth_->at_end(false);
        kill_clients(true);
    }
    steps_until(&World::all_proven, "the proofs of exit");
    retire_adopted();
    truth_->at_end(true);
}

}  // namespace maru::sim
