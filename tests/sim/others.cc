// The scheduler and the administrator.
#include "tests/sim/clients.h"
#include "tests/sim/truth.h"

namespace maru::sim {

using wire::Status;

// ---- scheduler ---------------------------------------------------------------------------------

Scheduler::Scheduler(World &world, uint32_t number, uint32_t uid)
    : Endpoint(world, uid), number_(number) {}

void Scheduler::killed() {
    process_ = nullptr;
    link_ = nullptr;
    asked_.clear();
    names_.clear();
    open_ = had_session_ = false;
}

void Scheduler::lost(std::map<uint64_t, Asked>) {
    open_ = false;
    names_.clear();
}

void Scheduler::greeted() {
    const std::string engine = "engine-" + std::to_string(number_ % 3);
    if (had_session_)
        ask(wire::AttachRequest{token_, wire::Role::Scheduler, engine, session_epoch_, 0});
    else
        ask(wire::OpenSessionRequest{token_, wire::Role::Scheduler, engine});
}

void Scheduler::act() {
    Random &random = world_.random();
    const Settings &settings = world_.settings();
    if (!process_) {
        if (world_.ending() || !random.one_in(20))
            return;
        process_ = world_.spawn(uid_);
        for (uint8_t &byte : token_)
            byte = static_cast<uint8_t>(random.next());
        world_.tokens().push_back(token_);
    }
    if (!link_) {
        if (!world_.ending() || had_session_)
            connect();
        return;
    }
    if (settings.cut && !world_.ending() && random.one_in(settings.cut))
        return cut();
    if (!greeted_ || !open_)
        return;
    if (world_.ending()) {
        if (!asking<wire::CloseSessionRequest>())
            ask(wire::CloseSessionRequest{});
        return;
    }
    const uint32_t text = random.below(settings.texts);
    if (!names_.count(text)) {
        const std::string full = text_of(text);
        if (!asking<wire::RegisterNamespaceRequest>())
            ask(wire::RegisterNamespaceRequest{full}, {text});
        return;
    }
    if (asked_.size() > 4)
        return;
    std::vector<wire::Digest> digests;
    const uint32_t count = random.between(1, 2 * settings.keys);
    for (uint32_t i = 0; i < count; ++i)
        digests.push_back(digest_of(random.below(settings.keys + 1)));
    const wire::Manifest manifest{0, settings.shards, 0, settings.parts};
    if (random.one_in(40))
        ask(wire::AcquireRequest{names_[text], digests, manifest,
                                 false});  // maps nothing: no hit for it
    else if (random.one_in(8))
        ask(wire::EngineWorkerRequest{});
    else
        ask(wire::ProbeRequest{names_[text], digests, manifest, random.coin()});
}

void Scheduler::answered(const Asked &asked, const wire::Reply &reply, std::span<Memfd *const>) {
    const auto *only = std::get_if<wire::StatusOnly>(&reply.body);
    if (std::get_if<wire::SessionReply>(&reply.body)) {
        open_ = had_session_ = true;
        session_epoch_ = epoch_;
    } else if (const auto *attached = std::get_if<wire::AttachReply>(&reply.body)) {
        if (!attached->same_life)
            session_epoch_ = epoch_;
        ask(wire::AttachDoneRequest{});
    } else if (asked.kind == wire::RequestBody(wire::AttachDoneRequest{}).index()) {
        open_ = only && only->status == Status::Ok;
    } else if (const auto *name = std::get_if<wire::NamespaceReply>(&reply.body)) {
        names_[static_cast<uint32_t>(asked.about[0])] = name->namespace_id;
    } else if (asked.kind == wire::RequestBody(wire::CloseSessionRequest{}).index() && only &&
               only->status == Status::Ok) {
        open_ = had_session_ = false;
        cut();
    } else if (only && only->status != Status::Ok && !open_) {
        had_session_ = false;  // refused: begin anew, later
        for (uint8_t &byte : token_)
            byte = static_cast<uint8_t>(world_.random().next());
        world_.tokens().push_back(token_);
        cut();
    }
}

// ---- maructl -----------------------------------------------------------------------------------

void Admin::killed() {
    process_ = nullptr;
    link_ = nullptr;
    asked_.clear();
    names_.clear();
}

void Admin::act() {
    Random &random = world_.random();
    const Settings &settings = world_.settings();
    if (world_.ending()) {
        if (greeted_yet() && draining_) {
            if (!asking<wire::DrainRequest>())
                ask(wire::DrainRequest{false});
        } else if (!draining_) {
            cut();
        } else {
            connect();
        }
        return;
    }
    if (!process_) {
        if (!random.one_in(50))
            return;
        process_ = world_.spawn(0);
        process_->admin = true;
    }
    if (!link_)
        return connect();
    if (random.one_in(60))
        return cut();
    if (!greeted_ || asked_.size() > 3)
        return;
    // Of any user; one that nobody has is refused.
    const auto name = [&] {
        return names_.empty() ? wire::Id{1}
                              : names_[random.below(static_cast<uint32_t>(names_.size()))];
    };
    const wire::Key key{digest_of(random.below(settings.keys)), random.below(settings.shards),
                        random.below(settings.parts)};
    switch (random.below(12)) {
        case 0:
        case 1:
            ask(wire::AdminRetireRequest{name(), key});
            break;
        case 2:
            if (random.one_in(8))
                ask(wire::AdminRetireRequest{name(), std::nullopt});
            break;
        case 3:
            if (draining_ || random.one_in(10)) {
                draining_ = !draining_;
                ask(wire::DrainRequest{draining_});
            }
            break;
        case 4:
        case 5:
            ask(wire::ExplainRequest{name(), key, "engine-1", 1000});
            break;
        case 6:
            ask(wire::StatusRequest{});
            break;
        default:
            ask(wire::ListRequest{static_cast<wire::ListKind>(random.below(5)), 0, 0});
    }
}

void Admin::answered(const Asked &asked, const wire::Reply &reply, std::span<Memfd *const>) {
    if (const auto *listed = std::get_if<wire::ListReply>(&reply.body))
        if (const auto *rows = std::get_if<std::vector<wire::NamespaceRow>>(&listed->rows)) {
            names_.clear();
            for (const wire::NamespaceRow &row : *rows)
                names_.push_back(row.namespace_id);
        }
    if (asked.kind == wire::RequestBody(wire::DrainRequest{}).index() && world_.ending())
        draining_ = false;
}

}  // namespace maru::sim
