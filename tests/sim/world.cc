// World as kernel and clock: processes, pages, sockets, and the choice of what happens next.
#include "tests/sim/world.h"

#include <cassert>

#include "tests/sim/clients.h"
#include "tests/sim/truth.h"

namespace maru::sim {

World::World(uint64_t seed, const Settings &settings, Trace &trace)
    : random_(seed), settings_(settings), trace_(trace), truth_(std::make_unique<Truth>(*this)) {}

World::~World() {
    effects_left_ = 0;
    service_.reset();
}

void World::remember(wire::Id id) {
    if (ids_.size() < 256)
        ids_.push_back(id);
    else
        ids_[random_.below(256)] = id;
}

wire::Id World::some_id() {
    if (ids_.empty() || random_.one_in(20))
        return wire::make_id(random_.coin() ? epoch_ : static_cast<uint32_t>(random_.next()),
                             random_.below(40));
    return ids_[random_.below(static_cast<uint32_t>(ids_.size()))];
}

void World::remember_name(const wire::ReplicaName &name) {
    if (names_.size() < 32)
        names_.push_back(name);
    else
        names_[random_.below(32)] = name;
}

wire::ReplicaName World::some_name() {
    if (names_.empty() || random_.one_in(20))
        return {some_id(), random_.below(40)};
    return names_[random_.below(static_cast<uint32_t>(names_.size()))];
}

// ---- processes and memory ----------------------------------------------------------------------

Process *World::spawn(uint32_t uid) {
    auto process = std::make_unique<Process>();
    process->number = next_process_++;
    process->uid = uid;
    // Pids are reused; only pid and start time together name a process.
    process->pid = 100 + static_cast<uint32_t>(process->number % 23);
    process->start_time = process->number * 7;
    processes_.push_back(std::move(process));
    return processes_.back().get();
}

void World::kill(Process *process) {
    if (!process->alive)
        return;
    trace_.add("p%llu dies", static_cast<unsigned long long>(process->number));
    process->alive = false;
    process->report_at = now_ + random_.below(30'000'000);
    truth_->on_death(*process);
    for (auto &file : memfds_) {
        // Direct I/O into its pages outlives it for a while.
        if (file->mapped_by(process->number) && random_.one_in(4)) {
            ++file->pins;
            pins_.push_back({file.get(), now_ + random_.below(300'000'000)});
        }
        erase_value(file->mappings, process->number);
        erase_value(file->holders, process->number);
    }
    for (auto &link : links_)
        if (link->process == process && link->client)
            hang_up(link.get());
}

bool World::map(Process *process, Memfd *memfd) {
    if (memfd->future_sealed || memfd->write_sealed)
        return false;
    if (!memfd->mapped_by(process->number))
        memfd->mappings.push_back(process->number);
    return true;
}

void World::unmap(Process *process, Memfd *memfd) {
    truth_->on_unmap(*process, *memfd);
    erase_value(memfd->mappings, process->number);
    erase_value(memfd->holders, process->number);
}

void World::write_page(Process *process, Memfd *memfd, uint32_t page, const PageValue &value) {
    assert(process->alive && memfd->mapped_by(process->number) && page < memfd->pages.size());
    truth_->on_write(*process, *memfd, page, value);
    memfd->pages[page] = value;
}

const PageValue &World::read_page(Process *process, Memfd *memfd, uint32_t page) {
    assert(process->alive && memfd->mapped_by(process->number) && page < memfd->pages.size());
    return memfd->pages[page];
}

// ---- sockets -----------------------------------------------------------------------------------

Link *World::find(ConnectionId id) {
    for (auto &link : links_)
        if (link->id == id)
            return link.get();
    return nullptr;
}

Link *World::connect(Client *client) {
    if (!service_)
        return nullptr;
    auto link = std::make_unique<Link>();
    link->id = next_connection_++;
    link->process = client->process();
    link->client = client;
    if (settings_.nonce)
        link->nonce = random_.next() | 1;
    links_.push_back(std::move(link));
    return links_.back().get();
}

void World::send(Link *link, const wire::Request &request, std::span<Memfd *const> fds) {
    auto encoded = encoder_.request(request);
    assert(encoded);
    if (!link->server_open)
        return;  // EPIPE: it will see the end of the connection
    Frame frame;
    frame.bytes = encoded->size();
    frame.words.resize((frame.bytes + 7) / 8);
    std::memcpy(frame.words.data(), encoded->data(), frame.bytes);
    frame.fds.assign(fds.begin(), fds.end());
    for (Memfd *file : fds)
        ++file->in_flight;
    link->up.push_back(std::move(frame));
}

void World::send_raw(Link *link, std::span<const std::byte> bytes) {
    if (!link->server_open)
        return;
    Frame frame;
    frame.bytes = bytes.size();
    frame.words.resize((frame.bytes + 7) / 8);
    if (frame.bytes)
        std::memcpy(frame.words.data(), bytes.data(), frame.bytes);
    link->up.push_back(std::move(frame));
}

void World::forget_frame(Frame &frame) {
    for (Memfd *file : frame.fds)
        --file->in_flight;
    frame.fds.clear();
}

void World::hang_up(Link *link) {
    link->client = nullptr;
    for (Frame &frame : link->down)
        forget_frame(frame);
    link->down.clear();
    if (random_.coin()) {  // some of it was never sent
        const size_t keep = random_.below(static_cast<uint32_t>(link->up.size()) + 1);
        while (link->up.size() > keep) {
            forget_frame(link->up.back());
            link->up.pop_back();
        }
    }
}

bool World::deliver() {
    const uint32_t count = static_cast<uint32_t>(links_.size());
    if (count == 0)
        return false;
    const uint32_t start = random_.below(count);
    const bool up_first = random_.coin();
    for (uint32_t i = 0; i < count; ++i) {
        Link &link = *links_[(start + i) % count];
        const bool up = service_ && !link.server_told &&
                        (!link.up.empty() || !link.accepted || !link.client || !link.server_open);
        const bool down =
            link.client && !link.process->stopped && (!link.down.empty() || !link.server_open);
        if (up && (up_first || !down)) {
            deliver_up(link);
            return true;
        }
        if (down) {
            deliver_down(link);
            return true;
        }
    }
    return false;
}

void World::deliver_up(Link &link) {
    if (!link.accepted) {
        link.accepted = true;
        if (!link.server_open) {
            link.server_told = true;
            return;
        }
        Peer peer;
        peer.uid = peer.gid = link.process->uid;
        peer.pid = link.process->pid;
        peer.start_time = link.process->start_time;
        peer.process = link.process->number;
        peer.admin = link.process->admin;
        peer.command = link.process->liar ? "liar" : "engine";
        service_->connection_opened(link.id, peer, link.nonce, now_);
        if (!link.process->alive) {  // its pidfd is readable at once
            link.process->reported = false;
            link.process->report_at = now_;
        }
        died_inside();
        return;
    }
    if (!link.up.empty() && link.server_open) {
        Frame frame = std::move(link.up.front());
        link.up.pop_front();
        if (link.unanswered.size() >= wire::kMaxInFlight) {
            forget_frame(frame);
            return;  // the shell stops reading such a connection; nobody here gets that far
        }
        const wire::Request *request = up_decoder_.request(frame.data());
        if (!request) {
            const wire::DecodeError error = up_decoder_.error();
            trace_.add("c%llu sends garbage: %.60s", static_cast<unsigned long long>(link.id),
                       error.message.c_str());
            if (error.request_id == 0) {  // nobody to answer: the shell ends the connection
                link.shell_ended = true;
                end_link(link);
            } else {
                link.unanswered.emplace_back(error.request_id, Frame{});
                service_->refuse(link.id, error.request_id, error.status, error.message, now_);
            }
        } else {
            trace_.add("c%llu p%llu asks %llu %s", static_cast<unsigned long long>(link.id),
                       static_cast<unsigned long long>(link.process->number),
                       static_cast<unsigned long long>(request->id),
                       wire::request_name(request->body));
            // The decoded request borrows the frame: keep the words where they are.
            link.unanswered.emplace_back(request->id, Frame{frame.words, frame.bytes, {}});
            truth_->on_request(link, *request);
            handling_ = &link, handled_ = request;
            service_->handle(link.id, *request, descriptors_of(frame), now_);
            handling_ = nullptr, handled_ = nullptr;
            if (effects_left_ != 0)
                adopt_descriptors(frame);
        }
        forget_frame(frame);
        died_inside();
        return;
    }
    if (link.server_open) {
        trace_.add("c%llu: end of connection seen", static_cast<unsigned long long>(link.id));
        truth_->on_connection_closed(link);
    }
    link.server_open = false;
    link.server_told = true;
    link.unanswered.clear();
    service_->connection_closed(link.id, now_);
    died_inside();
}

void World::deliver_down(Link &link) {
    Client *client = link.client;
    if (link.down.empty()) {
        trace_.add("c%llu: p%llu sees its end", static_cast<unsigned long long>(link.id),
                   static_cast<unsigned long long>(link.process->number));
        link.client = nullptr;
        client->link_lost();
        return;
    }
    Frame frame = std::move(link.down.front());
    link.down.pop_front();
    const wire::ServerMessage *message = down_decoder_.server_message(frame.data());
    if (!message)
        violated(Rule::OneReply, "a message of marud does not decode: %s",
                 down_decoder_.error().message.c_str());
    const auto *replied = std::get_if<wire::Reply>(message);
    const bool to_read = replied && std::holds_alternative<wire::ViewReply>(replied->body);
    for (Memfd *file : frame.fds) {
        --file->in_flight;
        if (!to_read && !file->held_by(link.process->number))
            file->holders.push_back(link.process->number);
    }
    client->receive(*message, frame.fds);
}

void World::drop_links() {
    std::erase_if(links_, [](const std::unique_ptr<Link> &link) {
        return !link->client && link->server_told;
    });
}

// ---- what happens next -------------------------------------------------------------------------

void World::pass_time() {
    now_ += 1'000 + random_.below(settings_.mean_step_us * (ending_ ? 10'000 : 2'000));
    if (settings_.leap && !ending_ && random_.one_in(settings_.leap))
        now_ += random_.below(700'000'000);  // everybody was slow
    if (service_ && settings_.stall && !ending_ && random_.one_in(settings_.stall)) {
        const TimeNs gap = 1'000'000'000 + random_.below(60) * 1'000'000'000ll;
        trace_.add("the machine was suspended for %lld s",
                   static_cast<long long>(gap / 1'000'000'000));
        now_ += gap;
        service_->stalled(gap, now_);
        truth_->on_stall(gap);
        died_inside();
    }
    for (size_t i = 0; i < pins_.size();) {
        if (pins_[i].until <= now_) {
            --pins_[i].memfd->pins;
            pins_.erase(pins_.begin() + static_cast<ptrdiff_t>(i));
        } else {
            ++i;
        }
    }
    if (service_ && service_->next_deadline() <= now_ && random_.coin()) {
        service_->tick(now_);
        died_inside();
    }
}

void World::fault() {
    const bool sick = !ending_;
    if (sick && settings_.daemon_kill && random_.one_in(settings_.daemon_kill) && service_ &&
        effects_left_ < 0) {
        if (random_.coin())
            kill_daemon();
        else
            effects_left_ = static_cast<int>(random_.between(1, 4));  // inside a later call
    }
    if (!service_ && (ending_ || random_.one_in(30)))
        start_daemon();
    for (auto &client : clients_) {
        Process *process = client->process();
        if (!sick || !process || !process->alive)
            continue;
        if (settings_.worker_kill && random_.one_in(settings_.worker_kill)) {
            kill(process);
            client->killed();
            continue;
        }
        if (settings_.stop && !process->stopped && random_.one_in(settings_.stop)) {
            trace_.add("p%llu stops", static_cast<unsigned long long>(process->number));
            process->stopped = true;
        } else if (process->stopped && random_.one_in(500)) {
            trace_.add("p%llu goes on", static_cast<unsigned long long>(process->number));
            process->stopped = false;
        }
        if (settings_.fork && random_.one_in(settings_.fork) && processes_.size() < 4000) {
            Process *child = spawn(process->uid);  // a raw clone: the mappings go with it
            child->sibling = true;
            for (auto &file : memfds_) {
                if (file->mapped_by(process->number))
                    file->mappings.push_back(child->number);
                if (file->held_by(process->number))
                    file->holders.push_back(child->number);
            }
            trace_.add("p%llu forks p%llu", static_cast<unsigned long long>(process->number),
                       static_cast<unsigned long long>(child->number));
        }
    }
    for (auto &process : processes_)
        if (process->sibling && process->alive && random_.one_in(ending_ ? 50 : 600))
            kill(process.get());
}

void World::step() {
    ++step_;
    pass_time();
    trace_.at(step_, now_);
    report_exits();
    fault();
    const uint32_t choice = random_.below(16);
    bool done = false;
    if (choice < 8)
        done = deliver();
    else if (choice < 10)
        done = finish_job();
    if (!done) {
        Client &client = *clients_[random_.below(static_cast<uint32_t>(clients_.size()))];
        if (!client.process() || !client.process()->stopped)
            client.act();
    }
    drop_links();
    rewrite_records();
    truth_->after_step();
}

void World::run() {
    make_clients();
    start_daemon();
    const uint64_t length = settings_.length;
    while (step_ < length)
        step();
    end_phase();
}

}  // namespace maru::sim
